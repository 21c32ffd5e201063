"""Rewards against numbers worked out by hand."""

import dataclasses
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest

from codea1.game.answers import parse_suite
from codea1.game.outcomes import SolutionOutcome, SuiteOutcome
from codea1.game.question import AS_WRITTEN
from codea1.game.rewards import REWARDS, OfficialReward, SolutionReward, SuiteReward, golden_reward
from codea1.values import encode_exact
from codea1.values.verdict import Verdict

LETTERS = {
    "p": Verdict.PASS,
    "f": Verdict.FAIL,
    "e": Verdict.ERROR,
    "t": Verdict.TIMEOUT,
    "n": Verdict.NOT_RUN,
    "v": Verdict.INVALID,
    "i": Verdict.INFRA,
}


@dataclass(frozen=True)
class Truth:
    value: bytes
    usable: bool = True
    reason: str = ""


def verdicts(letters: str) -> tuple[Verdict, ...]:
    return tuple(LETTERS[letter] for letter in letters)


def suite(letters: str, invalid: int = 0, nonprintable: float = 0.0) -> SuiteOutcome:
    ran = verdicts(letters)
    return SuiteOutcome(ran, invalid, nonprintable, right=tuple(enumerate(ran)))


def solution(*suites: str, history: str = "", valid: bool | None = True) -> SolutionOutcome:
    return SolutionOutcome(valid, tuple(map(suite, suites)), verdicts(history))


def pay_test(policy: str, outcome: SuiteOutcome, *, k: int = 8, alpha: float = 0.5, **rest):
    return REWARDS[policy](alpha=alpha, num_tests=k).test_reward(solution(**rest), outcome)


# What the reference implementation returns for these inputs, with alpha 0.5 and eight tests asked for.
@pytest.mark.parametrize(
    ("letters", "invalid", "history", "valid", "total"),
    [
        ("fffppppp", 0, "", True, 0.6875),
        ("fffppppp", 0, "pf", True, 0.71875),
        ("pppppppp", 0, "pppp", True, 0.75),
        ("pppppppp", 0, "ffff", True, 0.5),
        ("ffffffff", 8, "", True, 0.5),
        ("pppppppp", 4, "", True, 0.25),
        ("fff", 0, "", True, 0.375),
        ("ffffffff", 0, "pf", False, 0.0),
        ("", 0, "", True, 0.0),
        ("", 0, "pp", True, 0.0),
        ("", 8, "", True, 0.0),
        ("pppppppp" + "ffff", 0, "", True, 0.5),  # only the first eight can kill
        ("pppppppp" + "pppp", 9, "", True, 0.0),  # but all asserts cost validity
        ("etnppppp", 0, "", True, 0.6875),  # every outcome but a pass is a fail
        ("pppppppp", 0, "etnf", True, 0.5),
    ],
)
def test_official_test_reward(letters, invalid, history, valid, total):
    reward = pay_test("official", suite(letters, invalid), history=history, valid=valid)
    assert reward.total == total
    assert not reward.masked


def test_official_test_reward_of_the_worked_example():
    """Three tests asked for, history half passed: one kill pays 0.708, two kills pay 0.792."""
    one = pay_test("official", suite("fpp"), k=3, history="pf")
    two = pay_test("official", suite("ffp"), k=3, history="pf")
    assert (one.validity, one.adversarial, one.total) == pytest.approx((1.0, 5 / 12, 17 / 24))
    assert (two.validity, two.adversarial, two.total) == pytest.approx((1.0, 7 / 12, 19 / 24))
    middle = pay_test("official", suite("pp", invalid=1), k=3, history="pf")
    assert (middle.validity, middle.adversarial, middle.total) == pytest.approx((2 / 3, 0.25, 11 / 24))


def test_official_nonprintable_characters_are_a_penalty_even_on_an_invalid_program():
    assert pay_test("official", suite("pppppppp", nonprintable=0.25)).total == 0.25
    reward = pay_test("official", suite("pppppppp", nonprintable=0.25), valid=False)
    assert (reward.total, reward.penalty) == (-0.25, 0.25)


def test_alpha_weighs_validity_against_kills():
    assert pay_test("official", suite("ffpppp"), alpha=1.0).total == 0.75
    assert pay_test("official", suite("ffpppp"), alpha=0.0).total == 0.25
    assert pay_test("strict", suite("ffpppp"), alpha=1.0).total == 0.75
    assert pay_test("strict", suite("ffpppp"), alpha=0.0).total == 0.25


