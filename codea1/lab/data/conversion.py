"""Rows of other datasets as a training set with the columns of the official Code-A1 file.

A format reads one row as a question, or says why it is none. What is read is then run: a question is kept where its
ground truth passes its tests, whenever it is run. What is left out is counted by its reason, and listed row by row.
"""

import ast
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, chain

from etils import epath
from rich.console import Console
from rich.progress import Progress

from codea1.data.loader import load_questions, parsed, rows_of
from codea1.data.rows import Row
from codea1.game.prompts import DEFAULT, code_messages
from codea1.game.question import Question
from codea1.lab.data.columns import LeftOut
from codea1.lab.data.conversion_parts import SANDBOX, Parts, RowOutcome, head_of
from codea1.lab.data.near_duplicates import NearDuplicates
from codea1.lab.data.solutions import SLOW_SECONDS, LostError, Solved, outcome_of
from codea1.lab.mutants import drawn_mutants
from codea1.lab.report.tables import TextTable
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import require
from codea1.runtime.futures import Awaiting, start
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.storage.objects import exists, is_folder, is_remote, location, write_atomically

NO_ROW = "it is no row of this form"
SAME_ID = "its id is an earlier row's"
NO_UNICODE = "its texts have a lone surrogate, which no file takes"
TOO_DEEP = "its programs are nested too deeply"
REPEATED = "asks what an earlier row asks"
NEAR_DUPLICATE = "nearly a question of an evaluation set"

PARTS = ("train", "validation", "test")  # of a split
_IDS = ("question_id", "task_id", "problem_id", "pid", "name")  # fields of other datasets
_IN_FLIGHT = 256  # rows, of which some have programs that are being run
_TEMPLATES = replace(DEFAULT, dataset_prompts=False)

Rows = Iterable[tuple[str, Row | BadInput]]


@dataclass(frozen=True)
class Format:
    """A kind of file, and where such files come from."""

    rows: Callable[[str], Rows]  # of a file or folder, each with its place; raises BadInput: it cannot be read
    # A row's question. Raises BadInput: it is no row of this form; LeftOut: it has none.
    read: Callable[[Row, str], Question | Solved]
    licence: str
    source: str
    answers_are_json: bool = False  # tests state lists where a solution may answer tuples
    # What rows of one task in other words have in common, which are never in two parts of a split.
    group: Callable[[Question], str] = lambda question: question.description
    settings: str = ""  # what else decides which questions are read
    min_passed: float = 1.0  # share of a row's tests that its solution must pass


