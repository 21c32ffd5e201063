"""A Mistake Book on disk: a folder of shards, written by any number of hosts and read by any other number.

manifest.json        which shards there are, with counts and checksums; written last
shard_00.jsonl.gz    the questions of a shard with their tests; a shard without any has no file
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from etils import epath

from codea1.game.book_shards import ALL_SHARDS, shard_of
from codea1.game.mistake_book import Page, Pages
from codea1.runs.book_manifest import MANIFEST, ShardFile, encode_files, read_files
from codea1.runs.book_shard import decode_shard, encode_shard
from codea1.runtime.errors import BadInput, StorageFailed
from codea1.storage.objects import read as stored
from codea1.storage.objects import remove, write_atomically

_AT_ONCE = 8  # files: on object storage a file takes its time, however small


def write_shards(folder: epath.Path, pages: Mapping[str, Page], host: int) -> None:
    """Writes one host's shards, and a manifest of them under the host's name; `finish` makes the book of all parts.

    Raises StorageFailed.
    """
    by_shard: dict[int, Pages] = {}
    for question_id, page in pages.items():
        by_shard.setdefault(shard_of(question_id), {})[question_id] = page

    def write(shard: int) -> ShardFile:
        content = encode_shard(by_shard[shard])
        file = ShardFile.of(shard, by_shard[shard], content)
        write_atomically(folder / file.name, content)
        return file

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        files = list(pool.map(write, sorted(by_shard)))
    write_atomically(folder / _part(host), encode_files(files))


def finish(folder: epath.Path, hosts: int) -> None:
    """Writes the manifest, by which the book is whole, once every host has written its shards.

    Raises:
      StorageFailed: a host's part is missing or damaged, or two hosts wrote one shard.
    """
    parts = [folder / _part(host) for host in range(hosts)]
    try:
        files = [file for part in parts for file in read_files(part)]
    except BadInput as error:  # nobody gave it: the storage lost what was just written
        raise StorageFailed(str(error)) from None
    if len({file.shard for file in files}) != len(files):
        raise StorageFailed(f"{folder}: two hosts wrote the same shard.")
    write_atomically(folder / MANIFEST, encode_files(files))
    for part in parts:
        remove(part)


def read_shards(folder: epath.Path, shards: Iterable[int] = ALL_SHARDS) -> Pages:
    """Returns what `shards` hold, exactly as it was written; no other file but the manifest is read.

    Raises:
      BadInput: one sentence that names the file that is missing, damaged or not what it should be.
      StorageFailed: it cannot be read.
    """
    wanted = set(shards)
    files = [file for file in read_files(folder / MANIFEST) if file.shard in wanted]

    def read(file: ShardFile) -> bytes:
        try:
            return stored(folder / file.name)
        except FileNotFoundError:
            raise BadInput(f"{folder / file.name} is missing.") from None

    pages: Pages = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for file, content in zip(files, pool.map(read, files), strict=True):
            pages |= _pages(folder / file.name, file, content)
    return pages


def _pages(path: epath.Path, file: ShardFile, content: bytes) -> Pages:
    file.check(path, content)
    pages = decode_shard(path, content, file.shard)
    counts = len(pages), sum(len(page.entries) for page in pages.values())
    if counts != (file.questions, file.tests):
        raise BadInput(
            f"{path} holds {counts[0]} questions and {counts[1]} tests, but {MANIFEST} states {file.questions} and "
            f"{file.tests}."
        )
    return pages


def _part(host: int) -> str:
    return f"part_{host:05d}.json"
