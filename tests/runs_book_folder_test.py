"""Mistake Books on disk: written by some hosts, read by others, and never read wrongly."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.micro_run import content
from codea1.game.book_shards import ALL_SHARDS, NUM_SHARDS, shard_of, shards_of_host
from codea1.game.eviction import Bound
from codea1.game.mistake_book import Pages
from codea1.runs.book_folder import finish, read_shards, write_shards
from codea1.runs.book_manifest import MANIFEST, ShardFile, encode_files, read_files
from codea1.runs.book_shard import decode_shard, encode_shard
from codea1.runtime.errors import BadInput
from tests.mistake_books import UPDATES, big, replay

BIG = big(questions=150, tests=6)


def write(folder: Path, pages: Pages, hosts: int = 1) -> epath.Path:
    """Writes as `hosts` hosts would, the last of them first."""
    folder = epath.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for host in reversed(range(hosts)):
        own = {q: page for q, page in pages.items() if shard_of(q) in shards_of_host(host, hosts)}
        write_shards(folder, own, host)
    finish(folder, hosts)
    return folder


def files(folder: epath.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("writers", [1, 2, 3, 4])
def test_any_number_of_hosts_reads_what_any_number_wrote(tmp_path, writers):
    folder = write(tmp_path / "book", BIG, writers)
    assert files(folder) == files(write(tmp_path / "alone", BIG))
    assert len(files(folder)) > NUM_SHARDS / 2
    for readers in (1, 2, 3, 4, 70):
        parts = [read_shards(folder, shards_of_host(host, readers)) for host in range(readers)]
        whole = {question_id: page for part in parts for question_id, page in part.items()}
        assert content(whole) == content(BIG)
        assert sum(map(len, parts)) == len(BIG)  # each question on exactly one host


@settings(max_examples=25)
@given(UPDATES, st.integers(1, 4))
def test_a_book_comes_back_as_it_was_and_equal_books_are_equal_files(tmp_path_factory, updates, hosts):
    pages = replay(updates, 1, Bound())[0].pages()
    folder = write(tmp_path_factory.mktemp("book"), pages, hosts)
    assert content(read_shards(folder)) == content(pages)
    reordered = dict(sorted(pages.items(), reverse=True))
    assert files(write(tmp_path_factory.mktemp("book"), reordered)) == files(folder)


def test_an_empty_book_is_a_manifest(tmp_path):
    folder = write(tmp_path, {}, hosts=2)
    assert list(files(folder)) == [MANIFEST]
    assert read_shards(folder) == {}


def test_only_the_shards_asked_for_are_read(tmp_path):
    folder = write(tmp_path, BIG)
    own, other = shards_of_host(0, 2), shards_of_host(1, 2)
    for shard in other:
        (folder / f"shard_{shard:02d}.jsonl.gz").unlink(missing_ok=True)
    assert {shard_of(question_id) for question_id in read_shards(folder, own)} <= set(own)
    with pytest.raises(BadInput, match="missing"):
        read_shards(folder, other)


def test_the_manifest_counts_what_is_there(tmp_path):
    listed = read_files(write(tmp_path, BIG, 3) / MANIFEST)
    assert sum(file.questions for file in listed) == len(BIG)
    assert sum(file.tests for file in listed) == sum(len(page.entries) for page in BIG.values())
    assert [file.bytes for file in listed] == [(tmp_path / file.name).stat().st_size for file in listed]


def test_a_book_that_lacks_a_hosts_part_is_not_finished(tmp_path):
    folder = epath.Path(tmp_path)
    write_shards(folder, {}, 0)
    with pytest.raises(OSError, match=r"part_00001\.json"):
        finish(folder, 2)
    assert not (folder / MANIFEST).exists()


def test_two_hosts_with_one_shard_are_not_one_book(tmp_path):
    folder = epath.Path(tmp_path)
    write_shards(folder, BIG, 0)
    write_shards(folder, BIG, 1)
    with pytest.raises(OSError, match="two hosts"):
        finish(folder, 2)


def the_shard(folder: epath.Path) -> epath.Path:
    return folder / read_files(folder / MANIFEST)[3].name


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def change(path: epath.Path, how: Callable[[bytes], bytes]) -> None:
    path.write_bytes(how(path.read_bytes()))


def change_body(folder: epath.Path, how: Callable[[dict], None]) -> None:
    """Changes the manifest and leaves its checksum as it was."""
    body = json.loads((folder / MANIFEST).read_text())
    how(body)
    (folder / MANIFEST).write_text(json.dumps(body))


def resign(folder: epath.Path, **changes: object) -> None:
    """Changes the manifest's line on one shard, with a new checksum."""
    listed = read_files(folder / MANIFEST)
    listed[3] = ShardFile(**{**listed[3].__dict__, **changes})
    (folder / MANIFEST).write_text(encode_files(listed))


def rewrite_shard(folder: epath.Path, how: Callable[[list[dict]], object]) -> None:
    """Changes a shard's rows, and the manifest so that its checksum is right."""
    path = the_shard(folder)
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    how(rows)
    data = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    path.write_bytes(data)
    signed = ShardFile.of(0, {}, data)
    resign(folder, bytes=signed.bytes, sha256=signed.sha256)


