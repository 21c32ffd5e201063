import itertools
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.evaluation import statistics
from codea1.evaluation.statistics import difference, holm, interval


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
    mean, drawn = statistics._resampled([[before]], seed=1)
    assert_drawn_from(every_resample([before]), drawn)
    assert mean == pytest.approx(before.mean(axis=0).prod())
    _, drawn = statistics._resampled([[after, before]], seed=2)
    assert_drawn_from(every_resample([after, before]), drawn)


def test_resamples_leave_undefined_questions_out():
    nan = float("nan")
    before = np.array([[0.0, nan], [1.0, 0.5], [nan, 1.0], [0.5, 0.0]])
    _, drawn = statistics._resampled([[before]], seed=4)
    assert_drawn_from(every_resample([before]), drawn[~np.isnan(drawn)])


def test_the_interval_of_three_seeds_is_that_computed_by_hand():
    # Means of seeds .2, .4, .9 with variance .13; means of questions .4, .6 with variance .02. No interaction.
    scores = np.array([[0.1, 0.3], [0.3, 0.5], [0.8, 1.0]])[:, :, None]
    over_seeds, over_questions = 4.302653 * (0.13 / 3) ** 0.5, 12.706205 * (0.02 / 2) ** 0.5
    half = (over_seeds**2 + over_questions**2) ** 0.5
    assert interval([scores]) == pytest.approx((0.5, 0.5 - half, 0.5 + half), rel=1e-6)


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
    covered, significant, games = 0, 0, 1500
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


def test_each_factor_has_questions_of_its_own():
    nan = float("nan")
    scores = np.array([[[0.5, nan], [1.0, 0.5], [0.0, 1.0]]])
    assert interval([scores]).mean == pytest.approx(0.5 * 0.75)
    with pytest.raises(ValueError, match="same seeds"):
        difference([scores], [scores[:, :2]])


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
