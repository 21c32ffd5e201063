"""The law of the adversary as numbers: pass@1 as a monotone curve of one number, fitted on scripted adversaries.

A scripted adversary exposes a wrong program with a chance that its arm sets, the dose. What the curve of doses says of
all other arms, from that number as it was measured in their runs, is a prediction: nothing of them enters the fit.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np
from scipy.optimize import isotonic_regression

from codea1.lab.report.figures import points
from codea1.lab.study.declaration import Study
from codea1.lab.study.results import Result, scores

PASS = "code_pass_at_1"
REFUTED = 0.1  # mean absolute error over arms without a dose, by g: twice the standard error of a mean of five seeds
DOSE = "game.exposure"  # config field: the chance that a scripted adversary exposes a wrong program
Arms = Mapping[str, Sequence[Result]]
Predictor = Callable[[Result], float]


def contrast(run: Result) -> float:
    """Returns g, the share of groups in which new or golden tests kill one and spare one, over all steps; or NaN."""
    return _mean(run, "code/contrast")


def unpaid(run: Result) -> float:
    """Returns the share of wrong solutions that are not paid in full, over all steps; NaN where none is known."""
    wrong = 1 - _mean(run, "code/hidden_pass_rate")
    return 1 - _mean(run, "code/paid_but_wrong") / wrong if wrong else float("nan")


def _mean(run: Result, metric: str) -> float:
    values = points(run.rows, metric)[1]
    return float(np.mean(values)) if len(values) else float("nan")


def pass_at_1(runs: Sequence[Result]) -> np.ndarray:
    """Returns pass@1 after training, a share, of each run."""
    return np.array([np.nanmean(scores([run], PASS)) for run in runs])


def levels(arms: Arms) -> dict[str, float]:
    """Returns pass@1 of arms whose seeds differ, in shares: the mean of the arm with the most seeds, and of others that
    plus their mean difference from it on the seeds of both. An arm without such a seed is left out."""
    by_seed = {arm: {run.run.seed: pass_at_1([run])[0] for run in runs} for arm, runs in arms.items()}
    most = max(by_seed.values(), key=len, default={})
    off = {arm: [own[seed] - most[seed] for seed in own.keys() & most] for arm, own in by_seed.items()}
    return {arm: float(np.mean([*most.values()]) + np.mean(each)) for arm, each in off.items() if each}


def doses(study: Study) -> dict[str, float]:
    """Returns the scripted arms that differ in their dose alone, each with it; of several such sets the largest."""
    sets: dict[str, dict[str, float]] = {}
    for name, arm in study.arms.items():
        if arm.method == "scripted" and DOSE in arm.fields:
            recipe = study.recipe(name)
            dose = recipe["fields"].pop(DOSE)
            sets.setdefault(json.dumps(recipe, sort_keys=True), {})[name] = dose
    return max(sets.values(), key=len, default={})


def curve(runs: Sequence[Result], predictor: Predictor) -> Callable[[Sequence[float]], np.ndarray]:
    """Returns the monotone curve of pass@1 over a predictor that is nearest to the runs in squares.

    It is straight between two of them and flat beyond the ends; NaN everywhere where the predictor was not recorded.
    """
    at, passed = np.array([predictor(run) for run in runs]), pass_at_1(runs)
    known = np.isfinite(at)
    if not known.any():
        return lambda given: np.full(len(given), np.nan)
    places, of_run = np.unique(at[known], return_inverse=True)
    counts = np.bincount(of_run)
    means = np.bincount(of_run, passed[known]) / counts
    fitted = isotonic_regression(means, weights=counts).x
    return lambda given: np.interp(given, places, fitted)


def errors(dosed: Arms, others: Arms, predictor: Predictor) -> dict[str, np.ndarray]:
    """Returns by arm pass@1 of each run less what the curve predicts; of a dose, the curve of all other doses.

    NaN for the doses at both ends, which no others enclose.
    """
    found, ends = {}, sorted(dosed, key=lambda arm: np.mean([predictor(run) for run in dosed[arm]]))[:: len(dosed) - 1]
    for arm, runs in chain(dosed.items(), others.items()):
        fitted = curve([run for dose, own in dosed.items() if dose != arm for run in own], predictor)
        found[arm] = pass_at_1(runs) - fitted([predictor(run) for run in runs]) * (np.nan if arm in ends else 1)
    return found
