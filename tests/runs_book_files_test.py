"""Mistake Books in saved steps: written by some hosts, read by others, and never read wrongly."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.micro_run import content
from codea1.game.book_pages import Pages
from codea1.game.mistake_book import NUM_SHARDS, Bound, shard_of, shards_of_host
from codea1.runs.book_files import BookHandler, decode, encode, read_shards, shard_file, write_shards
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import MANIFEST, write_manifest
from tests.mistake_books import UPDATES, big, replay

BIG = big(questions=150, tests=6)
SHARD = shard_of("mbpp/1")


def write(step: Path, pages: Pages, hosts: int = 1) -> epath.Path:
    """Writes as `hosts` hosts would, the last of them first. Returns the folder of the book."""
    folder = epath.Path(step) / "book"
    for host in reversed(range(hosts)):
        shards = shards_of_host(host, hosts)
        write_shards(folder, {q: page for q, page in pages.items() if shard_of(q) in shards}, shards)
    BookHandler().finalize(folder)
    write_manifest(folder.parent)
    return folder


def files(folder: epath.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("writers", [1, 2, 3, 4])
def test_any_number_of_hosts_reads_what_any_number_wrote(tmp_path, writers):
    folder = write(tmp_path / "1", BIG, writers)
    assert files(folder) == files(write(tmp_path / "2", BIG))
    for readers in (1, 2, 3, 4, 70):
        parts = [read_shards(folder, shards_of_host(host, readers)) for host in range(readers)]
        whole = {question_id: page for part in parts for question_id, page in part.items()}
        assert content(whole) == content(BIG)
        assert sum(map(len, parts)) == len(BIG)  # each question on exactly one host


@settings(max_examples=25)
@given(UPDATES, st.integers(1, 4))
def test_a_book_comes_back_as_it_was_and_equal_books_are_equal_files(tmp_path_factory, updates, hosts):
    pages = replay(updates, 1, Bound())[0].pages()
    folder = write(tmp_path_factory.mktemp("step"), pages, hosts)
    assert content(read_shards(folder)) == content(pages)
    reordered = dict(sorted(pages.items(), reverse=True))
    assert files(write(tmp_path_factory.mktemp("step"), reordered)) == files(folder)


def test_an_empty_book_is_a_book_and_no_book_is_none(tmp_path):
    assert read_shards(write(tmp_path / "1", {}, hosts=2)) == {}
    (tmp_path / "2").mkdir()
    write_manifest(epath.Path(tmp_path / "2"))
    with pytest.raises(BadInput, match=r"2 has no Mistake Book\.$"):
        read_shards(epath.Path(tmp_path / "2/book"))


def test_only_the_shards_asked_for_are_read(tmp_path):
    folder = write(tmp_path, BIG)
    own, other = shards_of_host(0, 2), shards_of_host(1, 2)
    for shard in other:
        (folder / shard_file(shard)).unlink()
    assert {shard_of(question_id) for question_id in read_shards(folder, own)} <= set(own)
    with pytest.raises(BadInput, match="missing"):
        read_shards(folder, other)


def test_a_book_that_lacks_a_hosts_shards_is_not_finished(tmp_path):
    folder = epath.Path(tmp_path)
    write_shards(folder, {}, shards_of_host(0, 2))
    with pytest.raises(OSError, match=r"shard_01\.jsonl\.gz is missing"):
        BookHandler().finalize(folder)


def test_a_host_writes_no_shard_of_another(tmp_path):
    with pytest.raises(KeyError):
        write_shards(epath.Path(tmp_path), BIG, shards_of_host(0, 2))


def the_shard(folder: epath.Path) -> epath.Path:
    return folder / shard_file(SHARD)


def manifest(folder: epath.Path) -> epath.Path:
    return folder.parent / MANIFEST


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def change(path: epath.Path, how: Callable[[bytes], bytes]) -> None:
    path.write_bytes(how(path.read_bytes()))


def sign(folder: epath.Path, data: bytes | None) -> None:
    """Replaces the shard, with a manifest that says so."""
    the_shard(folder).unlink()
    if data is not None:
        the_shard(folder).write_bytes(data)
    write_manifest(folder.parent)


def rewrite_shard(folder: epath.Path, how: Callable[[list[dict]], object]) -> None:
    """Changes a shard's rows, and the manifest so that its checksum is right."""
    rows = [json.loads(line) for line in gzip.decompress(the_shard(folder).read_bytes()).splitlines()]
    how(rows)
    sign(folder, gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


SHARD_FAULTS = {
    "missing": lambda f: the_shard(f).unlink(),
    "empty": lambda f: the_shard(f).write_bytes(b""),
    "cut": lambda f: change(the_shard(f), lambda data: data[:-9]),
    "flipped in the middle": lambda f: change(the_shard(f), lambda data: flipped(data, len(data) // 2)),
    "another shard's": lambda f: the_shard(f).write_bytes((f / shard_file((SHARD + 1) % NUM_SHARDS)).read_bytes()),
    "of an older book": lambda f: the_shard(f).write_bytes(encode({})),
    "not gzip": lambda f: sign(f, b"plain"),
    "cut gzip, signed": lambda f: sign(f, the_shard(f).read_bytes()[:-9]),
    "bad deflate, signed": lambda f: sign(f, flipped(the_shard(f).read_bytes(), 30)),
    "not UTF-8": lambda f: sign(f, gzip.compress(b"\xff")),
    "not an object": lambda f: rewrite_shard(f, lambda rows: rows.insert(0, [])),
    "an entry that is none": lambda f: rewrite_shard(f, lambda rows: rows[0]["entries"].append(7)),
    "no entries": lambda f: rewrite_shard(f, lambda rows: rows[0].update(entries=[])),
    "a frequency of 0": lambda f: rewrite_shard(f, lambda rows: rows[0]["entries"][0].update(frequency=0)),
    "a test twice": lambda f: rewrite_shard(f, lambda rows: rows[0]["entries"].append(rows[0]["entries"][0])),
    "a question twice": lambda f: rewrite_shard(f, lambda rows: rows.append(rows[0])),
    "another shard's question": lambda f: rewrite_shard(f, lambda rows: rows[0].update(question_id="mbpp/2")),
}


@pytest.mark.parametrize("fault", SHARD_FAULTS)
def test_a_bad_shard_is_told_by_name(tmp_path, fault):
    folder = write(tmp_path, BIG)
    path = the_shard(folder)
    SHARD_FAULTS[fault](folder)
    check_sentence(folder, path)


def check_sentence(folder: epath.Path, path: epath.Path) -> None:
    with pytest.raises(BadInput) as error:
        read_shards(folder)
    sentence = str(error.value)
    assert str(path) in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@given(st.binary(max_size=60))
def test_any_bytes_are_a_shard_or_a_sentence(data):
    path = epath.Path("shard_00.jsonl.gz")
    if not data:
        assert decode(path, gzip.compress(data), 0) == {}
        return
    for bad in (data, gzip.compress(data)):
        with pytest.raises(BadInput, match=r"shard_00\.jsonl\.gz"):
            decode(path, bad, 0)


@settings(max_examples=25)
@given(st.data())
def test_every_flipped_bit_of_a_shard_is_seen(tmp_path_factory, data):
    folder = write(tmp_path_factory.mktemp("step"), {q: page for q, page in BIG.items() if shard_of(q) == SHARD})
    right = the_shard(folder).read_bytes()
    bit = data.draw(st.integers(0, 8 * len(right) - 1))
    wrong = bytearray(right)
    wrong[bit // 8] ^= 1 << bit % 8
    the_shard(folder).write_bytes(wrong)
    with pytest.raises(BadInput, match="damaged"):
        read_shards(folder)
