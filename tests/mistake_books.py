"""What tests of Mistake Books share: small tests, and updates that do everything."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from codea1.game.book_pages import Pages
from codea1.game.calls import Call, CallTest
from codea1.game.mistake_book import EVICTION_RULES, BookChange, Bound, Evidence, MistakeBook, shards_of_host
from codea1.values import encode_exact

TRUTH = "t"


def make(n: object, expected: object = None, entry_point: str = "f") -> CallTest:
    return CallTest(Call(entry_point, encode_exact(((n,), {}))), encode_exact(expected))


@dataclass(frozen=True)
class Update:
    """What one step shows about one question."""

    question_id: str
    step: int
    evidence: Evidence

    def apply(self, book: MistakeBook) -> BookChange:
        if not book.holds(self.question_id):
            return BookChange()
        return book.update(self.question_id, TRUTH, self.step, self.evidence)


def failed(*tests: CallTest) -> Evidence:
    return Evidence(failed_new=[tests])


def passed(*tests: CallTest) -> Evidence:
    return Evidence(passed_history=[tests])


def filled(*tests: CallTest, bound: Bound | None = None, step: int = 1, **rest: bool) -> MistakeBook:
    """A book in which one program failed the tests of question q."""
    book = MistakeBook(bound=bound or Bound(), **rest)
    book.update("q", TRUTH, step, failed(*tests))
    return book


def replay(updates: Iterable[Update], hosts: int, bound: Bound, **rest: bool) -> list[MistakeBook]:
    """The book that the updates make, in the parts of `hosts` hosts."""
    books = [MistakeBook(shards_of_host(host, hosts), bound, **rest) for host in range(hosts)]
    for update in updates:
        for book in books:
            update.apply(book)
    return books


def joined(books: Sequence[MistakeBook]) -> Pages:
    """All pages; the hosts' parts must not overlap."""
    parts = [book.pages() for book in books]
    pages = {question_id: page for part in parts for question_id, page in part.items()}
    assert len(pages) == sum(map(len, parts))
    return pages


def big(questions: int, tests: int) -> Pages:
    """A book with many questions."""
    book = MistakeBook()
    for number in range(questions):
        book.update(f"mbpp/{number}", TRUTH, 1 + number % 7, failed(*map(make, range(number % (2 * tests) + 1))))
    return book.pages()


_TESTS = st.lists(st.lists(st.integers(0, 9).map(make), max_size=6), max_size=3)
_QUESTIONS = st.sampled_from(["q", "r", "", "mbpp/é", *map(str, range(6))])
_EVIDENCE = st.builds(Evidence, failed_new=_TESTS, passed_history=_TESTS, failed_history=_TESTS)
UPDATES = st.lists(st.tuples(_QUESTIONS, _EVIDENCE), max_size=12).map(
    lambda found: [Update(question_id, step, evidence) for step, (question_id, evidence) in enumerate(found)]
)
BOUNDS = st.builds(Bound, st.integers(0, 4), st.sampled_from(sorted(EVICTION_RULES)), st.integers(0, 3))
