"""The rooms of codea1 stand on floors: an import goes down, never up or in a circle. The lab is behind a wall.

`python -m tests.rooms_test` prints how large codea1 was at the study commit, is now and may be.
"""

import ast
import contextlib
import fnmatch
import re
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from codea1.config_file import default_config
from codea1.lab.report.tables import TextTable
from codea1.runtime.settings import leaves
from tests.conftest import QUICK, ROOT

COMMANDS = (  # they may use the lab
    *("train", "sft", "evaluate", "benchmark", "report", "explain", "export", "compile_tpu", "watch", "fsck"),
    "sandbox.__main__",
)
FLOORS = (  # from the ground up; rooms of one floor do not know each other
    ("runtime", "slices"),
    ("values", "storage", "sharding"),
    ("sandbox",),
    ("models", "game"),
    ("learn", "rollout", "runs", "data"),
    ("config",),
    ("config_file",),
    ("players",),
    ("evaluation",),
    ("training",),
    ("lab.report",),
    ("lab.model_writer", "lab.mutants", "lab.packed", "lab.sandbox", "lab.siege", "lab.statistics"),
    (
        "lab.worlds",
        "lab.data",
        "lab.benchmarks",
        "lab.aot",
        "lab.runs",
        "lab.export",
        "lab.opened_run",
        "lab.minimal",
        "lab.dry_run",
    ),
    ("lab.sft",),
    ("lab.study",),
    ("lab.commands",),
    ("lab.__main__", *COMMANDS),
    ("__main__",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "codea1").rglob("*.py")
}


def imports(path: Path) -> set[str]:
    """The modules of codea1 that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in (node for node in nodes if isinstance(node, ast.ImportFrom)):
        imported = {f"{node.module}.{alias.name}" for alias in node.names}
        names |= {name if name in FILES else node.module for name in imported}
    return names & set(FILES)


def room_of(module: str) -> str:
    """The room of a module: "game", "lab.study"; a command that lies in the room it is about is none of its files."""
    room, *inside = module.split(".")[1:] or [""]
    return f"{room}.{inside[0]}" if inside and (room == "lab" or inside[0] == "__main__") else room


def is_behind(module: str) -> bool:
    return room_of(module).partition(".")[0] == "lab"


def test_an_import_goes_down():
    for module, path in FILES.items():
        room, others = room_of(module), {room_of(name) for name in imports(path)} - {"", "lab"}
        upward = {other for other in others - {room} if room in FLOOR and FLOOR[other] >= FLOOR[room]}
        assert not upward, f"{module} imports {upward}"


def test_no_import_goes_in_a_circle():
    sorter = TopologicalSorter({module: imports(path) - {module} for module, path in FILES.items()})
    assert set(sorter.static_order()) == set(FILES)  # a circle raises CycleError


def test_only_commands_in_front_of_the_wall_import_what_is_behind_it():
    for module in FILES:
        if not is_behind(module) and room_of(module) not in COMMANDS:
            assert not {name for name in imports(FILES[module]) if is_behind(name)}, module
    assert not set(COMMANDS) - {room_of(module) for module in FILES}


def test_a_class_name_has_one_meaning():
    defined: dict[str, list[str]] = {}
    for module in FILES.keys() - {"codea1.lab.minimal"}:  # the whole game in one file has everything a second time
        nodes = ast.walk(ast.parse(FILES[module].read_text()))
        for name in {node.name for node in nodes if isinstance(node, ast.ClassDef)}:
            defined.setdefault(name, []).append(module)
    twice = {name: modules for name, modules in defined.items() if len(modules) > 1}
    assert not twice, f"classes that two modules define: {twice}"


@dataclass(frozen=True)
class Total:
    """A number that says how large codea1 is; a ceiling only goes down, unless an issue names what may be added."""

    about: str
    measure: Callable[[], int]
    studied: int  # at the study commit, 767ef1a
    ceiling: int
    target: int  # of "A third lighter"


def lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def names(*avoided: str) -> int:
    """How often names that say nothing stand in the code of the package."""
    with contextlib.ExitStack() as files:
        opened = [files.enter_context(path.open("rb")) for path in FILES.values()]
        tokens = [token for file in opened for token in tokenize.tokenize(file.readline)]
    return sum(token.type == tokenize.NAME and token.string in avoided for token in tokens)


def phrases() -> int:
    """How often package and docs say what has a plainer form, as "with", "again", "minus" and "instead of" are."""
    verbs = r"(?:is|are|was|were)\s+(?:told|not\s+seen)|[Ll]ess\s+(?:the|its|their|golden|what)"
    avoided = rf"\b(?:beside|anew|[Ww]hoever|[Nn]obody|at\s+hand|in\s+(?:the\s+)?place\s+of|of\s+then|{verbs})\b"
    pages = *FILES.values(), *PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"
    return sum(len(re.findall(avoided, path.read_text())) for path in pages)


def closure() -> set[str]:
    """The modules that training and the sandbox's children import, late imports and packages included."""
    reached: set[str] = set()
    waiting = ["codea1.train", *(module for module in FILES if module.startswith("codea1.sandbox.child"))]
    while waiting:
        module = waiting.pop()
        if module and module not in reached:
            reached.add(module)
            waiting += [module.rpartition(".")[0], *imports(FILES[module])]
    return reached & set(FILES)


