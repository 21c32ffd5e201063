"""The Mistake Book as a function of its updates."""

import math
from dataclasses import FrozenInstanceError, astuple, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.micro_run import content
from codea1.game.book_pages import BookEntry
from codea1.game.mistake_book import (
    ALL_SHARDS,
    NUM_SHARDS,
    BookChange,
    Bound,
    Evidence,
    MistakeBook,
    shard_of,
    shards_of_host,
)
from tests.mistake_books import BOUNDS, TRUTH, UPDATES, Update, failed, filled, joined, make, passed, replay

A, B, C, D = map(make, range(4))


@pytest.mark.parametrize("reward", [0, -0.5, math.inf, True, "0.5"])
def test_a_row_with_a_reward_that_none_can_have_is_refused(reward):
    row = BookEntry(A, 1, 1, 1, 1, reward=0.5).to_json()
    assert BookEntry.from_json(row).reward == 0.5
    assert BookEntry.from_json(row | {"reward": 1.5}).reward == 1.5  # a reward of one's own may exceed 1
    with pytest.raises(ValueError, match="not a finite number above 0"):
        BookEntry.from_json(row | {"reward": reward})


def learn(book: MistakeBook, evidence: Evidence, step: int = 2) -> BookChange:
    return book.update("q", TRUTH, step, evidence)


def history(book: MistakeBook) -> list[tuple]:
    """(frequency, first seen, hits, last failed, last passed) of each test of q, oldest first."""
    return [astuple(entry)[1:6] for entry in book.pages()["q"].entries.values()]


def test_an_unknown_question_has_no_history():
    assert MistakeBook().retrieve("q", 8) == []


def test_retrieval_is_by_frequency_then_age_and_changes_nothing():
    book = filled(A, B, C, C, D, B)
    before = content(book.pages())
    assert book.retrieve("q", 8) == [B, C, A, D]
    assert book.retrieve("q", 2) == [B, C]
    assert book.retrieve("q", 0) == []
    assert content(book.pages()) == before


@pytest.mark.parametrize(
    ("reference_ties", "policy", "order"),
    [(True, "frequency", [B, A]), (False, "frequency", [A, B]), (True, "recency", [A, B])],
)
def test_a_test_that_was_replayed_before_an_older_one_stays_before_it_as_in_the_reference(
    reference_ties, policy, order
):
    """B was more frequent than A when both were replayed; now they are equal."""
    bound = Bound(rule="".join([*policy]))  # a config's text is another object than the constant
    book = filled(A, B, B, bound=bound, reference_ties=reference_ties)
    before = content(book.pages())
    assert book.retrieve("q", 8) == [B, A]
    assert content(book.pages()) == before  # looking changes nothing
    learn(book, passed(B))
    assert book.retrieve("q", 8) == order
    learn(book, failed(C), step=3)
    assert book.retrieve("q", 8) == [*order, C]


def test_every_program_and_suite_counts():
    book = MistakeBook()
    assert learn(book, Evidence(failed_new=[[A, A, B], [A]])) == BookChange(added=2)
    assert [row[0] for row in history(book)] == [3, 1]


def test_passes_wear_a_test_off():
    book = filled(A, A, B)
    assert learn(book, Evidence(passed_history=[[A], [A, B]])) == BookChange(removed=2)
    assert book.retrieve("q", 8) == []
    assert (book.size, book.pages()) == (0, {})


def test_passes_beyond_zero_and_of_unknown_tests_do_nothing():
    book = filled(A, B, B)
    assert learn(book, Evidence(passed_history=[[A], [A], [A, C]])) == BookChange(removed=1)
    assert book.retrieve("q", 8) == [B]


def test_decrement_comes_before_increment():
    book = filled(A, B, C)
    assert learn(book, Evidence(failed_new=[[A]], passed_history=[[A]])) == BookChange(added=1, removed=1)
    assert book.retrieve("q", 8) == [B, C, A]


