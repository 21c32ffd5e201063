"""A shard of the Mistake Book as a file: gzip-compressed JSON lines, one for each question, in the order of their ids.

Equal shards are equal bytes: no times, no names, one form of JSON.
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

from etils import epath

from codea1.game.book_entry import BookEntry
from codea1.game.book_shards import shard_of
from codea1.game.mistake_book import Page, Pages
from codea1.runtime.errors import BadInput

_LEVEL = 5  # beyond it gzip takes twice the time for a few percent


def encode_shard(pages: Mapping[str, Page]) -> bytes:
    """Returns the content of the file."""
    lines = [_line(question_id, pages[question_id]) for question_id in sorted(pages)]
    return gzip.compress("".join(lines).encode(), _LEVEL, mtime=0)


def decode_shard(path: epath.Path, content: bytes, shard: int) -> Pages:
    """Returns what `encode_shard` was given.

    Args:
      path: of the file, to name it.
      content: of the file.
      shard: which it is.

    Raises:
      BadInput: it is not such a file, or holds a question of another shard.
    """
    try:
        lines = gzip.decompress(content).decode().splitlines()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise BadInput(f"{path} cannot be decompressed: {error}.") from None
    pages: Pages = {}
    for number, line in enumerate(lines, start=1):
        try:
            question_id, page = _read_line(line)
            if question_id in pages:
                raise ValueError(f"question {question_id} comes twice")
            if shard_of(question_id) != shard:
                raise ValueError(f"question {question_id} belongs to shard {shard_of(question_id)}")
        except ValueError as error:
            raise BadInput(f"{path}, line {number}: {error}.") from None
        pages[question_id] = page
    return pages


def _line(question_id: str, page: Page) -> str:
    entries = [entry.to_json() for entry in page.entries.values()]
    row = {"question_id": question_id, "truth": page.truth, "entries": entries}
    return json.dumps(row, separators=(",", ":")) + "\n"


def _read_line(line: str) -> tuple[str, Page]:
    row: Any = json.loads(line)
    if not isinstance(row, dict) or set(row) != {"question_id", "truth", "entries"}:
        raise ValueError("not an object of question_id, truth and entries")
    question_id, truth, entries = row["question_id"], row["truth"], row["entries"]
    if not isinstance(question_id, str) or not isinstance(truth, str) or not isinstance(entries, list):
        raise ValueError("question_id and truth must be text, and entries a list")
    page = Page.of(truth, map(BookEntry.from_json, entries))
    if not entries or len(page.entries) != len(entries):
        raise ValueError(f"question {question_id} has no tests, or one twice")
    return question_id, page
