"""What MkDocs does besides: pages of what lies outside of docs/, and links to it."""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
NAMED = "https://github.com/codea1/codea1"  # `make address` writes another, also into README and quickstart
REPOSITORY = os.environ.get("CODEA1_REPOSITORY", NAMED)  # of links to source files
COLAB = ("https://github.com", "https://colab.research.google.com/github")  # opens notebooks of a repository
COPIED = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
API = (
    *("codea1.game.methods", "codea1.game.rewards", "codea1.game.mistake_book", "codea1.game.asserts"),
    *("codea1.learn.advantages", "codea1.learn.surrogates", "codea1.learn.losses", "codea1.learn.update"),
    *("codea1.rollout.engine", "codea1.rollout.scheduler", "codea1.models.kv_cache", "codea1.models.qwen2"),
    *("codea1.sandbox.host.pool", "codea1.sandbox.host.grading", "codea1.evaluation.statistics"),
)
_BADGE = re.compile(r"\[!\[(.*?)\]\(https:.*?\)\]")
_LINK = re.compile(r"(?<=\]\()([^)#\s]+)((?:#[^)\s]*)?)(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that no file of docs/ holds."""
    pages = {page: (ROOT / source).read_text() for page, source in COPIED.items()}
    pages["api.md"] = "# API\n\n" + "\n".join(f"::: {module}\n" for module in API)
    source = (ROOT / "codea1" / "config.py").read_text()
    pages["config.md"] = (
        "# Config\n\nEvery field with its default and what it is; where the paper has a value, it is the default. "
        "A config file changes some of them; `--config.game.alpha=0.25` changes one.\n\n"
        f"```python\n{source[source.index('def question_source') : source.index('FIELDS = {')].rstrip()}\n```\n"
    )
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in (".md", ".png"):  # archives stay in the repository
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


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
