"""LiveCodeBench's code generation (Jain et al. 2024, arXiv 2403.07974), judged as its package judges.

A question is of a contest, with its date, so that a model can be asked what is younger than its training data. A
program is a whole one that reads standard input, or has a class `Solution`; it must be right on all tests. The rows
have no ground truths.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from codea1.data.rows import Row
from codea1.game.answers import continued
from codea1.game.prompts import Message, PromptTemplates
from codea1.game.question import Question
from codea1.lab.benchmarks.benchmarks import (
    CODE_BENCHMARKS,
    LIVECODEBENCH,
    CodeBenchmark,
    benchmark_rows,
    require_text,
    require_unique,
)
from codea1.lab.packed import unpacked_text
from codea1.lab.sandbox.benchmarks import DESCRIBED_BYTES, BatchJudge, BenchmarkPool, Description, Inputs
from codea1.lab.sandbox.child import value_digest
from codea1.runtime.errors import BadInput
from codea1.sandbox.child.entries import PIPE_BYTES
from codea1.sandbox.host import Limits, ScriptRun
from codea1.values import NotPlainData, contains_nan, encode_canonical
from codea1.values.entry_points import STDOUT, text_of, tidied

TEST_SECONDS = 6.0
MEMORY_BYTES = 4 << 30
# Of a program's output that is not the expected one to the byte; its process must describe it.
ANSWER_BYTES = 8 << 20
DIFFICULTIES = ("easy", "medium", "hard")

_FIELDS = ("question_id", "question_content", "starter_code", "difficulty", "metadata")
_TESTS = ("public_test_cases", "private_test_cases")
# The package has these before every program, which may use them without an import, and so many digits in all of it.
_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
PREAMBLE = "".join(
    [f"from {module} import *\n" for module in (*_MODULES, "builtins", "typing")]
    + [f"import {module}\n" for module in _MODULES]
    + ["sys.setrecursionlimit(50000)\n", "sys.set_int_max_str_digits(50000)\n"]
)
# The prompt, word for word, is that of chat models: lcb_runner/prompts/code_generation.py of LiveCodeBench (MIT), at
# commit 28fef95, SYSTEM_MESSAGE_GENERIC and get_generic_question_template_answer.
_SYSTEM = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests."
)
_WITH_STARTER = (
    "You will use the following starter code to write the solution to the problem and enclose your code within "
    "delimiters."
)
_WITHOUT_STARTER = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the sample "
    "inputs). Enclose your code within delimiters as follows. Ensure that when the python program runs, it reads the "
    "inputs, runs the algorithm and writes output to STDOUT."
)
_USER = (
    "### Question:\n{content}\n\n### Format: {format}\n```python\n{starter}\n```\n\n"
    "### Answer: (use the provided format with backticks)\n\n"
)


@dataclass(frozen=True)
class ContestTask:
    """One question with its tests."""

    question: Question
    starter: str  # what a program begins with; empty for whole programs
    difficulty: str
    inputs: Inputs
    judge: BatchJudge | None  # None: no program can be judged
    unjudged: str  # why not
    largest: int  # bytes of standard input


class LiveCodeBench(CodeBenchmark):
    """The questions of a window of dates."""

    name = LIVECODEBENCH

    def __init__(self, tasks: Sequence[ContestTask], pool: BenchmarkPool) -> None:
        self.questions = [task.question for task in tasks]
        self._tasks = {task.question.id: task for task in tasks}
        self._pool = pool

    @property
    def judgements(self) -> dict[str, Callable[[Row], float]]:
        """The same by difficulty: a question of another one has NaN."""
        passes = super().judgements[""]

        def of(difficulty: str) -> Callable[[Row], float]:
            return lambda row: passes(row) if self._tasks[row["question_id"]].difficulty == difficulty else float("nan")

        there = {task.difficulty for task in self._tasks.values()}
        return {"": passes} | {f"{level}_": of(level) for level in DIFFICULTIES if level in there}

    def messages(self, question: Question, templates: PromptTemplates) -> list[Message]:
        del templates  # the benchmark has its own
        starter = self._tasks[question.id].starter
        asked = _USER.format(
            content=question.description,
            format=_WITH_STARTER if starter else _WITHOUT_STARTER,
            starter=starter or "# YOUR CODE HERE",
        )
        return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": asked}]

    def program(self, question: Question, answer: str) -> str:
        """Returns what stands between the last two lines with a fence; an answer without any is a program itself."""
        lines = answer.split("\n")
        fences = [number for number, line in enumerate(lines) if "```" in line]
        return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if fences[1:] else answer * (not fences)

    def continued(self, question: Question, completion: str) -> str:
        return continued(self._tasks[question.id].starter, completion)

    def unjudged(self) -> dict[str, str]:
        reasons = {id: task.unjudged for id, task in self._tasks.items() if task.unjudged}
        if not self._pool.has_threads:
            why = f"an input is larger than {PIPE_BYTES >> 10} KiB, which takes a thread, and this kernel allows none"
            large = (id for id, task in self._tasks.items() if task.largest > PIPE_BYTES)
            reasons |= dict.fromkeys(large, why)
        return reasons

    def judge(self, question: Question, program: str) -> Future[ScriptRun]:
        task = self._tasks[question.id]
        assert task.judge is not None  # those without are left out
        name, source = question.entry_point, question.module(program)
        if name != STDOUT:
            # As the package has it, one object answers all tests, and a program without the class has a function.
            name = name.removeprefix("Solution().")
            source = replace(question, entry_point=name).module(program)
            source += f"{name} = Solution().{name}\n" if "class Solution" in program else ""
        # The first limit is for loading the program.
        limits = Limits(cpu_seconds_per_script=TEST_SECONDS * (1 + task.inputs.count), script_memory_bytes=MEMORY_BYTES)
        return self._pool.run_batch(source, name, task.inputs, task.judge, limits)


class ExpectedTexts:
    """The comparison of what a program prints: line by line, without white space around, or as decimal numbers."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._digests = [value_digest(tidied(text)) if len(text) > DESCRIBED_BYTES else None for text in texts]

    def agrees(self, index: int, digest: bytes, seconds: float) -> bool:
        return digest == self._digests[index]

    def accepts(self, index: int, value: Description) -> bool:
        printed = text_of(value.exact)
        return printed is not None and same_lines(printed, self._texts[index])