@pytest.mark.parametrize(
    ("outcome", "total"),
    [
        (solution("pf", "pppp"), (0.5 + 1.0) / 2),
        (solution("pf", "pppp", history="pf"), (0.5 + 0.75) / 2),
        (solution("", "pf"), 0.25),  # a suite without usable tests lowers the reward
        (solution("", "pf", history="p"), (1.0 + 0.75) / 2),
        (solution("", ""), 0.0),
        (solution("", history="pp"), 1.0),
        (solution("pppppppppf"), 0.9),  # all usable tests, not the first eight
        (solution("penp"), 0.5),
        (solution("pp", history="pp", valid=False), 0.0),
        (solution("nnnn", history="nn", valid=False), 0.0),
    ],
)
def test_official_code_reward(outcome, total):
    reward = OfficialReward(alpha=0.5, num_tests=8).code_reward(outcome)
    assert reward.total == total
    assert not reward.masked


@pytest.mark.parametrize(
    ("letters", "history", "valid", "parts"),
    [
        ("fffppppp", "", True, (1.0, 0.375, 0.6875)),
        ("fffppppp", "pf", True, (1.0, 0.375, 0.6875)),  # history does not enter Adv
        ("fet", "", True, (0.375, 0.375, 0.375)),
        ("fnnnnnnn", "", True, (1.0, 0.125, 0.5625)),  # what was not run kills nothing
        ("", "pp", True, (0.0, 0.0, 0.0)),
        ("eeee", "", False, (0.5, 0.0, 0.25)),  # alpha Val
    ],
)
def test_strict_test_reward(letters, history, valid, parts):
    reward = pay_test("strict", suite(letters), history=history, valid=valid)
    assert (reward.validity, reward.adversarial, reward.total) == parts
    assert not reward.masked


def test_strict_test_reward_has_no_penalties():
    assert pay_test("strict", suite("pppp", invalid=4, nonprintable=0.5)).total == 0.25


@pytest.mark.parametrize(
    ("outcome", "total", "generated", "history"),
    [
        (solution("pf", "pppp"), 0.75, 0.75, None),
        (solution("pf", "pppp", history="pf"), 0.625, 0.75, 0.5),
        (solution("", "pf"), 0.5, 0.5, None),
        (solution("", "pf", history="p"), 0.75, 0.5, 1.0),
        (solution("", "", history="pf"), 0.5, None, 0.5),
        (solution(history="pf"), 0.5, None, 0.5),
        (solution("pnnn", "fffn"), 0.125, 0.125, None),  # what the program left unrun it has failed
        (solution("nn", "pf", history="nn"), 0.125, 0.25, 0.0),
        (solution("pvvv", "pf", history="v"), 0.75, 0.75, None),  # a test's own fault is nobody's failure
        (solution("pet", "p"), (1 / 3 + 1) / 2, (1 / 3 + 1) / 2, None),
        (solution("pp", history="pp", valid=False), 0.0, 0.0, 0.0),
        (solution("nnnn", valid=False), 0.0, 0.0, None),
    ],
)
def test_strict_code_reward(outcome, total, generated, history):
    reward = REWARDS["strict"](alpha=0.5, num_tests=8).code_reward(outcome)
    assert (reward.total, reward.generated_pass_rate, reward.history_pass_rate) == (total, generated, history)
    assert not reward.masked


def test_strict_leaves_suites_without_judged_tests_out_of_the_mean():
    reward = REWARDS["strict"](alpha=0.5, num_tests=8).code_reward(solution("pf", "", "v", history="p"))
    assert reward.suites == (0.75, None, None)


@pytest.mark.parametrize("policy", ["strict", "simple"])
def test_nothing_is_gained_by_spending_the_budget_of_the_tests_that_would_fail(policy):
    rules = REWARDS[policy](alpha=0.5, num_tests=16)
    honest, slow = solution("p" * 6 + "f" * 10, history="pf"), solution("p" * 6 + "n" * 10, history="pn")
    assert rules.code_reward(slow) == rules.code_reward(honest)
    assert rules.test_reward(slow, slow.suites[0]).adversarial == 0.0


@pytest.mark.parametrize("policy", REWARDS)
def test_a_solution_that_nothing_graded_is_masked(policy):
    reward = REWARDS[policy](alpha=0.5, num_tests=8).code_reward(solution())
    assert (reward.total, reward.masked) == (None, "no tests")


def test_strict_masks_a_solution_without_right_tests_and_history():
    for outcome in (solution("", ""), solution("vv", "", history="v"), solution("", valid=False)):
        assert REWARDS["strict"](alpha=0.5, num_tests=8).code_reward(outcome).masked == "no tests"


