"""The Mistake Book: per question, the tests that programs failed before, to be replayed until they are mastered."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from codea1.game.book_pages import BookEntry, Identity, Page, Pages
from codea1.game.calls import CallTest
from codea1.runtime.hosts import stable_hash
from codea1.values import encode_exact

NUM_SHARDS = 64  # fixed: saved books are split by it, whatever the number of hosts
ALL_SHARDS = range(NUM_SHARDS)

Place = tuple[float, int, str, Identity]  # a test's rank, first step, question, identity; the least go first

FREQUENCY, REWARD = "frequency", "reward"
LEAST_REWARD = 0.5  # a book kept by reward takes in failed tests whose best paid suite got more


def shard_of(question_id: str) -> int:
    """Returns the shard of a question: a function of its id alone."""
    return stable_hash(question_id) % NUM_SHARDS


def shards_of_host(index: int, count: int) -> range:
    """Returns the shards of host `index` of `count`. Every shard has one host; beyond 64 hosts some hold none."""
    return range(index, NUM_SHARDS, count)


@dataclass(frozen=True)
class Bound:
    """How many tests the book keeps, and which. The paper's book has no bound."""

    max_tests: int = 0  # per question; 0: all
    rule: str = FREQUENCY  # of EVICTION_RULES
    seed: int = 0  # of "reservoir", and of the draws of "reward"
    max_total: int = 0  # of all questions, over all hosts (`total_surplus`); 0: all

    @property
    def by_reward(self) -> bool:
        """Whether tests are kept for what they were paid, and not for the programs that fail them."""
        return self.rule == REWARD

    def place(self, question_id: str, entry: BookEntry) -> Place:
        """Returns where a test stands among those of all questions."""
        rank = EVICTION_RULES[self.rule](self.seed, question_id, entry)
        return rank, entry.first_seen, question_id, entry.test.identity

    def total_surplus(self, places: Iterable[Place]) -> list[Place]:
        """Returns those of all hosts' places that are too many."""
        ranked = sorted(places)
        return ranked[: max(len(ranked) - self.max_total, 0)]

    def surplus(self, question_id: str, entries: Sequence[BookEntry]) -> list[BookEntry]:
        """Returns the entries that are too many; `entries` are all of a question's, in the book's order.

        Of those that the rule holds equal, the oldest are evicted: otherwise a book full of tests that failed once
        would never take in another.
        """
        if not self.max_tests or len(entries) <= self.max_tests:
            return []
        ranked = sorted(entries, key=lambda entry: self.place(question_id, entry)[:2])
        return ranked[: len(entries) - self.max_tests]


def _reservoir_number(seed: int, question_id: str, entry: BookEntry) -> int:
    """Returns a random number that is the test's own: what is kept does not depend on when it is decided.

    Keeping the largest of independent numbers is a uniform sample of all tests that have entered, drawn without
    replacement, and the same one however often a step is replayed (bottom-k sampling, Cohen and Kaplan 2007).
    """
    key = encode_exact((seed, question_id, *entry.test.identity))
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


# The entry with the least of it is evicted first.
EVICTION_RULES: dict[str, Callable[[int, str, BookEntry], float]] = {
    FREQUENCY: lambda seed, question_id, entry: entry.frequency,  # failures less passes, as in the paper's retrieval
    "recency": lambda seed, question_id, entry: entry.last_failed,
    "reservoir": _reservoir_number,
    # It has none where the book was not kept by reward before.
    REWARD: lambda seed, question_id, entry: entry.reward or 0.0,
}


@dataclass(frozen=True)
class BookChange:
    """What updates did to the entries of the book."""

    added: int = 0  # tests that were not in the book
    removed: int = 0  # tests whose frequency reached 0
    evicted: int = 0  # tests that were too many

    def __add__(self, other: "BookChange") -> "BookChange":
        return BookChange(self.added + other.added, self.removed + other.removed, self.evicted + other.evicted)


