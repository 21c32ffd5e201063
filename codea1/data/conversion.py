"""Rows of other datasets as a training set with the columns of the official Code-A1 file.

A format reads one row as a question, or says why it is none. What is read is then run: a question is kept where its
ground truth passes tests of its own, in two processes with different hash seeds. What is left out is counted by its
reason, and listed row by row.
"""

import ast
import io
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow
import pyarrow.parquet
from etils import epath
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from codea1.data.loader import load_questions, parsed
from codea1.data.near_duplicates import NearDuplicates
from codea1.game.asserts import golden_tests
from codea1.game.calls import CallTest
from codea1.game.prompts import DEFAULT, code_messages
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.runtime.futures import Awaiting, start
from codea1.sandbox.host.grading import Grader, GroundTruthAnswer
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.storage.objects import exists, is_folder, is_remote, location, write_atomically
from codea1.values import decode_exact
from codea1.values.checkers import same_answer
from codea1.values.verdict import Verdict

SAME_ID = "its id is an earlier row's"
NO_UNICODE = "its texts have a lone surrogate, which no file takes"
REPEATED = "asks what an earlier row asks"
NEAR_DUPLICATE = "nearly a question of an evaluation set"
NOT_PASSED = "its solution passes none of its tests, twice"
SANDBOX = "the sandbox failed to run its solution"

_IDS = ("question_id", "task_id", "problem_id", "name")  # fields of other datasets
_IN_FLIGHT = 64  # questions whose programs are being run
_TEMPLATES = replace(DEFAULT, dataset_prompts=False)

Row = Mapping[str, Any]
Rows = Iterable[tuple[str, Row]]


@dataclass(frozen=True)
class Format:
    """A kind of file, and where such files come from."""

    rows: Callable[[str], Rows]  # of a file or folder, each with its place; raises BadInput: it cannot be read
    read: Callable[[Row, str], Question | str]  # or why it is none; raises BadInput: it is no row of this format
    licence: str
    source: str
    answers_are_json: bool = False  # tests state lists where a solution may answer tuples


def declared(task: str, declaration: str) -> str:
    """Returns a task in words with the first line of the function that it asks for."""
    return f"{task.rstrip()}\n\nThe function is declared as `{declaration}`."


@dataclass(frozen=True)
class LeftOut:
    """A row that is no question of the training set."""

    where: str
    id: str
    reason: str


@dataclass
class Converted:
    """What became of the rows that were read."""

    kept: list[Question] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    read: int = 0
    unscripted: int = 0  # questions kept whose solution does not pass their check script, which is left out
    unexposed: int = 0  # mutants left out that no test of theirs exposes


def converted(
    format: Format, rows: Rows, evaluations: NearDuplicates, grader: Grader, seen: Callable[[], None]
) -> Converted:
    """Returns the questions of rows in their order, with the tests, check script and mutants that hold.

    Args:
      format: of the rows.
      rows: each with its place.
      evaluations: questions that must not be trained on.
      grader: runs the programs.
      seen: called after each row.

    Raises:
      BadInput: a row is not of the format.
    """
    result = Converted()
    running: deque[tuple[str, Question, Future[_Ran]]] = deque()
    asked: set[str] = set()
    ids: set[str] = set()
    for where, row in rows:
        result.read += 1
        read = format.read(row, where)
        seen()
        if isinstance(read, str):
            id = next((str(row[name]) for name in _IDS if row.get(name) is not None), "")
            result.left_out.append(LeftOut(where, id, read))
            continue
        unusable = SAME_ID if read.id in ids else "" if _is_unicode(read) else NO_UNICODE
        if unusable:
            result.left_out.append(LeftOut(where, read.id, unusable))
            continue
        ids.add(read.id)
        words = " ".join(read.problem.lower().split())
        is_near = evaluations.of(read.description, read.ground_truth) is not None
        reason = REPEATED if words in asked else NEAR_DUPLICATE if is_near else ""
        asked.add(words)
        if reason:
            result.left_out.append(LeftOut(where, read.id, reason))
            continue
        running.append((where, read, start(_run(read, grader))))
        if len(running) > _IN_FLIGHT:
            _take(result, format, *running.popleft())
    while running:
        _take(result, format, *running.popleft())
    return result


