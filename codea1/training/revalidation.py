"""The Mistake Book's tests against the ground truths of today: what no longer holds leaves the book.

A test in the book states the answer of the ground truth that was there when it entered. Where a question's program or
entry point has changed since, its tests are asked again; where it has not, nothing runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from codea1.game.book_entry import BookEntry
from codea1.game.ground_truth import answers_equal
from codea1.game.mistake_book import Page, Pages
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.grading import Grader, GroundTruthAnswer


@dataclass
class Revalidation:
    """What came of it."""

    pages: Pages  # those that hold for the ground truths of today
    changed: dict[str, tuple[int, int]] = field(default_factory=dict)  # question: its tests before and after

    @property
    def lines(self) -> list[str]:
        """What a person must know, a line for each question."""
        return [
            f"Mistake Book: the ground truth of {question_id} has changed; {after} of its {before} tests still hold"
            for question_id, (before, after) in self.changed.items()
        ]


def revalidate(pages: Pages, questions: Iterable[Question], grader: Grader) -> Revalidation:
    """Keeps the tests that call a question's entry point and state what its ground truth answers today.

    A kept test keeps its frequency and history. Tests whose answer is another now leave, for the programs that failed
    them were judged by the old one. Questions that are not among `questions` are left as they are: nothing asks them.

    Raises:
      BadInput: the sandbox failed to run a ground truth, so that what holds is not known.
    """
    by_id = {question.id: question for question in questions}
    stale = [id for id, page in pages.items() if id in by_id and page.truth != by_id[id].truth]
    asked = {}
    for id in stale:
        calls = [entry.test.call for entry in _on_entry_point(by_id[id], pages[id])]
        asked[id] = grader.ground_truth(by_id[id].ground_truth, calls)
    done = Revalidation(dict(pages))
    for id in stale:
        kept = _holding(by_id[id], _on_entry_point(by_id[id], pages[id]), asked[id].result())
        done.changed[id] = len(pages[id].entries), len(kept)
        del done.pages[id]
        if kept:
            done.pages[id] = Page.of(by_id[id].truth, kept)
    return done


def _on_entry_point(question: Question, page: Page) -> list[BookEntry]:
    return [entry for entry in page.entries.values() if entry.test.call.entry_point == question.entry_point]


def _holding(question: Question, entries: list[BookEntry], answers: list[GroundTruthAnswer]) -> list[BookEntry]:
    if any(answer.reason == "infra" for answer in answers):
        raise BadInput(
            f"Mistake Book: question {question.id} has another ground truth than when its tests were kept, and the "
            "sandbox failed to run it; start again."
        )
    return [
        entry
        for entry, answer in zip(entries, answers, strict=True)
        if answer.usable and answers_equal(answer.value, entry.test.expected)
    ]
