"""A book taken up beside questions whose ground truth has changed."""

import pytest

from bench.micro_run import content
from codea1.game.asserts import parse_assert
from codea1.game.book_pages import Page, Pages
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.sandbox.host import Limits
from codea1.sandbox.host.grading import Grader, GroundTruthAnswer
from codea1.sandbox.host.pool import SandboxPool
from codea1.training.revalidation import revalidate
from tests.conftest import done
from tests.mistake_books import filled, make

CHANGED = "Mistake Book: the ground truths of 1 questions (first q), or how they are run, changed; {} tests still hold"
LIMITS = Limits(cpu_seconds_per_test=1.0, cpu_seconds_per_suite=5.0)


def question(ground_truth: str, entry_point: str = "f", id: str = "q") -> Question:
    return Question(id, None, "Add one.", "Add one.", ground_truth, entry_point)


OLD = question("def f(n):\n    return n + 1")
TESTS = [make(n, n + 1) for n in (0, 1, 5)]


def book(of: Question = OLD) -> Pages:
    pages = filled(*TESTS, TESTS[1]).pages()
    return {of.id: Page(of.ground_truth_digest, pages["q"].entries)}


@pytest.fixture(scope="module")
def grader():
    with SandboxPool(1, LIMITS, "auto") as pool:
        yield Grader(pool)


class NoGrader:
    """Where nothing has changed, nothing runs."""


def test_nothing_runs_where_nothing_changed():
    for questions in ([OLD, question("def g(): 0", id="r")], []):
        pages, notes = revalidate(book(), questions, NoGrader())
        assert (content(pages), notes) == (content(book()), [])


def test_tests_that_still_hold_stay_with_their_history(grader):
    new = question("def f(n):\n    return 6 if n == 5 else n + 1.0 if n else 7")
    pages, notes = revalidate(book(), [new], grader)
    entries = book()["q"].entries
    still_hold = [entries[test.identity] for test in TESTS[1:]]  # 2.0 == 2
    assert content(pages) == {"q": (new.ground_truth_digest, still_hold)}
    assert notes == [CHANGED.format("2 of 3")]


def test_a_test_holds_where_its_entry_point_takes_the_new_answer_for_the_old(grader):
    tests = [make(f"{n}\n", f"{n / 3:.6f}", "stdout_tokens") for n in (1, 2)]
    pages = {"q": Page("of another", filled(*tests).pages()["q"].entries)}
    new = question("n = int(input())\nprint(n / 3 if n == 1 else n)", "stdout_tokens")
    pages, notes = revalidate(pages, [new], grader)
    assert [entry.test for entry in pages["q"].entries.values()] == tests[:1]
    assert notes == [CHANGED.format("1 of 2")]


def test_tests_in_other_forms_stay_too(grader):
    tests = [parse_assert(f"assert {form}(f(5)) == [5]", "f") for form in ("list", "sorted")]
    pages = {"q": Page("old", filled(*tests).pages()["q"].entries)}
    kept, _ = revalidate(pages, [question("def f(n):\n    return {n}")], grader)
    assert [entry.test for entry in kept["q"].entries.values()] == tests


@pytest.mark.parametrize(
    "new", [question("def f(n):\n    raise ValueError"), question("def g(n):\n    return n + 1", "g")]
)
def test_a_question_whose_tests_all_went_has_no_page(grader, new):
    pages, (note,) = revalidate(book(), [new], grader)
    assert pages == {}
    assert note == CHANGED.format("0 of 3")


def test_a_lost_sandbox_decides_nothing():
    class Lost:
        def ground_truth(self, program, calls):
            return done([GroundTruthAnswer(False, b"", "infra", 0.0)] * len(calls))

    with pytest.raises(BadInput, match="question q"):
        revalidate(book(), [question("def f(n):\n    return 0")], Lost())


def test_a_truth_is_its_program_and_entry_point():
    assert OLD.ground_truth_digest == question(OLD.ground_truth, id="another").ground_truth_digest
    others = [question(OLD.ground_truth, "g"), question(OLD.ground_truth + "\n")]
    assert len({each.ground_truth_digest for each in (OLD, *others)}) == 3
