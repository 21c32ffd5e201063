"""Commands of README and docs name what exists: the module or file, its flags, and the config."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.rooms_test import FILES, imports

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").glob("*.md"),  # first_hour_test.py runs those of the first hour
    *(ROOT / "results").rglob("*.md"),
]
COMMAND = re.compile(
    r"(?:\bpython3? (?:-m (?P<module>(?:codea1|bench)[\w.]*)|(?P<file>\w\S*\.py))|\bcodea1)(?P<words>[^\n`#]*)"
)
BY_FUNCTION = {"define_config": {"config"}, "define_hosts": {"coordinator_address", "num_processes", "process_id"}}
ANYWHERE = {"help", "helpfull"}


def commands(text: str) -> Iterator[tuple[str, Path | None, list[str]]]:
    """Yields each command with the file that it runs, None for one that there is not, and the rest of its words."""
    for found in COMMAND.finditer(text.replace("\\\n", " ")):
        words = found["words"].split()
        name, is_module = (found["module"] or "").removeprefix("codea1.").replace(".", "/"), found["module"]
        if found["file"]:
            yield found[0], next(iter(ROOT.glob(found["file"])), None), words
            continue
        if not is_module:
            if not words or not re.fullmatch(r"[a-z_]+", words[0]) or not found["words"].startswith(" "):
                continue
            name, *words = words
        folder = ROOT if name.startswith("bench/") else ROOT / "codea1"
        if name == "lab" and words and re.fullmatch(r"[a-z_]+", words[0]):
            name, *words = f"lab/commands/{words[0]}", *words[1:]
        path = next((path for path in (folder / f"{name}.py", folder / name / "__main__.py") if path.exists()), None)
        if path or is_module or any(word.startswith("--") for word in words):  # or the words are prose
            yield found[0], path, words


@cache
def flags(path: Path) -> set[str]:
    """The flags that a file, or one that it imports, defines by absl or argparse."""
    found = set(ANYWHERE).union(*(flags(FILES[name]) for name in imports(path)))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            found |= BY_FUNCTION.get(name, set())
            if name.startswith("DEFINE_") or name == "add_argument":
                found |= {each.value.lstrip("-") for each in node.args[:1] if isinstance(each, ast.Constant)}
    return found


def test_the_readme_has_the_lines_of_a_step():
    numbered = re.compile(r"^ *(.*  # [1-8]\. .*)$", re.MULTILINE)
    shown, real = (numbered.findall(file.read_text()) for file in (ROOT / "README.md", ROOT / "codea1" / "train.py"))
    assert shown == real
    assert len(real) == 8
    assert len((ROOT / "README.md").read_text().split()) <= 700


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_merge_is_left_half_done(page):
    assert not re.search(r"^(<{7}|>{7})", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_name_what_exists(page):
    for command, path, words in commands(page.read_text()):
        assert path, command
        for flag in (found[1] for word in words if (found := re.match(r"--([a-z_]+)", word))):
            assert {flag, flag.removeprefix("no")} & flags(path), f"--{flag} of {command}"
        for config in re.findall(r"--config=(configs/[a-z_0-9]+\.py)", command):
            assert (ROOT / config).exists(), command
