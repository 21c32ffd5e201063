"""Advantages of whole samples, and what length costs, on the host in float64.

Rewards that are all equal differ from their mean by exactly 0, as does a single reward: rounding in the mean must not
be blown up by a standard deviation near 0. What is compared within a group looks at every reward of the group; what is
scaled over the batch takes its mean and standard deviation from the samples that train alone.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from jaxtyping import Float, Float64

Advantages = Float64[np.ndarray, " B"]
# None or NaN marks a sample that must not be learned from.
Rewards = Float[np.ndarray, " B"] | Sequence[float | None]


def grpo_advantages(
    rewards_B: Rewards,
    groups_B: Sequence[Hashable],
    tokens_B: Sequence[int] | None = None,
    *,
    eps: float = 1e-6,
    norm_by_std: bool = True,
) -> Advantages:
    """Returns A_i = (r_i - mean_g) / (std_g + eps), compared within groups (GRPO: Shao et al. 2024, 4.1.2).

    The standard deviation is the unbiased one, as in the paper's runs.

    Args:
      rewards_B: rewards; None or NaN marks a sample that must not be learned from. It enters no mean and no standard
        deviation, and its advantage is 0.
      groups_B: the group of each sample, in any order.
      tokens_B: the response tokens of each sample that train; 0 for one that others are compared with alone. Schemes
        within groups do not read it.
      eps: added to the standard deviation.
      norm_by_std: False subtracts the group's mean and divides by nothing (Dr. GRPO: Liu et al. 2025, section 3.2).

    Raises ValueError: there are not as many groups or tokens as rewards.
    """

    def standardize(group_rewards: np.ndarray) -> np.ndarray:
        centered = group_rewards - group_rewards.mean()
        return centered / (group_rewards.std(ddof=1) + eps) if norm_by_std else centered

    return _within_groups(rewards_B, groups_B, standardize)


def rloo_advantages(
    rewards_B: Rewards, groups_B: Sequence[Hashable], tokens_B: Sequence[int] | None = None
) -> Advantages:
    """Returns A_i = r_i - mean of the group's other rewards (RLOO: Ahmadian et al. 2024). Else as `grpo_advantages`."""

    def leave_one_out(group_rewards: np.ndarray) -> np.ndarray:
        size = len(group_rewards)
        return size / (size - 1) * (group_rewards - group_rewards.mean())

    return _within_groups(rewards_B, groups_B, leave_one_out)


def reinforce_plus_plus_baseline_advantages(
    rewards_B: Rewards,
    groups_B: Sequence[Hashable],
    tokens_B: Sequence[int],
    *,
    eps: float = 1e-8,
) -> Advantages:
    """Returns REINFORCE++ with baseline: rewards minus their group's mean, whitened over tokens (Hu et al. 2025).

    A_i = (d_i - mean(d)) / (std(d) + eps) with d_i = r_i - mean_g (version 9, equations 6 and 7). In the mean and the
    standard deviation, the population's, a sample counts once per token that trains. So a group of equal rewards, where
    d is 0, is off 0 where long responses did better or worse than short ones. Published with k2 in the loss.

    REINFORCE++ without baseline takes the KL penalty from each token's reward, and is not here. verl's mode of this
    name keeps the reward of a group of one and has the unbiased variance. Otherwise as `grpo_advantages`.
    """
    differences_B = _within_groups(rewards_B, groups_B, lambda group_rewards: group_rewards - group_rewards.mean())
    return _standard_scores(np.where(np.isnan(_as_array(rewards_B)), np.nan, differences_B), tokens_B, eps)


def batch_advantages(
    rewards_B: Rewards,
    groups_B: Sequence[Hashable],
    tokens_B: Sequence[int],
    *,
    eps: float = 1e-8,
) -> Advantages:
    """Returns A_i = (r_i - mean(r)) / (std(r) + eps) over the batch: standard scores, whatever the groups.

    The mean is the baseline of plain REINFORCE (Williams 1992). Each sample with tokens that train counts once, and the
    standard deviation is the population's. TRL's `scale_rewards="batch"` is another: it subtracts the group's mean.
    Otherwise as `grpo_advantages`.
    """
    return _standard_scores(_as_array(rewards_B), [int(count > 0) for count in tokens_B], eps)


def raft_advantages(
    rewards_B: Rewards, groups_B: Sequence[Hashable], tokens_B: Sequence[int] | None = None
) -> Advantages:
    """Returns A_i = 1 where r_i is the whole reward of 1, else 0: rejection sampling (RAFT: Dong et al. 2023).

    With one optimizer step on all samples the gradient is that of supervised training on those that were right.
    """
    return (_as_array(rewards_B) >= 1).astype(np.float64)