MANIFEST_FAULTS = {
    "missing": lambda f: (f / MANIFEST).unlink(),
    "empty": lambda f: (f / MANIFEST).write_bytes(b""),
    "cut": lambda f: change(f / MANIFEST, lambda data: data[: len(data) // 2]),
    "not text": lambda f: change(f / MANIFEST, lambda data: b"\xff\xfe" + data),
    "flipped digit": lambda f: change(f / MANIFEST, lambda data: data.replace(b'"tests": ', b'"tests": 1', 1)),
    "not an object": lambda f: (f / MANIFEST).write_text("[]"),
    "no checksum": lambda f: change_body(f, lambda body: body.pop("sha256")),
    "wrong checksum": lambda f: change_body(f, lambda body: body.update(sha256="0" * 64)),
    "a shard left out": lambda f: change_body(f, lambda body: body["files"].pop()),
    "another format": lambda f: change_body(f, lambda body: body.update(format="2")),
    "a shard twice": lambda f: (f / MANIFEST).write_text(encode_files(read_files(f / MANIFEST)[:1] * 2)),
    "a shard too many": lambda f: resign(f, shard=NUM_SHARDS),
}
SHARD_FAULTS = {
    "missing": lambda f: the_shard(f).unlink(),
    "empty": lambda f: the_shard(f).write_bytes(b""),
    "cut": lambda f: change(the_shard(f), lambda data: data[:-9]),
    "cut and filled": lambda f: change(the_shard(f), lambda data: data[:-9] + bytes(9)),
    "longer": lambda f: change(the_shard(f), lambda data: data + b"\0"),
    "flipped in the header": lambda f: change(the_shard(f), lambda data: flipped(data, 4)),
    "flipped in the middle": lambda f: change(the_shard(f), lambda data: flipped(data, len(data) // 2)),
    "another shard's": lambda f: the_shard(f).write_bytes((f / read_files(f / MANIFEST)[5].name).read_bytes()),
    "of an older book": lambda f: the_shard(f).write_bytes(encode_shard({})),
    "not gzip": lambda f: _sign(f, b"plain"),
    "cut gzip, signed": lambda f: _sign(f, the_shard(f).read_bytes()[:-9]),
    "bad deflate, signed": lambda f: _sign(f, flipped(the_shard(f).read_bytes(), 30)),
    "not UTF-8": lambda f: _sign(f, gzip.compress(b"\xff")),
    "not JSON": lambda f: _sign(f, gzip.compress(b"{")),
    "not an object": lambda f: rewrite_shard(f, lambda rows: rows.insert(0, [])),
    "an entry that is none": lambda f: rewrite_shard(f, lambda rows: rows[0]["entries"].append(7)),
    "no entries": lambda f: rewrite_shard(f, lambda rows: rows[0].update(entries=[])),
    "a frequency of 0": lambda f: rewrite_shard(f, lambda rows: rows[0]["entries"][0].update(frequency=0)),
    "a test twice": lambda f: rewrite_shard(f, lambda rows: rows[0]["entries"].append(rows[0]["entries"][0])),
    "a question twice": lambda f: rewrite_shard(f, lambda rows: rows.append(rows[0])),
    "a question lost": lambda f: rewrite_shard(f, lambda rows: rows.pop()),
    "another shard's question": lambda f: rewrite_shard(f, lambda rows: rows[0].update(question_id="mbpp/2")),
    "counts": lambda f: resign(f, tests=1000),
}


def _sign(folder: epath.Path, data: bytes) -> None:
    the_shard(folder).write_bytes(data)
    signed = ShardFile.of(0, {}, data)
    resign(folder, bytes=signed.bytes, sha256=signed.sha256)


@pytest.mark.parametrize("fault", MANIFEST_FAULTS)
def test_a_bad_manifest_is_told_by_name(tmp_path, fault):
    folder = write(tmp_path, BIG)
    MANIFEST_FAULTS[fault](folder)
    check_sentence(folder, folder / MANIFEST)


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
        assert decode_shard(path, gzip.compress(data), 0) == {}
        return
    for bad in (data, gzip.compress(data)):
        with pytest.raises(BadInput, match=r"shard_00\.jsonl\.gz"):
            decode_shard(path, bad, 0)


@given(st.data())
def test_every_flipped_bit_of_a_shard_is_seen(data):
    pages = {q: page for q, page in BIG.items() if shard_of(q) == shard_of("mbpp/1")}
    right = encode_shard(pages)
    file = ShardFile.of(shard_of("mbpp/1"), pages, right)
    bit = data.draw(st.integers(0, 8 * len(right) - 1))
    wrong = bytearray(right)
    wrong[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadInput, match="damaged"):
        file.check(epath.Path(file.name), bytes(wrong))
    assert content(decode_shard(epath.Path(file.name), right, file.shard)) == content(pages)


def test_the_shards_are_sixty_four():
    assert len(ALL_SHARDS) == NUM_SHARDS == 64
