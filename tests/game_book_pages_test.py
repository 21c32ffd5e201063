"""Several books into one, and what is found in them."""

import pytest

from bench.micro_run import content
from codea1.game.mistake_book import Evidence, MistakeBook
from codea1.lab.runs.book_export import merge, search
from codea1.runtime.errors import BadInput
from tests.mistake_books import TRUTH, failed, filled, make, passed

A, B, C = map(make, range(3))


def test_counts_add_up_and_steps_span_both():
    one = filled(A, A, A, B, step=3)
    one.update("q", TRUTH, 5, passed(A))
    other = filled(C, A, step=2)
    other.update("q", TRUTH, 7, Evidence(failed_history=[[A]]))
    other.update("r", TRUTH, 1, failed(B))
    merged = merge({"one": one.pages(), "other": other.pages()})
    rows = [
        (entry.test, entry.frequency, entry.first_seen, entry.hits, entry.last_failed, entry.last_passed)
        for entry in merged["q"].entries.values()
    ]
    assert rows == [(A, 3, 2, 5, 7, 5), (B, 1, 3, 1, 3, None), (C, 1, 2, 1, 2, None)]
    assert merged["r"] == other.pages()["r"]


def test_one_book_is_itself():
    pages = filled(A, B, B).pages()
    assert content(merge({"one": pages})) == content(pages)
    assert merge({}) == {}


def test_answers_of_different_ground_truths_are_refused_by_name():
    another = MistakeBook()
    another.update("q", "another", 1, failed(A))
    with pytest.raises(BadInput, match=r"other cannot be merged.*question q"):
        merge({"one": filled(A).pages(), "other": another.pages()})
    with pytest.raises(BadInput, match="other: question q"):
        merge({"one": filled(make(1, 2)).pages(), "other": filled(make(1, 3)).pages()})
    merged = merge({"one": filled(make(1, 2)).pages(), "other": filled(make(1, 2.0)).pages()})  # equal under ==
    assert [entry.frequency for entry in merged["q"].entries.values()] == [2]
    one, other = (filled(make("1", printed, "stdout_tokens")).pages() for printed in ("0.5", "0.50"))
    assert [entry.frequency for entry in merge({"one": one, "other": other})["q"].entries.values()] == [2]


def test_search_is_by_question_and_by_source():
    book = filled(make("ab", 1), make([1], 2))
    book.update("mbpp/2", TRUTH, 1, failed(make("ab", 1)))
    pages = book.pages()
    assert content(search(pages)) == content(pages)
    assert set(search(pages, question="mbpp")) == {"mbpp/2"}
    assert [e.test for e in search(pages, text="'ab'")["q"].entries.values()] == [make("ab", 1)]
    assert search(pages, question="mbpp", text="[1]") == {}
