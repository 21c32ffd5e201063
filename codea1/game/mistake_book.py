"""The Mistake Book: per question, the tests that programs failed before, to be replayed until they are mastered."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from codea1.game.book_draw import draw
from codea1.game.book_entry import BookEntry
from codea1.game.book_shards import ALL_SHARDS, shard_of
from codea1.game.eviction import FREQUENCY, LEAST_REWARD, Bound, Place
from codea1.game.tests import Test

Identity = tuple[str, bytes]


@dataclass(frozen=True)
class BookChange:
    """What updates did to the entries of the book."""

    added: int = 0  # tests that were not in the book
    removed: int = 0  # tests whose frequency reached 0
    evicted: int = 0  # tests that were too many

    def __add__(self, other: "BookChange") -> "BookChange":
        return BookChange(self.added + other.added, self.removed + other.removed, self.evicted + other.evicted)


@dataclass(frozen=True)
class Page:
    """What the book holds of one question. It is never changed, only replaced."""

    truth: str  # `Question.truth` of the ground truth that answered its tests
    entries: Mapping[Identity, BookEntry]  # by the test's identity, in the book's order

    @classmethod
    def of(cls, truth: str, entries: Iterable[BookEntry]) -> "Page":
        return cls(truth, {entry.test.identity: entry for entry in entries})


Pages = dict[str, Page]  # by question id


@dataclass(frozen=True)
class Evidence:
    """What one step showed about a question's valid programs, a collection of tests for each program."""

    failed_new: Iterable[Iterable[Test]] = ()  # the new tests that it failed, once per suite that holds them
    passed_history: Iterable[Iterable[Test]] = ()  # the replayed tests that it passed
    failed_history: Iterable[Iterable[Test]] = ()  # the replayed tests that it failed
    rewards: Mapping[Identity, float] = field(default_factory=dict)  # of the new tests: their best paid suite's


@dataclass
class MistakeBook:
    """A multiset of failed tests for each question; a host's book holds its shards only.

    A test is known by its identity, entry point and arguments: the stated answer is the ground truth's and belongs to
    them. The book is a function of its updates alone, on any host and in any process; what becomes of a question is a
    function of the updates with that question, so that books of several hosts are one book in parts. Only a bound of
    all questions together needs all hosts: each tells its `places` and evicts those of its own that are too many.

    A book kept by reward (`Bound.by_reward`) takes in the failed tests of suites that were paid more than LEAST_REWARD,
    does not wear off, and is drawn from in proportion to reward.

    A question's tests are in order of insertion. With `reference_ties` and a book by frequency they are in the order of
    the Code-A1 reference implementation, whose retrieval sorts its list in place: among equally frequent tests that of
    the last retrieval stays, and what entered since follows. The sorting is done here by the update that follows a
    retrieval, so that a look into the book, or a step that is cut off, changes nothing.
    """

    shards: range = ALL_SHARDS  # that it holds
    bound: Bound = field(default_factory=Bound)
    reference_ties: bool = False

    def __post_init__(self) -> None:
        self._pages: Pages = {}

    @property
    def size(self) -> int:
        """Number of different tests in the book, over all questions that it holds."""
        return sum(len(page.entries) for page in self._pages.values())

    def holds(self, question_id: str) -> bool:
        """Whether the question is in a shard of this book, with or without tests."""
        return shard_of(question_id) in self.shards

    def tests(self, question_id: str) -> list[Test]:
        """Returns all tests of a question, in the book's order."""
        page = self._pages.get(question_id)
        return [entry.test for entry in page.entries.values()] if page else []

    def retrieve(self, question_id: str, k: int, step: int | None = None) -> list[Test]:
        """The at most `k` tests of a question to replay: the most frequent, equally frequent ones in the book's order.

        A book kept by reward gives those drawn for a step, or without one, as for an evaluation, the best paid.
        """
        page = self._pages.get(question_id)
        entries = list(page.entries.values()) if page else []
        if self.bound.by_reward and step is not None:
            return [entry.test for entry in draw(entries, k, (self.bound.seed, step, question_id))]
        worth = _reward if self.bound.by_reward else _frequency
        return [entry.test for entry in sorted(entries, key=lambda entry: -worth(entry))[:k]]

    def update(self, question_id: str, truth: str, step: int, evidence: Evidence) -> BookChange:
        """Takes in what a step showed about the valid programs of a question that the book holds.

        First every replayed test that a program passed loses 1, and leaves the book at 0; then every new test that a
        program failed gains 1, or enters with 1. So a test may leave and come back, as the newest, in one update. A
        replayed test that still fails gains nothing. At last those go that are too many of the question.

        Args:
          question_id: whose entries change.
          truth: `Question.truth`.
          step: which step this is, for the entries' history.
          evidence: of tests that state the ground truth's own answer.

        Raises:
          ValueError: the question is another host's, or its tests have the answers of another ground truth.
        """
        page = self._pages.get(question_id) or Page(truth, {})
        if not self.holds(question_id) or page.truth != truth:
            raise ValueError(f"question {question_id} is not in this book, or has another ground truth there")
        entries = dict(page.entries)
        if self.reference_ties and self.bound.rule == FREQUENCY:
            entries = dict(sorted(entries.items(), key=lambda item: -item[1].frequency))
        removed = _wear_off(entries, evidence, step, by=0 if self.bound.by_reward else 1)
        added = _take_in(entries, evidence, step, by_reward=self.bound.by_reward)
        surplus = self.bound.surplus(question_id, entries.values())
        for entry in surplus:
            del entries[entry.test.identity]
        self._put(question_id, Page(truth, entries))
        return BookChange(added, removed, len(surplus))

    def places(self) -> list[Place]:
        """Where every test stands, if there is a bound of all questions together; it is for all hosts to know."""
        if not self.bound.max_total:
            return []
        return [self.bound.place(id, entry) for id, page in self._pages.items() for entry in page.entries.values()]

    def evict(self, places: Iterable[Place]) -> int:
        """Takes out the tests in these places that this book holds, and returns how many they were."""
        evicted = 0
        for _, _, question_id, identity in places:
            page = self._pages.get(question_id)
            if page and identity in page.entries:
                rest = {key: entry for key, entry in page.entries.items() if key != identity}
                self._put(question_id, Page(page.truth, rest))
                evicted += 1
        return evicted

    def _put(self, question_id: str, page: Page) -> None:
        self._pages.pop(question_id, None)
        if page.entries:
            self._pages[question_id] = page

    def pages(self) -> Pages:
        """All that the book holds, as it is now: later updates do not show in it. Costs nothing per test."""
        return dict(self._pages)

    def load(self, pages: Mapping[str, Page]) -> None:
        """Puts `pages` in place of all that the book holds. Raises ValueError: a question is another host's."""
        for question_id in pages:
            if not self.holds(question_id):
                raise ValueError(f"question {question_id} is in shard {shard_of(question_id)}, not in {self.shards}")
        self._pages = dict(pages)


