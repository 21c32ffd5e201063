"""Benchmarks of both players, the specification of an evaluation on one, and how their official files are read.

Without JAX, so that a mistake in the flags of codea1.benchmark is reported at once.
"""

import ast
import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

from codea1.data.loader import parsed
from codea1.data.rows import Row, file_rows
from codea1.game.answers import continued, extract_program
from codea1.game.prompts import Message, PromptTemplates, code_messages
from codea1.game.question import Question
from codea1.runtime.errors import BadInput, MissingFile
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.isolation.files import LIBRARIES
from codea1.storage.objects import location
from codea1.values.verdict import Verdict

BIGCODEBENCH = [f"bigcodebench_{split}{subset}" for split in ("complete", "instruct") for subset in ("", "_hard")]
LIVECODEBENCH = "livecodebench"
CODE_BENCHMARKS = {  # of the Code LLM, each with a sentence on where to get its file
    "humanevalplus": "Get HumanEvalPlus.jsonl.gz from "
    "https://github.com/evalplus/humanevalplus_release/releases/tag/v0.1.10.",
    "mbppplus": "Get MbppPlus.jsonl.gz from https://github.com/evalplus/mbppplus_release/releases/tag/v0.2.0.",
    **dict.fromkeys(
        BIGCODEBENCH,
        "Get it as Parquet from https://huggingface.co/datasets/bigcode/bigcodebench (full) or "
        "https://huggingface.co/datasets/bigcode/bigcodebench-hard (hard), version v0.1.4.",
    ),
    LIVECODEBENCH: "Get test.jsonl, of release v1, to test6.jsonl, of v6, from "
    "https://huggingface.co/datasets/livecodebench/code_generation_lite.",
}
EVALPLUS = ("humanevalplus", "mbppplus")
SEMANTICS = ("evalplus", "scripts")  # of these two
OWN = "own"  # value of `EvaluationSpec.best_of` that is no folder


def semantics_of(file: str, given: str | None) -> str:
    """Returns how HumanEval+ or MBPP+ judges by a file: as `given`, or by default as the file has it.

    Raises BadInput: a Parquet file has check scripts, and not the inputs that EvalPlus judges by.
    """
    is_parquet = file.endswith(".parquet")
    if is_parquet and given == "evalplus":
        raise BadInput(f"--semantics=evalplus judges by EvalPlus's own file, as JSON lines; {file} has check scripts.")
    return given or SEMANTICS[is_parquet]


@dataclass(frozen=True)
class AnswerSampling:
    """How answers are sampled."""

    samples: int = 32  # programs per question
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int = 0

    def options(self, stream: str) -> dict[str, Any]:
        """Returns the arguments of `Policy.generate` besides the requests."""
        return {"seed": self.seed, "stream": stream, "temperature": self.temperature, "top_p": self.top_p}


@dataclass(frozen=True, kw_only=True)
class EvaluationSpec:
    """What is measured on a benchmark, and how: the flags of codea1.benchmark. Texts are empty where not given."""

    benchmark: str
    file: str  # of LiveCodeBench several, with commas between
    window: tuple[str, str] = ("", "")  # first and last day of LiveCodeBench's contests, as YYYY-MM-DD
    run: str = ""
    step: str = "last"  # of the run
    model: str = ""
    completions: str = ""
    part: bool = False  # completions may leave questions out
    output: str = ""
    thinking: str = ""  # of the models that are asked; see `codea1.lab.benchmarks.policies`
    semantics: str = "evalplus"
    sampling: AnswerSampling = field(default_factory=AnswerSampling)
    lengths: tuple[int, int, int] = (0, 0, 0)  # of prompts, of responses, and slots; see `policies`
    best_of: str = ""  # folder of the Test LLM that chooses among programs; OWN: the run's
    num_tests: int = 0  # asserts asked for at once, as in the game; 0, of suites alone: a test a round

    @property
    def test_model(self) -> str:
        """The folder of the Test LLM; empty where it is the run's."""
        if self.benchmark in SUITE_BENCHMARKS:
            return self.model
        return "" if self.best_of == OWN else self.best_of

    @property
    def files(self) -> list[str]:
        """The benchmark's files."""
        return self.file.split(",") if self.benchmark == LIVECODEBENCH else [self.file]


