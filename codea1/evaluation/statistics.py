"""How far a mean over questions can be trusted, by a percentile bootstrap; how much a metric changed; and pass@k.

How much a metric of the steps changed is read off the least-squares line through the means y_1, ..., y_10 of the tenths
of the run:

  change = 9 sum_k (k - 5.5) y_k / S,  +- t 9 sqrt(R / (8 S)),  where S = sum_k (k - 5.5)^2 = 82.5,

R is the sum of squared residuals, and t = 2.306 the 97.5 % quantile of Student's t with 8 degrees of freedom. Steps
that follow each other are correlated, since they share weights and book; means of batches of them are nearly not, and
ten suffice (Schmeiser 1982, Operations Research 30, 556-568). A curve that bends leaves larger residuals and so a wider
interval.

Intervals over questions say nothing of another seed; for several, see `codea1.lab.statistics`.
"""

import itertools
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

RESAMPLES = 10_000
CONFIDENCE = 0.95
TENTHS = 10
MIN_STEPS = 30  # tests/audit_test.py: with fewer, means of tenths are too correlated for the interval

Scores = np.ndarray  # [questions, factors]: a metric is the product of its factors' means over questions
_COUNTS_AT_ONCE = 2_000_000  # counts of drawn questions alive at once, 16 MB


class Interval(NamedTuple):
    """A mean, or a product of means, and the bounds of its 95 % interval, in the units of the values."""

    mean: float
    low: float
    high: float


def bootstrapped(sides: Sequence[Sequence[Scores]]) -> Interval:
    """Returns the first side's metric, less that of the second where there is one, with its 95 % interval.

    A side has what the metric is the plain mean of: one array, or one for each benchmark for an average of benchmarks.
    What is NaN on either side is left out of both. Returns NaN three times when a factor has no question left.
    """
    parts = [defined_on_all(arrays) for arrays in zip(*sides, strict=True)]
    if any(np.isnan(arrays[0]).all(axis=0).any() for arrays in parts):
        return Interval(np.nan, np.nan, np.nan)
    mean, drawn = _resampled(parts)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(drawn, [tail, 100 - tail])  # NaN where no question of a factor was drawn
    return Interval(mean, float(low), float(high))


