"""How far a mean over questions and seeds can be trusted, and whether two methods differ.

With one seed it is the bootstrap over its questions of `codea1.evaluation.statistics`. With several, seeds and
questions are both drawn at random and crossed, since every seed is asked the same questions: the interval combines
Student's t over seeds, which holds its level with as few as two or three, with that over questions. A bootstrap of so
few seeds does not: three draws of three values have two thirds of their variance.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from codea1.evaluation.statistics import CONFIDENCE, Interval, bootstrapped, defined_on_all, less_second

SEEDS_TO_COMPARE = 3  # with fewer, a comparison gets no p-value

Scores = np.ndarray  # [seeds, questions, factors]: a metric is the product of its factors' means over questions
_HALVINGS = 60  # of the range in which a p-value lies


class Difference(NamedTuple):
    """How much one side is higher than the other, the bounds of the 95 % interval, and the p-value of "not at all".

    The p-value is two-sided and the interval's own, below 0.05 where the interval leaves out 0; NaN with fewer seeds
    than SEEDS_TO_COMPARE.
    """

    mean: float
    low: float
    high: float
    p_value: float


def interval(parts: Sequence[Scores]) -> Interval:
    """Returns a metric's mean over seeds and its 95 % interval.

    Args:
      parts: what the metric is the plain mean of: one array for most, one for each benchmark for an average of
        benchmarks, all of the same seeds in the same order. A question for which a factor is NaN at a seed is left
        out of that factor's mean at that seed.

    Returns:
      NaN three times when a factor has no question left at some seed.
    """
    return Interval(*_estimate([parts])[:3])


def difference(before: Sequence[Scores], after: Sequence[Scores]) -> Difference:
    """Returns how much higher `after` is than `before`, paired by seed and by question.

    Args:
      before: as for `interval`.
      after: the same; row i of both is the same seed, column j the same question. What is NaN on either side is left
        out of both, so that this need not be the difference of the two sides' own means.

    Raises:
      ValueError: the two sides have other shapes.
    """
    if [part.shape for part in before] != [part.shape for part in after]:
        raise ValueError("the two sides are not of the same seeds and questions")
    return _estimate([after, before])


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values that are adjusted for being several (Holm 1979), in the order given; NaN is none of them.

    Rejecting what is below 0.05 then errs at all, in any of them, with a chance below 0.05.
    """
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty_like(p_values)
    count = np.isfinite(p_values).sum() - np.arange(len(p_values))  # that are as large or larger
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, p_values[order] * count))
    return adjusted.tolist()


def _estimate(sides: Sequence[Sequence[Scores]]) -> Difference:
    """Returns the first side's metric, less that of the second where there is one."""
    if len(sides[0][0]) == 1:
        return Difference(*bootstrapped([[array[0] for array in side] for side in sides]), np.nan)
    parts = [defined_on_all(arrays) for arrays in zip(*sides, strict=True)]
    if any(np.isnan(arrays[0]).all(axis=1).any() for arrays in parts):
        return Difference(np.nan, np.nan, np.nan, np.nan)
    return _crossed([less_second(map(_linearised, arrays)) for arrays in parts])


def _linearised(array: Scores) -> np.ndarray:
    """Returns values [seeds, questions] whose mean over questions is a seed's metric, and varies as it does.

    These are infinitesimal jackknife values (Jaeckel 1972): the metric, plus what each question moves it by, to first
    order.
    """
    defined = ~np.isnan(array)
    means = np.nanmean(array, axis=1, keepdims=True)  # [seeds, 1, factors]
    moved = np.where(defined, array - means, 0.0) * array.shape[1] / defined.sum(axis=1, keepdims=True)
    others = np.stack([np.delete(means, factor, axis=-1).prod(axis=-1) for factor in range(array.shape[-1])], axis=-1)
    return means.prod(axis=-1) + (moved * others).sum(axis=-1)


def _crossed(parts: Sequence[np.ndarray]) -> Difference:
    """Returns the mean over seeds of the mean of parts, each [seeds, its questions], with seeds and questions crossed.

    The squares of both half-widths are added (Howe 1974, JASA 69:610): t over seeds times the standard error that the
    spread of seeds gives, in which their interaction with questions is, and t over questions times that of the
    questions' own effect, the spread of their means minus the share in it of the interaction.
    """
    seeds = parts[0].shape[0]
    of_seeds = np.mean([part.mean(axis=1) for part in parts], axis=0)
    terms = [(float(of_seeds.var(ddof=1)) / seeds, seeds - 1)]  # variance of the mean, degrees of freedom
    for part in parts:
        of_questions = part.mean(axis=0)
        questions = len(of_questions)
        if questions > 1:
            residuals = part - part.mean(axis=1, keepdims=True) - of_questions + part.mean()
            interaction = (residuals**2).sum() / ((seeds - 1) * (questions - 1))
            variance = max(float(of_questions.var(ddof=1) - interaction / seeds), 0.0)
            terms.append((variance / questions / len(parts) ** 2, questions - 1))
    mean = float(of_seeds.mean())
    half = _half_width(terms, 1 - CONFIDENCE)
    return Difference(mean, mean - half, mean + half, _p_value(mean, terms) if seeds >= SEEDS_TO_COMPARE else np.nan)


def _half_width(terms: Sequence[tuple[float, int]], p_value: float) -> float:
    return sum(stdtrit(freedom, p_value / 2) ** 2 * variance for variance, freedom in terms) ** 0.5


def _p_value(mean: float, terms: Sequence[tuple[float, int]]) -> float:
    """Returns the p-value at which the interval just reaches 0, by halving where it lies."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _half_width(terms, middle) >= abs(mean) else (low, middle)
    return high
