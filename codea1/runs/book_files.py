"""The Mistake Book of a saved step: a file for each shard, written by any number of hosts and read by any other number.

book/shard_00.jsonl.gz   gzip-compressed JSON lines, one for each question of the shard, in the order of their ids

The manifest of the step holds the checksums. Equal books are equal files: no times, no names, one form of JSON.
"""

import gzip
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint.future import CommitFutureAwaitingContractedSignals, Future

from codea1.game.book_pages import BookEntry, Page, Pages
from codea1.game.mistake_book import ALL_SHARDS, shard_of
from codea1.runtime.errors import BadInput, StorageFailed
from codea1.storage.checksums import Checksum, check_same, checksum_of, read_manifest
from codea1.storage.json_lines import loads
from codea1.storage.objects import names, read, write_atomically

_THREADS = 8  # each request to object storage has latency, however small the file
_GZIP_LEVEL = 5  # beyond it gzip takes twice the time for a few percent


class BookHandler(ocp.AsyncCheckpointHandler):
    """Saves the book as an item of a checkpoint, next to the arrays: every host its own shards, in the background."""

    async def async_save(self, directory: epath.Path, args: "BookSave") -> list[Future]:
        async def write() -> None:
            self.save(directory, args)

        # The coroutine waits for Orbax to make the folder.
        return [CommitFutureAwaitingContractedSignals(write(), name="mistake_book_save")]

    def save(self, directory: epath.Path, args: "BookSave") -> None:
        write_shards(directory, args.pages, args.shards)

    def finalize(self, directory: epath.Path) -> None:
        """Raises StorageFailed where a shard is missing once every host has written its own."""
        missing = {shard_file(shard) for shard in ALL_SHARDS} - set(names(directory))
        if missing:
            raise StorageFailed(f"{directory / min(missing)} is missing: no host wrote it, or the storage lost it.")

    def restore(self, directory: epath.Path, args: Any = None) -> Pages:
        return read_shards(directory)


@ocp.args.register_with_handler(BookHandler, for_save=True, for_restore=True)  # Orbax wants both
@dataclass
class BookSave(ocp.args.CheckpointArgs):
    """What one host saves of a book: `MistakeBook.pages`, which later updates leave alone."""

    pages: Mapping[str, Page]
    shards: Collection[int] = ALL_SHARDS  # of this host


def shard_file(shard: int) -> str:
    """Returns the name of a shard's file."""
    return f"shard_{shard:02d}.jsonl.gz"


def write_shards(folder: epath.Path, pages: Mapping[str, Page], shards: Collection[int] = ALL_SHARDS) -> None:
    """Writes the files of `shards`, which must hold all of `pages`. Raises StorageFailed."""
    by_shard: dict[int, Pages] = {shard: {} for shard in shards}
    for question_id, page in pages.items():
        by_shard[shard_of(question_id)][question_id] = page
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda shard: write_atomically(folder / shard_file(shard), encode(by_shard[shard])), shards))


def read_shards(folder: epath.Path, shards: Sequence[int] = ALL_SHARDS) -> Pages:
    """Returns what `shards` hold, exactly as it was written; no others are read.

    Args:
      folder: of the book, in that of its step, whose manifest says what each file must be.
      shards: some of the 64, whatever hosts wrote them.

    Raises:
      BadInput: one sentence that names the file that is missing, damaged or not what it should be.
      StorageFailed: it cannot be read.
    """
    beginning = f"{folder.name}/"
    listed = {name.removeprefix(beginning): entry for name, entry in read_manifest(folder.parent, beginning).items()}
    if not listed:
        raise BadInput(f"{folder.parent} has no Mistake Book.")
    pages: Pages = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        contents = pool.map(lambda shard: _read(folder, shard_file(shard), listed), shards)
        for shard, content in zip(shards, contents, strict=True):
            pages |= decode(folder / shard_file(shard), content, shard)
    return pages


def _read(folder: epath.Path, name: str, listed: Mapping[str, Checksum]) -> bytes:
    try:
        content = read(folder / name)
    except FileNotFoundError:
        raise BadInput(f"{folder / name} is missing.") from None
    check_same(folder / name, checksum_of(content), listed.get(name))
    return content


def encode(pages: Mapping[str, Page]) -> bytes:
    """Returns the content of a shard's file."""
    lines = []
    for question_id in sorted(pages):
        entries = [entry.to_json() for entry in pages[question_id].entries.values()]
        row = {"question_id": question_id, "truth": pages[question_id].ground_truth_digest, "entries": entries}
        lines.append(json.dumps(row, separators=(",", ":")) + "\n")
    return gzip.compress("".join(lines).encode(), _GZIP_LEVEL, mtime=0)


def decode(path: epath.Path, content: bytes, shard: int) -> Pages:
    """Returns what `encode` was given.

    Args:
      path: of the file, to name it.
      content: of the file.
      shard: which it is.

    Raises:
      BadInput: it is not such a file, or holds a question of another shard.
    """
    pages: Pages = {}
    try:
        for line in gzip.decompress(content).splitlines():
            row = loads(line)
            question_id, entries = row["question_id"], row["entries"]
            page = Page.of(row["truth"], map(BookEntry.from_json, entries))
            if question_id in pages or not entries or len(page.entries) != len(entries):
                raise ValueError(f"question {question_id} comes twice, has no tests, or one twice")
            if shard_of(question_id) != shard:
                raise ValueError(f"question {question_id} belongs to shard {shard_of(question_id)}")
            pages[question_id] = page
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is not a shard of a Mistake Book: {error}.") from None
    return pages