def test_a_replayed_test_that_still_fails_gains_nothing():
    book = filled(A, B)
    learn(book, Evidence(failed_history=[[B], [B]]))
    assert book.retrieve("q", 8) == [A, B]
    assert [row[0] for row in history(book)] == [1, 1]


def test_a_test_is_known_by_its_call():
    book = filled(make(1, expected=2))
    learn(book, failed(make(1, expected=3)))
    assert book.retrieve("q", 8) == [make(1, expected=2)]
    assert book.size == 1


def test_questions_do_not_share_entries():
    book = filled(A)
    book.update("r", TRUTH, 1, Evidence(failed_new=[[B]], passed_history=[[A]]))
    assert (book.retrieve("q", 8), book.retrieve("r", 8), book.size) == ([A], [B], 2)


def test_the_history_of_a_test_by_hand():
    book = filled(A, A, B, step=3)
    assert history(book) == [(2, 3, 2, 3, None), (1, 3, 1, 3, None)]
    learn(book, Evidence(passed_history=[[A], []], failed_history=[[B], [A, B]]), step=5)
    assert history(book) == [(1, 3, 3, 5, 5), (1, 3, 3, 5, None)]
    learn(book, Evidence(failed_new=[[A, C]], failed_history=[[A]]), step=8)
    assert history(book) == [(2, 3, 5, 8, 5), (1, 3, 3, 5, None), (1, 8, 1, 8, None)]
    learn(book, Evidence(failed_new=[[A]], passed_history=[[A], [A], [C]]), step=9)
    assert history(book) == [(1, 3, 3, 5, None), (1, 9, 1, 9, None)]  # A came back anew, C is gone


def test_what_was_taken_from_the_book_does_not_change_with_it():
    book = filled(A, B)
    pages = book.pages()
    before = content(pages)
    learn(book, Evidence(failed_new=[[A, C]], passed_history=[[B]]))
    assert content(pages) == before != content(book.pages())


def test_another_hosts_question_and_another_ground_truth_are_errors():
    book = MistakeBook(range(0, NUM_SHARDS, 2))
    mine, other = (next(q for q in map(str, range(99)) if shard_of(q) % 2 == part) for part in (0, 1))
    assert (book.holds(mine), book.holds(other)) == (True, False)
    with pytest.raises(ValueError, match=other):
        book.update(other, TRUTH, 1, failed(A))
    truth = "truth"
    book.update(mine, truth, 1, failed(A))
    for another in ("another", "zebra"):
        with pytest.raises(ValueError, match=mine):
            book.update(mine, another, 2, failed(A))
    assert book.update(mine, "".join([*truth]), 2, failed(B)) == BookChange(added=1)
    whole = MistakeBook()
    whole.update(other, TRUTH, 1, failed(A))
    with pytest.raises(ValueError, match=other):
        book.load(whole.pages())


def test_changes_add_up_part_by_part():
    assert BookChange(1, 2, 3) + BookChange(3, 6, 3) == BookChange(added=4, removed=8, evicted=6)


def test_what_a_book_says_cannot_be_changed():
    for value in (BookChange(), Evidence(), filled(A).pages()["q"]):
        for field in fields(value):
            with pytest.raises(FrozenInstanceError):
                setattr(value, field.name, None)


def reference(updates: list[Update]) -> dict[str, list]:
    """The paper's rule on lists: (identity, frequency) in order of insertion."""
    book: dict[str, list] = {}
    for update in updates:
        entries = book.setdefault(update.question_id, [])
        for test in (test for program in update.evidence.passed_history for test in program):
            for entry in entries:
                if entry[0] == test.identity:
                    entry[1] -= 1
            entries[:] = [entry for entry in entries if entry[1] > 0]
        for test in (test for program in update.evidence.failed_new for test in program):
            known = [entry for entry in entries if entry[0] == test.identity]
            if known:
                known[0][1] += 1
            else:
                entries.append([test.identity, 1])
    return {question_id: entries for question_id, entries in book.items() if entries}


