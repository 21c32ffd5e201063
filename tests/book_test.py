"""`python -m codea1.lab book` on runs, folders and files."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from bench.micro_run import content
from codea1.game.book_pages import Pages
from codea1.game.mistake_book import MistakeBook
from codea1.lab.runs.book_export import open_book, read_export, show_books
from codea1.runs.book_files import BookSave
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from tests.mistake_books import TRUTH, failed, filled, make, passed


def first_book() -> Pages:
    mistakes = filled(make([1, 2], 3), make("x", "y" * 500), make([1, 2], 3), step=2)
    mistakes.update("mbpp/7", TRUTH, 3, failed(*[make(n, n) for n in range(5)] * 2))
    mistakes.update("mbpp/7", TRUTH, 4, passed(make(0, 0)))
    return mistakes.pages()


def save_run(folder: Path, books: list[tuple[int, Pages, float | None]]) -> str:
    run = RunFolder.open(str(folder), {"steps": 9})
    checkpoints = Checkpoints(run.checkpoints, keep_last=9, keep_best=1)
    for step, pages, score in books:
        checkpoints.save(step, {"x": jnp.arange(2)}, {}, score, BookSave(pages))
    checkpoints.close()
    return str(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return save_run(folder, [(3, first_book(), 0.9), (6, filled(make(9, 9)).pages(), 0.1)])


def printed(capsys, *paths: str, **options: Any) -> list[str]:
    show_books(paths, **options)
    return capsys.readouterr().out.splitlines()


def refused(capsys, *paths: str, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        show_books(paths, **options)
    assert (capsys.readouterr().out, "\n" in str(caught.value)) == ("", False)
    return str(caught.value)


def test_a_listing_shows_the_worst_questions_first_with_readable_tests(run, capsys):
    head, *lines = printed(capsys, run, step="best")
    assert head == f"{run} after step 3: 2 questions, 7 tests"
    assert lines[1] == "mbpp/7: 5 tests, frequency 9"
    assert lines[2] == "     2  assert f(1) == 1  # failed 2 times in steps 3 to 3, never passed"
    assert lines[5] == "        and 2 more"
    assert lines[7] == "q: 2 tests, frequency 3"
    assert lines[8] == "     2  assert f([1, 2]) == 3  # failed 2 times in steps 2 to 2, never passed"
    assert lines[9].startswith("     1  assert f('x') == 'yyy")
    assert "...  # failed 1 times" in lines[9]
    assert any("passed in step 4" in line for line in printed(capsys, run, step="3", top=9))


def test_last_best_and_numbers_are_steps(run, capsys):
    assert printed(capsys, run)[0] == f"{run} after step 6: 1 questions, 1 tests"
    assert printed(capsys, run, step="3")[0] == printed(capsys, run, step="best")[0]
    assert "has no step 4" in refused(capsys, run, step="4")


def test_searching_is_by_question_and_by_text(run, capsys):
    assert printed(capsys, run, step="3", question="pp/7")[0].endswith("1 questions, 5 tests")
    assert printed(capsys, run, step="3", text="[1, 2]")[2:] == [
        "q: 1 tests, frequency 2",
        "     2  assert f([1, 2]) == 3  # failed 2 times in steps 2 to 2, never passed",
    ]
    assert printed(capsys, run, text="nowhere") == [f"{run} after step 6: 0 questions, 0 tests"]
    assert printed(capsys, run, step="3", questions=1)[-1] == "and 1 questions more"


def test_an_export_is_a_book_again(run, capsys, tmp_path):
    out = str(tmp_path / "book.jsonl.gz")
    assert printed(capsys, run, step="3", export=str(out)) == [
        f"wrote {out}: 2 questions, 7 tests, of {run} after step 3"
    ]
    assert content(open_book(out, "last")[1]) == dict(sorted(content(first_book()).items()))
    assert printed(capsys, out)[1:] == printed(capsys, run, step="3")[1:]


def test_several_books_are_merged(run, capsys, tmp_path):
    other = save_run(tmp_path / "other", [(1, filled(make([1, 2], 3), step=1).pages(), None)])
    out = tmp_path / "all.jsonl"
    printed(capsys, f"{run}/checkpoints/3/book", other, export=str(out))
    (row,) = [row for row in map(json.loads, out.read_text().splitlines()) if row["test"] == "assert f([1, 2]) == 3"]
    assert (row["frequency"], row["first_seen"], row["hits"]) == (3, 1, 3)
    assert "twice" in refused(capsys, run, run)


def test_what_is_no_book_is_told(run, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("notes")
    damaged = shutil.copytree(run, tmp_path / "damaged")
    shard = next((damaged / "checkpoints" / "6" / "book").glob("shard_*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    no_book = RunFolder.open(str(tmp_path / "new"), {})
    for path, words in {
        tmp_path / "nothing": "does not exist",
        tmp_path / "empty": "is not a run folder",
        tmp_path / "notes.txt": "notes.txt, line 1",
        damaged: shard.name,
        no_book.path: "has no step last",
    }.items():
        assert words in refused(capsys, str(path))


def test_reading_beside_a_live_run_writes_nothing_and_tells_a_step_that_went(run, tmp_path, monkeypatch):
    copy = shutil.copytree(run, tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    open_book(str(copy), "last")
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before

    restore_book = Checkpoints.restore_book

    def while_the_run_deletes(self, step, *rest):
        (copy / "checkpoints" / "3" / "commit_success.txt").unlink()
        shutil.rmtree(copy / "checkpoints" / "3" / "book")
        return restore_book(self, step, *rest)

    monkeypatch.setattr(Checkpoints, "restore_book", while_the_run_deletes)
    with pytest.raises(BadInput, match="replaced step 3"):
        open_book(str(copy), "3")


def test_an_empty_book_is_shown(tmp_path, capsys):
    empty = save_run(tmp_path / "run", [(1, MistakeBook().pages(), None)])
    assert printed(capsys, empty) == [f"{empty} after step 1: 0 questions, 0 tests"]
    assert printed(capsys, empty, export=str(tmp_path / "empty.jsonl"))
    assert (tmp_path / "empty.jsonl").read_text() == ""
    assert open_book(str(tmp_path / "empty.jsonl"), "last")[1] == {} == read_export(tmp_path / "empty.jsonl")
