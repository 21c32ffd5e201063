"""A book taken up beside questions whose ground truth has changed."""

from concurrent.futures import Future

import pytest

from bench.micro_run import content
from codea1.game.mistake_book import Page, Pages
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.grading import Grader, GroundTruthAnswer
from codea1.sandbox.host.pool import Limits, SandboxPool
from codea1.training.revalidation import revalidate
from tests.mistake_books import filled, make

LIMITS = Limits(cpu_seconds_per_test=1.0, cpu_seconds_per_suite=5.0)


def question(ground_truth: str, entry_point: str = "f", id: str = "q") -> Question:
    return Question(id, None, "Add one.", "Add one.", ground_truth, entry_point)


OLD = question("def f(n):\n    return n + 1")
TESTS = [make(n, n + 1) for n in (0, 1, 5)]


def book(of: Question = OLD) -> Pages:
    pages = filled(*TESTS, TESTS[1]).pages()
    return {of.id: Page(of.truth, pages["q"].entries)}


@pytest.fixture(scope="module")
def grader():
    with SandboxPool(1, LIMITS, "auto") as pool:
        yield Grader(pool)


class NoGrader:
    """Where nothing has changed, nothing runs."""


def test_nothing_runs_where_nothing_changed():
    assert content(revalidate(book(), [OLD, question("def g(): 0", id="r")], NoGrader()).pages) == content(book())
    assert content(revalidate(book(), [], NoGrader()).pages) == content(book())
    assert revalidate(book(), [OLD], NoGrader()).lines == []


def test_tests_that_still_hold_stay_with_their_history(grader):
    new = question("def f(n):\n    return 6 if n == 5 else n + 1.0 if n else 7")
    done = revalidate(book(), [new], grader)
    entries = book()["q"].entries
    assert content(done.pages) == {"q": (new.truth, [entries[test.identity] for test in TESTS[1:]])}  # 2.0 == 2
    assert done.lines == ["Mistake Book: the ground truth of q has changed; 2 of its 3 tests still hold"]


@pytest.mark.parametrize(
    "new", [question("def f(n):\n    raise ValueError"), question("def g(n):\n    return n + 1", "g")]
)
def test_a_question_whose_tests_all_went_has_no_page(grader, new):
    done = revalidate(book(), [new], grader)
    assert (done.pages, done.changed) == ({}, {"q": (3, 0)})


def test_a_lost_sandbox_decides_nothing():
    class Lost:
        def ground_truth(self, program, calls):
            future = Future()
            future.set_result([GroundTruthAnswer(False, b"", "infra", 0.0)] * len(calls))
            return future

    with pytest.raises(BadInput, match="question q"):
        revalidate(book(), [question("def f(n):\n    return 0")], Lost())


def test_a_truth_is_its_program_and_entry_point():
    assert OLD.truth == question(OLD.ground_truth, id="another").truth
    assert len({OLD.truth, question(OLD.ground_truth, "g").truth, question(OLD.ground_truth + "\n").truth}) == 3
