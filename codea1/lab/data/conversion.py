"""Rows of other datasets as a training set with the columns of the official Code-A1 file.

A format reads one row as a question, or says why it is none. What is read is then run: a question is kept where its
ground truth passes tests of its own, in two processes with different hash seeds. What is left out is counted by its
reason, and listed row by row.
"""

import ast
import hashlib
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, chain
from typing import Any

from rich.console import Console
from rich.progress import Progress

from codea1.data.loader import load_questions, parsed
from codea1.game.asserts import golden_tests
from codea1.game.calls import CallTest
from codea1.game.grading import Judge
from codea1.game.prompts import DEFAULT, code_messages
from codea1.game.question import Question
from codea1.lab.data.conversion_parts import SANDBOX, Parts, RowOutcome, head_of
from codea1.lab.data.mutated import write_rows
from codea1.lab.data.near_duplicates import NearDuplicates
from codea1.lab.report.tables import TextTable
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import require
from codea1.runtime.futures import Awaiting, start
from codea1.sandbox.host import Limits, ScriptRun
from codea1.sandbox.host.grading import (
    GROUND_TRUTH_FACTOR,
    LOST,
    OF_CHECKER,
    Grader,
    Grading,
    GroundTruthAnswer,
    why_unjudged,
)
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.storage.objects import exists, is_folder, is_remote, location, write_atomically
from codea1.values import canonical_of, decode_exact, encode_canonical
from codea1.values.entry_points import RAISES, same_answer
from codea1.values.verdict import Verdict

NO_ROW = "it is no row of this form"
SAME_ID = "its id is an earlier row's"
NO_UNICODE = "its texts have a lone surrogate, which no file takes"
TOO_DEEP = "its programs are nested too deeply"
REPEATED = "asks what an earlier row asks"
NEAR_DUPLICATE = "nearly a question of an evaluation set"
NOT_PASSED = "its solution passes none of its tests, twice"
TOO_SLOW = "its solution runs out of time"
UNSTEADY = "its solution answers otherwise when it is run again"
NOT_HERE = "its solution imports {}, which is not here"
SCRIPT_CANNOT_RUN = "its check script cannot run"

MAX_SOLUTIONS = 5  # of a row that are tried
PARTS = ("train", "validation", "test")  # of a split
# Of a check script: what values may be besides Python's own, and a test that a call raises an exception of a name.
_NAMES = "from collections import deque\nfrom decimal import Decimal\nfrom fractions import Fraction\n"
_RAISES = """\
    try:
        {}
    except Exception as error:
        assert {!r} in (str(error).partition(":")[0], *(each.__name__ for each in type(error).__mro__))
    else:
        assert False
"""
_WHOLE: Mapping[str, int] = {}  # the shares of no split

_IDS = ("question_id", "task_id", "problem_id", "pid", "name")  # fields of other datasets
_IN_FLIGHT = 256  # rows, of which some have programs that are being run
_ASKED_AT_ONCE = 4  # tests of a ground truth, of which the first that runs out of time is the end
_SLOW_SECONDS = Limits.cpu_seconds_per_test / GROUND_TRUTH_FACTOR
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_TEMPLATES = replace(DEFAULT, dataset_prompts=False)

Row = Mapping[str, Any]
Rows = Iterable[tuple[str, Row | BadInput]]


@dataclass(frozen=True)
class Solved:
    """A question as it is read of a row, whose ground truth is yet to be run."""

    question: Question
    others: tuple[str, ...] = ()  # more solutions of the row, for where that one does not pass all of its tests
    unread: int = 0  # tests of the row that state no data, or too much, and stand in no script
    as_json: bool = False  # tests state lists for tuples, and may state an answer as the one item of a list
    script_of_held: bool = False  # its check script is made of the tests that hold


@dataclass(frozen=True)
class Format:
    """A kind of file, and where such files come from."""

    rows: Callable[[str], Rows]  # of a file or folder, each with its place; raises BadInput: it cannot be read
    # A row's question, or why it has none. Raises BadInput: it is no row of this form.
    read: Callable[[Row, str], Question | Solved | str]
    licence: str
    source: str
    answers_are_json: bool = False  # tests state lists where a solution may answer tuples
    # What rows of one task in other words have in common, which are never in two parts of a split.
    group: Callable[[Question], str] = lambda question: question.description
    settings: str = ""  # what else decides which questions are read
    # Of a set in two tables: the format of rows that have the columns of both, and those of the files that it reads.
    join: Callable[["Format", Sequence[str]], tuple["Format", Sequence[str]]] | None = None