@pytest.mark.parametrize("policy", REWARDS)
def test_infrastructure_failure_masks_and_is_never_a_reward(policy):
    rules = REWARDS[policy](alpha=0.5, num_tests=8)
    lost_truth = SuiteOutcome(verdicts("pp"), ground_truth_lost=True)
    lost = [
        solution("pi", "pf"),
        solution("pp", valid=None),
        solution("ii", history="ii", valid=False),
        SolutionOutcome(True, (lost_truth,)),
    ]
    for outcome in lost:
        assert (rules.code_reward(outcome).total, rules.code_reward(outcome).masked) == (None, "infra")
        first = rules.test_reward(outcome, outcome.suites[0])
        assert (first.total, first.masked) == (None, "infra")


def test_lost_history_masks_the_rewards_that_read_it():
    outcome = solution("pp", history="pi")
    for policy, test_reward_masked in (("official", "infra"), ("strict", "")):
        rules = REWARDS[policy](alpha=0.5, num_tests=8)
        assert rules.code_reward(outcome).masked == "infra"
        assert rules.test_reward(outcome, outcome.suites[0]).masked == test_reward_masked


@pytest.mark.parametrize("policy", REWARDS)
def test_a_suite_is_not_masked_for_what_happened_to_another(policy):
    outcome = solution("pi", "pf")
    assert REWARDS[policy](alpha=0.5, num_tests=8).test_reward(outcome, outcome.suites[1]).total is not None


def test_golden_reward():
    assert golden_reward(True, verdicts("ppfe")).total == 0.5
    assert golden_reward(True, verdicts("pn")).total == 0.5
    assert golden_reward(False, verdicts("pp")).total == 0.0
    assert golden_reward(True, ()) == SolutionReward(None, masked="no tests")
    assert golden_reward(True, verdicts("pi")) == SolutionReward(None, masked="infra")
    assert golden_reward(None, ()) == SolutionReward(None, masked="infra")


def test_rewards_stay_within_their_bounds():
    outcomes = [solution(a, b, history=h) for a in ("", "ppff", "ffff") for b in ("p", "n") for h in ("", "f", "pn")]
    for name, policy in REWARDS.items():
        if ".py:" in name:  # another test's
            continue
        rules = policy(alpha=0.3, num_tests=4)
        paid = chain.from_iterable(
            [rules.code_reward(outcome).total, *(rules.test_reward(outcome, s).total for s in outcome.suites)]
            for outcome in outcomes
        )
        lowest = -1 if name == "simple" else 0
        assert all(lowest <= total <= 1 for total in paid if total is not None)


def test_strict_tests_pays_the_code_llm_for_every_input_and_the_test_llm_for_right_ones():
    # Three usable tests, the second with a wrong answer: its verdict reaches the Code LLM alone.
    outcome = SuiteOutcome(verdicts("pff"), invalid=1, right=((0, Verdict.PASS), (2, Verdict.FAIL)))
    graded = SolutionOutcome(True, (outcome,), verdicts("p"))
    policy = REWARDS["strict_tests"](alpha=0.25, num_tests=4)
    assert policy.test_reward(graded, outcome).total == 0.25 * 2 / 4 + 0.75 * 1 / 4
    assert policy.code_reward(graded).total == (1 / 3 + 1) / 2
    late = SuiteOutcome(verdicts("ff"), right=((4, Verdict.FAIL), (5, Verdict.FAIL)))
    assert policy.test_reward(SolutionOutcome(True, (late,)), late).total == 0.0


def written(right: str, num_asserts: int, num_rejected: int = 0, **rest) -> SuiteOutcome:
    """A suite of so many asserts, of which those with verdicts are right."""
    return SuiteOutcome(verdicts(right), num_asserts=num_asserts, num_rejected=num_rejected, **rest)


@pytest.mark.parametrize(
    ("suite", "valid", "total"),
    [
        (written("pppp", 4), True, 0.6),  # right, and the candidate passes
        (written("pfpp", 4), True, 1.0),
        (written("ffff", 4), True, 1.0),  # one failure is enough, and no more
        (written("te", 2), True, 1.0),
        (written("pn", 2), True, 0.6),  # what was not run has not failed
        (written("p", 4, 1), True, 0.6 / 4),
        (written("f", 4, 1), True, 0.6 / 4 + 0.4),
        (written("", 3, 1), True, 0.0),  # two wrong answers: no candidate is judged by them
        (written("pp", 2), False, 1.0),  # a program that cannot be loaded fails
        (written("", 2), False, 0.0),
        (written("", 0), True, -0.5),  # asserts nothing,
        (written("", 3, 3), True, -0.5),  # or nothing that can be read
        (written("", 0), False, -0.5),
        (written("pi", 2), True, None),
        (written("", 0), None, None),
        (written("p", 1, ground_truth_lost=True), True, None),
    ],
)
def test_simple_test_reward(suite, valid, total):
    reward = REWARDS["simple"](alpha=0.6, num_tests=4).test_reward(SolutionOutcome(valid, (suite,)), suite)
    assert reward.total == (None if total is None else pytest.approx(total))
    assert reward.masked == ("infra" if total is None else "")


