"""A training set with the columns of the official Code-A1 file, made of the rows of KodCode-V1.

A row of huggingface.co/datasets/KodCode/KodCode-V1 brings a question, a solution, a pytest file that imports it, and
the share of GPT-4o's trials that passed their own tests. The paper trains on the hard ones, less than a third, that ask
for a single function; which further filter it used is not known. Shares are rounded to three places in the files, and
a third itself, 0.333 there, is labelled medium.
"""

import ast
import io
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pyarrow
import pyarrow.parquet
from etils import epath
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from codea1.data.loader import entry_point, load_questions, parsed
from codea1.data.near_duplicates import NearDuplicates
from codea1.data.rows import file_rows
from codea1.game.asserts import Rejected, read_fixed_tests
from codea1.game.calls import CallTest
from codea1.game.prompts import DEFAULT, code_messages
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.grading import Grader, GroundTruthAnswer
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.storage.objects import exists, location, write_atomically
from codea1.values import answers_equal

HARD = 1 / 3  # KodCode's own bound: below this share of trials that pass, a question is called hard
_ROUNDING = 0.0005  # of the shares in its files
COLUMNS = ("question_id", "question", "solution", "test", "test_info", "gpt_pass_percentage")


class Dropped(StrEnum):
    """Why a row is no training question, in the order in which it is found out."""

    INCOMPLETE = "a field is empty"
    NOT_ONE_FUNCTION = "its tests are not of one function"
    NOT_HARD = "not hard: too many trials passed"
    NO_FUNCTION = "its solution does not define the function"
    NO_ASSERT = "no plain assert on a call with plain data"
    REPEATED = "asks what an earlier row asks"
    NEAR_DUPLICATE = "nearly a question of an evaluation set"
    NO_GOLDEN_TEST = "its solution passes none of those asserts, twice"
    SANDBOX = "the sandbox failed to run its solution"


@dataclass(frozen=True)
class KodCodeQuestion:
    """A row that may become a training question."""

    id: str
    question: str  # the task, in words
    declaration: str  # the first line of the function asked for
    function_name: str
    solution: str
    tests: tuple[CallTest, ...]  # what its pytest file asserts, as far as it is data; at least one


def read_row(row: Mapping[str, Any], where: str, max_pass_rate: float) -> KodCodeQuestion | Dropped:
    """Returns a row as a question, or why it cannot be one.

    Args:
      row: with COLUMNS.
      where: names the row in errors.
      max_pass_rate: share of trials below which a question is hard.

    Raises:
      BadInput: a column is missing or of another type.
    """
    _check(row, where)
    if any(row[name] is None for name in COLUMNS if name != "test_info"):
        return Dropped.INCOMPLETE
    if not row["test_info"]:  # of a class, it is None
        return Dropped.NOT_ONE_FUNCTION
    if row["gpt_pass_percentage"] >= max_pass_rate - _ROUNDING:
        return Dropped.NOT_HARD
    tested = [(info, asserts_of(row["test"], str(info.get("function_name")))) for info in row["test_info"]]
    if len(tested) > 1:  # the function asked for and others, which the tests may leave out
        tested = [(info, tests) for info, tests in tested if tests]
        if len(tested) != 1:
            return Dropped.NOT_ONE_FUNCTION
    ((info, tests),) = tested
    name = str(info.get("function_name"))
    try:
        entry_point(row["solution"], None, None, name)
    except (ValueError, RecursionError):
        return Dropped.NO_FUNCTION
    if not tests:
        return Dropped.NO_ASSERT
    declaration = str(info.get("function_declaration") or f"def {name}(...):")
    return KodCodeQuestion(str(row["question_id"]), row["question"], declaration, name, row["solution"], tests)


