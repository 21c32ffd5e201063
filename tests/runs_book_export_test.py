"""Exported books: readable by people, read back exactly."""

import gzip
import json
from collections.abc import Callable

import pytest
from etils import epath
from hypothesis import given, settings

from bench.micro_run import content
from codea1.game.mistake_book import Bound
from codea1.lab.runs.book_export import read_export, write_export
from codea1.runtime.errors import BadInput
from tests.mistake_books import UPDATES, filled, make, replay

PAGES = filled(make([1, "a"], {"k": (1, 2.5)}), make(2, None), make(2, None), step=4).pages()


@pytest.mark.parametrize("name", ["book.jsonl", "book.jsonl.gz"])
def test_an_export_is_readable_and_comes_back(tmp_path, name):
    path = epath.Path(tmp_path / name)
    write_export(path, PAGES)
    data = path.read_bytes()
    lines = (gzip.decompress(data) if name.endswith(".gz") else data).decode().splitlines()
    first, second = map(json.loads, lines)
    assert first["test"] == "assert f([1, 'a']) == {'k': (1, 2.5)}"
    assert (second["test"], second["question_id"], second["frequency"]) == ("assert f(2) == None", "q", 2)
    assert (second["first_seen"], second["last_failed"], second["last_passed"], second["hits"]) == (4, 4, None, 2)
    assert content(read_export(path)) == content(PAGES)


@settings(max_examples=25)
@given(UPDATES)
def test_any_book_comes_back(tmp_path_factory, updates):
    pages = replay(updates, 1, Bound())[0].pages()
    path = epath.Path(tmp_path_factory.mktemp("export") / "book.jsonl")
    write_export(path, pages)
    assert content(read_export(path)) == content(pages)


def edited(how: Callable[[dict], object]) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        first, *rest = data.splitlines(keepends=True)
        row = json.loads(first)
        how(row)
        return json.dumps(row).encode() + b"\n" + b"".join(rest)

    return edit


FAULTS = {
    "cut in a line": lambda data: data[:-5],
    "not JSON": lambda data: b"{\n" + data,
    "not UTF-8": lambda data: b"\xff\n" + data,
    "not an object": lambda data: b"[]\n" + data,
    "an empty line": lambda data: b"\n" + data,
    "a test twice": lambda data: data + data,
    "no question": edited(lambda row: row.pop("question_id")),
    "another ground truth": edited(lambda row: row.update(truth="x")),
    "frequency 0": edited(lambda row: row.update(frequency=0)),
    "edited test": edited(lambda row: row.update(test="assert f(3) == 4")),
    "arguments that do not decode": edited(lambda row: row.update(arguments="AAAA")),
    "arguments of another form": edited(lambda row: row.update(arguments=row["expected"])),
    "arguments that are not base64": edited(lambda row: row.update(arguments="?")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_export_is_told_by_name(tmp_path, fault):
    path = epath.Path(tmp_path / "book.jsonl")
    write_export(path, PAGES)
    path.write_bytes(FAULTS[fault](path.read_bytes()))
    with pytest.raises(BadInput, match=r"book\.jsonl"):
        read_export(path)


def test_an_export_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"file/book\.jsonl"):
        write_export(epath.Path(tmp_path / "file" / "book.jsonl"), PAGES)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
