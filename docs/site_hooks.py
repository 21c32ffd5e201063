"""What MkDocs does besides: pages of what lies outside of docs/, and links to it."""

import ast
import io
import os
import re
import tokenize
from collections import defaultdict
from collections.abc import Collection
from operator import attrgetter
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from codea1.config import DEFAULT
from codea1.runtime.settings import leaves

ROOT = Path(__file__).parents[1]
NAMED = "https://github.com/codea1/codea1"  # `make address` writes another, also into the quickstart
REPOSITORY = os.environ.get("CODEA1_REPOSITORY", NAMED)  # of links to source files
COLAB = ("https://github.com", "https://colab.research.google.com/github")  # opens notebooks of a repository
COPIED = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
API = {  # by room, which has a page
    "game": ("methods", "outcomes", "rewards", "mistake_book", "asserts"),
    "learn": ("advantages", "surrogates", "losses", "update"),
    "rollout": ("engine", "scheduler"),
    "models": ("kv_cache", "qwen2"),
    "sandbox": ("host.pool", "host.grading"),
    "evaluation": ("statistics",),
}
FIELDS_SHOWN = {  # what a reward reads and returns: classes of codea1/game, by module
    "outcomes": ("SolutionOutcome", "SuiteOutcome", "ShownTest"),
    "rewards": ("SolutionReward", "SuiteReward"),
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
    """Returns a table of all fields of a config, by section: name, default, and what codea1/config.py says of it."""
    page = ["# Config", "Every field with its default. Where the paper has a value, it is the default."]
    page += ["A config file changes some fields, and a flag changes one: `--config.game.alpha=0.25`."]
    rows = defaultdict(list)
    for name, rule in DEFAULT.rules():
        section, _, field = name.rpartition(".")
        default = attrgetter(name)(DEFAULT)
        if not name.startswith("test."):
            must = f"Must {rule.range.must}." * bool(rule.range.must)
            said = [_sentence(rule.about), must, *(f"Only where {where.condition}." for where in rule.where)]
            text = " ".join(filter(None, said)).replace("|", "\\|").replace("one of ,", 'one of "",')
            rows[section].append(f"| [`{field}`](#{name}){{#{name}}} | `{default!r}` | {text} |")
    code, test = (dict(leaves(policy.to_dict())) for policy in (DEFAULT.code, DEFAULT.test))
    others = ", ".join(f"`{name}={value}`" for name, value in test.items() if value != code[name])
    for section, lines in rows.items():
        page.append(f"## config{'.' * bool(section)}{section}")
        page += [attrgetter(section)(DEFAULT).__doc__] if section else []
        page += [f"`config.test` has the same fields and defaults, but for {others}."] if section == "code" else []
        page.append("\n".join(("| field | default | |", "| :-- | :-- | :-- |", *lines)))
    return "\n\n".join(page)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.,;')}." if text else ""


def _comments_by_line(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


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
