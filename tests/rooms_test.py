"""The rooms of codea1 stand on floors: an import goes down, never up or in a circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from tests.conftest import ROOT

FLOORS = (  # from the ground up; rooms of one floor do not know each other
    ("runtime",),
    ("values", "storage", "sharding"),
    ("sandbox",),
    ("models", "game"),
    ("learn", "rollout", "runs", "data"),
    ("config",),
    ("players",),
    ("evaluation",),
    ("training", "paper", "aot"),
    ("study",),
    ("tools", "train", "sft", "evaluate", "report", "explain", "export", "compile_tpu", "watch", "fsck"),
    ("__main__",),
)
BUDGET = {  # lines of each room; what makes one grow says why in its commit, and what it took away for it
    **{"aot": 1346, "data": 3048, "evaluation": 4231, "game": 3912, "learn": 1510, "models": 2444, "paper": 1800},
    **{"players": 1180, "rollout": 1391, "runs": 2165, "runtime": 1245, "sandbox": 4674, "storage": 714, "study": 841},
    **{"tools": 910, "training": 2371, "values": 1130},
    "": 1420,  # the files that lie in no room: commands, config.py, sharding.py
}
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
        own = {f"{node.module}.{alias.name}" for alias in node.names}
        names |= {name if name in FILES else node.module for name in own}
    return names & set(FILES)


def test_an_import_goes_down():
    for module, path in FILES.items():
        room, others = module.split(".")[1:2], {name.split(".")[1] for name in imports(path) if "." in name}
        upward = {other for other in others - set(room) if room and FLOOR[other] >= FLOOR[room[0]]}
        assert not upward, f"{module} imports {upward}"


def test_no_import_goes_in_a_circle():
    sorter = TopologicalSorter({module: imports(path) - {module} for module, path in FILES.items()})
    assert set(sorter.static_order()) == set(FILES)  # a circle raises CycleError


def test_rooms_keep_their_budgets():
    lines = dict.fromkeys(BUDGET, 0)
    for path in FILES.values():
        room = path.relative_to(ROOT / "codea1").parts[:-1]
        lines[room[0] if room else ""] += len(path.read_text().splitlines())
    over = {room: f"{count} of {BUDGET[room]}" for room, count in lines.items() if count > BUDGET[room]}
    assert not over, f"lines of rooms over their budgets: {over}"
