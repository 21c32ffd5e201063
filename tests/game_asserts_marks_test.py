"""How the ground truth marks a suite, and what either policy makes of it."""

from dataclasses import dataclass

import pytest

from codea1.game.answers import parse_suite
from codea1.game.asserts import Mark
from codea1.game.outcomes import SolutionOutcome, SuiteOutcome
from codea1.game.question import Question
from codea1.game.rewards import REWARDS
from codea1.values import answers_equal, decode_exact, encode_exact
from codea1.values.verdict import Verdict

QUESTION = Question("q", None, "", "", "def f(n, /, k=0, *, m=0):\n    return n + 1", "f")


@dataclass(frozen=True)
class FakeAnswer:
    usable: bool
    value: bytes = b""
    reason: str = ""


def ground_truth(call):
    """f(n) = n + 1; raises for negative n; the sandbox fails at n = 99; the answer to n = 98 is huge."""
    (n, *_), _ = decode_exact(call.arguments)
    if n == 98:
        return FakeAnswer(True, encode_exact([0] * 20_000))
    if n == 99:
        return FakeAnswer(False, reason="infra")
    return FakeAnswer(True, encode_exact(n + 1)) if n >= 0 else FakeAnswer(False, reason="raises")


def mark(policy: str, *lines: str, k: int = 8, all_forms: bool = False):
    parsed = parse_suite("\n".join(["```python", *lines, "```"]), "f", all_forms=all_forms)
    rules = REWARDS[policy](alpha=0.5, num_tests=k)
    marked = rules.mark(parsed, {call: ground_truth(call) for call in rules.calls(parsed)}, rules.signature(QUESTION))
    assert len(marked) == len(parsed.asserts)
    return parsed, marked


# line, mark under official, mark under strict
TABLE = [
    ("assert f(1) == 2", Mark.RIGHT, Mark.RIGHT),
    ("assert f(2) == 3.0", Mark.RIGHT, Mark.RIGHT),
    ("assert f(3) == 5", Mark.WRONG_ANSWER, Mark.WRONG_ANSWER),
    ("assert f(1) == 2", Mark.DUPLICATE, Mark.DUPLICATE),
    ("assert f(3) == 4", Mark.DUPLICATE, Mark.DUPLICATE),
    ("assert f(1.0) == 2", Mark.RIGHT, Mark.DUPLICATE),
    ("assert f(-1) == 0", Mark.UNUSABLE, Mark.UNUSABLE),
    ("assert f(99) == 100", Mark.INFRA, Mark.INFRA),
    ("assert f(98) == [0] * 20_000", Mark.UNUSABLE, Mark.REJECTED),
    ("assert f(98) == 0", Mark.UNUSABLE, Mark.UNUSABLE),
    ("assert f([0] * 20_000) == 0", Mark.REJECTED, Mark.REJECTED),
    ("assert len([1]) == 1", Mark.REJECTED, Mark.REJECTED),
    ("assert f(5) != 6", Mark.RIGHT, Mark.REJECTED),
    ("assert f(6) > 6", Mark.WRONG_ANSWER, Mark.REJECTED),
    ("assert f(7) == 8 == 8", Mark.RIGHT, Mark.REJECTED),
    ("assert f(8) == f(8)", Mark.WRONG_ANSWER, Mark.REJECTED),
    ("assert f(9)", Mark.DROPPED, Mark.REJECTED),
    ("assert 11 == f(10)", Mark.DROPPED, Mark.REJECTED),
    ("assert f(11 == 12", Mark.DROPPED, Mark.REJECTED),
]


@pytest.mark.parametrize(("policy", "column"), [("official", 1), ("strict", 2)])
def test_marks(policy, column):
    _, marked = mark(policy, *(row[0] for row in TABLE), k=100)
    assert [(item.parsed.source, item.mark) for item in marked] == [(row[0], row[column]) for row in TABLE]


@pytest.mark.parametrize("policy", ["official", "strict"])
def test_an_answer_is_right_where_its_entry_point_takes_it_for_the_ground_truths(policy):
    question = Question("q", None, "", "", "print(1 / int(input()), 'YES')", "stdout_tokens")
    lines = [f"assert stdout_tokens('{n}') == {answer!r}" for n, answer in ((3, "0.33333\nyes"), (3.0, "0.34 YES"))]
    parsed = parse_suite("\n".join(["```python", *lines, "```"]), question.entry_point)
    rules, truth = REWARDS[policy](alpha=0.5, num_tests=8), FakeAnswer(True, encode_exact("0.3333333333 YES"))
    marked = rules.mark(parsed, dict.fromkeys(rules.calls(parsed), truth), rules.signature(question))
    assert [item.mark for item in marked] == [Mark.RIGHT, Mark.WRONG_ANSWER]
    assert marked[0].test.expected == truth.value


