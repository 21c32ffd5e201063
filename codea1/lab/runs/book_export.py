"""Mistake Books for people: opened from a run, a folder or a file, listed, exported, and read back.

An export is JSON lines, a test each, gzip-compressed where its name ends in .gz. Each line says the test as Python
source, its question, its counts and its history, and the encoded call and answer from which the book is read back.
`pandas.read_json(file, lines=True)` reads it.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from etils import epath
from rich.console import Console

from codea1.game.book_pages import BookEntry, Identity, Page, Pages
from codea1.lab.runs.rendering import draw, written
from codea1.runs.book_files import read_shards
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import MANIFEST
from codea1.storage.json_lines import loads
from codea1.storage.objects import exists, is_folder, write_atomically
from codea1.values.entry_points import same_answer

_SHOWN = 160  # characters of a test in a listing


def show_books(
    paths: Sequence[str],
    *,
    step: str = "last",
    question: str = "",
    text: str = "",
    questions: int = 20,
    top: int = 3,
    export: str = "",
) -> None:
    """Prints or exports the tests of one book, or of several as one.

    Args:
      paths: of the books; see `open_book`.
      step: of those that are runs: "last", "best" or a number.
      question: only questions whose id holds this.
      text: only tests whose Python source holds this.
      questions: that are listed.
      top: tests that are listed of each question.
      export: file to write; see `write_export`. "": the tests are listed.

    Raises BadInput: a book cannot be read, or is given twice, or the file cannot be written.
    """
    books = dict(open_book(path, step) for path in paths)
    if len(books) < len(paths):
        raise BadInput("the same book is given twice, so its failures would count twice.")
    pages = search(merge(books), question, text)
    if export:
        write_export(epath.Path(export), pages)
        print(f"wrote {export}: {counts(pages)}, of {' and '.join(books)}")
    else:
        heading = f"{' and '.join(books)}: {counts(pages)}"
        draw(Console(), *map(written, [heading, *listing(pages, questions, top)]))


def open_book(path: str, step: str) -> tuple[str, Pages]:
    """Returns a book and how to call it; nothing is written, so a live run is not disturbed.

    Args:
      path: a run folder, the folder of a saved book (`checkpoints/50/book`) or an exported file.
      step: of a run: "last", "best" or a number. Other books have one state and ignore it.

    Raises:
      BadInput: there is no such book or step, or it is damaged.
    """
    there = epath.Path(path)
    if not exists(there):
        raise BadInput(f"{path} does not exist.")
    if not is_folder(there):
        return str(there), read_export(there)
    if there.name == "book" and exists(there.parent / MANIFEST):
        return str(there), read_shards(there)
    if exists(there / MANIFEST):
        raise BadInput(f"{path} is not the book of a checkpoint.")
    run = RunFolder.existing(path)
    checkpoints = Checkpoints.reader(run.checkpoints)
    number = checkpoints.named(step, files="book/")
    try:
        return f"{run.path} after step {number}", checkpoints.restore_book(number)
    except BadInput:
        if number not in checkpoints.steps():
            raise BadInput(f"{run.checkpoints}: the run replaced step {number} while it was read; ask again.") from None
        raise
    finally:
        checkpoints.close()


def counts(pages: Mapping[str, Page]) -> str:
    """Returns how many questions and tests there are, in words."""
    return f"{len(pages):,} questions, {sum(len(page.entries) for page in pages.values()):,} tests"


def listing(pages: Mapping[str, Page], questions: int, top: int) -> Iterator[str]:
    """Yields lines on the `questions` questions with the most frequency, each with its `top` most frequent tests."""
    frequencies = {id: sum(entry.frequency for entry in page.entries.values()) for id, page in pages.items()}
    ranked = sorted(pages, key=lambda question_id: (-frequencies[question_id], question_id))
    for question_id in ranked[:questions]:
        entries = sorted(pages[question_id].entries.values(), key=lambda entry: -entry.frequency)
        yield ""
        yield f"{question_id}: {len(entries):,} tests, frequency {frequencies[question_id]:,}"
        for entry in entries[:top]:
            text = entry.test.text
            shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
            passed = "never passed" if entry.last_passed is None else f"passed in step {entry.last_passed}"
            history = f"failed {entry.hits:,} times in steps {entry.first_seen} to {entry.last_failed}, {passed}"
            yield f"  {entry.frequency:4d}  {shown}  # {history}"
        if len(entries) > top:
            yield f"        and {len(entries) - top:,} more"
    if len(ranked) > questions:
        yield ""
        yield f"and {len(ranked) - questions:,} questions more"


def write_export(path: epath.Path, pages: Mapping[str, Page]) -> None:
    """Writes the file, whole or not at all: by question id, tests in the book's order.

    Raises:
      BadInput: it cannot be written.
    """
    lines = []
    for question_id in sorted(pages):
        for entry in pages[question_id].entries.values():
            row = {"question_id": question_id, "test": entry.test.text, **entry.to_json()}
            lines.append(json.dumps({**row, "truth": pages[question_id].ground_truth_digest}) + "\n")
    text = "".join(lines).encode()
    try:
        write_atomically(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}.") from None


def read_export(path: epath.Path) -> Pages:
    """Returns the book that a file written by `write_export` holds.

    Raises:
      BadInput: the file cannot be read, or names the line that is not such a test.
    """
    merged: dict[str, tuple[str, dict[Identity, BookEntry]]] = {}
    for number, line in enumerate(_lines(path), start=1):
        try:
            question_id, truth, entry = _decode_line(line)
            known, entries = merged.setdefault(question_id, (truth, {}))
            if known != truth:
                raise ValueError(f"question {question_id} has another ground truth than in an earlier line")
            if entry.test.identity in entries:
                raise ValueError(f"question {question_id} has this test in an earlier line")
        except ValueError as error:
            raise BadInput(f"{path}, line {number}: {error}.") from None
        entries[entry.test.identity] = entry
    return {question_id: Page(*page) for question_id, page in merged.items()}


def _lines(path: epath.Path) -> list[bytes]:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            if not content:  # to Python a file of no gzip members, to us one that was cut
                raise EOFError("it is empty")
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    *lines, rest = content.split(b"\n")
    if rest:
        raise BadInput(f"{path}, line {len(lines) + 1}: the file ends in the middle of a line.")
    return lines


def _decode_line(line: bytes) -> tuple[str, str, BookEntry]:
    row = loads(line)
    entry = BookEntry.from_json(row)
    question_id, truth = row.get("question_id"), row.get("truth")
    if not isinstance(question_id, str) or not isinstance(truth, str):
        raise ValueError("question_id and truth must be text")
    try:
        text = entry.test.text
    except (ValueError, TypeError, AttributeError):  # decoded into something else than a call's arguments
        raise ValueError("arguments and expected are not an encoded call and its answer") from None
    if row.get("test") != text:
        raise ValueError("test is not what its encoded call and answer say")
    return question_id, truth, entry


def merge(books: Mapping[str, Mapping[str, Page]]) -> Pages:
    """Adds up books by their names: frequencies and hits are summed, steps become the first and the last.

    Meant for books of different runs: two steps of one run would count the same failures twice. A question's tests come
    in the order of the books, and within a book in its own. Of rewards the best stays.

    Raises:
      BadInput: two books have tests of a question with the answers of different ground truths.
    """
    merged: Pages = {}
    for name, pages in books.items():
        for question_id, page in pages.items():
            earlier = merged.get(question_id, Page(page.ground_truth_digest, {}))
            if earlier.ground_truth_digest != page.ground_truth_digest:
                raise BadInput(
                    f"{name} cannot be merged with the books before it: the ground truth of question {question_id} is "
                    "another there."
                )
            entries = dict(earlier.entries)
            for identity, entry in page.entries.items():
                known = entries.get(identity)
                if known and not same_answer(identity[0], known.test.expected, entry.test.expected):
                    raise BadInput(
                        f"{name}: question {question_id} has a test with another answer than the books before it."
                    )
                entries[identity] = _merge_entries(known, entry) if known else entry
            merged[question_id] = Page(page.ground_truth_digest, entries)
    return merged


def search(pages: Mapping[str, Page], question: str = "", text: str = "") -> Pages:
    """Returns the tests whose Python source holds `text`, of the questions whose id holds `question`."""
    matching = {}
    for question_id, page in pages.items():
        if question in question_id:
            entries = [entry for entry in page.entries.values() if not text or text in entry.test.text]
            if entries:
                matching[question_id] = Page.of(page.ground_truth_digest, entries)
    return matching


def _merge_entries(entry: BookEntry, other: BookEntry) -> BookEntry:
    passes = [step for step in (entry.last_passed, other.last_passed) if step is not None]
    rewards = [reward for reward in (entry.reward, other.reward) if reward is not None]
    return replace(
        entry,
        frequency=entry.frequency + other.frequency,
        first_seen=min(entry.first_seen, other.first_seen),
        hits=entry.hits + other.hits,
        last_failed=max(entry.last_failed, other.last_failed),
        last_passed=max(passes, default=None),
        reward=max(rewards, default=None),
    )
