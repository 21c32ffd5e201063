"""What a Mistake Book holds: its entries, and a page of them for each question."""

import base64
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from codea1.game.calls import Call, CallTest

Identity = tuple[str, bytes]  # `CallTest.identity`


@dataclass(frozen=True, slots=True)
class BookEntry:
    """A failed test with its count and its history; the history starts again when a test leaves and comes back."""

    test: CallTest
    frequency: int  # failures as a new test, less passes when it was replayed; at 0 it leaves the book
    first_seen: int  # step in which it entered
    hits: int  # programs that have failed it since, as a new test or replayed; once per suite that holds it
    last_failed: int  # step in which the last of them failed it
    last_passed: int | None = None  # step in which a program last passed it when it was replayed
    reward: float | None = None  # of the best paid suite that it was in; None: the book is not kept by reward

    def to_json(self) -> dict[str, Any]:
        """Returns the entry as JSON data, bytes as base64."""
        return {
            "entry_point": self.test.call.entry_point,
            "arguments": base64.b64encode(self.test.call.arguments).decode("ascii"),
            "expected": base64.b64encode(self.test.expected).decode("ascii"),
            "frequency": self.frequency,
            "first_seen": self.first_seen,
            "hits": self.hits,
            "last_failed": self.last_failed,
            "last_passed": self.last_passed,
            "reward": self.reward,
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "BookEntry":
        """Rebuilds what `to_json` wrote and ignores other keys. Raises ValueError, which says what is wrong."""
        if not isinstance(row, dict):
            raise ValueError("an entry is not a JSON object")
        entry_point = row.get("entry_point")
        if not isinstance(entry_point, str) or not entry_point:
            raise ValueError(f"entry_point is {entry_point!r}, not a name")
        return cls(
            CallTest(Call(entry_point, _bytes(row, "arguments")), _bytes(row, "expected")),
            frequency=_count(row, "frequency", least=1),
            first_seen=_count(row, "first_seen"),
            hits=_count(row, "hits", least=1),
            last_failed=_count(row, "last_failed"),
            last_passed=None if row.get("last_passed") is None else _count(row, "last_passed"),
            reward=None if row.get("reward") is None else _positive(row, "reward"),
        )


@dataclass(frozen=True)
class Page:
    """What the book holds of one question. It is never changed, only replaced."""

    ground_truth_digest: str  # `Question.ground_truth_digest` of the program that answered its tests
    entries: Mapping[Identity, BookEntry]  # in the book's order

    @classmethod
    def of(cls, ground_truth_digest: str, entries: Iterable[BookEntry]) -> "Page":
        """Builds a page of these entries, in their order."""
        return cls(ground_truth_digest, {entry.test.identity: entry for entry in entries})


Pages = dict[str, Page]  # by question id


def _bytes(row: dict[str, Any], name: str) -> bytes:
    value = row.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, not base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ValueError(f"{name} is not base64 text") from None


def _count(row: dict[str, Any], name: str, least: int = 0) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, not a whole number of at least {least}")
    return value


def _positive(row: dict[str, Any], name: str) -> float:
    value = row.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}, not a finite number above 0")
    return float(value)
