"""Benchmarks of test generation: programs for which suites are to be written, from their official files.

UnLeakedTestBench (arXiv 2508.00408) has functions of real code, TestEval (arXiv 2406.04531) has LeetCode solutions.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codea1.data.loader import parsed
from codea1.evaluation.benchmark import benchmark_rows, require_file, require_python
from codea1.runtime.errors import BadInput
from codea1.values.verdict import Verdict


@dataclass(frozen=True)
class SuiteTask:
    """A program that tests are asked for."""

    id: str
    entry_point: str
    program: str
    description: str


@dataclass(frozen=True)
class SuiteBenchmark:
    """How a benchmark's tasks are read and its suites judged."""

    name: str
    where_from: str  # a sentence on where to get the file
    num_tests: int  # K: of a suite as many count, from its beginning
    module: str  # under which tests may import the program
    imports: Mapping[str, str]  # names that the program and the tests have at hand, and the statement for each
    must_read: str  # what a test says when it calls the program, {entry_point} filled in; "" where anything goes
    covering: frozenset[Verdict]  # tests with these verdicts count towards coverage
    call: str  # how a test begins, {entry_point} filled in: for prompts
    task: Callable[[Mapping[str, Any]], SuiteTask]  # from a row. Raises KeyError where a field is missing

    def load(self, path: str) -> list[SuiteTask]:
        """Returns the tasks of a file; see `benchmark_rows`.

        Raises:
          StorageFailed: the bucket fails.
          BadInput: names the file and the row where it is not there, is not JSON, lacks a field, repeats a task or has
            a program that does not compile.
        """
        require_file(path, self.name, self.where_from)
        tasks: dict[str, SuiteTask] = {}
        for where, row in benchmark_rows(path, self.where_from):
            try:
                task = self.task(row)
            except KeyError as error:
                raise BadInput(f"{where}: the field {error} is missing.") from None
            for field in ("id", "entry_point", "program", "description"):
                if not isinstance(getattr(task, field), str):
                    raise BadInput(f"{where}: its {field} is not text.")
            if task.id in tasks:
                raise BadInput(f"{where}: task {task.id} was there before.")
            require_python(task.program, f"{where}, task {task.id}: its program")
            tasks[task.id] = task
        if not tasks:
            raise BadInput(f"{path}: there is nothing in it.")
        return list(tasks.values())

    def whole(self, task: SuiteTask) -> str:
        """Returns a task's program below the imports of what it has at hand."""
        return f"{self.imports_of(task.program)}\n{task.program}"

    def imports_of(self, *sources: str) -> str:
        """The import statements for those of the names at hand that the sources use: some are slow to import."""
        nodes = (node for tree in map(parsed, sources) if tree for node in ast.walk(tree))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        return "\n".join(statement for name, statement in self.imports.items() if name in used)


def load_suites(path: str, tasks: Sequence[SuiteTask]) -> dict[str, list[str]]:
    """Loads given suites, {"task_id": ..., "tests": [source, ...]} each, by task.

    Rows are as in a benchmark's file. `test_list` and `task_num` are understood too: a file of ULT brings suites along,
    and TestEval's own scripts write such.

    Raises:
      BadInput: names the file and the row, or the tasks that have no suite. A suite may be empty.
    """
    suites: dict[str, list[str]] = {}
    known = {task.id for task in tasks}
    for where, row in benchmark_rows(path):
        task_id = str(row.get("task_id", row.get("task_num", "")))
        tests = row.get("tests", row.get("test_list"))
        if task_id not in known:
            raise BadInput(f"{where}: task_id {task_id!r} is none of the benchmark's tasks.")
        if task_id in suites:
            raise BadInput(f"{where}: task {task_id} was there before.")
        if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
            raise BadInput(f"{where}, task {task_id}: its tests are not a list of texts.")
        suites[task_id] = tests
    if missing := [task.id for task in tasks if task.id not in suites]:
        raise BadInput(f"{path}: {len(missing)} of {len(tasks)} tasks have no suite, the first is task {missing[0]}.")
    return suites


_MODULES = ("os", "re", "math", "numpy", "pandas", "pytest", "random", "string", "warnings", "datetime", "traceback")
_TYPES = ("List", "Dict", "Any", "Optional", "Union", "Tuple", "Set", "FrozenSet", "Sequence", "Iterable", "Generator")
_AT_HAND = {
    **{name: f"import {name}" for name in _MODULES},
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    **{name: f"from typing import {name}" for name in (*_TYPES, "Callable")},
}

ULT = SuiteBenchmark(
    name="ult",
    where_from="Get datasets/ULT.jsonl of github.com/huangd1999/UnLeakedTestBench.",
    num_tests=5,
    module="mod",
    imports=_AT_HAND,
    must_read="",
    covering=frozenset(Verdict) - {Verdict.INFRA},
    call="def test_{entry_point}():",
    task=lambda row: SuiteTask(str(row["task_id"]), row["func_name"], row["code"], row["prompt"]),
)

TESTEVAL = SuiteBenchmark(
    name="testeval",
    where_from="Get data/leetcode-py-all.jsonl of github.com/LLM4SoftwareTesting/TestEval.",
    num_tests=20,
    module="under_test",
    imports={},
    must_read="solution.{entry_point}",
    covering=frozenset({Verdict.PASS, Verdict.FAIL}),
    call="def test_{entry_point}():\n    solution = Solution()",
    task=lambda row: SuiteTask(str(row["task_num"]), row["func_name"], row["python_solution"], row["description"]),
)

SUITE_BENCHMARKS = {benchmark.name: benchmark for benchmark in (ULT, TESTEVAL)}