class ExpectedValues:
    """The comparison of what a method returns: by Python's `==`, and a tuple, though none inside, may be a list."""

    def __init__(self, values: Sequence[Any]) -> None:
        """Raises ValueError or NotPlainData where nothing can be compared with one of the values."""
        if contains_nan(list(values)):
            raise ValueError("it has a NaN")
        is_large = [len(encode_canonical(value)) > DESCRIBED_BYTES for value in values]
        self._digests = [value_digest(value) if large else None for value, large in zip(values, is_large, strict=True)]
        alike = [[value, tuple(value)] if isinstance(value, list) else [value] for value in values]
        encoded = [map(encode_canonical, forms) for forms in alike]
        self._compared = [{blake2b(form, digest_size=16).digest() for form in forms} for forms in encoded]

    def agrees(self, index: int, digest: bytes, seconds: float) -> bool:
        return digest == self._digests[index]

    def accepts(self, index: int, value: Description) -> bool:
        return value.compared in self._compared[index]


def same_lines(printed: str, expected: str) -> bool:
    """Returns whether two texts have the same lines, without white space around lines and texts.

    Two lines are the same, too, that are as many decimal numbers, equal exactly.
    """
    one, other = ([line.strip() for line in text.strip().split("\n")] for text in (printed, expected))
    return len(one) == len(other) and all(map(_same_line, one, other))


def _same_line(one: str, other: str) -> bool:
    if one == other:
        return True
    tokens, others = one.split(), other.split()
    try:
        return len(tokens) == len(others) and all(map(lambda a, b: Decimal(a) == Decimal(b), tokens, others))
    except ArithmeticError:  # not a number; or one that signals
        return False