class CodeBenchmark(ABC):
    """Questions with what judges a program; their ground truths, where they have any, must pass."""

    name: str  # as evaluations are named after it
    questions: Sequence[Question]
    prefill = ""  # what the assistant's answer begins with
    stops: Sequence[str] = ()  # each ends an answer at its first occurrence, and is not part of it

    @property
    def judgements(self) -> Mapping[str, Callable[[Row], float]]:
        """What tells by a row of results whether a program passes, by the prefix of its metrics."""
        return {"": lambda row: row["verdict"] == Verdict.PASS}

    def messages(self, question: Question, templates: PromptTemplates) -> list[Message]:
        """Returns the chat that asks for a program."""
        return code_messages(templates, question)

    def program(self, question: Question, answer: str) -> str:
        """Returns the program in a model's answer after `prefill`."""
        return extract_program(answer, question.entry_point).source

    def continued(self, question: Question, completion: str) -> str:
        """Returns the program that a completion of the question's code makes."""
        return continued(question.problem, completion)

    @abstractmethod
    def judge(self, question: Question, program: str) -> Future[ScriptRun]:
        """Runs a program: PASS, or why it does not."""

    def unjudged(self) -> dict[str, str]:
        """Returns why no program can be judged here, by question."""
        return {}


@dataclass(frozen=True)
class SuiteTask:
    """A program that tests are asked for."""

    id: str
    entry_point: str
    program: str
    description: str

    @property
    def question(self) -> Question:
        """The question that the program answers, for the game's own prompts."""
        return Question(self.id, None, self.description, self.description, self.program, self.entry_point)


@dataclass(frozen=True)
class SuiteBenchmark:
    """A benchmark of the Test LLM: how its tasks are read and its suites judged."""

    name: str
    where_from: str  # a sentence on where to get the file
    num_tests: int  # K: of a suite as many count, from its beginning
    module: str  # under which tests may import the program
    imports: Mapping[str, str]  # names that the program and the tests may use, and the statement for each
    must_read: str  # text of a test that calls the program, {entry_point} filled in; "" where anything goes
    covering: frozenset[Verdict]  # tests with these verdicts count towards coverage
    call: str  # how a test begins, {entry_point} filled in: for prompts
    fields: tuple[str, str, str, str]  # of a row: those that hold what `SuiteTask` has

    def load(self, path: str) -> list[SuiteTask]:
        """Returns the tasks of a file; see `benchmark_rows`.

        Raises:
          StorageFailed: the bucket fails.
          BadInput: names the file and the row where it is not there, is not JSON, lacks a field, repeats a task or has
            a program that does not compile.
        """
        tasks = []
        for where, row in benchmark_rows(path, self.where_from):
            id, *texts = self.fields
            require_text(row, texts, where)
            tasks.append(SuiteTask(str(row.get(id, "")), *(row[name] for name in texts)))  # TestEval's ids are numbers
            require_python(tasks[-1].program, f"{where}, task {tasks[-1].id}: its program")
        require_unique([task.id for task in tasks], path)
        return tasks

    def whole(self, task: SuiteTask) -> str:
        """Returns a task's program below the imports of what it may use."""
        return f"{self.imports_of(task.program)}\n{task.program}"

    def imports_of(self, *sources: str) -> str:
        """Returns the import statements for those names that the sources use: some are slow to import."""
        nodes = (node for tree in map(parsed, sources) if tree for node in ast.walk(tree))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        return "\n".join(statement for name, statement in self.imports.items() if name in used)


_MODULES = ("os", "re", "math", "numpy", "pandas", "pytest", "random", "string", "warnings", "datetime", "traceback")
_TYPES = ("List", "Dict", "Any", "Optional", "Union", "Tuple", "Set", "FrozenSet", "Sequence", "Iterable", "Generator")

# UnLeakedTestBench (arXiv 2508.00408): functions of real code.
ULT = SuiteBenchmark(
    name="ult",
    where_from="Get datasets/ULT.jsonl of github.com/huangd1999/UnLeakedTestBench.",
    num_tests=5,
    module="mod",
    imports={
        **{name: f"import {name}" for name in _MODULES},
        "np": "import numpy as np",
        "pd": "import pandas as pd",
        **{name: f"from typing import {name}" for name in (*_TYPES, "Callable")},
    },
    must_read="",
    covering=frozenset(Verdict) - {Verdict.INFRA},
    call="def test_{entry_point}():",
    fields=("task_id", "func_name", "code", "prompt"),
)

