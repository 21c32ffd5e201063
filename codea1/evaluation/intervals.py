"""How far a mean over questions can be trusted: percentile bootstrap intervals, of one seed."""

from collections.abc import Sequence

import numpy as np

from codea1.evaluation.across_seeds import Interval, difference, interval


def bootstrap_interval(values: Sequence | np.ndarray, seed: int = 0) -> Interval:
    """Returns the mean of `values` and its 95 % percentile bootstrap interval over questions (Efron 1979).

    Args:
      values: [questions], or [questions, factors] for a metric that is the product of the factors' means over
        questions. NaN marks a question for which the metric, or a factor of it, is undefined: each mean is over the
        questions for which it is defined.
      seed: of the 10,000 resamples; the same values and seed give the same interval.

    Returns:
      NaN three times when no question is left.
    """
    return interval([_scores(values)], seed)


def paired_difference(before: Sequence | np.ndarray, after: Sequence | np.ndarray, seed: int = 0) -> Interval:
    """Returns how much higher `after` is than `before`, with its 95 % interval; a resample takes both sides' questions.

    Args:
      before, after: as for `bootstrap_interval`; row i of both is the same question, and undefined where either is.

    Raises:
      ValueError: the two sides have different shapes.
    """
    return Interval(*difference([_scores(before)], [_scores(after)], seed)[:3])


def _scores(values: Sequence | np.ndarray) -> np.ndarray:
    """As `codea1.evaluation.across_seeds` reads them: [1, questions, factors]."""
    values = np.asarray(values, np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"values of shape {values.shape} are neither [questions] nor [questions, factors]")
    return values[None, :, None] if values.ndim == 1 else values[None]