def converted(
    format: Format,
    rows: Rows,
    evaluations: NearDuplicates,
    grader: Grader,
    seen: Callable[[], None],
    parts: Parts,
) -> list[RowOutcome]:
    """Returns what became of rows, in their order: questions with the tests, check script and mutants that hold.

    Args:
      evaluations: questions that must not be trained on.
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
    waiting: dict[Future[RowOutcome], int] = {}  # the rows' numbers

    def settle(most: int) -> None:
        """Takes the outcomes that are known, and waits until at most `most` are not."""
        done = wait(waiting, timeout=0).done
        while done or len(waiting) > most:
            for outcome in done:
                parts.add(waiting.pop(outcome), outcome.result())
            done = wait(waiting, return_when=FIRST_COMPLETED).done if len(waiting) > most else set()

    try:
        for number, (where, row) in enumerate(rows):
            if number in passed_over:
                if (done := parts.done[number]).asks:
                    asked.add(done.asks)
                    ids.add(done.id)
                continue
            waiting[start(_become(where, row, format, evaluations, grader, asked, ids))] = number
            seen()
            settle(_IN_FLIGHT)
        settle(0)
    finally:
        parts.store()
    return [outcome for _, outcome in sorted(parts.done.items())]


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
    reason, detail = "", ""
    try:
        if isinstance(row, BadInput):
            raise row
        read = format.read(row, where)
    except BadInput as error:
        reason, detail = NO_ROW, str(error).removeprefix(where).lstrip(": ")
    except LeftOut as error:
        reason = str(error)
    except RecursionError:
        reason = TOO_DEEP
    if reason:  # the row has what it calls itself for an id
        names = [] if isinstance(row, BadInput) else [str(row[name]) for name in _IDS if row.get(name) is not None]
        return RowOutcome(where, next(iter(names), ""), reason=reason, detail=detail)
    solved = read if isinstance(read, Solved) else Solved(read)
    question = solved.question
    try:
        json.dumps(asdict(solved), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return RowOutcome(where, question.id, reason=NO_UNICODE)
    asks = digest_of(question.problem)
    if question.id in ids and asks not in asked:
        return RowOutcome(where, question.id, reason=SAME_ID)
    programs = (question.ground_truth, *solved.others)
    is_near = any(evaluations.has(question.id, question.description, program) for program in programs)
    reason = REPEATED if asks in asked else NEAR_DUPLICATE if is_near else ""
    ids.add(question.id)
    asked.add(asks)
    if reason:
        return RowOutcome(where, question.id, asks, reason)
    try:
        outcome = yield from outcome_of(solved, format.answers_are_json, grader, format.min_passed)
    except LostError as error:
        outcome = RowOutcome("", question.id, reason=SANDBOX, detail=str(error))
    return replace(outcome, where=where, asks=asks)


def shares_of(split: str) -> dict[str, int]:
    """Returns the shares of a split such as 80/10/10, in percent, by part; the empty text is no split.

    Raises BadInput: it is not of that form.
    """
    if not split:
        return {}
    shares = split.split("/")
    if len(shares) != 3 or not all(map(str.isdecimal, shares)) or sum(map(int, shares)) != 100 or not int(shares[0]):
        raise BadInput(f"--split is {split!r}; it must be three percentages that make 100, such as 80/10/10.")
    return dict(zip(PARTS, map(int, shares), strict=True))


def digest_of(asked: str) -> str:
    """Returns the digest of a task, whatever its layout and the case of its letters."""
    return hashlib.blake2b(" ".join(asked.lower().split()).encode(), digest_size=16).hexdigest()


def part_of(group: str, shares: Mapping[str, int]) -> str:
    """Returns the part of a question by its group, whatever its solution and what else is in the file."""
    bounds, number = accumulate(shares.values()), int(digest_of(group), 16) % 100
    return next(part for part, bound in zip(shares, bounds, strict=True) if number < bound)


def make_training_set(
    format: Format,
    files: Sequence[str],
    output: str,
    exclude: Sequence[str] = (),
    split: str = "",
    mutants: int = 0,
) -> None:
    """Writes the questions of `files` that can be trained on, and prints how many were left out, and why.

    Beside the output, `OUTPUT.left_out.jsonl` says so of each row. Until it is there, `OUTPUT.parts` holds what became
    of the first rows: the same conversion, started again, goes on behind them. Rows on which the sandbox failed are
    tried again then, before anything is written; one on which it fails again is left out.

    Args:
      files: Parquet, JSON lines or a JSON array, see `file_rows`, or what else the format takes.
      output: .parquet file that is not there yet, local or gs://; of a split the folder of a file for each part.
      exclude: files of evaluation sets, whose questions must not be trained on.
      split: as `shares_of` takes it; empty: there is one file.
      mutants: made of the ground truth of each question that has none.

    Raises:
      BadInput: one of the files cannot be used or the output be written, the parts are another conversion's, or no
        question is left, or the sandbox failed on rows for the first time.
      StorageFailed: a disk or bucket fails.
    """
    shares = shares_of(split)
    outputs = _outputs(output, shares)
    path = location(output, "output")
    folder, listed = path.with_suffix(".parts"), path.with_suffix(".left_out.jsonl")
    _require_a_row(format, files)
    evaluations = NearDuplicates(question for file in exclude for question in load_questions(file))
    parts = Parts(folder, head_of(format.source, f"{format.settings} min_passed={format.min_passed:g}", files, exclude))
    with SandboxPool(isolation=AUTO) as pool, Progress(console=Console(stderr=True)) as progress:
        progress.console.print(pool.isolation_note)
        if settled := len(parts.done) - len(lost := parts.lost):
            progress.console.print(f"Going on behind {settled:,} rows, which {folder} holds.")
        task = progress.add_task("rows", total=None, completed=settled)
        rows = chain.from_iterable(map(format.rows, files))
        outcomes = converted(format, rows, evaluations, Grader(pool), lambda: progress.advance(task), parts)
    if new := sorted(parts.lost - lost):
        first = outcomes[new[0]]
        raise BadInput(
            f"the sandbox failed on {len(new):,} of {len(outcomes):,} rows, first on {first.where} "
            f"({first.detail}), so nothing was written; the same command tries them again."
        )
    parted: dict[str, list[Row]] = {part: [] for part in outputs}
    for outcome in outcomes:
        if question := outcome.question:
            part = part_of(format.group(question), shares) if shares else ""
            question = with_mutants(question, mutants) if mutants else question
            parted[part].append(_row(question, outcome.passed, format))
    _show(outcomes, {part: len(parted[part]) for part in shares})
    left_out = [outcome for outcome in outcomes if not outcome.question]
    if len(left_out) == len(outcomes):
        parts.remove()
        words = (f"; {row.where}: {row.reason}{row.detail and f' ({row.detail})'}" for row in left_out)
        raise BadInput(f"no question is left, so nothing was written{next(words, '')}.")
    lines = [
        json.dumps({"row": left.where, "question_id": left.id, "reason": left.reason, "detail": left.detail})
        for left in left_out
    ]
    write_atomically(listed, "".join(f"{line}\n" for line in lines).encode())
    for part, questions in parted.items():
        if questions:
            write_rows(outputs[part], questions)
    parts.remove()
    print(f"wrote {path} and, of {len(lines):,} rows left out, {listed}")
    if mutants:
        _tell_of_mutants([len(row["mutants"]) for row in chain.from_iterable(parted.values())])


def add_mutants(file: str, output: str, mutants: int) -> None:
    """Writes a file of questions again, with mutants made of the ground truth of each question that has none.

    Raises:
      BadInput: it is no file of questions, or the output cannot be written.
      StorageFailed: a disk or bucket fails.
    """
    (path,) = _outputs(output, {}).values()
    pairs = zip(rows_of(file, None, None), load_questions(file), strict=True)
    rows = [row | {"mutants": list(with_mutants(question, mutants).mutants)} for (_, row), question in pairs]
    write_rows(path, rows)
    print(f"wrote {path}")
    _tell_of_mutants([len(row["mutants"]) for row in rows])


def _tell_of_mutants(counts: Sequence[int]) -> None:
    """Prints how many of the questions have mutants, by how many each has."""
    print(f"{sum(map(bool, counts)):,} of {len(counts):,} questions have mutants, {sum(counts):,} in all")


def with_mutants(question: Question, count: int) -> Question:
    """Returns a question without mutants with so many made of its ground truth; they may be equivalent to it."""
    if question.mutants:
        return question
    return replace(question, mutants=drawn_mutants(question.ground_truth, count, question.id))


def write_rows(path: epath.Path, rows: Sequence[Row]) -> None:
    """Writes rows as one Parquet file, whole or not at all; one may lack columns that others have."""
    import pyarrow.parquet

    file, names = io.BytesIO(), dict.fromkeys(chain.from_iterable(rows))
    pyarrow.parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in names}), file)
    write_atomically(path, file.getvalue())


def _outputs(output: str, shares: Mapping[str, int]) -> dict[str, epath.Path]:
    """Returns the file of each part, the first part last; of no split the one file, whose part is the empty text.

    Raises BadInput: the output is there already, or cannot be written.
    """
    require("pyarrow", f"output {output}")
    path = location(output, "output")
    if (path.suffix == ".parquet") is bool(shares):
        raise BadInput(f"output {path} {'is no folder, for a split' if shares else 'does not end in .parquet'}.")
    outputs = {part: path / f"{part}.parquet" for part in reversed(list(shares))} or {"": path}
    if exists(list(outputs.values())[-1]):
        folder = path.with_suffix(".parts")
        of_parts = f"; {folder} went into it and can be removed" if exists(folder) else ""
        raise BadInput(f"output {path} is there already{of_parts}.")
    above = next((parent for parent in path.parents if not is_remote(path) and exists(parent)), None)
    if above and not is_folder(above):
        raise BadInput(f"output {path} cannot be written: {above} is no folder.")
    return outputs


def _require_a_row(format: Format, files: Sequence[str]) -> None:
    """Reports what is wrong with files before the first is worked on.

    Raises BadInput: one of them cannot be read, or nothing in any of them is a row of this form.
    """
    wrong = {file: _why_no_row(format, file) for file in files}
    if all(wrong.values()):
        raise BadInput(wrong[files[0]])
    for why in filter(None, wrong.values()):
        print(f"Passing over a file: {why}")


def _why_no_row(format: Format, file: str) -> str:
    """Returns why no row of a file is of this form; empty where one is. Raises BadInput: it cannot be read."""
    others: list[str] = []  # what is wrong with the rows so far
    for where, row in format.rows(file):
        try:
            if isinstance(row, BadInput):
                raise row
            format.read(row, where)
            return ""
        except (LeftOut, RecursionError):
            return ""
        except BadInput as error:
            others.append(str(error))
    if len(others) > 1:
        return f"none of {len(others):,} rows of {file} is of this form; {others[0]}"
    return others[0] if others else f"{file} has no row."


def _show(outcomes: Sequence[RowOutcome], parts: Mapping[str, int]) -> None:
    left, questions = len(outcomes), [outcome.question for outcome in outcomes if outcome.question]
    rows = [("rows read", "", f"{left:,}")]
    for reason, count in Counter(outcome.reason for outcome in outcomes if not outcome.question).most_common():
        left -= count
        rows.append((f"left out: {reason}", f"{count:,}", f"{left:,}"))
    tests = sum(len(question.golden_tests) for question in questions)
    scripts = sum(bool(question.check_script) for question in questions)
    mutants = sum(len(question.mutants) for question in questions)
    what = f"kept, with {tests:,} golden tests, {scripts:,} check scripts and {mutants:,} mutants"
    rows.append((what, f"{len(questions):,}", f"{left:,}"))
    lost = Counter(f"check scripts left out: {kept.lost_script}" for kept in outcomes if kept.lost_script)
    slow = f"kept with a solution that takes more than {SLOW_SECONDS:g} s for a test"
    more = {
        "mutants left out that pass all tests": sum(outcome.unexposed for outcome in outcomes),
        "tests left out: no data, or more than 64 KiB of it": sum(outcome.unread for outcome in outcomes),
        slow: sum(outcome.is_slow for outcome in outcomes),
        "kept without a solution: not run, for method=golden": sum(not question.ground_truth for question in questions),
    }
    dropped = sum((Counter(outcome.dropped) for outcome in outcomes), Counter())
    lost += Counter({f"tests left out: {reason}": count for reason, count in dropped.items()})
    counts = dict(lost.most_common()) | {what: count for what, count in more.items() if count}
    counts |= {f"in the part {part}": count for part, count in parts.items()}
    rows += [(what, f"{count:,}", "") for what, count in counts.items()]
    Console().print(TextTable(("", "questions", "left"), rows).terminal())


def _row(question: Question, passed: float, format: Format) -> Row:
    """Returns the official columns; the share of tests passed stands in extra_info."""
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
            "passed_tests": passed if question.ground_truth else None,
        },
    }
