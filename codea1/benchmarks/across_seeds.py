"""How far a mean over seeds and questions can be trusted, and whether two methods differ: crossed bootstraps.

Every seed of a method is asked the same questions, so seeds and questions are crossed and not nested: a resample draws
seeds and questions with replacement, and each drawn question counts for every drawn seed (Owen 2007, "The pigeonhole
bootstrap"). With one seed that is the plain bootstrap over questions.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
CONFIDENCE = 0.95

Scores = np.ndarray  # [seeds, questions, factors]: a metric is the product of its factors' means over questions
_COUNTS_AT_ONCE = 2_000_000  # counts of drawn questions alive at once, 16 MB


class Interval(NamedTuple):
    """A mean, or a product of means, and the bounds of its 95 % interval, in the units of the values."""

    mean: float
    low: float
    high: float


class Difference(NamedTuple):
    """How much one side is higher than the other, the bounds of the 95 % interval, and the p-value of "not at all"."""

    mean: float
    low: float
    high: float
    p_value: float


def interval(parts: Sequence[Scores], seed: int = 0) -> Interval:
    """Returns a metric's mean over seeds and its 95 % percentile interval.

    Args:
      parts: what the metric is the plain mean of: one array for most, one for each benchmark for an average of
        benchmarks, all of the same seeds in the same order. A question for which a factor is NaN at a seed is left
        out of that factor's mean at that seed.
      seed: of the 10,000 resamples.

    Returns:
      NaN three times when a factor has no question left at some seed.
    """
    return _bounds(*_resampled([parts], seed))


def difference(before: Sequence[Scores], after: Sequence[Scores], seed: int = 0) -> Difference:
    """Returns how much higher `after` is than `before`, paired by seed and by question.

    The p-value is two-sided and the interval's own: twice the share of resamples on the far side of 0, so that it is
    below 0.05 where the interval leaves out 0 (but for ties and the one that is added to either count, which keeps it
    from being 0).

    Args:
      before, after: as for `interval`; row i of both is the same seed, column j the same question. What is NaN on
        either side is left out of both, so that this need not be the difference of the two sides' own means.

    Raises:
      ValueError: the two sides have other shapes.
    """
    if [part.shape for part in before] != [part.shape for part in after]:
        raise ValueError("the two sides are not of the same seeds and questions")
    mean, drawn = _resampled([after, before], seed)
    if np.isnan(mean):
        return Difference(np.nan, np.nan, np.nan, np.nan)
    tail = min((drawn <= 0).sum(), (drawn >= 0).sum())
    return Difference(*_bounds(mean, drawn), min(1.0, 2 * float(tail + 1) / ((~np.isnan(drawn)).sum() + 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values that are adjusted for being several (Holm 1979), in the order given.

    Rejecting what is below 0.05 then errs at all, in any of them, with a chance below 0.05.
    """
    order = np.argsort(p_values, kind="stable")
    count, worst, adjusted = len(p_values), 0.0, [0.0] * len(p_values)
    for rank, index in enumerate(order):
        worst = max(worst, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def _bounds(mean: float, drawn: np.ndarray) -> Interval:
    if np.isnan(mean):
        return Interval(np.nan, np.nan, np.nan)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(drawn, [tail, 100 - tail])  # NaN where no question of a factor was drawn
    return Interval(mean, float(low), float(high))


def _resampled(sides: Sequence[Sequence[Scores]], seed: int) -> tuple[float, np.ndarray]:
    """The statistic, the first side's metric less that of the second where there is one, and it in each resample."""
    parts = [_defined_on_all(arrays) for arrays in zip(*sides, strict=True)]
    if any(np.isnan(arrays[0]).all(axis=1).any() for arrays in parts):
        return np.nan, np.empty(0)
    rng = np.random.default_rng(seed)
    seeds = parts[0][0].shape[0]
    chosen = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    observed, drawn = 0.0, np.zeros(RESAMPLES)
    for arrays in parts:
        questions = arrays[0].shape[1]
        observed += float(_signed(np.full((1, questions), 1 / questions), arrays).mean()) / len(parts)
        shares = _drawn_questions(questions, rng)
        each = np.concatenate([_signed(block, arrays) for block in shares])
        # A seed that a resample has not drawn says nothing, even where none of its questions is defined.
        drawn += (np.where(chosen > 0, each, 0.0) * chosen).sum(axis=1) / len(parts)
    return observed, drawn


def _signed(shares: np.ndarray, arrays: Sequence[Scores]) -> np.ndarray:
    """The first array's products of means, less the second's: [resamples, seeds], for shares [resamples, questions]."""
    first, *rest = (_means(shares, array).prod(axis=-1) for array in arrays)
    return first - rest[0] if rest else first


def _means(shares: np.ndarray, array: Scores) -> np.ndarray:
    """Each factor's mean over the questions drawn for which it is defined: [resamples, seeds, factors]."""
    undefined = np.isnan(array)
    means = np.einsum("rq,sqf->rsf", shares, np.where(undefined, 0.0, array), optimize=True)
    if not undefined.any():
        return means
    with np.errstate(invalid="ignore"):
        return means / np.einsum("rq,sqf->rsf", shares, (~undefined).astype(float), optimize=True)


def _drawn_questions(questions: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Each question's share in each resample, [resamples, questions], block by block."""
    at_once = max(1, _COUNTS_AT_ONCE // questions)
    for start in range(0, RESAMPLES, at_once):
        size = min(at_once, RESAMPLES - start)
        drawn = rng.integers(questions, size=(size, questions)) + questions * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * questions).reshape(size, questions) / questions


def _defined_on_all(arrays: Sequence[Scores]) -> list[Scores]:
    """The arrays with NaN where any of them has it: for the same seed, question and factor."""
    undefined = np.any([np.isnan(array) for array in arrays], axis=0)
    return [np.where(undefined, np.nan, array) for array in arrays]