def declared(task: str, declaration: str) -> str:
    """Returns a task in words with the first line of the function that it asks for."""
    return f"{task.rstrip()}\n\nThe function is declared as `{declaration}`."


def script_of_tests(tests: Iterable[CallTest]) -> str:
    """Returns a check script that states what one test or more do."""
    calls = {test: replace(test.call, entry_point=f"{test.call.form} candidate".strip()) for test in tests}
    lines = (
        _RAISES.format(call.text, call.form.split()[1])
        if call.form.startswith(RAISES)
        else f"    {replace(test, call=call).text}\n"
        for test, call in calls.items()
    )
    return f"{_NAMES}\n\ndef check(candidate):\n{''.join(lines)}"


@dataclass(frozen=True)
class Converted:
    """What became of the rows that were read."""

    outcomes: list[RowOutcome]

    @property
    def kept(self) -> list[Question]:
        """The questions of the training set."""
        return [each.question for each in self.outcomes if each.question]

    @property
    def left_out(self) -> list[RowOutcome]:
        """The rows that are no question of it."""
        return [each for each in self.outcomes if not each.question]


def converted(
    format: Format,
    rows: Rows,
    evaluations: NearDuplicates,
    grader: Grader,
    seen: Callable[[], None],
    parts: Parts,
) -> Converted:
    """Returns the questions of rows in their order, with the tests, check script and mutants that hold.

    Args:
      format: of the rows.
      rows: each with its place.
      evaluations: questions that must not be trained on.
      grader: runs the programs.
      seen: called after each row.
      parts: what became of rows in an earlier call, which are passed over unless the sandbox failed on them; what
        becomes of the others is added.

    Raises:
      BadInput: a file of the rows cannot be read further.
      StorageFailed: a part cannot be written.
    """
    asked: set[str] = set()
    ids: set[str] = set()
    passed_over = parts.done.keys() - parts.lost
    waiting: deque[tuple[int, Future[RowOutcome]]] = deque()

    def settle() -> None:
        number, outcome = waiting.popleft()
        parts.add(number, outcome.result())

    try:
        for number, (where, row) in enumerate(rows):
            if number in passed_over:
                if (done := parts.done[number]).asks:
                    asked.add(done.asks)
                    ids.add(done.id)
                continue
            waiting.append((number, start(_become(where, row, format, evaluations, grader, asked, ids))))
            seen()
            while waiting and (waiting[0][1].done() or len(waiting) > _IN_FLIGHT):
                settle()
        while waiting:
            settle()
    finally:
        parts.store()
    return Converted([outcome for _, outcome in sorted(parts.done.items())])


def _become(
    where: str,
    row: Row | BadInput,
    format: Format,
    evaluations: NearDuplicates,
    grader: Grader,
    asked: set[str],
    ids: set[str],
) -> Awaiting[RowOutcome]:
    """Returns what becomes of a row; adds its question to those asked, and its id, before anything is run."""
    try:
        if isinstance(row, BadInput):
            raise row
        read = format.read(row, where)
    except BadInput as error:
        return RowOutcome(where, _named(row), reason=NO_ROW, detail=str(error).removeprefix(where).lstrip(": "))
    except RecursionError:
        return RowOutcome(where, _named(row), reason=TOO_DEEP)
    if isinstance(read, str):
        return RowOutcome(where, _named(row), reason=read)
    solved = read if isinstance(read, Solved) else Solved(read)
    question = solved.question
    if not _is_unicode(solved):
        return RowOutcome(where, question.id, reason=NO_UNICODE)
    asks = digest_of(question.problem)
    if question.id in ids and asks not in asked:
        return RowOutcome(where, question.id, reason=SAME_ID)
    programs = (question.ground_truth, *solved.others)
    is_near = any(evaluations.of(question.id, question.description, program) is not None for program in programs)
    reason = REPEATED if asks in asked else NEAR_DUPLICATE if is_near else ""
    ids.add(question.id)
    asked.add(asks)
    if reason:
        return RowOutcome(where, question.id, asks, reason)
    try:
        outcome = yield from _outcome(solved, format, grader)
    except _LostError as error:
        outcome = RowOutcome("", question.id, reason=SANDBOX, detail=str(error))
    return replace(outcome, where=where, asks=asks)