def load_tasks(paths: Sequence[str], window: tuple[str, str]) -> list[ContestTask]:
    """Returns the questions of files whose contests were in a window.

    Args:
      window: first and last day, as YYYY-MM-DD; an empty one is no bound. As in the package, of the last day the first
        moment counts.

    Raises BadInput: names the file, the row, the question and the field of what is malformed, or there is no question
    in the window.
    """
    first, last = (datetime.fromisoformat(day) if day else None for day in window)
    tasks = []
    for path in paths:
        for where, row in benchmark_rows(path, CODE_BENCHMARKS[LIVECODEBENCH]):
            require_text(row, ("contest_date",), where)
            try:
                held = datetime.fromisoformat(row["contest_date"]).replace(tzinfo=None)
            except ValueError:
                raise BadInput(f"{where}: contest_date is {row['contest_date']!r}, which is no date.") from None
            if (first is None or first <= held) and (last is None or held <= last):
                tasks.append(_task(row, where))
    if not tasks:
        raise BadInput(f"{', '.join(paths)}: no question is of a contest from {window[0]} until {window[1]}.")
    require_unique([task.question.id for task in tasks], ", ".join(paths))
    return tasks


def _task(row: Row, where: str) -> ContestTask:
    require_text(row, (*_FIELDS, *_TESTS), where)
    where = f"{where} ({row['question_id']})"
    if row["difficulty"] not in DIFFICULTIES:
        raise BadInput(f"{where}: difficulty is {row['difficulty']!r}, not one of {', '.join(DIFFICULTIES)}.")
    metadata = _json(row["metadata"], f"{where}: metadata")
    name = metadata.get("func_name") if isinstance(metadata, dict) else 0
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise BadInput(f"{where}: metadata is no object whose func_name is a name.")
    tests = [test for field in _TESTS for test in _tests(row[field], f"{where}: {field}")]
    question = Question(
        id=row["question_id"],
        prompt=None,
        problem=row["question_content"],
        description=row["question_content"],
        ground_truth="",
        entry_point=f"Solution().{name}" if name else STDOUT,
        data_source=LIVECODEBENCH,
        preamble=PREAMBLE,
    )
    try:
        rows, judge, why = *_read(tests, is_function=bool(name)), ""
    except (ValueError, RecursionError, NotPlainData) as error:
        rows, judge, why = [], None, f"its tests cannot be used: {error}"
    largest = 0 if name else max((len(given.encode(errors="replace")) for given, _ in tests), default=0)
    inputs = Inputs(rows, [TEST_SECONDS] * len(rows), answer_bytes=ANSWER_BYTES)
    return ContestTask(question, row["starter_code"], row["difficulty"], inputs, judge, why, largest)


def _read(tests: Sequence[tuple[str, str]], *, is_function: bool) -> tuple[list[list], BatchJudge]:
    """Returns the arguments of each test, and what judges. Raises ValueError, NotPlainData or RecursionError."""
    if not tests:
        raise ValueError("there are none")
    if is_function:
        rows = [[json.loads(line) for line in given.split("\n")] for given, _ in tests]
        return rows, ExpectedValues([json.loads(expected) for _, expected in tests])
    if any(len(expected.encode()) > ANSWER_BYTES for _, expected in tests):
        raise ValueError(f"an expected output is larger than {ANSWER_BYTES >> 20} MiB")
    return [[given] for given, _ in tests], ExpectedTexts([expected for _, expected in tests])


def _tests(text: str, where: str) -> list[tuple[str, str]]:
    """Returns inputs and outputs of tests in JSON, plain or packed. Raises BadInput."""
    tests = _json(text if text.lstrip().startswith("[") else unpacked_text(text, where), where)
    kinds = [[type(test.get(key)) for key in ("input", "output")] for test in tests if isinstance(test, dict)]
    if not isinstance(tests, list) or kinds != [[str, str]] * len(tests):
        raise BadInput(f"{where} is no list of tests that have input and output, each a text.")
    return [(test["input"], test["output"]) for test in tests]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"{where} is not JSON.") from None
