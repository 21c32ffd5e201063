"""Which solutions' suites train the Test LLM."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.game.round import SELECTIONS, SuiteGroup, select, variance


def top_variance(rewards: Sequence[Sequence[float | None]], count: int) -> list[int]:
    """TOPVAR of [M][N] rewards; None is a masked one."""
    graded = [tuple(reward for reward in suites if reward is not None) for suites in rewards]
    return select([SuiteGroup(each, (False,) * len(each), "") for each in graded], count, variance)


def test_the_most_varied_solutions_are_chosen():
    rewards = [[0.5, 0.5], [0.0, 1.0], [0.4, 0.6], [0.1, 0.8]]
    assert top_variance(rewards, 1) == [1]
    assert top_variance(rewards, 2) == [1, 3]
    assert top_variance([[0.4, 0.6], [0.5, 0.5], [0.0, 1.0]], 2) == [0, 2]  # the indices ascend, not the deviations


def test_ties_go_to_the_lowest_index():
    assert top_variance([[0.3, 0.3], [0.1, 0.1], [0.2, 0.2]], 1) == [0]
    assert top_variance([[0.5, 0.5], [0.7, 0.1, 0.2], [0.2, 0.7, 0.1]], 1) == [1]


@pytest.mark.parametrize("suites", [[0.6, 0.9, 0.7], [0.3, 0.9, 0.2, 0.2]])
def test_the_same_rewards_in_another_order_tie_to_the_last_bit(suites):
    # Summed as they stand, their deviations differ by 1e-17, whichever order comes first.
    orders = list(itertools.permutations(suites))
    assert len({float(np.std(order)) for order in orders}) > 1
    for first, second in itertools.permutations(orders, 2):
        assert top_variance([first, second], 1) == [0]


def test_nothing_is_left_out_when_all_may_train():
    assert top_variance([[0.5], [0.5]], 2) == [0, 1]
    assert top_variance([[], [None]], 8) == [0, 1]
    assert top_variance([[None], [0.0, 1.0]], 2) == [0, 1]


def test_the_standard_deviation_is_the_population_one():
    # Unbiased, the pair (std 0.57) would beat the quadruple (std 0.55).
    assert top_variance([[0.0, 0.8], [0.0, 0.94, 0.94, 0.0]], 1) == [1]


def test_the_spread_is_a_standard_deviation_and_no_range():
    # Ranges 1 and 0.9, deviations 0.35 and 0.45.
    assert top_variance([[0.0, 0.5, 0.5, 1.0], [0.05, 0.95, 0.05, 0.95]], 1) == [1]


def test_deviations_that_float32_cannot_tell_apart_are_no_tie():
    assert top_variance([[0.0, 1.0], [0.0, 1.0 + 1e-9]], 1) == [1]


def test_masked_rewards_do_not_count():
    assert top_variance([[None, None], [0.0, None, 1.0], [0.0, 0.4]], 1) == [1]
    assert top_variance([[None], [None, 0.5], [0.2, 0.2]], 1) == [1]
    assert top_variance([[None], [None], []], 1) == []


REWARDS = st.lists(st.none() | st.floats(0, 1), max_size=8)


@given(st.lists(REWARDS, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_suites_does_not_matter(rewards, random):
    shuffled = [random.sample(suites, len(suites)) for suites in rewards]
    assert top_variance(rewards, 1) == top_variance(shuffled, 1)


def test_the_most_learnable_solution_is_exposed_by_half_of_its_suites():
    exposed = [(True, True, True, True), (True, False, False, False), (True, True, False, False), (False,) * 4]
    groups = [SuiteGroup((0.0, 1.0, 0.0, 1.0), each, "") for each in exposed]
    assert select(groups, 1, SELECTIONS["learnability"]) == [2]
    assert select(groups, 2, SELECTIONS["learnability"]) == [1, 2]
    # Where none is learnable, what the suites were paid decides.
    never = [SuiteGroup(rewards, (False, False), "") for rewards in ((0.5, 0.5), (0.0, 1.0))]
    assert select(never, 1, SELECTIONS["learnability"]) == [1]


def test_a_random_choice_hangs_on_its_key_alone_and_takes_each_equally_often():
    chosen = []
    for step in range(300):
        groups = [SuiteGroup((0.0, float(m)), (False, False), f"{step}/{m}") for m in range(3)]
        chosen += select(groups, 1, SELECTIONS["random"])
        assert chosen[-1:] == select(groups, 1, SELECTIONS["random"])
    assert all(70 < chosen.count(m) < 130 for m in range(3))