class _LostError(Exception):
    """The sandbox failed on one of a row's programs, so what the row is is not known."""


def _graded(judge: Judge, program: str, tests: Sequence[CallTest]) -> Awaiting[Grading]:
    """Grades a program. Raises _LostError; a checker that fails by itself is the row's own."""
    grading = yield judge.grade(program, tests)
    lost = [
        detail
        for verdict, detail in zip(grading.verdicts, grading.details, strict=True)
        if verdict is Verdict.INFRA and not detail.startswith(OF_CHECKER)
    ]
    if grading.program_valid is None or lost:
        raise _LostError(next(filter(None, lost), LOST))
    return grading


def _checked(judge: Judge, program: str) -> Awaiting[ScriptRun]:
    """Runs the check script on a program. Raises _LostError."""
    run = yield judge.check(program)
    if run.verdict is Verdict.INFRA:
        raise _LostError(run.detail)
    return run


def _named(row: Row | BadInput) -> str:
    """Returns what a row that is no question calls itself, empty where that is nothing."""
    names = [] if isinstance(row, BadInput) else [str(row[name]) for name in _IDS if row.get(name) is not None]
    return names[0] if names else ""


def _is_unicode(solved: Solved) -> bool:
    try:
        json.dumps(asdict(solved), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class _Tried:
    """A question with one of its row's solutions as the ground truth, and what that answers."""

    question: Question
    answers: list[GroundTruthAnswer]  # of its golden tests' calls
    held: list[CallTest]  # of its golden tests


def _outcome(solved: Solved, format: Format, grader: Grader) -> Awaiting[RowOutcome]:
    """Runs the programs of a question, with one solution after another as its ground truth, until one passes all."""
    if not solved.question.ground_truth:
        return RowOutcome("", solved.question.id, question=solved.question, unread=solved.unread)
    tests = golden_tests(solved.question)
    programs = (solved.question.ground_truth, *solved.others)
    all_tried: list[_Tried] = []
    for program in programs:
        question = replace(solved.question, ground_truth=program)
        answers = yield from _answers(Judge(question, grader), tests)
        pairs = zip(tests, answers, strict=True)
        as_json = format.answers_are_json or solved.as_json
        held = [test for each in pairs if (test := _held(*each, as_json, solved.as_json)) is not None]
        if question.checker and len(held) < len(tests):
            # What the checker takes is right as well, and a test states what the ground truth prints.
            answered = [(test, answer.value) for test, answer in zip(tests, answers, strict=True) if answer.usable]
            grading = yield from _graded(Judge(question, grader), program, [test for test, _ in answered])
            graded = zip(answered, grading.verdicts, strict=True)
            held = [replace(test, expected=value) for (test, value), verdict in graded if verdict is Verdict.PASS]
        all_tried.append(_Tried(question, answers, held))
        if len(held) == len(tests):
            break
    tried = max(all_tried, key=lambda each: len(each.held))  # the first of equals
    question, run = tried.question, None
    if solved.script_of_held and tried.held:
        question = replace(question, check_script=script_of_tests(tried.held))
    script, judge = question.check_script, Judge(question, grader)
    # A script has a longer limit: what ends for a test may end there. That of a whole program has only the same calls.
    is_late = any(answer.reason == "timeout" for answer in tried.answers)
    if script and not (is_late and (not tried.held or question.form == "program")):
        run = yield from _checked(judge, question.ground_truth)
    passes = run is not None and run.verdict is Verdict.PASS
    if not tried.held and not passes:
        reason, detail = yield from _why_left_out(tried, tests, run, judge)
        details = [detail, f"{len(all_tried)} of its solutions were tried"] if solved.others else [detail]
        return RowOutcome("", question.id, reason=reason, detail="; ".join(filter(None, details)))
    exposed = []
    for mutant in question.mutants:
        exposed.append((yield from _is_exposed(judge, mutant, tried.held, passes)))
    kept = replace(
        question,
        golden_tests=tuple(test.text for test in tried.held),
        mutants=tuple(mutant for mutant, is_exposed in zip(question.mutants, exposed, strict=True) if is_exposed),
        check_script=script if passes else None,
    )
    return RowOutcome(
        "",
        question.id,
        question=kept,
        lost_script="" if passes or not script else _why_lost_script(script, run),
        unexposed=exposed.count(False),
        unread=solved.unread,
        is_slow=any(answer.cpu_seconds > _SLOW_SECONDS for answer in tried.answers),
    )


def _answers(judge: Judge, tests: Sequence[CallTest]) -> Awaiting[list[GroundTruthAnswer]]:
    """Asks a ground truth about its tests from the smallest; those behind one that takes too long, it is not asked.

    Raises _LostError.
    """
    answers = [GroundTruthAnswer(False, b"", "timeout", 0.0)] * len(tests)
    order = _from_the_smallest(tests)
    for first in (0, *range(1, len(tests), _ASKED_AT_ONCE)):
        numbers = order[first : first + _ASKED_AT_ONCE] if first else order[:1]
        given = yield from judge.answers(tests[number].call for number in numbers)
        if any(answer.reason == "infra" for answer in given.values()):
            raise _LostError(LOST)
        for number in numbers:
            answers[number] = given[tests[number].call]
        if any(answer.reason == "timeout" for answer in given.values()):
            break
    return answers


def _from_the_smallest(tests: Sequence[CallTest]) -> list[int]:
    return sorted(range(len(tests)), key=lambda number: len(tests[number].call.arguments))


def _is_exposed(judge: Judge, mutant: str, tests: Sequence[CallTest], passes_check: bool) -> Awaiting[bool]:
    """Returns whether a golden test fails a mutant or, where the ground truth passes it, the check script."""
    verdicts = (yield from _graded(judge, mutant, tests)).verdicts
    if Verdict.INFRA not in verdicts and any(each is not Verdict.PASS for each in verdicts):
        return True
    if not passes_check or judge.question.check_script is None:
        return False
    return (yield from _checked(judge, mutant)).verdict is not Verdict.PASS


def _why_left_out(
    tried: _Tried, tests: Sequence[CallTest], run: ScriptRun | None, judge: Judge
) -> Awaiting[tuple[str, str]]:
    """Returns why none of a question's tests holds, by what the smallest says, and more in words."""
    if not tests:
        return _why_failed(run)
    first = _from_the_smallest(tests)[0]
    answer = tried.answers[first]
    if answer.reason == "timeout":
        return TOO_SLOW, f"its smallest test takes more than {Limits.cpu_seconds_per_test:g} s of CPU time"
    if answer.reason == "disagrees":
        return UNSTEADY, ""
    if answer.reason != "raises":
        return NOT_PASSED, answer.reason
    grading = yield from _graded(judge, tried.question.ground_truth, [tests[first]])
    return _why_raised(grading.details[0])


def _why_failed(run: ScriptRun | None) -> tuple[str, str]:
    """Returns why a check script that is all of a question's tests does not hold."""
    if run is None:
        return NOT_PASSED, "none of its tests states data"
    if run.verdict is Verdict.TIMEOUT:
        return TOO_SLOW, run.detail
    return (SCRIPT_CANNOT_RUN, run.detail) if why_unjudged(run) else _why_raised(run.detail)


def _why_raised(raised: str) -> tuple[str, str]:
    missing = _NO_MODULE.search(raised)
    return (NOT_HERE.format(missing[1]), "") if missing else (NOT_PASSED, " ".join(raised.split()))


def _why_lost_script(script: str, run: ScriptRun | None) -> str:
    """Returns why the check script of a question that is kept is left out; `run` is None where it was not run."""
    if parsed(script) is None:
        return "they do not parse"
    if run is None or run.verdict is Verdict.TIMEOUT:
        return "their solution runs out of time"
    return "they cannot run" if why_unjudged(run) else "their solution fails them"


def _held(test: CallTest, answer: GroundTruthAnswer, as_json: bool, may_be_wrapped: bool) -> CallTest | None:
    """Returns a test that a ground truth passes, stating what it answers; None where it does not pass it."""
    if not answer.usable:
        return None
    if same_answer(test.call.entry_point, answer.value, test.expected):
        return test
    # No set is built: a program chooses its members, which may take for ever to compare.
    if not as_json:
        return None
    answered, expected = _as_lists(decode_exact(answer.value, hashed=False)), canonical_of(test.expected)
    is_same = encode_canonical(answered) == expected or (may_be_wrapped and encode_canonical([answered]) == expected)
    return replace(test, expected=answer.value) if is_same else None


def _as_lists(value: Any) -> Any:
    return [_as_lists(each) for each in value] if type(value) in (list, tuple) else value


def shares_of(split: str) -> dict[str, int]:
    """Returns the shares of a split such as 80/10/10, in percent, by part; the empty text is no split.

    Raises BadInput: it is not of that form.
    """
    if not split:
        return {}
    numbers = split.split("/")
    if (
        len(numbers) != 3
        or not all(map(str.isdecimal, numbers))
        or sum(map(int, numbers)) != 100
        or not int(numbers[0])
    ):
        raise BadInput(f"--split is {split!r}; it must be three percentages that make 100, such as 80/10/10.")
    return dict(zip(PARTS, map(int, numbers), strict=True))


def digest_of(asked: str) -> str:
    """Returns the digest of a task, whatever its layout and the case of its letters."""
    return hashlib.blake2b(" ".join(asked.lower().split()).encode(), digest_size=16).hexdigest()


def part_of(group: str, shares: Mapping[str, int]) -> str:
    """Returns the part of a question by its group, whatever its solution and what else is in the file."""
    bounds, number = accumulate(shares.values()), int(digest_of(group), 16) % 100
    return next(part for part, bound in zip(shares, bounds, strict=True) if number < bound)


def make_training_set(
    format: Format, files: Sequence[str], output: str, exclude: Sequence[str] = (), shares: Mapping[str, int] = _WHOLE
) -> None:
    """Writes the questions of `files` that can be trained on, and prints how many were left out, and why.

    Beside the output, `OUTPUT.left_out.jsonl` says so of each row. Until it is there, `OUTPUT.parts` holds what became
    of the first rows: the same conversion, started again, goes on behind them. Rows on which the sandbox failed are
    tried again then, before anything is written; one on which it fails again is left out.

    Args:
      format: of the files.
      files: Parquet, JSON lines or a JSON array, see `file_rows`, or what else the format takes.
      output: .parquet file that is not there yet, local or gs://; of a split the folder of a file for each part.
      exclude: files of evaluation sets, whose questions must not be trained on.
      shares: of a split, as `shares_of` returns them; none: there is one file.

    Raises:
      BadInput: one of the files cannot be used or the output be written, the parts are another conversion's, or no
        question is left, or the sandbox failed on rows for the first time.
      StorageFailed: a disk or bucket fails.
    """
    require("pyarrow", f"output {output}")
    path = location(output, "output")
    if (path.suffix == ".parquet") is bool(shares):
        raise BadInput(f"output {path} {'is no folder, for a split' if shares else 'does not end in .parquet'}.")
    # The first part comes last.
    outputs = {part: path / f"{part}.parquet" for part in reversed(list(shares))} or {"": path}
    folder = path.with_suffix(".parts")
    if exists(list(outputs.values())[-1]):
        of_parts = f"; {folder} went into it and can be removed" if exists(folder) else ""
        raise BadInput(f"output {path} is there already{of_parts}.")
    above = next((each for each in path.parents if not is_remote(path) and exists(each)), None)
    if above and not is_folder(above):
        raise BadInput(f"output {path} cannot be written: {above} is no folder.")
    format, tables = format.join(format, files) if format.join else (format, files)
    for file in tables:  # one that cannot be read is reported before the first is worked on
        _require_a_row(format, file)
    evaluations = NearDuplicates(question for file in exclude for question in load_questions(file))
    parts = Parts(folder, head_of(format.source, format.settings, files, exclude))
    with SandboxPool(isolation=AUTO) as pool, Progress(console=Console(stderr=True)) as progress:
        progress.console.print(pool.isolation_note)
        lost = parts.lost
        if settled := len(parts.done) - len(lost):
            progress.console.print(f"Going on behind {settled:,} rows, which {folder} holds.")
        task = progress.add_task("rows", total=None, completed=settled)
        rows = chain.from_iterable(map(format.rows, tables))
        result = converted(format, rows, evaluations, Grader(pool), lambda: progress.advance(task), parts)
    if new := sorted(parts.lost - lost):
        first = result.outcomes[new[0]]
        raise BadInput(
            f"the sandbox failed on {len(new):,} of {len(result.outcomes):,} rows, first on {first.where} "
            f"({first.detail}), so nothing was written; the same command tries them again."
        )
    parted: dict[str, list[Question]] = {part: [] for part in outputs}
    for each in result.outcomes:
        if each.question:
            parted[part_of(format.group(each.question), shares) if shares else ""].append(each.question)
    _show(result, {part: len(parted[part]) for part in shares})
    if not result.kept:
        parts.remove()
        first = next((f"; {each.where}: {_in_words(each)}" for each in result.left_out), "")
        raise BadInput(f"no question is left, so nothing was written{first}.")
    lines = [
        json.dumps({"row": each.where, "question_id": each.id, "reason": each.reason, "detail": each.detail})
        for each in result.left_out
    ]
    listed = path.with_suffix(".left_out.jsonl")
    write_atomically(listed, "".join(f"{line}\n" for line in lines).encode())
    for part, questions in parted.items():
        if questions:
            write_rows(outputs[part], [_row(question, format) for question in questions])
    parts.remove()
    print(f"wrote {path} and, of {len(lines):,} rows left out, {listed}")


def _require_a_row(format: Format, file: str) -> None:
    """Raises BadInput for a file that cannot be read, or in which nothing is a row of this form."""
    others: list[str] = []  # what is wrong with the rows so far
    for where, row in format.rows(file):
        try:
            if isinstance(row, BadInput):
                raise row
            format.read(row, where)
            return
        except RecursionError:
            return
        except BadInput as error:
            others.append(str(error))
    if not others:
        raise BadInput(f"{file} has no row.")
    raise BadInput(others[0] if len(others) == 1 else f"none of {len(others):,} rows is of this form; {others[0]}")


def _in_words(outcome: RowOutcome) -> str:
    return f"{outcome.reason} ({outcome.detail})" if outcome.detail else outcome.reason


def _show(result: Converted, parts: Mapping[str, int]) -> None:
    left = len(result.outcomes)
    rows = [("rows read", "", f"{left:,}")]
    for reason, count in Counter(each.reason for each in result.left_out).most_common():
        left -= count
        rows.append((f"left out: {reason}", f"{count:,}", f"{left:,}"))
    tests = sum(len(question.golden_tests) for question in result.kept)
    scripts = sum(bool(question.check_script) for question in result.kept)
    mutants = sum(len(question.mutants) for question in result.kept)
    what = f"kept, with {tests:,} golden tests, {scripts:,} check scripts and {mutants:,} mutants"
    rows.append((what, f"{len(result.kept):,}", f"{left:,}"))
    for reason, count in Counter(each.lost_script for each in result.outcomes if each.lost_script).most_common():
        rows.append((f"check scripts left out: {reason}", f"{count:,}", ""))
    unsolved = "kept without a solution: not run, for method=golden"
    slow = f"kept with a solution that takes more than {_SLOW_SECONDS:g} s for a test"
    for what, count in {
        "mutants left out that pass all tests": sum(each.unexposed for each in result.outcomes),
        "tests left out: no data, or more than 64 KiB of it": sum(each.unread for each in result.outcomes),
        slow: sum(each.is_slow for each in result.outcomes),
        unsolved: sum(not each.ground_truth for each in result.kept),
    }.items():
        if count:
            rows.append((what, f"{count:,}", ""))
    rows += [(f"in the part {part}", f"{count:,}", "") for part, count in parts.items()]
    Console().print(TextTable(("", "questions", "left"), rows).terminal())


def _row(question: Question, format: Format) -> dict[str, Any]:
    """Returns the official columns."""
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
        "checker": question.checker,
        "data_source": question.data_source,
        "license": format.licence,
        "source": format.source,
        "extra_info": {
            "question_id": question.id,
            "function_name": question.entry_point,
            "imports": "\n".join(map(ast.unparse, imports)),
        },
    }
