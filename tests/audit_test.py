"""Paid and hidden sides of a player: the interval holds its level, hacking is told of, honest runs are not."""

from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit
from scipy.stats import linregress

from codea1.evaluation.statistics import MIN_STEPS, TENTHS, change
from codea1.lab.report.audit import audits, table_of, warnings

CODE = ("code/pass_rate_new", "code/hidden_pass_rate")
TEST = ("test/reward", "test/hidden_kill_rate")


def noise(rng: np.random.Generator, steps: int, deviation: float, correlation: float) -> np.ndarray:
    """[steps] of a stationary AR(1) process."""
    values = rng.standard_normal(steps)
    for step in range(1, steps):
        values[step] = correlation * values[step - 1] + np.sqrt(1 - correlation**2) * values[step]
    return deviation * values


def sampled(
    rng: np.random.Generator, steps: int, first: float, last: float, deviation: float, correlation: float = 0.3
) -> np.ndarray:
    """[steps] of noise around a line."""
    return np.linspace(first, last, steps) + noise(rng, steps, deviation, correlation)


def rows(**metrics: Any) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl; of a metric's name "__" is the slash."""
    metrics = {name.replace("__", "/"): values for name, values in metrics.items()}
    columns = zip(*metrics.values(), strict=True)
    return [
        {"step": 0},
        *({"step": step, **dict(zip(metrics, row, strict=True))} for step, row in enumerate(columns, start=1)),
    ]


def run(rng: np.random.Generator, pair: tuple[str, str], paid: tuple, hidden: tuple, steps: int = 60) -> list[str]:
    """The warnings of a run whose sides are arguments of `sampled`."""
    sides = dict(zip(pair, (sampled(rng, steps, *side) for side in (paid, hidden)), strict=True))
    return warnings(audits(rows(**sides)))


def share_of_warnings(*case: tuple) -> float:
    rng = np.random.default_rng(0)
    return float(np.mean([len(run(rng, *case)) for _ in range(400)]))


def test_the_change_is_that_of_the_least_squares_line_through_the_tenths():
    values = sampled(np.random.default_rng(0), 64, 0.2, 0.4, 0.05)
    means = [part.mean() for part in np.array_split(values, TENTHS)]
    line = linregress(range(TENTHS), means)
    margin = stdtrit(TENTHS - 2, 0.975) * line.stderr
    np.testing.assert_allclose(change(values), 9 * np.array([line.slope, line.slope - margin, line.slope + margin]))


@pytest.mark.parametrize(
    ("steps", "correlation"), [(30, 0.0), (30, 0.3), (40, 0.3), (40, 0.5), (60, 0.5), (100, 0.5), (100, 0.7)]
)
def test_the_interval_holds_its_level(steps: int, correlation: float):
    rng = np.random.default_rng(0)
    rises = [change(noise(rng, steps, 0.05, correlation)).low > 0 for _ in range(2000)]
    assert 0.01 < np.mean(rises) < 0.055  # 0.025 by design, with a standard error of 0.0035


@pytest.mark.parametrize(("correlation", "least", "most"), [(0.3, 0.02, 0.04), (0.8, 0.06, 0.09), (0.95, 0.14, 0.18)])
def test_false_alarms_of_correlated_steps_are_as_often_as_documented(correlation: float, least: float, most: float):
    """docs/demo.md has these shares, of runs in which nothing rises."""
    rng = np.random.default_rng(0)
    sides = [[change(noise(rng, 60, each, correlation)).low > 0 for each in (0.04, 0.06)] for _ in range(2000)]
    assert least < np.mean([paid and not hidden for paid, hidden in sides]) < most


def test_hacking_is_told_of():
    """In a world of rare mistakes: what is paid rises, and no more programs are right, no more mistakes found.

    The noise is that of seven runs of 60 steps in such worlds: in an epoch each question comes once, so that what the
    Test LLM is paid in neighbouring steps is correlated negatively.
    """
    assert share_of_warnings(CODE, (0.80, 0.87, 0.037, 0.1), (0.18, 0.18, 0.09)) > 0.85
    assert share_of_warnings(TEST, (0.089, 0.109, 0.0175, -0.25), (0.18, 0.18, 0.04)) > 0.7


@pytest.mark.parametrize("paid", [(0.80, 0.87, 0.03), (0.62, 0.78, 0.05)])
def test_a_run_whose_both_sides_rise_is_healthy(paid: tuple):
    assert share_of_warnings(CODE, paid, (0.36, 0.80, 0.10)) < 0.02
    assert share_of_warnings(CODE, paid, (0.25, 0.45, 0.07)) < 0.05


@pytest.mark.parametrize("value", [0.0, 0.18, 1 / 3, 1.0])
@pytest.mark.parametrize("steps", [60, 64])
def test_what_is_constant_does_not_rise(value: float, steps: int):
    assert change(np.full(steps, value)) == (0, 0, 0)
    (warning,) = warnings(
        audits(rows(code__pass_rate_new=np.linspace(0.8, 0.87, steps), code__hidden_pass_rate=[value] * steps))
    )
    assert f"{value:.3f} → {value:.3f}" in warning


def test_a_warning_says_which_side_rises_and_by_how_much():
    hidden, paid = np.full(60, 0.18), np.repeat(np.linspace(0.80, 0.87, 10), 6)
    assert warnings(audits(rows(code__pass_rate_new=paid, code__hidden_pass_rate=hidden))) == [
        "Code LLM: its pass rate on generated tests rises, 0.800 → 0.870, by +0.070 [+0.070, +0.070], and its "
        "hidden pass rate shows no rise, 0.180 → 0.180, by +0.000 [+0.000, +0.000]. "
        "It may be learning what passes those tests and is wrong, or the tests may be getting easier."
    ]
    (warning,) = warnings(audits(rows(test__reward=paid, test__hidden_kill_rate=hidden)))
    assert warning.startswith("Test LLM: its reward rises, 0.800 → 0.870")


def test_only_steps_with_both_sides_count():
    paid, hidden = np.linspace(0.8, 0.9, MIN_STEPS).tolist(), [0.2] * MIN_STEPS
    assert not audits(rows(code__pass_rate_new=paid[1:], code__hidden_pass_rate=hidden[1:]))
    assert not audits(rows(code__pass_rate_new=[*paid[1:], 0.9], code__hidden_pass_rate=[*hidden[1:], None]))
    (audit,) = audits(rows(code__pass_rate_new=[None, *paid], code__hidden_pass_rate=[0.9, *hidden]))
    assert audit.paid.tenths[0] == pytest.approx(np.mean(paid[:3]))
    np.testing.assert_allclose(audit.gap.tenths, audit.paid.tenths - 0.2)


def test_golden_tests_pay_where_none_are_generated():
    (audit,) = audits(rows(code__pass_rate_golden=[0.5] * 40, code__hidden_pass_rate=[0.25] * 40))
    assert table_of([audit]).rows[0] == (
        "Code LLM",
        "pass rate on fixed tests",
        "0.500 → 0.500",
        "+0.000 [+0.000, +0.000]",
    )
