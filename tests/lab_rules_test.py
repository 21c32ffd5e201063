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


def test_every_rule_knows_what_it_is_said_to_know():
    """Near misses of blind that a rule's seven tests expose: by chance few, at the statement's constants many."""

    def exposed(rule: str, count: int) -> float:
        found = []
        for (question, tests), (_, own) in zip(
            islice(ruled_tests(BLIND, rule, count), 60), islice(ruled_tests(BLIND, "every", 0), 60), strict=True
        ):
            calls = [decode_exact(test.call.arguments)[0] for test in tests]
            every = [decode_exact(test.call.arguments)[0] for test in own]
            for wrong in _left_over(question.ground_truth):
                if any(outcome(wrong, each) != outcome(question.ground_truth, each) for each in every):
                    shown = any(outcome(wrong, each) != outcome(question.ground_truth, each) for each in calls)
                    found.append(shown)
        assert found
        return sum(found) / len(found)

    assert exposed("every", 0) == 1.0
    assert exposed("statement", 7) > 2 * exposed("uniform", 7)
    assert exposed("expert", 7) > exposed("uniform", 7)


def _left_over(program: str) -> list[str]:
    """The program with its first comparison off by one, where it has one."""
    swaps = ((" > ", " >= "), (" >= ", " > "), (" < ", " <= "), (" <= ", " < "))
    return [program.replace(old, new, 1) for old, new in swaps if old in program]


def test_an_unknown_rule_is_named():
    with pytest.raises(BadInput, match="there is no rule 'best'; there are statement"):
        next(ruled_tests(BLIND, "best", 7))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--output=a.jsonl", "--count=3"], "--output, --count: only with --rule."),
        (["--facts", "--count=3"], "--count: only with --rule."),
        (["--rule=every", "--output=a.jsonl", "--facts"], "--facts: only without --rule."),
    ],
)
def test_flags_that_would_do_nothing_are_refused(tmp_path, arguments, said):
    assert run("-m", "codea1.lab", "worlds", "blind", f"--folder={tmp_path}", *arguments) == (2, "", f"error: {said}\n")