@dataclass(frozen=True)
class Evidence:
    """What one step showed about a question's valid programs, a collection of tests for each program."""

    failed_new: Iterable[Iterable[CallTest]] = ()  # those of this step's suites that it failed, once per suite
    passed_history: Iterable[Iterable[CallTest]] = ()  # the replayed tests that it passed
    failed_history: Iterable[Iterable[CallTest]] = ()  # the replayed tests that it failed
    rewards: Mapping[Identity, float] = field(default_factory=dict)  # of the new tests: their best paid suite's


@dataclass
class MistakeBook:
    """A multiset of failed tests for each question; a host's book holds its shards only.

    A test is known by its identity, entry point and arguments: its expected value is the ground truth's answer and
    belongs to them. The book is a function of its updates alone, on any host and in any process; what becomes of a
    question is a function of the updates with that question, so that books of several hosts are one book in parts. Only
    a bound of all questions together needs all hosts: each sends its `places` and evicts those of its own that are too
    many.

    A book kept by reward (`Bound.by_reward`) takes in failed tests whose best paid suite got more than LEAST_REWARD,
    does not wear off, and is drawn from in proportion to reward.

    A question's tests are in order of insertion. With `reference_ties` and a book by frequency they are in the order of
    the Code-A1 reference implementation, whose retrieval sorts its list in place: among equally frequent tests that of
    the last retrieval stays, and what entered since follows. The sorting is done here by the update that follows a
    retrieval, so that a look into the book, or a step that is cut off, changes nothing.
    """

    shards: range = ALL_SHARDS  # that it holds
    bound: Bound = field(default_factory=Bound)
    reference_ties: bool = False
    _pages: Pages = field(default_factory=dict, init=False)

    @property
    def size(self) -> int:
        """Number of different tests in the book, over all questions that it holds."""
        return sum(len(page.entries) for page in self._pages.values())

    def holds(self, question_id: str) -> bool:
        """Returns whether the question is in a shard of this book, with or without tests."""
        return shard_of(question_id) in self.shards

    def tests(self, question_id: str) -> list[CallTest]:
        """Returns all tests of a question, in the book's order."""
        page = self._pages.get(question_id)
        return [entry.test for entry in page.entries.values()] if page else []

    def retrieve(self, question_id: str, k: int, step: int = 0) -> list[CallTest]:
        """Returns at most `k` tests to replay: the most frequent, equally frequent ones in the book's order.

        A book kept by reward draws them for the step, one after the other in proportion to reward; tests without a
        reward are never drawn.
        """
        page = self._pages.get(question_id)
        entries = list(page.entries.values()) if page else []
        if self.bound.by_reward:
            # Sampling without replacement by the largest u ** (1 / reward) (Efraimidis and Spirakis 2006).
            key = (self.bound.seed, step, question_id)
            drawn = [(math.log(_uniform(key, entry)) / entry.reward, entry) for entry in entries if entry.reward]
            entries = [entry for _, entry in sorted(drawn, key=lambda pair: pair[0], reverse=True)]
        else:
            entries.sort(key=lambda entry: entry.frequency, reverse=True)
        return [entry.test for entry in entries[:k]]

    def update(self, question_id: str, ground_truth_digest: str, step: int, evidence: Evidence) -> BookChange:
        """Takes in what a step showed about the valid programs of a question that the book holds.

        First every replayed test loses 1 for each program that passed it, and leaves the book at 0 (by reward it loses
        nothing); then every new test gains 1 for each suite in which a program failed it, or enters with 1. So a test
        may leave and come back, as the newest, in one update. A replayed test that still fails gains nothing. Finally
        the question's surplus entries are evicted.

        Args:
          question_id: whose entries change.
          ground_truth_digest: `Question.ground_truth_digest`.
          step: which step this is, for the entries' history.
          evidence: of tests whose expected value is the ground truth's answer.

        Raises:
          ValueError: the question is another host's, or its tests have the answers of another ground truth.
        """
        page = self._pages.get(question_id) or Page(ground_truth_digest, {})
        if not self.holds(question_id) or page.ground_truth_digest != ground_truth_digest:
            raise ValueError(f"question {question_id} is not in this book, or has another ground truth there")
        entries = dict(page.entries)
        if self.reference_ties and self.bound.rule == FREQUENCY:
            entries = dict(sorted(entries.items(), key=lambda item: -item[1].frequency))
        removed = _wear_off(entries, evidence, step, by=0 if self.bound.by_reward else 1)
        added = _take_in(entries, evidence, step, by_reward=self.bound.by_reward)
        surplus = self.bound.surplus(question_id, list(entries.values()))
        for entry in surplus:
            del entries[entry.test.identity]
        self._put(question_id, Page(ground_truth_digest, entries))
        return BookChange(added, removed, len(surplus))

    def places(self) -> list[Place]:
        """Returns where every test stands, for all hosts to know."""
        return [self.bound.place(id, entry) for id, page in self._pages.items() for entry in page.entries.values()]

    def evict(self, places: Iterable[Place]) -> int:
        """Takes out the tests in these places that this book holds, and returns how many they were."""
        evicted = 0
        for _, _, question_id, identity in places:
            page = self._pages.get(question_id)
            if page and identity in page.entries:
                rest = {key: entry for key, entry in page.entries.items() if key != identity}
                self._put(question_id, Page(page.ground_truth_digest, rest))
                evicted += 1
        return evicted

    def _put(self, question_id: str, page: Page) -> None:
        """Replaces the question's page by one behind all others; an empty one is left out."""
        self._pages.pop(question_id, None)
        if page.entries:
            self._pages[question_id] = page

    def pages(self) -> Pages:
        """Returns all that the book holds, as it is now: later updates do not show in it. Costs nothing per test."""
        return dict(self._pages)

    def load(self, pages: Mapping[str, Page]) -> None:
        """Replaces all pages of the book by `pages`. Raises ValueError: a question is another host's."""
        for question_id in pages:
            if not self.holds(question_id):
                raise ValueError(f"question {question_id} is in shard {shard_of(question_id)}, not in {self.shards}")
        self._pages = dict(pages)