def asserts_of(pytest_file: str, function_name: str) -> tuple[CallTest, ...]:
    """Returns what the test functions of a file assert about calls of a function with plain data, each call once.

    See `read_fixed_tests`; what needs more running than that, such as loops, fixtures and parametrised tests, is left
    out.
    """
    module = parsed(pytest_file)
    tests: dict[tuple[str, bytes], CallTest] = {}
    for node in module.body if module else ():
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and not node.args.args:
            for test in read_fixed_tests(node.body, function_name):
                if not isinstance(test, Rejected):
                    tests.setdefault(test.identity, test)
    return tuple(tests.values())


def _check(row: Mapping[str, Any], where: str) -> None:
    for name in COLUMNS:
        if name not in row:
            raise BadInput(f"{where}: the column {name!r} is missing.")
    where = f"{where} ({row['question_id']})"
    for name in ("question", "solution", "test"):
        if not isinstance(row[name], str | None):
            raise BadInput(f"{where}: {name} is not text.")
    if not isinstance(row["gpt_pass_percentage"], int | float | None):
        raise BadInput(f"{where}: gpt_pass_percentage is not a number.")
    info = row["test_info"]
    if not isinstance(info, list | None) or not all(isinstance(each, Mapping) for each in info or ()):
        raise BadInput(f"{where}: test_info is not a list of records.")


DATA_SOURCE = "kodcode_light"  # the tag of the official file
_IN_FLIGHT = 64  # questions whose ground truths are being run
_TEMPLATES = replace(DEFAULT, dataset_prompts=False)

Rows = Iterable[tuple[str, Mapping[str, Any]]]
Counts = Counter[Dropped]


def training_questions(
    rows: Rows, evaluations: NearDuplicates, grader: Grader, max_pass_rate: float, seen: Callable[[], None]
) -> tuple[list[KodCodeQuestion], Counts]:
    """Returns the questions that are kept, with the tests that their solutions pass, in the order of the rows.

    Every solution answers its tests' calls twice, in two processes with different hash seeds; a test is kept where both
    give the value that it states.

    Args:
      rows: of KodCode-V1, each with its place for messages.
      evaluations: questions that must not be trained on.
      grader: runs the solutions.
      max_pass_rate: share of trials below which a question is hard.
      seen: called after each row.

    Returns:
      The questions, and how many rows were dropped for each reason.

    Raises:
      BadInput: a row is not of KodCode-V1, or a question id comes twice.
    """
    counts: Counts = Counter()
    kept: list[KodCodeQuestion] = []
    for question, answers in _answered(_candidates(rows, evaluations, max_pass_rate, counts, seen), grader):
        checked = _with_right_tests(question, answers.result())
        if isinstance(checked, Dropped):
            counts[checked] += 1
        else:
            kept.append(checked)
    return kept, counts


def _candidates(
    rows: Rows, evaluations: NearDuplicates, max_pass_rate: float, counts: Counts, seen: Callable[[], None]
) -> Iterator[KodCodeQuestion]:
    """Yields the rows that may be kept, and counts those that are dropped by what they say."""
    asked: set[str] = set()
    for where, row in rows:
        question = read_row(row, where, max_pass_rate)
        if not isinstance(question, Dropped):
            words = " ".join(question.question.lower().split())
            if words in asked:
                question = Dropped.REPEATED
            elif evaluations.of(question.question, question.solution):
                question = Dropped.NEAR_DUPLICATE
            asked.add(words)
        if isinstance(question, Dropped):
            counts[question] += 1
        else:
            yield question
        seen()


def _answered(
    questions: Iterator[KodCodeQuestion], grader: Grader
) -> Iterator[tuple[KodCodeQuestion, Future[list[GroundTruthAnswer]]]]:
    """Yields each question with what its solution answers, a few questions ahead."""
    running: deque[tuple[KodCodeQuestion, Future[list[GroundTruthAnswer]]]] = deque()
    for question in questions:
        running.append((question, grader.ground_truth(question.solution, [test.call for test in question.tests])))
        if len(running) > _IN_FLIGHT:
            yield running.popleft()
    yield from running