def gdpo_advantages(
    rewards_B: Rewards,
    terms_BR: Float64[np.ndarray, "B R"],
    weights_R: Sequence[float],
    groups_B: Sequence[Hashable],
    tokens_B: Sequence[int],
    *,
    eps: float = 1e-6,
) -> Advantages:
    """Returns decoupled advantages: each term of the reward is compared on its own (GDPO: arXiv 2601.05242).

    S_i = sum over k of w_k (r_ik - mean_g(r_k)) / (std_g(r_k) + eps), and A_i = (S_i - mean(S)) / (std(S) + eps) over
    the batch's samples that train. So a rare term keeps its weight compared to one that differs in every group. In the
    batch each sample counts once, as in TRL and NeMo-RL, with the population deviation; verl whitens over tokens, which
    moves groups whose terms are equal off 0.

    What the weighted terms leave of a reward, d_i = r_i - sum over k of w_k r_ik, is a deduction (a penalty, what
    length costs), not an objective: divided by its own deviation, the least would weigh most. S_i has it on the
    reward's scale, (d_i - mean_g(d)) / (sum over k of |w_k| std_g(r_k) + std_g(d) + eps). That sum is the most that the
    reward's own deviation can be, so a deduction moves S by no more than GRPO would charge for it.

    Args:
      terms_BR: terms of each sample's reward.
      weights_R: of the terms; 0 for one that is a deduction.

    Otherwise as `grpo_advantages`.
    """
    deductions_B = _as_array(rewards_B) - sum(w * terms_B for w, terms_B in zip(weights_R, terms_BR.T, strict=True))
    terms_RB = np.where(np.isnan(deductions_B), np.nan, terms_BR.T)
    spreads = [
        _within_groups(values_B, groups_B, lambda values: np.full(len(values), values.std(ddof=1)))
        for values_B in (*terms_RB, deductions_B)
    ]
    scale_B = np.append(np.abs(weights_R), 1.0) @ np.array(spreads) + eps
    charged_B = _within_groups(deductions_B, groups_B, lambda values: values - values.mean()) / scale_B
    compared = [grpo_advantages(terms_B, groups_B, eps=eps) for terms_B in terms_RB]
    sums_B = np.append(weights_R, 1.0) @ np.array([*compared, charged_B])
    return _standard_scores(np.where(np.isnan(deductions_B), np.nan, sums_B), [int(n > 0) for n in tokens_B], eps)


GDPO = "gdpo"  # reads the terms of rewards, all others their totals
ADVANTAGES: dict[str, Callable[..., Advantages]] = {
    "grpo": grpo_advantages,
    "rloo": rloo_advantages,
    "reinforce++-baseline": reinforce_plus_plus_baseline_advantages,
    "batch": batch_advantages,
    "raft": raft_advantages,
}


def overlong_penalty(length: int, max_length: int, buffer: int) -> float:
    """Returns what a response of `length` tokens loses in DAPO, from 0 to 1 (Yu et al. 2025, equation 13).

    0 up to max_length - buffer, from there rising linearly to 1 at max_length; a buffer of 0 takes nothing.
    """
    if not buffer:
        return 0.0
    return min(max((length - (max_length - buffer)) / buffer, 0.0), 1.0)


def _as_array(rewards_B: Rewards) -> Float64[np.ndarray, " B"]:
    return np.array([np.nan if reward is None else reward for reward in rewards_B], np.float64)


def _within_groups(
    rewards_B: Rewards, groups_B: Sequence[Hashable], within_group: Callable[[np.ndarray], np.ndarray]
) -> Advantages:
    """Applies `within_group` to the rewards of every group whose rewards differ; returns 0 for all other samples."""
    rewards_B = _as_array(rewards_B)
    members: dict[Hashable, list[int]] = {}
    for index, group in zip(range(len(rewards_B)), groups_B, strict=True):
        if not np.isnan(rewards_B[index]):
            members.setdefault(group, []).append(index)
    advantages_B = np.zeros(len(rewards_B))
    for indices in members.values():
        group_rewards = rewards_B[indices]
        if group_rewards.min() != group_rewards.max():
            advantages_B[indices] = within_group(group_rewards)
    return advantages_B


def _standard_scores(values_B: Float[np.ndarray, " B"], weights_B: Sequence[int], eps: float) -> Advantages:
    """Returns (values - mean) / (std + eps) with weighted mean and standard deviation; 0 for those that are NaN."""
    graded_B = ~np.isnan(values_B)
    counts_B = np.array([weight if has else 0 for weight, has in zip(weights_B, graded_B, strict=True)], np.float64)
    counted, weights = values_B[counts_B > 0], counts_B[counts_B > 0]
    if not counted.size or counted.min() == counted.max():
        return np.zeros(len(values_B))
    mean = np.average(counted, weights=weights)
    variance = np.average((counted - mean) ** 2, weights=weights)
    return np.where(graded_B, (values_B - mean) / (np.sqrt(variance) + eps), 0.0)
