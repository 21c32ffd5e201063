"""Which tests leave the Mistake Book where it keeps only so many, of a question or in all."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from codea1.game.book_entry import BookEntry
from codea1.values import encode_exact

Place = tuple[float, int, str, tuple[str, bytes]]  # rank, first step, question and identity of a test: less goes first

FREQUENCY, REWARD = "frequency", "reward"
LEAST_REWARD = 0.5  # a book kept by reward takes in tests of suites that were paid more


@dataclass(frozen=True)
class Bound:
    """How many tests the book keeps, and which. The paper's book has no bound."""

    max_tests: int = 0  # per question; 0: all
    rule: str = FREQUENCY  # of EVICTION_RULES
    seed: int = 0  # of "reservoir"
    max_total: int = 0  # of all questions, over all hosts; 0: all

    @property
    def by_reward(self) -> bool:
        """Whether tests are kept for what they were paid, and not for the programs that fail them."""
        return self.rule == REWARD

    def place(self, question_id: str, entry: BookEntry) -> Place:
        """Where a test stands among those of all questions."""
        return self._rank(question_id, entry), entry.first_seen, question_id, entry.test.identity

    def total_surplus(self, places: Iterable[Place]) -> list[Place]:
        """Those of all hosts' places that are too many."""
        ranked = sorted(places)
        return ranked[: max(len(ranked) - self.max_total, 0)] if self.max_total else []

    def surplus(self, question_id: str, entries: Iterable[BookEntry]) -> list[BookEntry]:
        """The entries that are too many; `entries` are all of a question's, in the book's order.

        Of those that the rule holds equal, the oldest go: otherwise a book full of tests that failed once would never
        take in another.
        """
        entries = list(entries)
        if not self.max_tests or len(entries) <= self.max_tests:
            return []
        ranked = sorted(entries, key=lambda entry: (self._rank(question_id, entry), entry.first_seen))
        return ranked[: len(entries) - self.max_tests]

    def _rank(self, question_id: str, entry: BookEntry) -> float:
        return EVICTION_RULES[self.rule](self.seed, question_id, entry)


def _frequency(seed: int, question_id: str, entry: BookEntry) -> int:
    return entry.frequency


def _recency(seed: int, question_id: str, entry: BookEntry) -> int:
    return entry.last_failed


def _draw(seed: int, question_id: str, entry: BookEntry) -> int:
    """A random number that is the test's own: what is kept does not depend on when it is decided.

    Keeping the largest of independent draws is a uniform sample of all tests that have entered, drawn without
    replacement, and the same one however often a step is replayed (bottom-k sampling, Cohen and Kaplan 2007).
    """
    key = encode_exact((seed, question_id, *entry.test.identity))
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


def _reward(seed: int, question_id: str, entry: BookEntry) -> float:
    return entry.reward or 0.0  # none where the book was kept otherwise before


# What the entry that goes first has least of.
EVICTION_RULES: dict[str, Callable[[int, str, BookEntry], float]] = {
    FREQUENCY: _frequency,  # failures less passes, as in the paper's retrieval
    "recency": _recency,  # the step in which a program last failed it
    "reservoir": _draw,
    REWARD: _reward,  # of the best paid suite that it was in
}
