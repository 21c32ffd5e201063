"""The rooms of codea1 stand on floors: an import goes down, never up or in a circle. The lab is behind a wall."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from tests.conftest import ROOT

COMMANDS = (  # they may use the lab
    *("train", "sft", "evaluate", "benchmark", "report", "explain", "export", "compile_tpu", "watch", "fsck"),
    "sandbox.__main__",
)
FLOORS = (  # from the ground up; rooms of one floor do not know each other
    ("runtime",),
    ("values", "storage", "sharding", "slices"),
    ("sandbox",),
    ("models", "game"),
    ("learn", "rollout", "runs", "data"),
    ("config",),
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
BUDGET = {  # lines of each room; what makes one grow says why in its commit, and what it took away for it
    **{"data": 907, "evaluation": 655, "game": 3612, "learn": 1559, "models": 2517, "players": 1017, "rollout": 1502},
    **{"runs": 1602, "runtime": 1424, "sandbox": 4019, "storage": 721, "training": 1812, "values": 1139},
    "": 1384,  # the files that lie in no room: commands, config.py, sharding.py, slices.py
}
LAB_BUDGET = {  # the same of rooms behind the wall
    **{"aot": 1839, "benchmarks": 2776, "commands": 1211, "data": 1892, "report": 898},
    **{"runs": 1282, "sandbox": 792, "siege": 549, "sft": 553, "study": 1905, "worlds": 882},
    "": 1472,  # the files that lie in no room of the lab
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


def test_rooms_keep_their_budgets():
    budgets = {False: BUDGET, True: LAB_BUDGET}  # by whether they are behind the wall
    lines = {(behind, room): 0 for behind, budget in budgets.items() for room in budget}
    for module, path in FILES.items():
        rooms = path.relative_to(ROOT / "codea1").parts[is_behind(module) : -1]
        lines[is_behind(module), rooms[0] if rooms else ""] += len(path.read_text().splitlines())
    for behind, where in enumerate(("in front of the wall", "behind it")):
        total = sum(count for (each, _), count in lines.items() if each == behind)
        print(f"{total:,} lines in {sum(is_behind(module) == behind for module in FILES)} files {where}")
    over = {
        f"{'lab/' * behind}{room}": f"{count} of {budgets[behind][room]}"
        for (behind, room), count in lines.items()
        if count > budgets[behind][room]
    }
    assert not over, f"lines of rooms over their budgets: {over}"
