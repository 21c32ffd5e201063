"""Reads one question's story from a run's samples: each step in which it was asked, and its Mistake Book."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codea1.game.asserts import Rejected, parse_assert
from codea1.game.methods import METHODS
from codea1.game.mistake_book import Bound, Evidence, MistakeBook
from codea1.game.rewards import FAILED, OFFICIAL
from codea1.game.tests import Test
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput

Row = Mapping[str, Any]  # of `codea1.game.round_views`
_NAMED = 5  # questions that an error names


@dataclass(frozen=True)
class Solution:
    """One program with the suites that were written for it."""

    row: Row
    suites: tuple[Row, ...]


@dataclass(frozen=True)
class BookLine:
    """One test of the question in the Mistake Book around a step: its frequency, 0 where it is not in the book."""

    test: str
    before: int
    after: int


@dataclass(frozen=True)
class Meeting:
    """One step in which the question was asked."""

    step: int
    solutions: tuple[Solution, ...]
    book: tuple[BookLine, ...] | None  # most frequent first; None: there is none, or the samples do not tell it

    @property
    def suites(self) -> list[Row]:
        return [suite for solution in self.solutions for suite in solution.suites]


@dataclass(frozen=True)
class Story:
    """All that a run keeps of one question."""

    run: str
    method: str
    question_id: str
    prompt: str  # what the Code LLM read
    meetings: tuple[Meeting, ...]
    note: str = ""  # what is left out, and why


def read_story(folder: RunFolder, question_id: str, step: int | None = None) -> Story:
    """Reads one question's story from a run's samples.

    Args:
      step: the only meeting that is returned; None for all.

    Raises:
      BadInput: the run has no samples, or none of the question, or none in that step; or a file is damaged.
    """
    samples = Samples(folder)
    met, asked = {}, set()
    for number in samples.steps():
        rows = [row for row in samples.read(number) if "question_id" in row]
        asked.update(row["question_id"] for row in rows)
        if own := [row for row in rows if row["question_id"] == question_id]:
            met[number] = own
    if not asked:
        raise BadInput(f"{folder.path} has no samples: nothing can be told of its questions.")
    if not met:
        near = difflib.get_close_matches(question_id, sorted(asked), n=_NAMED, cutoff=0.4) or sorted(asked)[:_NAMED]
        known = f"the {len(asked)} that {folder.path} has samples of, such as {', '.join(near)}"
        raise BadInput(f"question {question_id} is none of {known}.")
    if step is not None and step not in met:
        steps = ", ".join(map(str, met))
        raise BadInput(f"question {question_id} was not asked in step {step} of {folder.path}, but in {steps}.")
    book, meetings = _Book(folder.config, question_id), []
    for number, rows in met.items():
        solutions = _solutions(rows)
        lines = book.learn(number, solutions)
        meetings.append(Meeting(number, solutions, lines))
    chosen = tuple(meeting for meeting in meetings if step in (None, meeting.step))
    prompt = next(iter(met.values()))[0].get("prompt", "")
    return Story(folder.path.name, folder.config.get("method", ""), question_id, prompt, chosen, book.note)


def _solutions(rows: Sequence[Row]) -> tuple[Solution, ...]:
    suites: dict[int, list[Row]] = {}
    for row in rows:
        if row["player"] == "test":
            suites.setdefault(row["solution"], []).append(row)
    return tuple(Solution(row, tuple(suites.get(row["solution"], ()))) for row in rows if row["player"] == "code")


class _Book:
    """The question's page of the Mistake Book, made again from the samples."""

    def __init__(self, config: Mapping[str, Any], question_id: str):
        game = config.get("game", {})
        self._question_id = question_id
        self._size = game.get("history_size", 0)
        bound = Bound(game.get("book_cap", 0), game.get("book_policy", "frequency"), config.get("seed", 0))
        self._book = MistakeBook(bound=bound, reference_ties=game.get("reward", OFFICIAL) == OFFICIAL)
        method = METHODS.get(config.get("method", ""))
        has_book = bool(method and method.mistake_book and game.get("mistake_book"))
        self.note = ""  # what is left out of the page's changes, and why
        if has_book and game.get("book_total_cap"):
            self.note = "What the Mistake Book keeps of a question hangs on all of them here: its changes are left out."
        elif has_book and bound.by_reward:
            self.note = "The Mistake Book keeps and draws tests by reward here: its changes are left out."
        self._known = has_book and not self.note

    def learn(self, step: int, solutions: Sequence[Solution]) -> tuple[BookLine, ...] | None:
        """Takes in a step; returns the page's changes, or None where there is no book or it is not known."""
        replayed = [run["test"] for run in solutions[0].row.get("history", [])] if solutions else []
        own = [test.text for test in self._book.retrieve(self._question_id, self._size)]
        if self._known and replayed and replayed != own:
            self._lose(step)
        if not self._known:
            return None
        try:
            evidence = _evidence(solutions)
        except ValueError:
            self._lose(step)
            return None
        before = self._frequencies()
        self._book.update(self._question_id, "", step, evidence)
        after = self._frequencies()
        lines = [BookLine(test, before.get(test, 0), after.get(test, 0)) for test in {**before, **after}]
        return tuple(sorted(lines, key=lambda line: -max(line.before, line.after)))

    def _lose(self, step: int) -> None:
        self._known = False
        self.note = f"The Mistake Book is left out from step {step} on: the samples do not lead to what it replayed."

    def _frequencies(self) -> dict[str, int]:
        page = self._book.pages().get(self._question_id)
        return {entry.test.text: entry.frequency for entry in page.entries.values()} if page else {}


def _evidence(solutions: Sequence[Solution]) -> Evidence:
    """What the step showed, of valid programs. Raises ValueError: a test is too large to be written out."""
    failed = {verdict.value for verdict in FAILED}
    failed_new, passed_history, failed_history = [], [], []
    for solution in solutions:
        if solution.row.get("program_valid"):
            asserts = [item for suite in solution.suites for item in suite.get("asserts", ())]
            new = [f"assert {item['call']} == {item['truth']}" for item in asserts if item["verdict"] in failed]
            runs = solution.row.get("history", ())
            failed_new.append([_parse(source) for source in new])
            passed_history.append([_parse(run["test"]) for run in runs if run["verdict"] == "pass"])
            failed_history.append([_parse(run["test"]) for run in runs if run["verdict"] in failed])
    return Evidence(failed_new, passed_history, failed_history)


def _parse(source: str) -> Test:
    parsed = parse_assert(source, source.removeprefix("assert ").partition("(")[0])
    if isinstance(parsed, Rejected):
        raise ValueError(source)
    return parsed
