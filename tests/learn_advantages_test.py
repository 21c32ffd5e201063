"""Group-relative advantages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.game.rewards import REWARDS, SuiteReward
from codea1.learn.advantages import (
    batch_advantages,
    gdpo_advantages,
    grpo_advantages,
    raft_advantages,
    reinforce_plus_plus_baseline_advantages,
    rloo_advantages,
)


def test_hand_computed_group():
    # mean 0.5, unbiased std sqrt(0.5 / 2) = 0.5
    advantages = grpo_advantages([0.0, 0.5, 1.0], [0, 0, 0], eps=0.0)
    np.testing.assert_allclose(advantages, [-1, 0, 1], rtol=1e-12)
    np.testing.assert_allclose(grpo_advantages([0.0, 0.5, 1.0], [0, 0, 0], eps=0.5), [-0.5, 0, 0.5], rtol=1e-12)


def test_the_defaults_by_hand():
    """Rewards as close as the constants that keep the divisions finite: those show, and no other would do."""
    # Unbiased std sqrt(2) 1e-6, to which 1e-6 is added.
    np.testing.assert_allclose(grpo_advantages([0.0, 2e-6], [0, 0])[1], np.sqrt(2) - 1, rtol=1e-9)
    # Population std 1e-8, to which 1e-8 is added.
    for scheme in (reinforce_plus_plus_baseline_advantages, batch_advantages):
        np.testing.assert_allclose(scheme([0.0, 2e-8], [0, 0], [1, 1])[1], 0.5, rtol=1e-9)


def test_without_normalisation_only_the_mean_goes():
    np.testing.assert_allclose(grpo_advantages([0.0, 1.0], [0, 0], norm_by_std=False), [-0.5, 0.5])


def test_groups_may_be_interleaved():
    advantages = grpo_advantages([0.0, 10.0, 1.0, 30.0], ["a", "b", "a", "b"], norm_by_std=False)
    np.testing.assert_allclose(advantages, [-0.5, -10, 0.5, 10])


@pytest.mark.parametrize("reward", [0.97, 0.1, 1 / 3])
def test_equal_rewards_give_exactly_zero(reward):
    assert not grpo_advantages([reward] * 7, [0] * 7, eps=1e-9).any()


def test_a_single_reward_gives_zero():
    assert not grpo_advantages([0.9, 0.1], [0, 1]).any()
    assert not grpo_advantages([0.9, None], [0, 0]).any()


def test_masked_samples_take_no_part():
    with_masked = grpo_advantages([0.0, None, 1.0, float("nan")], [0, 0, 0, 0])
    np.testing.assert_array_equal(with_masked[[0, 2]], grpo_advantages([0.0, 1.0], [0, 0]))
    np.testing.assert_array_equal(with_masked[[1, 3]], 0)
    assert not grpo_advantages([None, None], [0, 0]).any()


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="zip"):
        grpo_advantages([0.0, 1.0], [0])
    for scheme in (grpo_advantages, reinforce_plus_plus_baseline_advantages, batch_advantages):
        with pytest.raises(TypeError, match="positional"):
            scheme([0.0, 1.0], [0, 0], [1, 1], 1)  # options go by their names


def test_leave_one_out_by_hand():
    np.testing.assert_allclose(rloo_advantages([0.0, 0.5, 1.0, 3.0], [0, 0, 0, 1]), [-0.75, 0, 0.75, 0])
    np.testing.assert_allclose(rloo_advantages([0.0, 1.0, 2.0, 3.0], [0] * 4), [-2, -2 / 3, 2 / 3, 2])


def test_reinforce_plus_plus_baseline_by_hand():
    # Less the groups' means: -1, 1, -2, 2. Over their 3 + 1 + 1 + 1 tokens the mean is -1/3 and the variance 17/9; over
    # samples they would be 0 and 5/2.
    rewards, groups, tokens = [0.0, 2.0, 5.0, None, 9.0], ["a", "a", "b", "a", "b"], [3, 1, 1, 7, 1]
    advantages = reinforce_plus_plus_baseline_advantages(rewards, groups, tokens, eps=0.0)
    np.testing.assert_allclose(advantages, np.array([-2, 4, -5, 0, 7]) / np.sqrt(17), rtol=1e-12)
    # Of -1 and 1 the standard deviation is 1.
    scaled = reinforce_plus_plus_baseline_advantages([0.0, 2.0], [0, 0], [1, 1], eps=1.0)
    np.testing.assert_allclose(scaled, [-0.5, 0.5], rtol=1e-12)


def test_reinforce_plus_plus_baseline_whitens_every_token():
    rng = np.random.default_rng(0)
    rewards, tokens = rng.random((4, 8)), rng.integers(1, 300, (4, 8))
    of_tokens = np.repeat(rewards - rewards.mean(axis=1, keepdims=True), tokens.ravel())
    expected = (of_tokens - of_tokens.mean()) / of_tokens.std()
    groups = np.repeat(range(4), 8).tolist()
    advantages = reinforce_plus_plus_baseline_advantages(rewards.ravel(), groups, tokens.ravel().tolist())
    np.testing.assert_allclose(np.repeat(advantages, tokens.ravel()), expected, rtol=1e-6)


def test_statistics_of_a_batch_are_of_the_samples_that_train():
    # The third is compared with the others of its group, and no more: -1, 1, 0 and 3 are whitened, not its -3.
    advantages = reinforce_plus_plus_baseline_advantages([1, 3, 0, 3, 6], [0, 0, 1, 1, 1], [1, 1, 0, 1, 1], eps=0.0)
    np.testing.assert_allclose(advantages, (np.array([-1, 1, -3, 0, 3]) - 0.75) / np.std([-1, 1, 0, 3]), rtol=1e-12)
    np.testing.assert_allclose(batch_advantages([0.0, 1.0, 10.0], [0, 0, 1], [5, 2, 0], eps=0.0), [-1, 1, 19])
    assert not batch_advantages([1.0, 1.0, 10.0], [0, 0, 1], [5, 2, 0]).any()


SCHEMES = [grpo_advantages, rloo_advantages, reinforce_plus_plus_baseline_advantages]
SAMPLES = st.lists(st.tuples(st.none() | st.floats(0, 1), st.integers(0, 2), st.integers(0, 9)), max_size=20)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(samples=SAMPLES)
def test_advantages_are_finite_and_sum_to_zero(scheme, samples):
    rewards, groups, tokens = ([sample[column] for sample in samples] for column in range(3))
    advantages = scheme(rewards, groups, tokens)
    assert np.isfinite(advantages).all()
    counts = np.array(tokens) if scheme is reinforce_plus_plus_baseline_advantages else 1
    assert abs((counts * advantages).sum()) < 1e-5
    for reward, advantage in zip(rewards, advantages, strict=True):
        assert reward is not None or advantage == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_scheme_learns_from_equal_rewards(scheme):
    assert not scheme([0.97] * 6 + [0.1], [0] * 6 + [1], range(1, 8)).any()


def test_raft_learns_from_whole_rewards_alone_also_where_all_are():
    assert raft_advantages([1.0, 0.99, None, 1.0, -1.0], [0, 0, 0, 1, 2]).tolist() == [1, 0, 0, 1, 0]


def test_batch_advantages_are_standard_scores_of_all_rewards_whatever_the_groups():
    rewards = [1.0, None, 0.0, 0.5, -1.0, 1.0]
    paid = np.array([1.0, 0.0, 0.5, -1.0, 1.0])
    expected = (paid - 0.3) / np.sqrt(np.mean((paid - 0.3) ** 2))
    for groups in (range(6), "aabbcc", [0] * 6):
        advantages = batch_advantages(rewards, list(groups), range(1, 7))
        assert advantages[1] == 0.0
        np.testing.assert_allclose(np.delete(advantages, 1), expected, rtol=1e-7)
    np.testing.assert_allclose(batch_advantages([0.0, 1.0], [0, 0], [1, 1], eps=0.5), [-0.5, 0.5], rtol=1e-12)
    assert not batch_advantages([0.1] * 3, range(3), [1, 2, 3]).any()
    with pytest.raises(ValueError, match="zip"):
        batch_advantages([0.1, 0.2], [0, 0], [1])


def gdpo_by_definition(
    rewards: np.ndarray, terms: np.ndarray, weights: list[float], groups: list[int], trains: list[bool]
) -> np.ndarray:
    """Decoupled advantages as their equations stand, sample by sample; NaN is masked."""
    graded = ~np.isnan(rewards)
    sums = np.zeros(len(terms))
    for i in np.flatnonzero(graded):
        group = [j for j in range(len(terms)) if groups[j] == groups[i] and graded[j]]
        rests = [rewards[j] - sum(w * t for w, t in zip(weights, terms[j], strict=True)) for j in group]
        most = np.std(rests, ddof=1)
        for k, weight in enumerate(weights):
            values = terms[group, k]
            most += weight * values.std(ddof=1)
            if values.min() != values.max():
                sums[i] += weight * (terms[i, k] - values.mean()) / (values.std(ddof=1) + 1e-6)
        sums[i] += (rests[group.index(i)] - np.mean(rests)) / (most + 1e-6)
    counted = [i for i in range(len(terms)) if graded[i] and trains[i]]
    mean, std = sums[counted].mean(), sums[counted].std()
    return np.where(graded, (sums - mean) / (std + 1e-6), 0.0)


@pytest.mark.parametrize("deduction", [0.0, 0.001, 1.0])
def test_decoupled_advantages_are_their_equations(deduction: float):
    rng = np.random.default_rng(0)
    terms = np.round(rng.random((24, 3)), 1)
    terms[8:12, 1] = 0.25  # a term that does not differ in its group
    terms[12:16] = 0.5  # nothing differs but the deduction
    groups = [i // 4 for i in range(24)]
    trains = [i % 5 != 0 for i in range(24)]
    weights = [0.3, 0.7, 0.0]
    rewards = terms @ weights - deduction * rng.random(24)
    rewards[[3, 17]] = np.nan
    advantages = gdpo_advantages(rewards, terms, weights, groups, [7 * train for train in trains])
    expected = gdpo_by_definition(rewards, terms, weights, groups, trains)
    np.testing.assert_allclose(advantages, expected, rtol=1e-10, atol=1e-10)
    assert advantages[3] == advantages[17] == 0


def test_a_rare_term_keeps_its_weight_beside_one_that_differs_everywhere():
    # Validity differs by much in the group, the kill by little: coupled, the suite that kills is below the mean.
    terms = np.array([[1.0, 0.75, 0.25, 0.0], [0.0, 0.0, 0.0, 0.1]]).T
    coupled = grpo_advantages(terms @ [0.5, 0.5], [0] * 4)
    decoupled = gdpo_advantages(terms @ [0.5, 0.5], terms, [0.5, 0.5], [0] * 4, [1] * 4)
    assert coupled[3] < -0.9
    assert decoupled[3] > 0
    # Of weights only the ratio matters, and a lone term in a batch of one group is GRPO's, scaled.
    np.testing.assert_allclose(gdpo_advantages(terms @ [5, 5], terms, [5, 5], [0] * 4, [1] * 4), decoupled, 1e-4)
    lone = gdpo_advantages(0.4 * terms[:, 0], terms[:, :1], [0.4], [0] * 4, [1] * 4)
    np.testing.assert_allclose(lone / np.sqrt(4 / 3), grpo_advantages(terms[:, 0], [0] * 4), rtol=1e-4)


def test_a_small_deduction_moves_a_decoupled_advantage_little_and_a_large_one_no_more_than_grpos():
    terms = np.array([[1.0, 0.5], [0.75, 0.5], [0.75, 0.25], [0.5, 0.5], [0.5, 0.25], [0.5, 0.25], [0.5, 0.5]])
    first = np.eye(7)[0]

    def advantages(deduction: float) -> np.ndarray:
        return gdpo_advantages(terms @ [0.5, 0.5] - deduction * first, terms, [0.5, 0.5], [0] * 7, [1] * 7)

    free, small, large = (advantages(deduction) for deduction in (0.0, 0.001, 10.0))
    np.testing.assert_allclose(small, free, atol=0.02)
    assert small[0] < free[0]
    assert small.argmax() == 0
    # Seven that differ in one have deviations of sqrt(1/7): GRPO's advantage of the one is -6 / 7 / sqrt(1/7).
    assert -6 / 7**0.5 < large[0] < -1
    assert large.argmin() == 0
    # A reward whose terms say nothing of it is compared as a whole.
    whole = gdpo_advantages(terms[:, 0], 0 * terms, [0.5, 0.5], [0] * 7, [1] * 7)
    np.testing.assert_allclose(whole, grpo_advantages(terms[:, 0], [0] * 7) * (7 / 6) ** 0.5, rtol=1e-4)


@pytest.mark.parametrize("name", ["official", "strict_tests"])
def test_without_a_penalty_decoupled_advantages_are_those_of_the_terms_to_the_last_bit(name: str):
    rng = np.random.default_rng(0)
    weights = REWARDS[name](0.3, 8, 0.0).weights
    parts = rng.integers(0, 9, (96, 2)) / 8
    terms = np.hstack([parts, np.zeros((96, 1))])
    rewards = [SuiteReward.of(0.3, *pair).total for pair in parts.tolist()]
    groups, tokens = [i // 8 for i in range(96)], [1] * 96
    compared = [*(grpo_advantages(each, groups) for each in terms.T), np.zeros(96)]
    sums = np.array([*weights[:2], weights[2] or 1.0, 1.0]) @ np.array(compared)  # whatever weighs what is 0
    expected = batch_advantages(sums, groups, tokens, eps=1e-6)
    np.testing.assert_array_equal(gdpo_advantages(rewards, terms, weights, groups, tokens), expected)
