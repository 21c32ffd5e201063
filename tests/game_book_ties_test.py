"""Equally frequent tests of the Mistake Book: in the reference's order under `official`, else the oldest first."""

import random
from dataclasses import dataclass

import pytest
from etils import epath

from bench.micro_run import content
from codea1.config_file import default_config, validate
from codea1.game.calls import CallTest
from codea1.game.mistake_book import Bound, Evidence, MistakeBook, shards_of_host
from codea1.runs.book_files import read_shards, write_shards
from codea1.runtime.hosts import Hosts
from codea1.storage.checksums import write_manifest
from codea1.training.setup import mistake_book
from tests.mistake_books import TRUTH, failed, filled, joined, make

A, B, C, D, E = map(make, range(5))
SIZE = 8  # tests that are replayed
QUESTIONS = ("q", "r", "mbpp/é")


class ReferenceBook:
    """The reference's rule on lists of [statement, frequency], by question: retrieving sorts the list itself."""

    def __init__(self) -> None:
        self.entries: dict[str, list[list]] = {}

    def retrieve(self, question: str) -> list:
        entries = self.entries.get(question, [])
        entries.sort(key=lambda entry: -entry[1])
        return [statement for statement, _ in entries[:SIZE]]

    def update(self, question: str, passed: list, failed: list) -> None:
        entries = self.entries.setdefault(question, [])
        for statement in passed:
            for entry in [entry for entry in entries if entry[0] == statement]:
                entry[1] -= 1
                if entry[1] <= 0:
                    entries.remove(entry)
        for statement in failed:
            for entry in [entry for entry in entries if entry[0] == statement]:
                entry[1] += 1
                break
            else:
                entries.append([statement, 1])


@dataclass
class Visit:
    """A question is asked in a step: its programs, the tests that each fails, and how many replayed ones it passes."""

    question: str
    programs: list[tuple[list[int], float]]

    def evidence(self, replayed: list, seed: int) -> Evidence:
        generator = random.Random(seed)
        passed = [[test for test in replayed if generator.random() < share] for _, share in self.programs]
        return Evidence(
            failed_new=[[make(n) for n in numbers] for numbers, _ in self.programs],
            passed_history=passed,
            failed_history=[[test for test in replayed if test not in own] for own in passed],
        )


def visits(seed: int, count: int = 60) -> list[Visit]:
    generator = random.Random(seed)

    def program() -> tuple[list[int], float]:
        return [int(generator.expovariate(0.15)) for _ in range(generator.randrange(8))], generator.random() / 2

    def visit() -> Visit:
        return Visit(generator.choice(QUESTIONS), [program() for _ in range(generator.randrange(4))])

    return [visit() for _ in range(count)]


def differing(seed: int, folder: epath.Path, *, reference_ties: bool) -> int:
    """How many retrievals of a history differ from the reference's. Half-way the book is saved, and loaded again."""
    hosts, history = 2, visits(seed)
    books = [MistakeBook(shards_of_host(n, hosts), reference_ties=reference_ties) for n in range(hosts)]
    reference, different = ReferenceBook(), 0
    for step, visit in enumerate(history, start=1):
        (book,) = [book for book in books if book.holds(visit.question)]
        expected = reference.retrieve(visit.question)
        different += [test.identity for test in book.retrieve(visit.question, SIZE, step)] != expected
        book.retrieve("q", 3)  # somebody looks at it
        replayed = [make_of(identity) for identity in expected]
        evidence = visit.evidence(replayed, step)
        book.update(visit.question, TRUTH, step, evidence)
        reference.update(
            visit.question,
            [test.identity for tests in evidence.passed_history for test in tests],
            [test.identity for tests in evidence.failed_new for test in tests],
        )
        if step == len(history) // 2:
            before = joined(books)
            for book in books:
                write_shards(folder / "book", book.pages(), book.shards)
            write_manifest(folder)
            books = [MistakeBook(book.shards, reference_ties=reference_ties) for book in books]
            for book in books:
                book.load(read_shards(folder / "book", book.shards))
            assert content(joined(books)) == content(before)
    return different


def make_of(identity: tuple[str, bytes]) -> CallTest:
    return next(test for test in map(make, range(200)) if test.identity == identity)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_replayed_is_what_the_reference_replays(seed, tmp_path):
    assert differing(seed, epath.Path(tmp_path), reference_ties=True) == 0


def test_the_oldest_first_is_another_order(tmp_path):
    assert sum(differing(seed, epath.Path(tmp_path) / str(seed), reference_ties=False) for seed in range(5)) > 5


def test_a_full_book_still_loses_the_oldest_of_equals():
    book = filled(A, A, bound=Bound(3), reference_ties=True)
    book.update("q", TRUTH, 2, failed(B, B, B))
    book.update("q", TRUTH, 3, failed(C))  # B stands before A from here on
    book.update("q", TRUTH, 4, Evidence(failed_new=[[C, D, D]], passed_history=[[B]]))  # all have 2
    assert book.retrieve("q", 8) == [B, C, D]


@pytest.mark.parametrize(
    ("reward", "book_policy", "order"),
    [
        ("official", "frequency", [B, A]),
        ("official", "recency", [A, B]),
        ("strict", "frequency", [A, B]),
        ("strict_tests", "frequency", [A, B]),
        ("simple", "frequency", [A, B]),
    ],
)
def test_official_alone_has_the_order_of_the_reference(reward, book_policy, order):
    config = default_config()
    config.game.reward, config.game.book_policy = reward, book_policy
    book = mistake_book(validate(config).game, config.seed, Hosts())
    book.update("q", TRUTH, 1, failed(A, B, B))
    book.update("q", TRUTH, 2, Evidence(passed_history=[[B]]))
    assert book.retrieve("q", 8) == order