def _is_unicode(question: Question) -> bool:
    try:
        json.dumps(asdict(question), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class _Ran:
    """What the programs of a question did."""

    answers: list[GroundTruthAnswer]  # of its golden tests' calls
    passes_check: bool | None  # None: there is no script, or the sandbox failed
    exposed: list[bool]  # of its mutants: by the script or a golden test


def _run(question: Question, grader: Grader) -> Awaiting[_Ran]:
    tests = golden_tests(question)
    truth = question.module(question.ground_truth)
    answers = yield grader.ground_truth(truth, [test.call for test in tests])
    passes = yield from _passes_check(question, truth, grader)
    exposed = []
    for mutant in map(question.module, question.mutants):
        grading = yield grader.grade(mutant, tests)
        fails = Verdict.INFRA not in grading.verdicts and any(each is not Verdict.PASS for each in grading.verdicts)
        exposed.append(fails or (passes is True and (yield from _passes_check(question, mutant, grader)) is False))
    return _Ran(answers, passes, exposed)


def _passes_check(question: Question, module: str, grader: Grader) -> Awaiting[bool | None]:
    if not question.check_script:
        return None
    run = yield grader.check(module, question.check_script, question.entry_point)
    return None if run.verdict is Verdict.INFRA else run.verdict is Verdict.PASS


def _take(result: Converted, format: Format, where: str, question: Question, running: Future[_Ran]) -> None:
    """Adds a question to what is kept, with what of it holds, or to what is left out."""
    ran = running.result()
    tests = [
        held
        for test, answer in zip(golden_tests(question), ran.answers, strict=True)
        if (held := _held(test, answer, format.answers_are_json)) is not None
    ]
    if not tests and not ran.passes_check:
        lost = any(answer.reason == "infra" for answer in ran.answers)
        result.left_out.append(LeftOut(where, question.id, SANDBOX if lost else NOT_PASSED))
        return
    mutants = tuple(mutant for mutant, exposed in zip(question.mutants, ran.exposed, strict=True) if exposed)
    result.unexposed += len(question.mutants) - len(mutants)
    result.unscripted += bool(question.check_script) and not ran.passes_check
    script = question.check_script if ran.passes_check else None
    golden = tuple(test.text for test in tests)
    result.kept.append(replace(question, golden_tests=golden, mutants=mutants, check_script=script))


def _held(test: CallTest, answer: GroundTruthAnswer, as_json: bool) -> CallTest | None:
    """Returns a test that a ground truth passes, stating what it answers; None where it does not pass it."""
    if not answer.usable:
        return None
    if same_answer(test.call.entry_point, answer.value, test.expected):
        return test
    if as_json and _as_lists(decode_exact(answer.value)) == decode_exact(test.expected):
        return replace(test, expected=answer.value)
    return None


def _as_lists(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_lists(each) for each in value]
    return value


def make_training_set(format: Format, files: Sequence[str], output: str, exclude: Sequence[str] = ()) -> None:
    """Writes the questions of `files` that can be trained on, and prints how many were left out, and why.

    Beside the output, `OUTPUT.left_out.jsonl` says so of each row.

    Args:
      format: of the files.
      files: Parquet, JSON lines or a JSON array, see `file_rows`, or what else the format takes.
      output: .parquet file that is not there yet, local or gs://.
      exclude: files of evaluation sets, whose questions must not be trained on.

    Raises:
      BadInput: one of the files cannot be used or the output be written, or no question is left.
      StorageFailed: a bucket fails.
    """
    path = location(output, "output")
    if path.suffix != ".parquet":
        raise BadInput(f"output {path} does not end in .parquet.")
    if exists(path):
        raise BadInput(f"output {path} is there already.")
    above = next((each for each in path.parents if not is_remote(path) and exists(each)), None)
    if above and not is_folder(above):
        raise BadInput(f"output {path} cannot be written: {above} is no folder.")
    for file in files:  # one that cannot be read is reported before the first is worked on
        next(iter(format.rows(file)), None)
    evaluations = NearDuplicates(question for file in exclude for question in load_questions(file))
    with SandboxPool(isolation=AUTO) as pool, Progress(console=Console(stderr=True)) as progress:
        progress.console.print(pool.isolation_note)
        task = progress.add_task("rows", total=None)
        rows = (row for file in files for row in format.rows(file))
        result = converted(format, rows, evaluations, Grader(pool), lambda: progress.advance(task))
    _show(result)
    if not result.kept:
        raise BadInput("no question is left, so nothing was written.")
    write_training_set(path, format, result.kept)
    listed = path.with_suffix(".left_out.jsonl")
    lines = [json.dumps({"row": each.where, "question_id": each.id, "reason": each.reason}) for each in result.left_out]
    write_atomically(listed, "".join(f"{line}\n" for line in lines).encode())
    print(f"wrote {path} and, of {len(lines):,} rows left out, {listed}")


def _show(result: Converted) -> None:
    table, left = Table("", "questions", "left", box=None), result.read
    table.add_row("rows read", "", f"{left:,}")
    for reason, count in Counter(each.reason for each in result.left_out).most_common():
        left -= count
        table.add_row(f"left out: {reason}", f"{count:,}", f"{left:,}")
    tests = sum(len(question.golden_tests) for question in result.kept)
    scripts = sum(bool(question.check_script) for question in result.kept)
    mutants = sum(len(question.mutants) for question in result.kept)
    what = f"kept, with {tests:,} golden tests, {scripts:,} check scripts and {mutants:,} mutants"
    table.add_row(what, f"{len(result.kept):,}", f"{left:,}")
    if result.unscripted:
        table.add_row("check scripts left out that the own solution fails", f"{result.unscripted:,}", "")
    if result.unexposed:
        table.add_row("mutants left out that pass all tests", f"{result.unexposed:,}", "")
    Console().print(table)


def write_training_set(path: epath.Path, format: Format, questions: Sequence[Question]) -> None:
    """Writes the official columns as one Parquet file, whole or not at all."""
    file = io.BytesIO()
    rows = [_row(question, format) for question in questions]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    write_atomically(path, file.getvalue())


def _row(question: Question, format: Format) -> dict[str, Any]:
    tree = parsed(question.ground_truth)
    imports = (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)) if tree else ()
    return {
        "prompt": code_messages(_TEMPLATES, question),
        "problem": question.problem,
        "clean_description": question.description,
        "GT_code": question.ground_truth,
        "GT_test": list(question.golden_tests),
        "test": question.check_script,
        "mutants": list(question.mutants),
        "preamble": question.preamble,
        "data_source": question.data_source,
        "license": format.licence,
        "source": format.source,
        "extra_info": {
            "question_id": question.id,
            "function_name": question.entry_point,
            "imports": "\n".join(map(ast.unparse, imports)),
        },
    }
