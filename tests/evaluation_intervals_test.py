import itertools
import math

import numpy as np
import pytest

from codea1.evaluation import statistics
from codea1.evaluation.statistics import bootstrap_interval, paired_difference


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
    assert bootstrap_interval(before) == statistics.interval([before[None]])
    assert paired_difference(before, after) == statistics.difference([before[None]], [after[None]])[:3]


def test_depends_on_values_and_seed_alone():
    values = np.random.default_rng(0).random(700)  # more than one chunk of draws
    assert bootstrap_interval(values, 3) == bootstrap_interval(list(values), 3)
    assert bootstrap_interval(values, 3) != bootstrap_interval(values, 4)


def test_width_matches_the_standard_error():
    values = np.random.default_rng(0).normal(size=400)
    interval = bootstrap_interval(values)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.05)


def test_equal_values_leave_no_doubt():
    assert bootstrap_interval([0.25] * 9) == pytest.approx((0.25, 0.25, 0.25))


def test_undefined_questions_are_left_out():
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
    with pytest.raises(ValueError, match="same seeds and questions"):
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