@given(UPDATES)
def test_without_a_bound_frequencies_are_those_of_the_paper(updates):
    (book,) = replay(updates, 1, Bound())
    found = {
        question_id: [[identity, entry.frequency] for identity, entry in page.entries.items()]
        for question_id, page in book.pages().items()
    }
    assert found == reference(updates)


@given(UPDATES, BOUNDS, st.booleans())
def test_replaying_the_same_rounds_gives_the_same_book_on_any_number_of_hosts(updates, bound, reference_ties):
    (alone,) = replay(updates, 1, bound, reference_ties=reference_ties)
    for hosts in (1, 2, 3, 4, 70):
        books = replay(updates, hosts, bound, reference_ties=reference_ties)
        assert content(joined(books)) == content(alone.pages())
        for question_id in {update.question_id for update in updates}:
            assert sum(book.holds(question_id) for book in books) == 1
            (holder,) = [book for book in books if book.holds(question_id)]
            assert holder.retrieve(question_id, 3) == alone.retrieve(question_id, 3)


@given(UPDATES, UPDATES, BOUNDS, st.booleans())
def test_a_reloaded_book_goes_on_exactly_as_the_original(before, after, bound, reference_ties):
    (book,) = replay(before, 1, bound, reference_ties=reference_ties)
    reloaded = MistakeBook(bound=bound, reference_ties=reference_ties)
    reloaded.load(book.pages())
    for update in after:
        assert update.apply(reloaded) == update.apply(book)
        assert reloaded.retrieve(update.question_id, 3) == book.retrieve(update.question_id, 3)
    assert content(reloaded.pages()) == content(book.pages())
    assert reloaded.size == book.size


@given(UPDATES, BOUNDS)
def test_changes_add_up_to_the_size_and_the_bound_holds(updates, bound):
    book = MistakeBook(bound=bound)
    total = sum((update.apply(book) for update in updates), BookChange())
    assert book.size == total.added - total.removed - total.evicted
    for page in book.pages().values():
        assert 0 < len(page.entries) <= (bound.max_tests or len(page.entries))
        for identity, entry in page.entries.items():
            assert identity == entry.test.identity
            assert 1 <= entry.frequency <= entry.hits
            assert entry.first_seen <= entry.last_failed
            assert entry.last_passed is None or entry.first_seen <= entry.last_passed


@given(st.text())
def test_each_question_is_in_one_shard_of_one_host(question_id):
    assert shard_of(question_id) in ALL_SHARDS
    for count in (1, 2, 3, 4, 64, 100):
        hosts = [host for host in range(count) if shard_of(question_id) in shards_of_host(host, count)]
        assert len(hosts) == 1


def test_shards_of_questions_are_for_good():
    assert [shard_of(question) for question in ("mbpp/2", "humaneval/0", "mbpp/é", "")] == [9, 38, 23, 18]


@given(UPDATES)
def test_entries_are_what_their_json_says(updates):
    (book,) = replay(updates, 1, Bound())
    for page in book.pages().values():
        for entry in page.entries.values():
            assert BookEntry.from_json(entry.to_json()) == entry


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("entry_point", (None, -1, "")),
        ("arguments", (None, 7, "é", "A")),
        ("expected", (None, 7, "é", "A")),
        ("frequency", (None, 0, -1, True, 1.0, "1")),
        ("hits", (None, 0, 1.5)),
        ("first_seen", (None, -1, "1")),
        ("last_failed", (None, -1)),
        ("last_passed", (-1, "1", False)),
    ],
)
def test_a_malformed_entry_names_its_field(field, values):
    (entry,) = filled(A).pages()["q"].entries.values()
    for value in values:
        with pytest.raises(ValueError, match=field):
            BookEntry.from_json({**entry.to_json(), field: value})
    if field != "last_passed":
        with pytest.raises(ValueError, match=field):
            BookEntry.from_json({name: value for name, value in entry.to_json().items() if name != field})


def test_passed_evidence_alone_never_fills_a_book():
    book = MistakeBook()
    assert learn(book, passed(A, B)) == BookChange()
    assert book.pages() == {}