# TestEval (arXiv 2406.04531): LeetCode solutions.
TESTEVAL = SuiteBenchmark(
    name="testeval",
    where_from="Get data/leetcode-py-all.jsonl of github.com/LLM4SoftwareTesting/TestEval.",
    num_tests=20,
    module="under_test",
    imports={},
    must_read="solution.{entry_point}",
    covering=frozenset({Verdict.PASS, Verdict.FAIL}),
    call="def test_{entry_point}():\n    solution = Solution()",
    fields=("task_num", "func_name", "python_solution", "description"),
)

SUITE_BENCHMARKS = {benchmark.name: benchmark for benchmark in (ULT, TESTEVAL)}


def load_suites(path: str, tasks: Sequence[SuiteTask], part: bool = False) -> dict[str, list[str]]:
    """Loads given suites, {"task_id": ..., "tests": [source, ...]} each, by task.

    Rows are as in a benchmark's file. `test_list` and `task_num` are understood too: a file of ULT brings suites along,
    and TestEval's own scripts write such.

    Raises:
      BadInput: names the file and the row, or, without `part`, the tasks that have no suite. A suite may be empty.
    """
    suites: dict[str, list[str]] = {}
    known = {task.id for task in tasks}
    for where, row in benchmark_rows(path):
        task_id = str(row.get("task_id", row.get("task_num", "")))
        tests = row.get("tests", row.get("test_list"))
        if task_id not in known:
            raise BadInput(f"{where}: task_id {task_id!r} is none of the benchmark's tasks.")
        if task_id in suites:
            raise BadInput(f"{where}: task {task_id} comes twice.")
        if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
            raise BadInput(f"{where}, task {task_id}: its tests are not a list of texts.")
        suites[task_id] = tests
    if not (part and suites):
        require_all([task.id for task in tasks], suites, path)
    return suites


def benchmark_rows(path: str, where_from: str = "") -> Iterator[tuple[str, Row]]:
    """Yields the rows of a local or gs:// file, each with its place for messages; see `file_rows`.

    Args:
      where_from: a sentence on where to get the file, for the message where it is missing.

    Raises:
      StorageFailed: the bucket fails.
      BadInput: there is no such file, or it is not of that form.
    """
    try:
        yield from file_rows(os.fspath(location(path, "a benchmark's file")))
    except MissingFile as error:
        raise MissingFile(f"{error} {where_from}".rstrip()) from None


def require_text(row: Row, names: Sequence[str], where: str) -> None:
    """Raises BadInput unless each of these fields holds text."""
    for name in names:
        if not isinstance(row.get(name), str):
            raise BadInput(f"{where}: the field {name!r} is {'missing' if row.get(name) is None else 'not text'}.")


def require_unique(ids: Sequence[str], path: str) -> None:
    """Raises BadInput where there is no question, or one comes twice."""
    if not ids:
        raise BadInput(f"{path} holds no question of this benchmark.")
    if repeated := [id for id, count in Counter(ids).items() if count > 1]:
        raise BadInput(f"{path}: question {repeated[0]} comes twice.")


def require_all(ids: Sequence[str], given: Collection[str], path: str) -> None:
    """Raises BadInput where a file of programs or suites has nothing for one of the tasks."""
    if missing := [id for id in ids if id not in given]:
        raise BadInput(
            f"{path} has nothing for {len(missing)} of {len(ids)} tasks, the first is {missing[0]}; --part evaluates "
            "the others."
        )


def require_python(source: str, what: str) -> None:
    """Raises BadInput where a source does not compile; `what` it is, with its place, begins the sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about programs that are not ours
            compile(source, "<program>", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise BadInput(f"{what} does not compile: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"{what} does not compile: {type(error).__name__}.") from None


def missing_modules(*sources: str) -> list[str]:
    """Returns the top-level modules that sources import by absolute names and that the sandbox does not have.

    Raises SyntaxError, or what else `ast.parse` does: a source is no program.
    """
    imported = set()
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])
    return sorted(name for name in imported if not _is_there(name))


@cache
def _is_there(name: str) -> bool:
    # The sandbox's Python has the standard library and installed packages, and neither PYTHONPATH nor a working folder.
    standard = os.path.dirname(os.__file__)
    paths = [path for path in sys.path if path.startswith(standard) or path.endswith(LIBRARIES)]
    return name in (*sys.builtin_module_names, "__main__") or PathFinder.find_spec(name, paths) is not None
