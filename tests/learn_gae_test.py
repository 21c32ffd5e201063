"""Generalised advantage estimation against its definition as a sum, and by hand."""

import numpy as np
import pytest

from codea1.learn.gae import explained_variance, gae, whiten

MASK = np.array([[0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]], bool)


def expected(rewards: list[float], values: list[float], lam: float) -> list[float]:
    """A_t as the sum over k of lam^k delta_{t+k}."""
    after = [*values[1:], 0.0]
    deltas = [r + v_next - v for r, v, v_next in zip(rewards, values, after, strict=True)]
    return [sum(lam**k * delta for k, delta in enumerate(deltas[t:])) for t in range(len(deltas))]


@pytest.mark.parametrize("lam", [1.0, 0.95, 0.0])
def test_equals_the_sum(lam: float):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, *MASK.shape))
    advantages, returns = gae(rewards, values, MASK, lam=lam)
    for row in range(2):
        inside = MASK[row]
        wanted = expected(rewards[row, inside].tolist(), values[row, inside].tolist(), lam)
        np.testing.assert_allclose(advantages[row, inside], wanted, rtol=1e-12)
        np.testing.assert_allclose(returns[row, inside], np.array(wanted) + values[row, inside], rtol=1e-12)
    assert not advantages[~MASK].any()
    assert not returns[~MASK].any()


def test_by_hand():
    rewards, values = np.array([[0.0, 0.0, 1.0]]), np.array([[0.5, 0.25, 0.5]])
    advantages, returns = gae(rewards, values, np.ones((1, 3), bool), lam=0.5)
    # deltas -0.25, 0.25, 0.5
    np.testing.assert_allclose(advantages, [[0.0, 0.5, 0.5]])
    np.testing.assert_allclose(returns, [[0.5, 0.75, 1.0]])
    monte_carlo, returns = gae(rewards, values, np.ones((1, 3), bool), lam=1.0)
    np.testing.assert_allclose(returns, [[1.0, 1.0, 1.0]])
    np.testing.assert_allclose(monte_carlo, 1.0 - values)


def test_what_lies_outside_the_mask_is_never_read():
    rewards, values = np.random.default_rng(0).normal(size=(2, *MASK.shape))
    poisoned = [np.where(MASK, x, np.nan) for x in (rewards, values)]
    for clean, other in zip(gae(rewards, values, MASK, lam=0.9), gae(*poisoned, MASK, lam=0.9), strict=True):
        np.testing.assert_array_equal(clean, other)


def test_whitening_is_over_all_arrays_at_once():
    rng = np.random.default_rng(0)
    values, masks = (
        [rng.normal(3, 2, (2, 4)), rng.normal(-1, 5, (1, 6))],
        [rng.random((2, 4)) < 0.7, np.ones((1, 6), bool)],
    )
    white = whiten(values, masks)
    inside = np.concatenate([x[mask] for x, mask in zip(white, masks, strict=True)])
    assert inside.mean() == pytest.approx(0, abs=1e-12)
    assert inside.std(ddof=1) == pytest.approx(1, rel=1e-6)
    assert not white[0][~masks[0]].any()
    assert not whiten([np.ones((1, 3))], [np.array([[True, False, False]])])[0].any()


def test_explained_variance():
    returns = np.array([0.0, 1.0, 2.0, 3.0])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(np.full(4, 1.5), returns) == 0
    assert explained_variance(-returns, returns) < 0
    assert explained_variance(returns, np.ones(4)) == 0
