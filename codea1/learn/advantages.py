"""Group-relative advantages, on the host in float64."""

from collections.abc import Hashable, Sequence

import numpy as np


def grpo_advantages(
    rewards: Sequence[float | None] | np.ndarray,
    groups: Sequence[Hashable],
    *,
    ddof: int = 1,
    eps: float = 1e-6,
    norm_by_std: bool = True,
) -> np.ndarray:
    """A_i = (r_i - mean_g) / (std_g + eps), each reward compared within its group (GRPO).

    Exactly 0 where all rewards of a group are equal: rounding in the mean must not be blown up by a standard deviation
    near 0. So too for a group with a single reward.

    Args:
      rewards: [n] rewards; None or NaN marks a sample that must not be learned from. It enters no mean and no
        standard deviation, and its advantage is 0.
      groups: [n] the group of each sample, in any order.
      ddof: the standard deviation divides by the group's size less `ddof`; 1 is the unbiased one of the paper's runs.
      eps: added to the standard deviation.
      norm_by_std: False subtracts the group's mean and divides by nothing.

    Returns:
      [n] float64 advantages.

    Raises:
      ValueError: `ddof` is neither 0 nor 1, or there are not as many groups as rewards.
    """
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof}; it must be 0 or 1")
    values = np.array([np.nan if reward is None else reward for reward in rewards], np.float64)
    members: dict[Hashable, list[int]] = {}
    for index, group in zip(range(len(values)), groups, strict=True):
        if not np.isnan(values[index]):
            members.setdefault(group, []).append(index)
    advantages = np.zeros(len(values))
    for indices in members.values():
        group_rewards = values[indices]
        if group_rewards.min() == group_rewards.max():
            continue
        centered = group_rewards - group_rewards.mean()
        advantages[indices] = centered / (group_rewards.std(ddof=ddof) + eps) if norm_by_std else centered
    return advantages