def _uniform(key: tuple[int, int, str], entry: BookEntry) -> float:
    """Returns a number in (0, 1) that depends on `key` and the test: not on the rest of the book, nor on the host."""
    digest = hashlib.blake2b(encode_exact((*key, *entry.test.identity)), digest_size=6).digest()
    return (int.from_bytes(digest, "little") + 0.5) / 2**48


def _wear_off(entries: dict[Identity, BookEntry], evidence: Evidence, step: int, by: int) -> int:
    """Takes in the verdicts of replayed tests, each pass taking `by`, and returns how many tests left."""
    for test in chain.from_iterable(evidence.failed_history):
        if entry := entries.get(test.identity):
            entries[test.identity] = replace(entry, hits=entry.hits + 1, last_failed=step)
    removed = 0
    for test in chain.from_iterable(evidence.passed_history):
        entry = entries.get(test.identity)
        if entry and entry.frequency > by:
            entries[test.identity] = replace(entry, frequency=entry.frequency - by, last_passed=step)
        elif entry:
            del entries[test.identity]
            removed += 1
    return removed


def _take_in(entries: dict[Identity, BookEntry], evidence: Evidence, step: int, by_reward: bool) -> int:
    """Takes in the new tests that programs failed and returns how many entered."""
    added = 0
    for test in chain.from_iterable(evidence.failed_new):  # their order decides between equals in replay and eviction
        entry = entries.get(test.identity)
        reward = evidence.rewards.get(test.identity, 0.0)
        if by_reward and reward <= LEAST_REWARD:
            continue
        if entry is None:
            first = reward if by_reward else None
            entries[test.identity] = BookEntry(test, 1, first_seen=step, hits=1, last_failed=step, reward=first)
            added += 1
        else:
            best = max(reward, entry.reward or 0.0) if by_reward else entry.reward
            entries[test.identity] = replace(
                entry, frequency=entry.frequency + 1, hits=entry.hits + 1, last_failed=step, reward=best
            )
    return added
