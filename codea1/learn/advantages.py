"""Advantages of whole samples, and what length costs, on the host in float64.

Rewards that are all equal differ from their mean by exactly 0, as does a single reward: rounding in the mean must not
be blown up by a standard deviation near 0. What is compared within a group looks at every reward of the group; what is
scaled over the batch takes its mean and standard deviation from the samples that train alone.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np


def grpo_advantages(
    rewards: Sequence[float | None] | np.ndarray,
    groups: Sequence[Hashable],
    tokens: Sequence[int] | None = None,
    *,
    ddof: int = 1,
    eps: float = 1e-6,
    norm_by_std: bool = True,
) -> np.ndarray:
    """A_i = (r_i - mean_g) / (std_g + eps), each reward compared within its group (GRPO: Shao et al. 2024, 4.1.2).

    Args:
      rewards: [n] rewards; None or NaN marks a sample that must not be learned from. It enters no mean and no
        standard deviation, and its advantage is 0.
      groups: [n] the group of each sample, in any order.
      tokens: [n] the response tokens of each sample that train; 0 for one that is there to be compared with alone.
        Schemes within groups do not ask.
      ddof: the standard deviation divides by the group's size less `ddof`; 1 is the unbiased one of the paper's runs.
      eps: added to the standard deviation.
      norm_by_std: False subtracts the group's mean and divides by nothing (Dr. GRPO: Liu et al. 2025, section 3.2).

    Returns:
      [n] float64 advantages.

    Raises:
      ValueError: `ddof` is neither 0 nor 1, or there are not as many groups or tokens as rewards.
    """
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof}; it must be 0 or 1")

    def one(group_rewards: np.ndarray) -> np.ndarray:
        centered = group_rewards - group_rewards.mean()
        return centered / (group_rewards.std(ddof=ddof) + eps) if norm_by_std else centered

    return _within_groups(rewards, groups, one)


def rloo_advantages(
    rewards: Sequence[float | None] | np.ndarray, groups: Sequence[Hashable], tokens: Sequence[int] | None = None
) -> np.ndarray:
    """A_i = r_i - mean of the group's other rewards (RLOO: Ahmadian et al. 2024). Otherwise as `grpo_advantages`."""

    def one(group_rewards: np.ndarray) -> np.ndarray:
        size = len(group_rewards)
        return size / (size - 1) * (group_rewards - group_rewards.mean())

    return _within_groups(rewards, groups, one)


def reinforce_plus_plus_baseline_advantages(
    rewards: Sequence[float | None] | np.ndarray,
    groups: Sequence[Hashable],
    tokens: Sequence[int],
    *,
    eps: float = 1e-8,
) -> np.ndarray:
    """REINFORCE++ with baseline: rewards less their group's mean, whitened over the batch's tokens (Hu et al. 2025).

    A_i = (d_i - mean(d)) / (std(d) + eps) with d_i = r_i - mean_g (version 9, equations 6 and 7). In the mean and the
    standard deviation, the population's, a sample counts once per token that trains. So a group of equal rewards, where
    d is 0, is off 0 where long responses did better or worse than short ones. Published with k2 in the loss.

    REINFORCE++ without baseline takes the KL penalty from each token's reward, and is not here. verl's mode of this
    name keeps the reward of a group of one and has the unbiased variance. Otherwise as `grpo_advantages`.
    """
    differences = _within_groups(rewards, groups, lambda group_rewards: group_rewards - group_rewards.mean())
    return _standard_scores(np.where(np.isnan(_as_array(rewards)), np.nan, differences), tokens, eps)


def batch_advantages(
    rewards: Sequence[float | None] | np.ndarray,
    groups: Sequence[Hashable],
    tokens: Sequence[int],
    *,
    eps: float = 1e-8,
) -> np.ndarray:
    """A_i = (r_i - mean(r)) / (std(r) + eps) over the batch: standard scores of the rewards, whatever the groups.

    The mean is the baseline of plain REINFORCE (Williams 1992). Each sample with tokens that train counts once, and the
    standard deviation is the population's. TRL's `scale_rewards="batch"` is another: it subtracts the group's mean.
    Otherwise as `grpo_advantages`.
    """
    return _standard_scores(_as_array(rewards), [int(count > 0) for count in tokens], eps)


ADVANTAGES = {
    "grpo": grpo_advantages,
    "rloo": rloo_advantages,
    "reinforce++-baseline": reinforce_plus_plus_baseline_advantages,
    "batch": batch_advantages,
}


def overlong_penalty(length: int, max_length: int, buffer: int) -> float:
    """Returns what a response of `length` tokens loses in DAPO, from 0 to 1 (Yu et al. 2025, equation 13).

    0 up to max_length - buffer, from there rising linearly to 1 at max_length; a buffer of 0 takes nothing.
    """
    if not buffer:
        return 0.0
    return min(max((length - (max_length - buffer)) / buffer, 0.0), 1.0)


def _as_array(rewards: Sequence[float | None] | np.ndarray) -> np.ndarray:
    return np.array([np.nan if reward is None else reward for reward in rewards], np.float64)


def _within_groups(
    rewards: Sequence[float | None] | np.ndarray,
    groups: Sequence[Hashable],
    one: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """`one` applied to the rewards of every group whose rewards differ; 0 for all other samples."""
    values = _as_array(rewards)
    members: dict[Hashable, list[int]] = {}
    for index, group in zip(range(len(values)), groups, strict=True):
        if not np.isnan(values[index]):
            members.setdefault(group, []).append(index)
    advantages = np.zeros(len(values))
    for indices in members.values():
        if values[indices].min() != values[indices].max():
            advantages[indices] = one(values[indices])
    return advantages


def _standard_scores(values: np.ndarray, weights: Sequence[int], eps: float) -> np.ndarray:
    """Values less their weighted mean, over their weighted standard deviation plus `eps`; 0 for those that are NaN."""
    graded = ~np.isnan(values)
    counts = np.array([weight if has else 0 for weight, has in zip(weights, graded, strict=True)], np.float64)
    counted = values[counts > 0]
    if not counted.size or counted.min() == counted.max():
        return np.zeros(len(values))
    mean = np.average(counted, weights=counts[counts > 0])
    variance = np.average((counted - mean) ** 2, weights=counts[counts > 0])
    return np.where(graded, (values - mean) / (np.sqrt(variance) + eps), 0.0)
