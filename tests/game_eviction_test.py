"""Which tests leave a book that keeps only so many."""

from collections import Counter
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.game.calls import CallTest
from codea1.game.mistake_book import BookChange, Bound, Evidence, MistakeBook, shards_of_host
from tests.mistake_books import TRUTH, failed, filled, make

A, B, C, D, E = map(make, range(5))


def kept(book: MistakeBook) -> list[CallTest]:
    return [entry.test for entry in book.pages()["q"].entries.values()]


def test_the_papers_book_has_no_bound():
    assert Bound() == Bound(max_tests=0, rule="frequency", seed=0, max_total=0)
    assert not Bound().by_reward
    assert Bound(rule="".join("reward")).by_reward  # known by its letters
    with pytest.raises(FrozenInstanceError):
        Bound().seed = 1


def test_no_bound_keeps_all():
    assert kept(filled(*map(make, range(500)))) == list(map(make, range(500)))


def test_frequency_evicts_the_least_frequent_and_of_equals_the_oldest():
    book = filled(A, A, B, C, bound=Bound(3, "frequency"))
    assert book.update("q", TRUTH, 2, failed(D)) == BookChange(added=1, evicted=1)
    assert kept(book) == [A, C, D]
    assert book.update("q", TRUTH, 3, failed(C, D, E, E)) == BookChange(added=1, evicted=1)
    assert kept(book) == [C, D, E]  # all had failed twice
    assert book.update("q", TRUTH, 4, failed(B)) == BookChange(added=1, evicted=1)
    assert kept(book) == [C, D, E]  # one failure is less than two


def test_frequency_counts_what_passes_took_away():
    book = filled(A, A, A, B, B, bound=Bound(2, "frequency"))
    book.update("q", TRUTH, 2, Evidence(failed_new=[[C, C]], passed_history=[[A], [A]]))
    assert kept(book) == [B, C]


def test_of_equals_the_oldest_leaves_wherever_it_stands():
    book = filled(A, bound=Bound(2, "frequency"), step=1, reference_ties=True)
    book.update("q", TRUTH, 2, failed(B, B))
    book.update("q", TRUTH, 3, Evidence(failed_new=[[C]], passed_history=[[B]]))  # sorts B before A, then all are equal
    assert kept(book) == [B, C]


def test_recency_evicts_what_failed_longest_ago_new_or_replayed():
    book = filled(A, A, A, bound=Bound(3, "recency"), step=1)
    book.update("q", TRUTH, 2, failed(B))
    book.update("q", TRUTH, 3, failed(C))
    book.update("q", TRUTH, 4, Evidence(failed_new=[[D]], failed_history=[[A]]))
    assert kept(book) == [A, C, D]
    book.update("q", TRUTH, 5, failed(B, C, E))
    assert kept(book) == [C, B, E]


def test_a_large_suite_is_cut_to_the_bound_at_once():
    book = MistakeBook(bound=Bound(2, "recency"))
    assert book.update("q", TRUTH, 1, failed(A, B, C, D, E)) == BookChange(added=5, evicted=3)
    assert kept(book) == [D, E]


@given(st.permutations(range(12)), st.lists(st.integers(1, 5), max_size=5), st.integers(0, 5))
def test_a_reservoir_does_not_depend_on_the_order_or_on_who_comes_again(order, cuts, seed):
    bound = Bound(4, "reservoir", seed)
    at_once = {test.identity for test in kept(filled(*map(make, range(12)), bound=bound))}
    book, rest = MistakeBook(bound=bound), list(order)
    for step, size in enumerate([*cuts, 12]):
        book.update("q", TRUTH, step, failed(*map(make, rest[:size])))
        rest = rest[size:] or order[:3]
    book.update("q", TRUTH, 99, failed(*map(make, order)))
    assert {test.identity for test in kept(book)} == at_once


def test_a_reservoir_keeps_every_test_equally_often():
    seeds, tests = 2000, [make(n) for n in range(10)]
    times = Counter(
        test.identity for seed in range(seeds) for test in kept(filled(*tests, bound=Bound(3, "reservoir", seed)))
    )
    expected = seeds * 3 / 10
    # Of a hypergeometric draw each count has variance n p (1 - p); 4.5 standard deviations.
    assert all(abs(times[test.identity] - expected) < 4.5 * (expected * 0.7) ** 0.5 for test in tests)


def test_reservoirs_of_questions_and_seeds_differ():
    def sample(question: str, seed: int) -> list[CallTest]:
        book = MistakeBook(bound=Bound(5, "reservoir", seed))
        book.update(question, TRUTH, 1, failed(*map(make, range(50))))
        return [entry.test for entry in book.pages()[question].entries.values()]

    assert sample("q", 0) == sample("q", 0)
    assert sample("q", 0) == [make(n) for n in (4, 6, 31, 36, 38)]  # in every version
    assert sample("q", 0) != sample("q", 1)
    assert sample("q", 0) != sample("r", 0)