def test_the_parts_of_the_simple_test_reward():
    for outcome, parts in {
        written("fp", 4): (0.5, 1.0, 0.25 * 0.5 + 0.75),
        written("pp", 4): (0.5, 0.0, 0.25 * 0.5),
        written("", 3, 3): (0.0, 0.0, -0.5),
    }.items():
        reward = REWARDS["simple"](alpha=0.25, num_tests=4).test_reward(SolutionOutcome(True, (outcome,)), outcome)
        assert (reward.validity, reward.adversarial, reward.total) == parts


@pytest.mark.parametrize(
    ("suites", "history", "valid", "total"),
    [
        (("ppff",), "", True, 0.5),
        (("pp", "ff"), "pf", True, 0.5),
        (("pp",), "", False, -1.0),
        ((), "", False, -1.0),  # without any test, too
        ((), "", True, None),
        (("pi",), "", False, None),
        (("pp",), "", None, None),
    ],
)
def test_simple_code_reward(suites, history, valid, total):
    outcome = SolutionOutcome(valid, tuple(written(suite, 4) for suite in suites), verdicts(history))
    reward = REWARDS["simple"](alpha=0.6, num_tests=4).code_reward(outcome)
    masked = "" if total is not None else "infra" if suites else "no tests"
    assert (reward.total, reward.masked) == (total, masked)


def test_an_outcome_of_which_nothing_is_known_costs_and_pays_nothing():
    nothing = SuiteOutcome((), 0, 0.0, False, (), num_asserts=0, num_rejected=0)
    assert SuiteOutcome(()) == nothing
    assert not nothing.lost


@pytest.mark.parametrize("value", [suite("p"), solution("p"), SolutionReward(0.5), SuiteReward(0.5, 0.5, 0.5)])
def test_outcomes_and_rewards_cannot_be_changed(value):
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, None)


def test_a_suite_counts_its_asserts_and_those_that_are_rejected():
    text = "```python\nassert f(1) == 2\nassert f(\nassert f(1) == 3\nassert g(1) == 2\nassert f(5) == 6\n```"
    parsed = parse_suite(text, "f")
    policy = REWARDS["simple"](alpha=0.6, num_tests=4)
    answers = {call: Truth(encode_exact(2)) for call in policy.calls(parsed)}
    outcome = SuiteOutcome.of(parsed, policy.mark(parsed, answers, AS_WRITTEN), [Verdict.PASS])
    assert (outcome.num_asserts, outcome.num_rejected, len(outcome.verdicts)) == (4, 2, 1)


def test_aiming_pays_where_the_program_shown_is_right():
    right = REWARDS["strict_tests"](0.3, 4, 0.5)
    on_mutants = (verdicts("pppp"), verdicts("pfpp")), (verdicts("pppp"),) * 2
    sharp, blunt = (dataclasses.replace(suite("pppp"), on_mutants=verdicts_) for verdicts_ in on_mutants)
    assert right.test_reward(solution("pppp"), sharp).total > right.test_reward(solution("pppp"), blunt).total


@pytest.mark.parametrize("policy", ["official", "strict", "strict_tests", "simple"])
def test_terms_are_what_was_paid(policy):
    for letters, valid in (("pf", True), ("pf", False), ("", True)):
        outcome = dataclasses.replace(suite(letters, nonprintable=0.25), num_asserts=2)
        rules = REWARDS[policy](0.25, 2)
        paid = rules.test_reward(SolutionOutcome(valid, (outcome,)), outcome)
        assert paid.total == pytest.approx(np.dot(rules.weights, paid.terms) - paid.penalty)


def test_mutants_killed_take_their_share_of_the_adversarial_part():
    on_mutants = (verdicts("pf"), verdicts("pp"), verdicts("pn"), verdicts("pp"))
    killed_one = SuiteOutcome(verdicts("pp"), on_mutants=on_mutants)
    none_right = SuiteOutcome((), on_mutants=((), ()))
    for name in ("official", "strict"):
        rules = REWARDS[name](0.5, 2, mutant_weight=0.25)
        assert rules.test_reward(SolutionOutcome(True), killed_one).adversarial == 0.25 * 1 / 4
        assert rules.test_reward(SolutionOutcome(True), none_right).total == 0.0
        lost = dataclasses.replace(killed_one, on_mutants=(verdicts("pf"), verdicts("fi")))
        assert rules.test_reward(SolutionOutcome(True), lost).masked == "infra"
