"""The Mistake Book as one file for people and notebooks: JSON lines, a test each, gzip-compressed where it ends in .gz.

Each line says the test as Python source, its question, its counts and its history, and besides the encoded call and
answer from which the book is read back. `pandas.read_json(file, lines=True)` reads it.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from codea1.game.book_entry import BookEntry
from codea1.game.mistake_book import Page, Pages
from codea1.runtime.errors import BadInput
from codea1.storage.objects import write_atomically


def export_rows(pages: Mapping[str, Page]) -> Iterator[dict[str, Any]]:
    """Yields the lines' objects, by question id, tests in the book's order."""
    for question_id in sorted(pages):
        for entry in pages[question_id].entries.values():
            row = {"question_id": question_id, "test": entry.test.text, **entry.to_json()}
            yield {**row, "truth": pages[question_id].truth}


def write_export(path: epath.Path, pages: Mapping[str, Page]) -> None:
    """Writes the file, whole or not at all.

    Raises:
      BadInput: it cannot be written.
    """
    text = "".join(json.dumps(row) + "\n" for row in export_rows(pages)).encode()
    try:
        write_atomically(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}.") from None


def read_export(path: epath.Path) -> Pages:
    """Returns the book that a file written by `write_export` holds.

    Raises:
      BadInput: the file cannot be read, or names the line that is not such a test.
    """
    pages: dict[str, tuple[str, list[BookEntry]]] = {}
    for number, line in enumerate(_lines(path), start=1):
        try:
            question_id, truth, entry = _read_row(line)
            known, entries = pages.setdefault(question_id, (truth, []))
            if known != truth:
                raise ValueError(f"question {question_id} has another ground truth than in an earlier line")
        except ValueError as error:
            raise BadInput(f"{path}, line {number}: {error}.") from None
        entries.append(entry)
    return {question_id: _page(path, question_id, *page) for question_id, page in pages.items()}


def _lines(path: epath.Path) -> list[bytes]:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = _decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    *lines, rest = content.split(b"\n")
    if rest:
        raise BadInput(f"{path}, line {len(lines) + 1}: the file ends in the middle of a line.")
    return lines


def _decompress(content: bytes) -> bytes:
    if not content:  # to Python a file of no gzip members, to us one that was cut
        raise EOFError("it is empty")
    return gzip.decompress(content)


def _read_row(line: bytes) -> tuple[str, str, BookEntry]:
    row = json.loads(line)
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


def _page(path: epath.Path, question_id: str, truth: str, entries: Iterable[BookEntry]) -> Page:
    entries = list(entries)
    page = Page.of(truth, entries)
    if len(page.entries) != len(entries):
        raise BadInput(f"{path}: question {question_id} has a test twice.")
    return page
