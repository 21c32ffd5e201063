"""The Mistake Book as a function of its updates."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.errors import BadInput
from codea1.game.mistake_book import BookChange, MistakeBook
from codea1.game.tests import Call, Test
from codea1.sandbox.values import encode_exact


def make(n: int, expected: object = None) -> Test:
    return Test(Call("f", encode_exact(((n,), {}))), encode_exact(expected))


A, B, C, D = map(make, range(4))


def filled(*failed: Test) -> MistakeBook:
    book = MistakeBook()
    book.update("q", [], [failed])
    return book


def test_an_unknown_question_has_no_history():
    assert MistakeBook().retrieve("q", 8) == []


def test_retrieval_is_by_frequency_then_age_and_changes_nothing():
    book = filled(A, B, C, C, D, B)
    before = book.to_json()
    assert book.retrieve("q", 8) == [B, C, A, D]
    assert book.retrieve("q", 2) == [B, C]
    assert book.retrieve("q", 0) == []
    assert book.to_json() == before


def test_every_program_and_suite_counts():
    book = MistakeBook()
    assert book.update("q", [], [[A, A, B], [A]]) == BookChange(added=2, removed=0)
    assert [entry["frequency"] for entry in book.to_json()["q"]] == [3, 1]


def test_passes_wear_a_test_off():
    book = filled(A, A, B)
    assert book.update("q", [[A], [A, B]], []) == BookChange(added=0, removed=2)
    assert book.retrieve("q", 8) == []
    assert book.size == 0


def test_passes_beyond_zero_and_of_unknown_tests_do_nothing():
    book = filled(A, B, B)
    assert book.update("q", [[A], [A], [A, C]], []) == BookChange(added=0, removed=1)
    assert book.retrieve("q", 8) == [B]


def test_decrement_comes_before_increment():
    book = filled(A, B, C)
    assert book.update("q", [[A]], [[A]]) == BookChange(added=1, removed=1)
    assert book.retrieve("q", 8) == [B, C, A]


def test_a_test_is_known_by_its_call():
    book = filled(make(1, expected=2))
    book.update("q", [], [[make(1, expected=3)]])
    assert book.retrieve("q", 8) == [make(1, expected=2)]
    assert book.size == 1


def test_questions_do_not_share_entries():
    book = filled(A)
    book.update("r", [[A]], [[B]])
    assert (book.retrieve("q", 8), book.retrieve("r", 8), book.size) == ([A], [B], 2)


TESTS = st.lists(st.lists(st.integers(0, 5).map(make), max_size=5), max_size=3)
UPDATES = st.lists(st.tuples(st.sampled_from(["q", "r"]), TESTS, TESTS), max_size=6)


@given(UPDATES, UPDATES)
def test_a_reloaded_book_goes_on_exactly_as_the_original(before, after):
    book = MistakeBook()
    for update in before:
        book.update(*update)
    reloaded = MistakeBook.from_json(json.loads(json.dumps(book.to_json())))
    for update in after:
        assert reloaded.update(*update) == book.update(*update)
        assert reloaded.retrieve("q", 3) == book.retrieve("q", 3)
    assert json.dumps(reloaded.to_json()) == json.dumps(book.to_json())
    assert reloaded.size == book.size


@given(UPDATES)
def test_changes_add_up_to_the_size(updates):
    book = MistakeBook()
    total = sum((book.update(*update) for update in updates), BookChange())
    assert book.size == total.added - total.removed
    assert all(entry["frequency"] >= 1 for rows in book.to_json().values() for entry in rows)


@pytest.mark.parametrize("field", ["entry_point", "arguments", "expected", "frequency"])
def test_a_malformed_entry_names_its_question(field):
    for value in (None, -1, "é"):
        data = filled(A).to_json()
        data["q"][0][field] = value
        if field == "entry_point" and value == "é":
            continue
        with pytest.raises(BadInput, match="'q'"):
            MistakeBook.from_json(data)
