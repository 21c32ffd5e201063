"""What MkDocs does besides: pages of what lies outside of docs/, and links to it."""

import ast
import io
import os
import re
import tokenize
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from codea1.config import FIELDS, Field, default_config
from codea1.runtime.fields import leaves

ROOT = Path(__file__).parents[1]
NAMED = "https://github.com/codea1/codea1"  # `make address` writes another, also into the quickstart
REPOSITORY = os.environ.get("CODEA1_REPOSITORY", NAMED)  # of links to source files
COLAB = ("https://github.com", "https://colab.research.google.com/github")  # opens notebooks of a repository
COPIED = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
API = {  # by room, which has a page
    "game": ("methods", "rewards", "mistake_book", "asserts"),
    "learn": ("advantages", "surrogates", "losses", "update"),
    "rollout": ("engine", "scheduler"),
    "models": ("kv_cache", "qwen2"),
    "sandbox": ("host.pool", "host.grading"),
    "evaluation": ("statistics",),
}
FIELDS_SHOWN = {  # what a reward reads and returns: classes of codea1/game, by module
    "rewards": ("SolutionOutcome", "SuiteOutcome", "ShownTest", "SolutionReward", "SuiteReward"),
    "question": ("Question",),
}
_BADGE = re.compile(r"\[!\[(.*?)\]\(https:.*?\)\]")
_LINK = re.compile(r"(?<=\]\()([^)#\s]+)((?:#[^)\s]*)?)(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that no file of docs/ holds."""
    pages = {page: (ROOT / source).read_text() for page, source in COPIED.items()}
    for room, modules in API.items():
        named = "".join(f"::: codea1.{room}.{module}\n\n" for module in modules)
        tables = [_fields_table(*shown) for shown in FIELDS_SHOWN.items()] if room == "game" else []
        pages[f"api/{room}.md"] = "\n\n".join((f"# {room}", *tables, named))
    pages["config.md"] = _config_page()
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in (".md", ".png"):  # archives stay in the repository
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


def _fields_table(module: str, names: Collection[str]) -> str:
    """Returns tables of the fields of classes in codea1/game: name, type, default, and the comment that each has."""
    source = (ROOT / "codea1" / "game" / f"{module}.py").read_text()
    lines, comments, page = source.splitlines(), _comments_by_line(source), []
    for shown in (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name in names):
        about = (ast.get_docstring(shown) or "").split("\n")[0]
        page += [
            "",
            f"## Fields of {shown.name}",
            "",
            about,
            "",
            "| field | type | default | |",
            "| :-- | :-- | :-- | :-- |",
        ]
        for node in (node for node in shown.body if isinstance(node, ast.AnnAssign)):
            above = node.lineno - 1 if lines[node.lineno - 2].lstrip().startswith("#") else 0
            said = comments.get(node.end_lineno) or comments.get(above, "")
            cells = [
                ast.unparse(node.target),
                ast.unparse(node.annotation),
                ast.unparse(node.value) if node.value else "",
            ]
            code = [f"`{cell}`" if cell else "" for cell in cells]
            page.append("| " + " | ".join((*code, _sentence(said).replace("|", "\\|"))) + " |")
    return "\n".join(page)


def _config_page() -> str:
    """Returns a table of all fields of a config, by section: name, default, and what config.py says of it."""
    defaults = dict(leaves(default_config().to_dict()))
    heads: dict[str, str] = {
        "": "A config file changes some fields, and a flag changes one: `--config.game.alpha=0.25`."
    }
    rows = defaultdict(list)
    comments = dict(_comments((ROOT / "codea1" / "config.py").read_text()))
    if missing := {name for name in defaults if not name.startswith("test.")} - comments.keys():
        raise PluginError(f"codea1/config.py: where {', '.join(sorted(missing))} is set is not seen.")
    for name, said in comments.items():
        section, _, field = name.rpartition(".")
        if name not in defaults:
            heads[name] = said
        elif not name.startswith("test."):
            rule = FIELDS.get(name, Field(None))
            told = [
                said,
                f"Must {rule.rule}." * bool(rule.rule),
                *(f"Only where {where.said}." for where in rule.where),
            ]
            text = " ".join(filter(None, told)).replace("|", "\\|").replace("one of ,", 'one of "",')
            rows[section].append(f"| [`{field}`](#{name}){{#{name}}} | `{defaults[name]!r}` | {text} |")
    own = {name: value for name, value in defaults.items() if name.startswith("test.")}
    others = [f"`{name}={value}`" for name, value in own.items() if value != defaults[f"code.{name[5:]}"]]
    heads["code"] += f" `config.test` has the same fields and defaults, but for {', '.join(others)}."
    page = ["# Config", "Every field with its default. Where the paper has a value, it is the default."]
    for section, lines in rows.items():
        head = [f"## config{'.' * bool(section)}{section}", heads.get(section, "")]
        page += [*head, "\n".join(("| field | default | |", "| :-- | :-- | :-- |", *lines))]
    return "\n\n".join(page)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.,;')}." if text else ""


def _comments_by_line(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _comments(source: str) -> Iterator[tuple[str, str]]:
    """Yields the dotted name of each field and section that config.py sets, with the comment above it and behind it."""
    lines, found = source.splitlines(), _comments_by_line(source)
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}

    def walk(name: str, prefix: str) -> Iterator[tuple[str, str]]:
        for node in functions[name].body:
            if not isinstance(node, ast.Assign) or not ast.unparse(node.targets[0]).startswith("c."):
                continue
            field = prefix + ast.unparse(node.targets[0]).removeprefix("c.")
            above = node.lineno
            while lines[above - 2].lstrip().startswith("#"):
                above -= 1
            said = [found[line] for line in (*range(above, node.lineno), node.end_lineno) if line in found]
            made = getattr(getattr(node.value, "func", None), "id", "")
            if made in functions and ast.unparse(functions[made].returns) == "ConfigDict":
                yield field, _sentence(ast.get_docstring(functions[made]).removeprefix("Returns ").split("\n")[0])
                yield from walk(made, f"{field}.")
            else:
                yield field, _sentence(" ".join(said))

    return walk("_config", "")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to files that are no pages to the repository, and to those that became pages, there.

    Badges become text: a page loads nothing from elsewhere.
    """
    markdown = _BADGE.sub(r"[\1]", markdown).replace(NAMED.replace(*COLAB), REPOSITORY.replace(*COLAB))
    own = page.file.src_uri
    place = ROOT / (own if own.startswith("results/") else COPIED.get(own, f"docs/{own}"))

    def lead(link: re.Match) -> str:
        target = Path(os.path.normpath(place.parent / link[1]))
        if link[1].startswith(("http:", "https:", "mailto:")) or not target.is_relative_to(ROOT):
            return link[0]
        known = {ROOT / source: page for page, source in COPIED.items()}
        inside = known.get(target) or str(target.relative_to(ROOT)).removeprefix("docs/")
        if target in known or files.get_file_from_path(inside):
            return os.path.relpath(inside, Path(own).parent) + link[2]
        if not target.exists():
            return link[0]  # MkDocs tells of it
        return f"{REPOSITORY}/blob/main/{target.relative_to(ROOT)}{link[2]}"

    return _LINK.sub(lead, markdown)