def less_second(sides: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the first side, minus the second where there is one."""
    first, *rest = sides
    return first - rest[0] if rest else first


def _resampled(parts: Sequence[Sequence[np.ndarray]]) -> tuple[float, np.ndarray]:
    """Returns the statistic, and it in each resample of the questions; arrays [questions, factors]."""
    observed, drawn = 0.0, np.zeros(RESAMPLES)
    counts_of_parts = _drawn_questions(tuple(len(arrays[0]) for arrays in parts))
    for arrays, counts in zip(parts, counts_of_parts, strict=True):
        questions = len(arrays[0])
        shares = (block.astype(np.float64) / questions for block in counts)
        blocks = itertools.chain([np.full((1, questions), 1 / questions)], shares)
        first, *others = [less_second(_product_of_means(block, array) for array in arrays) for block in blocks]
        observed += float(first[0]) / len(parts)
        drawn += np.concatenate(others) / len(parts)
    return observed, drawn


def _product_of_means(shares: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Returns the metric [resamples]: the product of each factor's mean over the questions for which it is defined.

    `shares` [resamples, questions] says how often each question was drawn, over their number.
    """
    undefined = np.isnan(array)
    means = shares @ np.where(undefined, 0.0, array)
    if undefined.any():
        with np.errstate(invalid="ignore"):
            means = means / (shares @ (~undefined).astype(float))
    return means.prod(axis=-1)


@lru_cache(maxsize=4)  # the metrics of a report are of the same questions
def _drawn_questions(sizes: tuple[int, ...]) -> list[list[np.ndarray]]:
    """Returns how often each question of parts of such sizes is in each resample: blocks [resamples, questions]."""
    rng, parts = np.random.default_rng(0), []
    for questions in sizes:
        at_once, blocks = max(1, _COUNTS_AT_ONCE // questions), []
        for start in range(0, RESAMPLES, at_once):
            size = min(at_once, RESAMPLES - start)
            drawn = rng.integers(questions, size=(size, questions)) + questions * np.arange(size)[:, None]
            counts = np.bincount(drawn.ravel(), minlength=size * questions).reshape(size, questions)
            blocks.append(counts.astype(np.min_scalar_type(questions)))
        parts.append(blocks)
    return parts


def defined_on_all(arrays: Sequence[Scores]) -> list[Scores]:
    """Returns the arrays with NaN where any of them has it."""
    undefined = np.any([np.isnan(array) for array in arrays], axis=0)
    return [np.where(undefined, np.nan, array) for array in arrays]


def bootstrap_interval(values: Sequence | np.ndarray) -> Interval:
    """Returns the mean of `values` and its 95 % percentile bootstrap interval over questions (Efron 1979).

    Args:
      values: [questions], or [questions, factors] for a metric that is the product of the factors' means over
        questions. NaN marks a question for which the metric, or a factor of it, is undefined: each mean is over the
        questions for which it is defined.

    Returns:
      NaN three times when no question is left.
    """
    return bootstrapped([[_scores(values)]])


def paired_difference(before: Sequence | np.ndarray, after: Sequence | np.ndarray) -> Interval:
    """Returns how much higher `after` is than `before`, with its 95 % interval; a resample takes both sides' questions.

    Args:
      before: as for `bootstrap_interval`.
      after: the same; row i of both is the same question, and undefined where either is.

    Raises:
      ValueError: the two sides have different shapes.
    """
    sides = [_scores(after)], [_scores(before)]
    if sides[0][0].shape != sides[1][0].shape:
        raise ValueError("the two sides are not of the same questions")
    return bootstrapped(sides)


def _scores(values: Sequence | np.ndarray) -> np.ndarray:
    """Returns values as `bootstrapped` reads them: [questions, factors]."""
    values = np.asarray(values, np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"values of shape {values.shape} are neither [questions] nor [questions, factors]")
    return values[:, None] if values.ndim == 1 else values


def tenths(values: np.ndarray) -> np.ndarray:
    """Returns the means [10] of the tenths of values [steps], which are as equal in steps as can be."""
    return np.array([part.mean() for part in np.array_split(values, TENTHS)])


def change(values: np.ndarray) -> Interval:
    """Returns by how much values [steps] changed from the first tenth to the last, with its 95 % interval."""
    # Minus the first value: what is constant is then exactly 0, and so is its change.
    means = tenths(values - values[0])
    place = np.arange(TENTHS) - (TENTHS - 1) / 2
    slope = means @ place / (place @ place)
    residuals = means - means.mean() - slope * place
    deviation = np.sqrt(residuals @ residuals / (TENTHS - 2) / (place @ place))
    slopes = slope + deviation * stdtrit(TENTHS - 2, (1 + CONFIDENCE) / 2) * np.array([0, -1, 1])
    return Interval(*(float(end) for end in (TENTHS - 1) * slopes))


def pass_at_k(passes: Sequence[float] | np.ndarray, k: int) -> float:
    """Returns the unbiased estimate of pass@k from one question's n sampled solutions, 1 for each that passes, else 0.

    1 - C(n - c, k) / C(n, k), where c pass: the chance that k of the n drawn without replacement hold a right one (Chen
    et al. 2021, arXiv 2107.03374, equation 1). Integer arithmetic, so exact up to the last division. pass@1 is c / n,
    which averaged over questions is the avg@n of the Code-A1 paper. NaN where there is no solution or one is NaN.

    Raises:
      ValueError: unless 1 <= k <= n.
    """
    passes = np.asarray(passes, np.float64)
    if np.isnan(passes).any() or not len(passes):
        return np.nan
    n, c = len(passes), int(passes.sum())
    if not 1 <= k <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n, not n={n}, k={k}")
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)