def fields() -> set[str]:
    """The fields of a config; both players have the same, and so do the three sets of questions."""
    same = re.compile(r"^(code|test|data\.train|data\.validation|data\.test)\.")
    shown = {"code": "player.", "test": "player."}
    return {
        same.sub(lambda match: shown.get(match[1], "data.questions."), name)
        for name, _ in leaves(default_config().to_dict())
    }


def commands() -> list[str]:
    """The names of all tables of commands, without `lab`, which is a table alone."""
    tables = ("codea1.__main__", "codea1.lab.__main__")
    return [name for table in tables for name in import_module(table).COMMANDS if name != "lab"]


PAGES = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
TOTALS = (
    Total("lines that training imports", lambda: lines(map(FILES.get, closure())), 24422, 24979, 22500),
    Total("lines of the package", lambda: lines(FILES.values()), 41333, 37847, 34500),
    Total(
        "lines of codea1/lab",
        lambda: lines(FILES[module] for module in FILES if is_behind(module)),
        17463,
        13115,
        12000,
    ),
    Total("lines of tests", lambda: lines((ROOT / "tests").rglob("*.py")), 36515, 33933, 27000),
    Total("lines of bench", lambda: lines((ROOT / "bench").rglob("*.py")), 6577, 4320, 3800),
    Total(
        "words of README and docs", lambda: sum(len(page.read_text().split()) for page in PAGES), 74562, 39950, 42000
    ),
    Total("config fields, those of both players once", lambda: len(fields()), 119, 110, 107),
    Total("commands", lambda: len(commands()), 26, 17, 18),
    Total("phrases that are no plain English, in package and docs", phrases, 285, 2, 0),
    Total("names that are each", lambda: names("each"), 1003, 0, 0),
    Total("names that say nothing", lambda: names("own", "found", "told", "who", "one"), 869, 64, 100),
)


@pytest.mark.parametrize("total", TOTALS, ids=lambda total: total.about)
def test_totals_stay_under_their_ceilings(total):
    count = total.measure()
    assert count <= total.ceiling, f"{total.about}: {count:,} is above the ceiling of {total.ceiling:,}"


def test_the_quick_selection_names_what_exists():
    files = {path.name: path.read_text() for path in (ROOT / "tests").glob("*_test.py")}
    for pattern, tests in QUICK.items():
        chosen = fnmatch.filter(files, pattern)
        assert chosen, pattern
        assert not [name for name in tests if f"def {name}(" not in files[chosen[0]]], pattern


def print_totals() -> None:
    """Prints the totals at the study commit, now, and where they are to go."""
    rows = [
        [
            total.about,
            *(f"{count:,}" for count in (total.studied, total.measure(), total.ceiling)),
            f"{total.target:,}" if total.target else "fewer",
        ]
        for total in TOTALS
    ]
    print(TextTable(("", "at 767ef1a", "now", "ceiling", "target"), rows).markdown())


if __name__ == "__main__":
    print_totals()