@pytest.mark.parametrize("policy", ["strict", "strict_tests"])
def test_an_input_counts_once_in_whatever_form_its_answers_are_compared(policy):
    plain, near, rounded = "assert f(1) == 2", "assert abs(f(1.0) - 2) < 1e-6", "assert round(f(True), 2) == 2"
    for lines in ((plain, near, rounded), (near, rounded, plain), (rounded, plain, near)):
        _, marked = mark(policy, *lines, "assert 3 == f(2)", all_forms=True)
        assert [item.mark for item in marked] == [Mark.RIGHT, Mark.DUPLICATE, Mark.DUPLICATE, Mark.RIGHT]


def test_official_keeps_tests_with_a_wrong_answer_and_replaces_it():
    parsed, marked = mark("official", "assert f(1) == 7", "assert f(2) == 3")
    assert [item.test.text for item in marked] == ["assert f(1) == 2", "assert f(2) == 3"]
    assert SuiteOutcome.of(parsed, marked, ()).invalid == 1


def test_strict_keeps_right_tests_only():
    _, marked = mark("strict", "assert f(1) == 7", "assert f(2) == 3")
    assert [item.test and item.test.text for item in marked] == [None, "assert f(2) == 3"]
    assert decode_exact(marked[0].truth) == 2


def test_official_counts_all_asserts_but_dropped_ones():
    parsed, marked = mark("official", *(row[0] for row in TABLE), k=2)
    # wrong answers 3, duplicates 2, unusable 3, rejected 2
    assert SuiteOutcome.of(parsed, marked, ()).invalid == 10
    assert sum(item.runs for item in marked) == 8


def test_strict_reads_the_first_asserts_alone():
    parsed, marked = mark("strict", "assert f(1)", "assert f(1) == 2", "assert f(2) == 3", k=2)
    assert [item.mark for item in marked] == [Mark.REJECTED, Mark.RIGHT, Mark.SURPLUS]
    assert len(REWARDS["strict"](alpha=0.5, num_tests=2).calls(parsed)) == 1


@pytest.mark.parametrize(("policy", "validity"), [("official", 0.25), ("strict", 0.25), ("strict_tests", 0.25)])
@pytest.mark.parametrize("wrapped", ["sorted(f(1)) == [2]", "len(f(1)) == 1", "abs(f(1) - 2) < 1e-6"])
def test_a_wrapped_call_is_not_run_and_costs_validity(policy, validity, wrapped):
    """docs/differences.md says so. Official: 2 usable of 4, but 3 invalid; else: 1 right of 4 places."""
    lines = [f"assert {wrapped}", "assert f(2) == 3", "assert f(3) == 9", f"assert {wrapped}", "assert f(4) == 5"]
    parsed, marked = mark(policy, *lines, k=4)
    assert [item.mark for item in marked][::3] == [Mark.REJECTED] * 2
    assert [item.test for item in marked][::3] == [None] * 2
    outcome = SuiteOutcome.of(parsed, marked, [Verdict.PASS] * sum(item.runs for item in marked))
    assert outcome.invalid == 3
    paid = REWARDS[policy](alpha=0.5, num_tests=4).test_reward(SolutionOutcome(True, (outcome,)), outcome)
    assert paid.validity == validity


SPELLINGS = ["assert f(1) == 2", "assert f(1, k=0) == 2", "assert f(1, 0, m=0) == 2", "assert f(2, 3) == 3"]


@pytest.mark.parametrize("policy", ["strict", "strict_tests", "simple"])
def test_another_spelling_of_an_input_is_a_duplicate(policy):
    parsed, marked = mark(policy, *SPELLINGS, k=4)
    assert [item.mark for item in marked] == [Mark.RIGHT, Mark.DUPLICATE, Mark.DUPLICATE, Mark.RIGHT]
    assert [item.test and item.test.text for item in marked] == ["assert f(1) == 2", None, None, "assert f(2, 3) == 3"]
    outcome = SuiteOutcome.of(parsed, marked, [Verdict.FAIL, Verdict.PASS])
    paid = REWARDS[policy](alpha=0.5, num_tests=4).test_reward(SolutionOutcome(True, (outcome,)), outcome)
    assert paid.validity == 0.5


def test_the_reference_tells_spellings_apart():
    _, marked = mark("official", *SPELLINGS)
    assert [item.mark for item in marked] == [Mark.RIGHT] * 4


def test_a_lost_ground_truth_loses_the_suite():
    parsed, marked = mark("strict", "assert f(99) == 100", "assert f(1) == 2")
    assert SuiteOutcome.of(parsed, marked, ()).lost


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [(1, 1.0, True), (0.0, -0.0, True), ([1], (1,), False), ({1, 2}, {2, 1}, True), ("1", 1, False), (True, 1, True)],
)
def test_answers_are_compared_as_python_does(first, second, equal):
    assert answers_equal(encode_exact(first), encode_exact(second)) == equal
