"""How far a mean over questions and seeds can be trusted, whether two methods differ, and pass@k.

With one seed there is a percentile bootstrap over its questions, which says nothing of another seed. With several,
seeds and questions are both drawn at random and crossed, since every seed is asked the same questions: the interval
combines Student's t over seeds, which holds its level with as few as two or three, with that over questions. A
bootstrap of so few seeds does not: three draws of three values have two thirds of their variance.
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
SEEDS_TO_COMPARE = 3  # with fewer, a comparison gets no p-value

Scores = np.ndarray  # [seeds, questions, factors]: a metric is the product of its factors' means over questions
_COUNTS_AT_ONCE = 2_000_000  # counts of drawn questions alive at once, 16 MB
_HALVINGS = 60  # of the range in which a p-value lies


class Interval(NamedTuple):
    """A mean, or a product of means, and the bounds of its 95 % interval, in the units of the values."""

    mean: float
    low: float
    high: float


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
    parts = [_defined_on_all(arrays) for arrays in zip(*sides, strict=True)]
    if any(np.isnan(arrays[0]).all(axis=1).any() for arrays in parts):
        return Difference(np.nan, np.nan, np.nan, np.nan)
    if parts[0][0].shape[0] > 1:
        return _crossed([_less_second(map(_linearised, arrays)) for arrays in parts])
    mean, drawn = _resampled([[array[0] for array in arrays] for arrays in parts])
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(drawn, [tail, 100 - tail])  # NaN where no question of a factor was drawn
    return Difference(mean, float(low), float(high), np.nan)


def _less_second(sides: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the first side, less the second where there is one."""
    first, *rest = sides
    return first - rest[0] if rest else first


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
    questions' own effect, the spread of their means less the share in it of the interaction.
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
            own = max(float(of_questions.var(ddof=1) - interaction / seeds), 0.0)
            terms.append((own / questions / len(parts) ** 2, questions - 1))
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


def _resampled(parts: Sequence[Sequence[np.ndarray]]) -> tuple[float, np.ndarray]:
    """Returns the statistic of one seed, and it in each resample of the questions; arrays [questions, factors]."""
    observed, drawn = 0.0, np.zeros(RESAMPLES)
    counts_of_parts = _drawn_questions(tuple(len(arrays[0]) for arrays in parts))
    for arrays, counts in zip(parts, counts_of_parts, strict=True):
        questions = len(arrays[0])
        shares = (block.astype(np.float64) / questions for block in counts)
        blocks = itertools.chain([np.full((1, questions), 1 / questions)], shares)
        first, *others = [_less_second(_product_of_means(block, array) for array in arrays) for block in blocks]
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


def _defined_on_all(arrays: Sequence[Scores]) -> list[Scores]:
    """Returns the arrays with NaN where any of them has it: for the same seed, question and factor."""
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
    return interval([_scores(values)])


def paired_difference(before: Sequence | np.ndarray, after: Sequence | np.ndarray) -> Interval:
    """Returns how much higher `after` is than `before`, with its 95 % interval; a resample takes both sides' questions.

    Args:
      before: as for `bootstrap_interval`.
      after: the same; row i of both is the same question, and undefined where either is.

    Raises:
      ValueError: the two sides have different shapes.
    """
    return Interval(*difference([_scores(before)], [_scores(after)])[:3])


def _scores(values: Sequence | np.ndarray) -> np.ndarray:
    """Returns values as `interval` reads them: [1, questions, factors]."""
    values = np.asarray(values, np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"values of shape {values.shape} are neither [questions] nor [questions, factors]")
    return values[None, :, None] if values.ndim == 1 else values[None]


def pass_at_k(n: int, c: int, k: int) -> float:
    """Returns the unbiased estimate of pass@k from `n` sampled solutions of which `c` are right.

    1 - C(n - c, k) / C(n, k): the chance that k of the n drawn without replacement hold a right one (Chen et al. 2021,
    arXiv 2107.03374, equation 1). Integer arithmetic, so exact up to the last division. pass@1 is c / n, which
    averaged over questions is the avg@n of the Code-A1 paper.

    Raises:
      ValueError: unless 1 <= k <= n and 0 <= c <= n.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= c <= n, not n={n}, c={c}, k={k}")
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


def pass_at_k_of(passes: Sequence[float] | np.ndarray, k: int) -> float:
    """Returns pass@k of one question's solutions, 1 for each that passes, else 0; NaN where there is none or a NaN."""
    passes = np.asarray(passes, np.float64)
    return np.nan if np.isnan(passes).any() or not len(passes) else pass_at_k(len(passes), int(passes.sum()), k)
