"""Rules that write a world's tests: what each knows, and that all that they state is true."""

from itertools import islice

import pytest

from codea1.lab.worlds.compositions import outcome
from codea1.lab.worlds.rules import RULES, ruled_tests
from codea1.lab.worlds.worlds import WORLDS
from codea1.runtime.errors import BadInput
from codea1.values import decode_exact
from tests.host_processes import run

BLIND = WORLDS["blind"]


@pytest.mark.parametrize("rule", RULES)
def test_tests_state_what_the_ground_truth_answers_and_repeat_nothing(rule):
    for question, tests in islice(ruled_tests(BLIND, rule, 7), 40):
        assert 0 < len(tests) <= 7
        assert len({test.identity for test in tests}) == len(tests)
        for test in tests:
            positional, _ = decode_exact(test.call.arguments)
            assert outcome(question.ground_truth, positional) == decode_exact(test.expected)


def test_a_rule_writes_the_same_tests_again():
    for rule in RULES:
        first, second = ([tests for _, tests in islice(ruled_tests(BLIND, rule, 5), 8)] for _ in range(2))
        assert first == second


def test_the_statements_constants_expose_more_left_over_mistakes_than_chance_does():
    def exposed(rule: str) -> float:
        found = []
        for question, tests in islice(ruled_tests(BLIND, rule, 7), 60):
            calls = [decode_exact(test.call.arguments)[0] for test in tests]
            for wrong in off_by_one(question.ground_truth):
                found.append(any(outcome(wrong, call) != outcome(question.ground_truth, call) for call in calls))
        return sum(found) / len(found)

    assert exposed("statement") > 2 * exposed("uniform")


def off_by_one(program: str) -> list[str]:
    """The program with its first comparison off by one, where it has one."""
    swaps = ((" > ", " >= "), (" >= ", " > "), (" < ", " <= "), (" <= ", " < "))
    return [program.replace(old, new, 1) for old, new in swaps if old in program]


def test_an_unknown_rule_is_named():
    with pytest.raises(BadInput, match="there is no rule 'best'; there are statement, uniform"):
        next(ruled_tests(BLIND, "best", 7))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--output=a.jsonl", "--count=3"], "--output, --count: only with --rule."),
        (["--count=3"], "--count: only with --rule."),
    ],
)
def test_flags_that_would_do_nothing_are_refused(tmp_path, arguments, said):
    assert run("-m", "codea1.lab", "worlds", "blind", f"--folder={tmp_path}", *arguments) == (2, "", f"error: {said}\n")
