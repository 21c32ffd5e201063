import itertools
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.benchmarks import across_seeds
from codea1.benchmarks.across_seeds import difference, holm, interval


def every_resample(sides: list[np.ndarray]) -> Counter:
    """The exact distribution: all draws of seeds times all draws of questions, each as likely, one by one."""
    seeds, questions, _ = sides[0].shape
    values = []
    for s in itertools.product(range(seeds), repeat=seeds):
        for q in itertools.product(range(questions), repeat=questions):
            metrics = []
            for side in sides:
                per_seed = [np.prod([mean(side[i, j, f] for j in q) for f in range(side.shape[2])]) for i in s]
                metrics.append(np.mean(per_seed))
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
def test_resamples_have_the_distribution_that_enumeration_gives(factors: int):
    side = np.random.default_rng(factors).integers(0, 5, size=(2, 3, factors)) / 4
    mean, drawn = across_seeds._resampled([[side]], seed=1)
    exact = every_resample([side])
    assert_drawn_from(exact, drawn)
    assert mean == pytest.approx(side.mean(axis=1).prod(axis=-1).mean())


def test_a_difference_draws_the_same_seeds_and_questions_on_both_sides():
    rng = np.random.default_rng(3)
    before, after = rng.integers(0, 4, size=(2, 2, 3, 2)) / 3
    _, drawn = across_seeds._resampled([[after], [before]], seed=2)
    assert_drawn_from(every_resample([after, before]), drawn)


def test_parts_draw_the_same_seeds_and_their_own_questions():
    # Each part depends on the seed alone: only where both draw the same seeds is their mean always 0.5.
    up, down = np.array([[[0.0]], [[1.0]]]), np.array([[[1.0]], [[0.0]]])
    _, drawn = across_seeds._resampled([[up, down]], seed=0)
    np.testing.assert_allclose(drawn, 0.5)


def test_seeds_that_differ_widen_the_interval():
    rng = np.random.default_rng(0)
    questions = rng.random(200)
    agreeing = np.stack([questions, questions, questions])[:, :, None]
    apart = agreeing + np.array([-0.2, 0.0, 0.2])[:, None, None]
    narrow, wide = interval([agreeing]), interval([apart])
    assert narrow.mean == pytest.approx(wide.mean)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_an_average_is_of_its_parts():
    rng = np.random.default_rng(6)
    parts = [rng.random((2, n, 1)) for n in (10, 40)]
    mean = interval(parts).mean
    assert mean == pytest.approx(np.mean([part.mean() for part in parts]))


def test_p_values_agree_with_the_interval_and_are_never_0():
    rng = np.random.default_rng(7)
    base = rng.random((1, 100, 1))
    clear = difference([base], [base + 0.5])
    assert clear[:3] == pytest.approx((0.5, 0.5, 0.5))
    assert clear.p_value == pytest.approx(2 / 10_001)
    assert difference([base], [base]).p_value == 1.0
    for shift in np.linspace(-0.1, 0.1, 9):
        found = difference([base], [base + shift + rng.normal(0, 0.4, base.shape)], seed=3)
        if abs(found.p_value - 0.05) > 0.002:
            assert (found.p_value < 0.05) == (found.low > 0 or found.high < 0)
        assert difference([base], [base + 0.0], seed=3).p_value == 1.0


def test_undefined_questions_are_left_out_on_both_sides():
    nan = float("nan")
    before = np.array([[[0.0], [1.0], [nan]], [[0.5], [1.0], [0.5]]])
    after = np.array([[[1.0], [nan], [1.0]], [[1.0], [1.0], [1.0]]])
    # At the first seed the first question alone, 1 less 0; at the second all three, 1 less 2/3.
    assert difference([before], [after]).mean == pytest.approx(2 / 3)
    assert interval([before]).mean == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert all(np.isnan(interval([np.full((1, 2, 1), nan)])))
    assert all(np.isnan(difference([before], [np.full_like(before, nan)])))


def test_each_seed_has_questions_of_its_own():
    nan = float("nan")
    before = np.array([[[0.0], [1.0], [nan]], [[nan], [0.5], [0.25]]])
    after = np.array([[[1.0], [nan], [1.0]], [[0.75], [1.0], [nan]]])
    _, drawn = across_seeds._resampled([[before]], seed=4)
    assert_drawn_from(every_resample([before]), drawn[~np.isnan(drawn)])
    both = np.isnan(before) | np.isnan(after)
    _, drawn = across_seeds._resampled([[after], [before]], seed=5)
    expected = every_resample([np.where(both, nan, side) for side in (after, before)])
    assert_drawn_from(expected, drawn[~np.isnan(drawn)])


def test_each_factor_has_questions_of_its_own():
    nan = float("nan")
    scores = np.array([[[0.5, nan], [1.0, 0.5], [0.0, 1.0]]])
    assert interval([scores]).mean == pytest.approx(0.5 * 0.75)
    _, drawn = across_seeds._resampled([[scores]], seed=0)
    assert_drawn_from(every_resample([scores]), drawn[~np.isnan(drawn)])
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
