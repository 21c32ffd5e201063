"""The Mistake Book's tests against the ground truths of today: what no longer holds leaves the book.

A test in the book states the answer of the ground truth that was there when it entered. Where a question's ground
truth, its entry point or the way ground truths are run has changed since, the ground truth is called; where nothing
has, nothing runs.
"""

from collections.abc import Iterable

from codea1.game.book_pages import BookEntry, Page, Pages
from codea1.game.grading import Answers, Judge, is_true
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.runtime.futures import start
from codea1.sandbox.host.grading import Grader


def revalidate(pages: Pages, questions: Iterable[Question], grader: Grader) -> tuple[Pages, list[str]]:
    """Keeps the tests that call a question's entry point and state what its ground truth answers today.

    A kept test keeps its frequency and history. Tests whose answer is another now leave, for the programs that failed
    them were judged by the old one. Pages of questions that are not among `questions` stay as they are.

    Returns:
      The pages that hold today, and a sentence about the questions that were validated again, if there are some.

    Raises:
      BadInput: the sandbox failed to run a ground truth, so that what holds is not known.
    """
    by_id = {question.id: question for question in questions}
    digests = {id: question.ground_truth_digest for id, question in by_id.items()}
    stale = {id: page for id, page in pages.items() if id in by_id and page.ground_truth_digest != digests[id]}
    if not stale:
        return dict(pages), []
    asked = {}
    for id, page in stale.items():
        question = by_id[id]
        entries = [entry for entry in page.entries.values() if entry.test.call.function == question.entry_point]
        asked[id] = entries, start(Judge(question, grader).answers(entry.test.call for entry in entries))
    valid, holding = {id: page for id, page in pages.items() if id not in stale}, 0
    for id, (entries, answers) in asked.items():
        kept = _holding(id, entries, answers.result())
        holding += len(kept)
        if kept:
            valid[id] = Page.of(digests[id], kept)
    tests = sum(len(page.entries) for page in stale.values())
    changed = f"the ground truths of {len(stale)} questions (first {next(iter(stale))}), or how they are run, changed"
    return valid, [f"Mistake Book: {changed}; {holding} of {tests} tests still hold"]


def _holding(question_id: str, entries: list[BookEntry], answers: Answers) -> list[BookEntry]:
    if any(answer.reason == "infra" for answer in answers.values()):
        raise BadInput(
            f"Mistake Book: the ground truth of question {question_id}, or how it is run, is another than when its "
            "tests were kept, and the sandbox failed to run it; start again."
        )
    return [entry for entry in entries if is_true(entry.test, answers[entry.test.call])]
