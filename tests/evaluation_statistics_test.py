"""Intervals of one seed and of several, differences and their p-values, and pass@k."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.evaluation import statistics
from codea1.evaluation.statistics import bootstrap_interval, paired_difference, pass_at_k
from codea1.lab.statistics import difference, holm, interval


def every_resample(sides: list[np.ndarray]) -> Counter:
    """The exact distribution: all draws of questions, each as likely, one by one."""
    questions, factors = sides[0].shape
    values = []
    for drawn in itertools.product(range(questions), repeat=questions):
        metrics = [np.prod([mean(side[j, f] for j in drawn) for f in range(factors)]) for side in sides]
        values.append(round(metrics[0] - (metrics[1] if len(sides) > 1 else 0.0), 9))
    values = [value for value in values if not np.isnan(value)]
    return Counter({value: count / len(values) for value, count in Counter(values).items()})


def mean(values: Iterable[float]) -> float:
    """Of what is defined; NaN where nothing is."""
    defined = [value for value in values if not np.isnan(value)]
    return sum(defined) / len(defined) if defined else np.nan


def assert_drawn_from(exact: Counter, drawn: np.ndarray) -> None:
    seen = Counter(np.round(drawn, 9).tolist())
    assert set(seen) <= set(exact)
    for value, chance in exact.items():
        sigma = (chance * (1 - chance) / len(drawn)) ** 0.5
        assert abs(seen[value] / len(drawn) - chance) < 5 * sigma + 1e-12, value


@pytest.mark.parametrize("factors", [1, 2])
def test_resamples_of_one_seed_have_the_distribution_that_enumeration_gives(factors: int):
    rng = np.random.default_rng(factors)
    before, after = rng.integers(0, 5, size=(2, 4, factors)) / 4
    mean, drawn = statistics._resampled([[before]])
    assert_drawn_from(every_resample([before]), drawn)
    assert mean == pytest.approx(before.mean(axis=0).prod())
    _, drawn = statistics._resampled([[after, before]])
    assert_drawn_from(every_resample([after, before]), drawn)


def test_resamples_leave_undefined_questions_out():
    nan = float("nan")
    before = np.array([[0.0, nan], [1.0, 0.5], [nan, 1.0], [0.5, 0.0]])
    _, drawn = statistics._resampled([[before]])
    assert_drawn_from(every_resample([before]), drawn[~np.isnan(drawn)])


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("moved", [0.0, 0.05])
def test_the_interval_of_three_seeds_is_that_computed_by_hand(parts: int, moved: float):
    # Means of seeds .2, .4, .9 with variance .13; means of questions .4, .6 with variance .02. Residuals are `moved` in
    # four places and 0 in two, with 2 degrees of freedom, and a third of their variance is in that of the questions.
    scores = np.array([[0.1, 0.3], [0.3, 0.5], [0.8, 1.0]]) + moved * np.array([[1, -1], [-1, 1], [0, 0]])
    own = 0.02 - 4 * moved**2 / 2 / 3
    over_seeds, over_questions = 4.302653 * (0.13 / 3) ** 0.5, 12.706205 * (own / 2 / parts) ** 0.5
    half = (over_seeds**2 + over_questions**2) ** 0.5
    assert interval([scores[:, :, None]] * parts) == pytest.approx((0.5, 0.5 - half, 0.5 + half), rel=1e-6)


def test_interaction_is_counted_once():
    # Seeds move questions apart and nothing else: no seed and no question has an effect of its own.
    scores = np.array([[0.0, 1.0], [1.0, 0.0]])[:, :, None]
    assert interval([scores]) == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("spread", [0.065, 0.0])
def test_level_holds_at_the_spread_of_seeds_that_was_measured(seeds: int, spread: float):
    """Two methods that are equal: the interval covers 0, and p < 0.05 comes by chance, as often as they say.

    `spread` is the standard deviation of seeds, 6.5 points for three runs of the tiny pair at commit 8efbb86, which
    ended at 41.3, 44.8 and 53.9; each question has an effect of its own and one in each seed, as shares of four samples
    have.
    """
    rng = np.random.default_rng(seeds)
    covered, significant, games = 0, 0, 500
    for _ in range(games):
        effects = spread * rng.normal(size=(seeds, 1, 1)) + 0.3 * rng.normal(size=(1, 256, 1))
        found = difference([np.zeros((seeds, 256, 1))], [effects + 0.25 * rng.normal(size=(seeds, 256, 1))])
        covered += found.low <= 0 <= found.high
        significant += found.p_value < 0.05
        assert (found.p_value < 0.05) == (not found.low <= 0 <= found.high)
    assert 0.945 < covered / games < 0.99
    assert significant == games - covered


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_get_no_p_value(seeds: int):
    base = np.random.default_rng(seeds).random((seeds, 50, 1))
    found = difference([base], [base + 0.5])
    assert found[:3] == pytest.approx((0.5, 0.5, 0.5))
    assert np.isnan(found.p_value)


def test_a_product_varies_as_its_simulation_does():
    """The linearisation of a product of means, with questions left out of one factor, against drawing it anew."""
    rng = np.random.default_rng(8)

    def draw() -> np.ndarray:
        scores = rng.random((3, 400, 2)) * rng.random((1, 400, 1))
        scores[:, :100, 1] = np.nan
        return scores

    ends = [interval([draw()]) for _ in range(400)]
    means = np.array([end.mean for end in ends])
    covered = np.mean([end.low <= means.mean() <= end.high for end in ends])
    assert 0.93 < covered < 0.995
    scores = draw()
    by_hand = np.mean([np.nanmean(each[:, 0]) * np.nanmean(each[:, 1]) for each in scores])
    assert interval([scores]).mean == pytest.approx(by_hand)


@pytest.mark.parametrize("seeds", [1, 3])
def test_an_average_is_of_its_parts(seeds: int):
    rng = np.random.default_rng(6)
    parts = [rng.random((seeds, n, 1)) for n in (10, 40)]
    found = interval(parts)
    assert found.mean == pytest.approx(np.mean([part.mean() for part in parts]))
    widths = [interval([part]).high - interval([part]).low for part in parts]
    assert found.high - found.low < max(widths)


def test_nothing_and_everything_have_p_values():
    rng = np.random.default_rng(7)
    base = rng.random((3, 100, 1))
    assert difference([base], [base]).p_value == 1.0
    assert difference([base], [base + 0.5]).p_value < 1e-9
    found = difference([base], [base + 0.1 + rng.normal(0, 0.4, base.shape)])
    assert 0 < found.p_value < 1


def test_undefined_questions_are_left_out_on_both_sides():
    nan = float("nan")
    before = np.array([[[0.0], [1.0], [nan]], [[0.5], [1.0], [0.5]]])
    after = np.array([[[1.0], [nan], [1.0]], [[1.0], [1.0], [1.0]]])
    # At the first seed the first question alone, 1 less 0; at the second all three, 1 less 2/3.
    assert difference([before], [after]).mean == pytest.approx(2 / 3)
    assert interval([before]).mean == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert all(np.isnan(interval([np.full((1, 2, 1), nan)])))
    assert all(np.isnan(difference([before], [np.full_like(before, nan)])))
    with pytest.raises(ValueError, match="same seeds"):
        difference([before], [before[:, :2]])
    # 400 questions of which half are undefined tell what that half tells, but for 399 in the place of 199.
    rng = np.random.default_rng(0)
    scores = rng.random((400, 1)) + 0.1 * rng.random((3, 400, 1))
    scores[:, 200:] = nan
    assert interval([scores]) == pytest.approx(interval([scores[:, :200]]), rel=2e-3)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8))
def test_holm_is_the_closed_test_of_bonferroni(p_values: list[float]):
    # A hypothesis is rejected where Bonferroni rejects every intersection that holds it (Marcus et al. 1976).
    everything = range(len(p_values))
    for index, adjusted in enumerate(holm(p_values)):
        sets = [
            s for size in range(1, len(p_values) + 1) for s in itertools.combinations(everything, size) if index in s
        ]
        closed = max(min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets)
        assert adjusted == pytest.approx(closed)


def test_equals_the_plain_bootstrap():
    values = np.random.default_rng(1).random(40)
    rng = np.random.default_rng(7)
    means = [values[rng.integers(40, size=40)].mean() for _ in range(10_000)]
    interval = bootstrap_interval(values)
    assert interval.mean == pytest.approx(values.mean())
    # A bound of 10,000 resamples has a standard error of 0.027 of the mean's, 0.0012 here.
    assert (interval.low, interval.high) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])), abs=0.007)


def test_is_the_interval_that_the_tables_of_several_seeds_print():
    before, after = np.random.default_rng(2).random((2, 30, 2))
    before[3] = after[5, 1] = math.nan
    assert bootstrap_interval(before) == interval([before[None]])
    assert paired_difference(before, after) == difference([before[None]], [after[None]])[:3]


def test_depends_on_values_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statistics, "_COUNTS_AT_ONCE", 100_000)  # more than one block of draws
    values = np.random.default_rng(0).random(50)
    assert bootstrap_interval(values) == bootstrap_interval(list(values))


def test_width_matches_the_standard_error():
    values = np.random.default_rng(0).normal(size=400)
    interval = bootstrap_interval(values)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.05)


def test_undefined_questions_are_left_out_and_equal_values_leave_no_doubt():
    assert bootstrap_interval([0.25] * 9) == pytest.approx((0.25, 0.25, 0.25))
    assert bootstrap_interval([1.0, math.nan, 1.0]) == pytest.approx((1.0, 1.0, 1.0))
    for nothing in ([math.nan], [], [[math.nan, 1.0]]):
        assert all(math.isnan(bound) for bound in bootstrap_interval(nothing))


def test_pairing_removes_what_questions_share():
    difficulty = np.random.default_rng(0).random(100)
    paired = paired_difference(difficulty, difficulty + 0.1)
    assert paired == pytest.approx((0.1, 0.1, 0.1))
    apart = bootstrap_interval(difficulty)
    assert apart.high - apart.low > 0.05


def test_a_pair_needs_both_sides():
    assert paired_difference([0.0, 0.0, math.nan], [1.0, math.nan, 5.0]) == pytest.approx((1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="same questions"):
        paired_difference([1.0, 2.0], [1.0])


def test_a_product_of_means_is_not_the_mean_of_products():
    validity, kills = np.array([[1.0, 0.0, 0.5, 0.5], [0.0, 1.0, 0.5, 1.0]])
    pairs = np.stack([validity, kills], axis=1)
    interval = bootstrap_interval(pairs.tolist())
    assert interval.mean == pytest.approx(validity.mean() * kills.mean())
    resamples = itertools.product(range(4), repeat=4)
    products = [validity[list(rows)].mean() * kills[list(rows)].mean() for rows in resamples]
    assert (interval.low, interval.high) == pytest.approx(tuple(np.percentile(products, [2.5, 97.5])), abs=0.01)

    doubled = paired_difference(pairs, pairs * [2, 1])
    assert doubled == pytest.approx(interval)


def test_each_factor_has_its_mean_over_the_questions_that_define_it():
    pairs = [[0.5, 0.5], [math.nan, 1.0], [math.nan, math.nan]]
    interval = bootstrap_interval(pairs)
    assert interval.mean == pytest.approx(0.5 * 0.75)
    # A resample without the first says nothing; three of the others are the first once and the second twice.
    assert (interval.low, interval.high) == pytest.approx((0.25, 0.5 * 2.5 / 3))
    assert paired_difference(pairs, pairs) == (0.0, 0.0, 0.0)
    assert all(math.isnan(bound) for bound in bootstrap_interval([[0.5, math.nan], [0.25, math.nan]]))


@pytest.mark.parametrize("n", range(1, 8))
def test_equals_counting_every_draw(n: int):
    for c in range(n + 1):
        for k in range(1, n + 1):
            draws = list(combinations(range(n), k))
            hits = sum(any(solution < c for solution in draw) for draw in draws)
            assert pass_at_k([1] * c + [0] * (n - c), k) == hits / len(draws)


def test_large_counts_stay_exact():
    assert pass_at_k([1] + [0] * 1999, 1000) == 0.5


@pytest.mark.parametrize("k", [5, 0])
def test_impossible_counts_are_refused(k: int):
    with pytest.raises(ValueError, match="pass@k"):
        pass_at_k([1, 0, 0, 0], k)
