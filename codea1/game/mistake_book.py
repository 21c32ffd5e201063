"""The Mistake Book: per question, the tests that programs failed before, to be replayed until they are mastered."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from codea1.errors import BadInput
from codea1.game.tests import Call, Test


@dataclass(frozen=True)
class BookChange:
    """What one update did to the entries of the book."""

    added: int = 0  # tests that were not in the book
    removed: int = 0  # tests whose frequency reached 0

    def __add__(self, other: "BookChange") -> "BookChange":
        return BookChange(self.added + other.added, self.removed + other.removed)


@dataclass
class _Entry:
    test: Test
    frequency: int


class MistakeBook:
    """A multiset of failed tests for each question, in order of insertion.

    A test is known by its identity, entry point and arguments: the stated answer is the ground truth's and belongs to
    them. The book is a function of its updates alone, on any host and in any process.
    """

    def __init__(self) -> None:
        self._entries: dict[str, dict[tuple[str, bytes], _Entry]] = {}

    @property
    def size(self) -> int:
        """Number of different tests in the book, over all questions."""
        return sum(map(len, self._entries.values()))

    def retrieve(self, question_id: str, k: int) -> list[Test]:
        """The at most `k` most frequent tests of a question; of equally frequent ones the oldest first."""
        entries = self._entries.get(question_id, {}).values()
        return [entry.test for entry in sorted(entries, key=lambda entry: -entry.frequency)[:k]]

    def update(
        self, question_id: str, passed_history: Iterable[Iterable[Test]], failed_new: Iterable[Iterable[Test]]
    ) -> BookChange:
        """Takes in what one step showed about a question's valid programs.

        First every replayed test that a program passed loses 1, and leaves the book at 0; then every new test that a
        program failed gains 1, or enters with 1. So a test may leave and come back, as the newest, in one update. A
        replayed test that still fails gains nothing.

        Args:
          question_id: whose entries change.
          passed_history: for each valid program, the replayed tests that it passed.
          failed_new: for each valid program, the new tests that it failed, once per suite that holds them.
        """
        entries = self._entries.setdefault(question_id, {})
        added = removed = 0
        for test in (test for program in passed_history for test in program):
            entry = entries.get(test.identity)
            if entry is None:
                continue
            entry.frequency -= 1
            if entry.frequency <= 0:
                del entries[test.identity]
                removed += 1
        for test in (test for program in failed_new for test in program):
            if test.identity in entries:
                entries[test.identity].frequency += 1
            else:
                entries[test.identity] = _Entry(test, 1)
                added += 1
        if not entries:
            del self._entries[question_id]
        return BookChange(added, removed)

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """The whole book as JSON data: for each question its entries in order of insertion, bytes as base64."""
        return {
            question_id: [_entry_to_json(entry) for entry in entries.values()]
            for question_id, entries in self._entries.items()
        }

    @classmethod
    def from_json(cls, data: dict[str, list[dict[str, Any]]]) -> "MistakeBook":
        """Rebuilds exactly the book that `to_json` wrote, the order of entries included.

        Raises:
          BadInput: names the question whose entries are not what `to_json` writes.
        """
        book = cls()
        for question_id, rows in data.items():
            try:
                entries = [_entry_from_json(row) for row in rows]
            except (KeyError, TypeError, ValueError) as error:
                raise BadInput(f"Mistake Book: question {question_id!r} has a malformed entry: {error!r}.") from None
            book._entries[question_id] = {entry.test.identity: entry for entry in entries}
        return book


def _entry_to_json(entry: _Entry) -> dict[str, Any]:
    return {
        "entry_point": entry.test.call.entry_point,
        "arguments": base64.b64encode(entry.test.call.arguments).decode("ascii"),
        "expected": base64.b64encode(entry.test.expected).decode("ascii"),
        "frequency": entry.frequency,
    }


def _entry_from_json(row: dict[str, Any]) -> _Entry:
    frequency = row["frequency"]
    if not isinstance(frequency, int) or isinstance(frequency, bool) or frequency < 1:
        raise ValueError(f"frequency {frequency!r} is not a positive integer")
    if not isinstance(row["entry_point"], str):
        raise ValueError(f"entry point {row['entry_point']!r} is not text")
    call = Call(row["entry_point"], base64.b64decode(row["arguments"], validate=True))
    return _Entry(Test(call, base64.b64decode(row["expected"], validate=True)), frequency)
