"""KodCode's rows become a training set with the columns of the official Code-A1 file."""

import ast
import io
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow
import pyarrow.parquet
from etils import epath

from codea1.data.kodcode import Dropped, KodCodeQuestion, read_row
from codea1.data.near_duplicates import NearDuplicates
from codea1.game.ground_truth import answers_equal
from codea1.game.prompts import DEFAULT, code_messages
from codea1.game.question import Question
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.ground_truth import GroundTruthAnswer
from codea1.storage.objects import write_atomically

DATA_SOURCE = "kodcode_light"  # the tag of the official file
_IN_FLIGHT = 64  # questions whose ground truths are being run
_TEMPLATES = replace(DEFAULT, dataset_prompts=False)

Rows = Iterable[tuple[str, Mapping[str, Any]]]
Counts = Counter[Dropped]


def training_questions(
    rows: Rows, evaluations: NearDuplicates, grader: Grader, max_pass_rate: float, seen: Callable[[], None]
) -> tuple[list[KodCodeQuestion], Counts]:
    """The questions that are kept, with the tests that their solutions pass, in the order of the rows.

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
    """The rows that are dropped by what they say are counted; the others are yielded."""
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
    """Each question with what its solution answers, a few questions ahead."""
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


def write_training_set(path: epath.Path, questions: Sequence[KodCodeQuestion]) -> None:
    """Writes the official columns as one Parquet file, whole or not at all."""
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([_row(question) for question in questions]), file)
    write_atomically(path, file.getvalue())


def _row(question: KodCodeQuestion) -> dict[str, Any]:
    problem = f"{question.question.rstrip()}\n\nThe function is declared as `{question.declaration}`."
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
            "imports": _imports(question.solution),
        },
    }


def _imports(program: str) -> str:
    imports = [node for node in ast.parse(program).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return "\n".join(ast.unparse(node) for node in imports)
