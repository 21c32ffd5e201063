"""TOPVAR: which solutions' suites train the Test LLM."""

from collections.abc import Sequence

import numpy as np


def top_variance(rewards: Sequence[Sequence[float | None]], update_n: int) -> list[int]:
    """Chooses the `update_n` solutions of one question whose suite rewards spread most.

    VAR^m = std{R^{m,n}}_n, m_top = argmax_m (Code-A1, step 5-1), with the population standard deviation in float64.
    Ties go to the lowest index. Masked rewards (None) do not count, and a solution whose rewards are all masked is
    never chosen. Nothing is left out when `update_n` is at least the number of solutions M.

    Args:
      rewards: [M][N] rewards of the N suites of each of the M solutions of one question.
      update_n: how many solutions to keep.

    Returns:
      Indices of the chosen solutions, ascending; fewer than `update_n` where fewer have a reward.
    """
    if update_n >= len(rewards):
        return list(range(len(rewards)))
    graded = [m for m, suites in enumerate(rewards) if any(reward is not None for reward in suites)]
    ranked = sorted(graded, key=lambda m: -_spread(rewards[m]))
    return sorted(ranked[:update_n])


def _spread(rewards: Sequence[float | None]) -> float:
    # Sorted, so that the same rewards in another order are a tie to the last bit.
    return float(np.std(np.sort(np.array([reward for reward in rewards if reward is not None], np.float64))))