def paid(rewards: dict[CallTest, float], failed_new: tuple[CallTest, ...] = (), **rest) -> Evidence:
    of_suites = {test.identity: reward for test, reward in rewards.items()}
    return Evidence(failed_new=[failed_new or rewards], rewards=of_suites, **rest)


BY_REWARD = Bound(rule="reward", seed=3)


def test_a_book_by_reward_takes_in_what_was_paid_more_than_half_and_does_not_wear_off():
    book = MistakeBook(bound=BY_REWARD)
    change = book.update("q", TRUTH, 1, paid({A: 0.5, B: 0.51, C: 1.0, D: 0.9}, failed_new=(A, B, C, E)))
    assert change == BookChange(added=2)  # D failed nobody, and E is in no paid suite
    assert kept(book) == [B, C]
    change = book.update("q", TRUTH, 2, paid({B: 0.7, C: 0.6}, passed_history=[[B, C], [B, C]]))
    assert change == BookChange()
    entries = {entry.test: (entry.reward, entry.frequency) for entry in book.pages()["q"].entries.values()}
    assert entries == {B: (0.7, 2), C: (1.0, 2)}


def test_a_book_that_was_kept_otherwise_goes_on_by_reward():
    book = MistakeBook(bound=BY_REWARD)
    book.load(filled(A, A, B).pages())
    book.update("q", TRUTH, 2, paid({B: 0.6, C: 0.7}))
    assert {entry.test: entry.reward for entry in book.pages()["q"].entries.values()} == {A: None, B: 0.6, C: 0.7}
    assert set(book.retrieve("q", 9, step=3)) == {B, C}  # what was never paid is never drawn


def test_by_reward_what_was_never_paid_is_evicted_first_and_then_what_was_paid_least():
    book = MistakeBook(bound=Bound(max_tests=2, rule="reward"))
    book.load(filled(A).pages())
    book.update("q", TRUTH, 2, paid({B: 0.7, C: 0.6}))
    assert kept(book) == [B, C]
    book.update("q", TRUTH, 3, paid({D: 0.9}))
    assert kept(book) == [B, D]


def test_a_book_evicts_what_it_holds_of_the_places_and_counts_it():
    bound = Bound(max_total=2)
    book, other = filled(A, B, C, D, bound=bound), MistakeBook(bound=bound)
    other.update("r", TRUTH, 1, failed(E))
    places = [*book.places(), *other.places()]
    assert [identity for *_, identity in places] == [test.identity for test in (A, B, C, D, E)]
    assert book.evict([places[1], places[2], places[4]]) == 2
    assert kept(book) == [A, D]
    assert book.evict(places) == 2
    assert (book.size, other.size, book.pages()) == (0, 1, {})


def test_a_book_by_reward_is_drawn_from_in_proportion():
    book = MistakeBook(bound=BY_REWARD)
    book.update("q", TRUTH, 1, paid({A: 0.6, B: 0.8, C: 1.0}))
    drawn = [book.retrieve("q", 2, step) for step in range(4000)]
    assert drawn == [book.retrieve("q", 2, step) for step in range(4000)]
    assert book.retrieve("q", 2) == drawn[0] not in (drawn[1], book.retrieve("q", 2, -1))
    first = Counter(tests[0] for tests in drawn)
    for test, reward in {A: 0.6, B: 0.8, C: 1.0}.items():
        assert abs(first[test] / 4000 - reward / 2.4) < 0.03  # four standard deviations
    # Without replacement: B and then C with .8 / 2.4 * 1.0 / 1.6.
    assert abs(sum(tests == [B, C] for tests in drawn) / 4000 - 0.8 / 2.4 / 1.6) < 0.03


@given(st.lists(st.tuples(st.sampled_from("qrst"), st.integers(0, 9), st.floats(0.51, 1.0)), max_size=30))
def test_a_bound_in_all_keeps_the_best_whatever_the_hosts(updates):
    bound = Bound(rule="reward", max_total=4)
    alone = _bounded(updates, 1, bound)
    for hosts in (2, 5):
        assert _bounded(updates, hosts, bound) == alone
    known: dict[tuple[str, int], float] = {}
    for question, n, reward in updates:
        known[question, n] = max(reward, known.get((question, n), 0.0))
    if len(known) <= 4:
        assert len(alone) == len(known)
    else:
        assert len(alone) == 4


def _bounded(updates: list[tuple[str, int, float]], hosts: int, bound: Bound) -> set[tuple[str, CallTest]]:
    books = [MistakeBook(shards_of_host(host, hosts), bound) for host in range(hosts)]
    for step, (question, n, reward) in enumerate(updates):
        for book in books:
            if book.holds(question):
                book.update(question, TRUTH, step, paid({make(n): reward}))
        surplus = bound.total_surplus(place for book in books for place in book.places())
        for book in books:
            book.evict(surplus)
    return {(id, e.test) for book in books for id, page in book.pages().items() for e in page.entries.values()}
