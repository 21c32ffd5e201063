"""Which solutions' suites train the Test LLM: by variance (TOPVAR), by learnability, or at random.

All suites train where `config.game.trained_solutions` is the number of solutions.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SuiteGroup:
    """The suites of one solution, as a selection sees them."""

    rewards: tuple[float, ...]  # of those that are not masked
    exposes: tuple[bool, ...]  # of the same ones: a right test of the suite fails the solution
    key: str  # of a random choice: run, step, question and solution


def variance(group: SuiteGroup) -> float:
    """Returns std{R^{m,n}}_n, the population's, in float64: VAR^m of Code-A1, step 5-1."""
    # Sorted, so that the same rewards in another order are a tie to the last bit.
    return float(np.std(np.sort(np.array(group.rewards, np.float64))))


def learnability(group: SuiteGroup) -> float:
    """Returns p (1 - p), p the share of suites that expose the solution (Rutherford et al. 2024, arXiv 2408.15099)."""
    share = sum(group.exposes) / len(group.exposes)
    return share * (1 - share)


def chance(group: SuiteGroup) -> float:
    """Returns a number in [0, 1) that depends on the group's key alone."""
    return random.Random(group.key).random()


VARIANCE = "variance"
SELECTIONS: dict[str, Callable[[SuiteGroup], float]] = {
    VARIANCE: variance,
    "learnability": learnability,
    "random": chance,
}


def select(groups: Sequence[SuiteGroup], count: int, score: Callable[[SuiteGroup], float]) -> list[int]:
    """Chooses the `count` solutions of one question that score highest.

    Ties go to the solution whose rewards vary more, then to the lowest index. Where some are left out, a solution whose
    rewards are all masked is not chosen. Nothing is left out when `count` is at least the number of solutions M.

    Returns:
      Indices of the chosen solutions, ascending; fewer than `count` where fewer have a reward.
    """
    if count >= len(groups):
        return list(range(len(groups)))
    graded = [m for m, group in enumerate(groups) if group.rewards]
    ranked = sorted(graded, key=lambda m: (-score(groups[m]), -variance(groups[m])))
    return sorted(ranked[:count])
