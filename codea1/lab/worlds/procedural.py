"""The procedural questions: small Python functions, their hidden tests, golden tests and mutants.

Rows have the fields of the official Code-A1 data (prompt, problem, description, GT_code, GT_test, test, data_source,
extra_info), and mutants besides. No composition of one split is in another.
"""

import gzip
import hashlib
import json
import random
from collections.abc import Iterator
from functools import partial
from itertools import chain, count
from typing import Any

from etils import epath

from codea1.data.sources import CLASSIC, PROCEDURAL, world_file
from codea1.lab.worlds.compositions import (
    ENTRY_POINT,
    Task,
    assert_line,
    behaviour,
    compositions,
    outcome,
    random_input,
)
from codea1.lab.worlds.worlds import WORLDS, World, world_named
from codea1.storage.objects import exists, write_atomically

NUM_QUESTIONS = {"train": 1024, "validation": 192, "test": 384}
NUM_GOLDEN_TESTS = 5
USUAL_MUTANTS = 6  # single near misses are filled up to this number with double ones

_CHECK_SCRIPT = """\
def check(candidate):
    inputs = {inputs!r}
    results = {results!r}
    for arguments, expected in zip(inputs, results):
        assert candidate(*arguments) == expected
"""


def prepare(world: str, data_folder: str | None) -> None:
    """Prepares the questions of a world where `codea1.data.loader` reads them, in a few seconds; not twice.

    Raises:
      BadInput: there is no such world.
      StorageFailed: the folder cannot be written.
    """
    named = world_named(world)
    for split in NUM_QUESTIONS:
        file = epath.Path(world_file(world, split, data_folder))
        if not exists(file):
            lines = "".join(f"{json.dumps(row)}\n" for row in sorted(rows(split, named), key=partial(_place, split)))
            write_atomically(file, gzip.compress(lines.encode(), mtime=0))


def _place(split: str, row: dict[str, Any]) -> bytes:
    """Returns what questions are sorted by: a hash, since neighbours that `rows` yields are alike.

    It is that of tensorflow-datasets, which kept them for the published runs.
    """
    return hashlib.md5(f"{split}{row['extra_info']['question_id']}".encode()).digest()


def rows(split: str, world: World = WORLDS[CLASSIC]) -> Iterator[dict[str, Any]]:
    """Yields the rows of one split, a pure function. Once all compositions have come, they come with new constants."""
    return (row for _, row in tasks(split, world))


def tasks(split: str, world: World) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Yields the tasks of one split with their rows."""
    seen: set[str] = set()
    for repetition in count():
        for composition in compositions(split, world):
            task = composition.draw(random.Random(f"{composition}/{repetition}"))
            if task.id not in seen and (row := question_row(task)):
                seen.add(task.id)
                yield task, row
            if len(seen) == NUM_QUESTIONS[split]:
                return


def question_row(task: Task) -> dict[str, Any] | None:
    """Returns the dataset's row for a task; None for one that is no challenge: a constant, or with too few mutants."""
    world = task.composition.world
    inputs = task.hidden_inputs
    results = behaviour(task.program(), inputs)
    mutants = _mutants(task, inputs, results)
    if len(mutants) < world.min_mutants or all(result == results[0] for result in results):
        return None
    return {
        "prompt": [{"role": "user", "content": task.problem}],
        "problem": task.problem,
        "description": task.description,
        "GT_code": task.program(),
        "test": _CHECK_SCRIPT.format(inputs=inputs, results=list(results)),
        "GT_test": _golden_tests(task),
        "mutants": mutants,
        "data_source": PROCEDURAL,
        "extra_info": {
            "function_declaration": task.signature,
            "function_name": ENTRY_POINT,
            "imports": "",
            "question_id": task.id,
        },
    }


def _mutants(task: Task, inputs: list[tuple], results: tuple[Any, ...]) -> list[str]:
    """Returns programs that differ from the truth and each other on the hidden inputs, first those of one mistake."""
    programs: list[str] = []
    behaviours = [results]
    for choices in chain(task.near_misses(1), task.near_misses(2)):
        if choices.count(0) == 1 and len(programs) >= USUAL_MUTANTS:
            break
        program = task.program(choices)
        shown = behaviour(program, inputs)
        if shown not in behaviours:
            programs.append(program)
            behaviours.append(shown)
    return programs


def _golden_tests(task: Task) -> list[str]:
    """Returns asserts on random inputs, never on the empty list: like most tests people write, they miss edges."""
    rng = random.Random(f"{task.id}/golden")
    tests: dict[str, None] = {}
    while len(tests) < NUM_GOLDEN_TESTS:
        arguments = random_input(task.composition, task.composition.world.golden_lengths, rng)
        tests[assert_line(arguments, outcome(task.program(), arguments))] = None
    return list(tests)