def _with_right_tests(question: KodCodeQuestion, answers: Sequence[GroundTruthAnswer]) -> KodCodeQuestion | Dropped:
    if any(answer.reason == "infra" for answer in answers):
        return Dropped.SANDBOX
    right = tuple(
        test
        for test, answer in zip(question.tests, answers, strict=True)
        if answer.usable and answers_equal(answer.value, test.expected)
    )
    return replace(question, tests=right) if right else Dropped.NO_GOLDEN_TEST


def make_training_set(
    files: Sequence[str], output: str, exclude: Sequence[str] = (), max_pass_rate: float = HARD
) -> None:
    """Writes the questions of KodCode's `files` that can be trained on, and prints how many were dropped, and why.

    Args:
      files: Parquet, JSON lines or a JSON array; see `file_rows`.
      output: .parquet file that is not there yet, local or gs://.
      exclude: files of evaluation sets, whose questions must not be trained on.
      max_pass_rate: share of trials below which a question is hard.

    Raises:
      BadInput: one of the files cannot be used or the output be written, or no question is left.
      StorageFailed: a bucket fails.
    """
    path = location(output, "output")
    if path.suffix != ".parquet":
        raise BadInput(f"output {path} does not end in .parquet.")
    if exists(path):
        raise BadInput(f"output {path} is there already.")
    for file in files:
        next(
            file_rows(file, columns=COLUMNS), None
        )  # a file that cannot be read is reported before the first is worked on
    evaluations = NearDuplicates(question for file in exclude for question in load_questions(file))
    read: set[str] = set()
    with SandboxPool(isolation=AUTO) as pool, Progress(console=Console(stderr=True)) as progress:
        progress.console.print(pool.isolation_note)
        task = progress.add_task("rows", total=None)
        rows = (row for file in files for row in file_rows(file, columns=COLUMNS))
        kept, dropped = training_questions(
            _unrepeated(rows, read), evaluations, Grader(pool), max_pass_rate, lambda: progress.advance(task)
        )
    table, left = Table("", "questions", "left", box=None), len(read)
    table.add_row("rows read", "", f"{left:,}")
    for reason in Dropped:
        left -= dropped[reason]
        table.add_row(f"dropped: {reason.value}", f"{dropped[reason]:,}", f"{left:,}")
    tests = sum(len(question.tests) for question in kept)
    table.add_row(f"kept, with {tests:,} golden tests", f"{len(kept):,}", f"{left:,}")
    Console().print(table)
    if not kept:
        raise BadInput("no question is left, so nothing was written.")
    write_training_set(path, kept)
    print(f"wrote {path}")


def _unrepeated(rows: Rows, read: set[str]) -> Rows:
    """Yields rows, whose ids it adds to `read`. Raises BadInput where one comes twice."""
    for where, row in rows:
        if (id := str(row.get("question_id"))) in read:
            raise BadInput(f"{where}: question {id} comes twice.")
        read.add(id)
        yield where, row


def write_training_set(path: epath.Path, questions: Sequence[KodCodeQuestion]) -> None:
    """Writes the official columns as one Parquet file, whole or not at all."""
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([_row(question) for question in questions]), file)
    write_atomically(path, file.getvalue())


def _row(question: KodCodeQuestion) -> dict[str, Any]:
    problem = f"{question.question.rstrip()}\n\nThe function is declared as `{question.declaration}`."
    imports = (node for node in ast.parse(question.solution).body if isinstance(node, ast.Import | ast.ImportFrom))
    asked = Question(question.id, None, problem, question.question, question.solution, question.function_name)
    return {
        "prompt": code_messages(_TEMPLATES, asked),
        "problem": problem,
        "clean_description": question.question,
        "GT_code": question.solution,
        "GT_test": [test.text for test in question.tests],
        "data_source": DATA_SOURCE,
        "extra_info": {
            "question_id": question.id,
            "function_name": question.function_name,
            "function_declaration": question.declaration,
            "imports": "\n".join(map(ast.unparse, imports)),
        },
    }