def _wear_off(entries: dict[Identity, BookEntry], evidence: Evidence, step: int, by: int) -> int:
    """Takes in the verdicts of replayed tests, each pass taking `by`, and returns how many tests left."""
    for entry in _known(entries, evidence.failed_history):
        entries[entry.test.identity] = replace(entry, hits=entry.hits + 1, last_failed=step)
    removed = 0
    for entry in _known(entries, evidence.passed_history):
        if entry.frequency > by:
            entries[entry.test.identity] = replace(entry, frequency=entry.frequency - by, last_passed=step)
        else:
            del entries[entry.test.identity]
            removed += 1
    return removed


def _take_in(entries: dict[Identity, BookEntry], evidence: Evidence, step: int, by_reward: bool) -> int:
    """Takes in the new tests that programs failed and returns how many entered."""
    added = 0
    for test in _each(evidence.failed_new):
        entry = entries.get(test.identity)
        reward = evidence.rewards.get(test.identity, 0.0) if by_reward else None
        if by_reward and reward <= LEAST_REWARD:
            continue
        if entry is None:
            entries[test.identity] = BookEntry(test, 1, first_seen=step, hits=1, last_failed=step, reward=reward)
            added += 1
        else:
            best = max(reward, entry.reward or 0.0) if by_reward else entry.reward
            entries[test.identity] = replace(
                entry, frequency=entry.frequency + 1, hits=entry.hits + 1, last_failed=step, reward=best
            )
    return added


def _frequency(entry: BookEntry) -> float:
    return entry.frequency


def _reward(entry: BookEntry) -> float:
    return entry.reward or 0.0


def _known(entries: dict[Identity, BookEntry], of_programs: Iterable[Iterable[Test]]) -> Iterable[BookEntry]:
    """The entry of each test as it is when its turn comes, of those that are still there."""
    return (entries[test.identity] for test in _each(of_programs) if test.identity in entries)


def _each(of_programs: Iterable[Iterable[Test]]) -> Iterable[Test]:
    return (test for tests in of_programs for test in tests)
