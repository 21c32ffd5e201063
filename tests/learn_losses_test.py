"""Losses per token against the equations written out in Python floats, and their gradients against differences."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1.learn.losses import (
    AGGREGATIONS,
    KL_ESTIMATORS,
    ObjectiveConfig,
    importance_weights,
    kl_divergence,
    objective_loss,
    token_weights,
)
from codea1.learn.surrogates import Clip
from tests.learn_surrogates_test import expected_ppo

PAPER = ObjectiveConfig()


def test_the_default_objective_is_the_papers():
    assert ObjectiveConfig() == ObjectiveConfig("ppo", Clip(0.2, 0.28, 10.0), "k3", 0.001, 0.0, 0.0)
    zeros, ones = jnp.zeros((1, 1)), jnp.ones((1, 1))
    args = zeros, ones, zeros, zeros, -math.log(2.0) * ones, zeros, np.ones((1, 1), int)
    loss, _ = objective_loss(*args, PAPER)  # of the KL term alone: no advantage, no entropy bonus
    np.testing.assert_allclose(loss, 0.001 * 0.193147, rtol=1e-5)


def expected_kl(log_prob: float, reference: float, estimator: str) -> float:
    d = log_prob - reference
    bounded = min(max(d, -20.0), 20.0)
    return {"k1": d, "k2": d * d / 2, "k3": min(math.exp(-bounded) - 1 + bounded, 10.0)}[estimator]


def random_tokens(num: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log-probs, old and reference log-probs and advantages; ratios from far below to far above every bound."""
    rng = np.random.default_rng(0)
    log_probs = -rng.exponential(2.0, num)
    old = log_probs - rng.normal(0, 1, num) * rng.choice([0.05, 1, 15], num)
    reference = log_probs - rng.normal(0, 1, num) * rng.choice([0.05, 1, 15], num)
    return log_probs, old, reference, rng.choice([-1.5, -0.2, 0.0, 0.2, 1.5], num)


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
def test_kl_equals_the_equation(estimator: str):
    log_probs, _, reference, _ = random_tokens()
    with jax.enable_x64(True):
        kl = kl_divergence(jnp.array([log_probs]), jnp.array([reference]), estimator)[0]
    expected = [expected_kl(*token, estimator) for token in zip(log_probs, reference, strict=True)]
    np.testing.assert_allclose(kl, expected, rtol=1e-9, atol=1e-12)


def test_kl_by_hand():
    # The policy makes a token twice as likely as the reference: d = log 2.
    d = math.log(2.0)
    log_prob, reference = jnp.array([[-1.0 + d]]), jnp.array([[-1.0]])
    for number, expected in ((1, 0.693147), (2, 0.240227), (3, 0.193147)):  # an estimator is known by its letters
        np.testing.assert_allclose(kl_divergence(log_prob, reference, f"k{number}"), expected, rtol=1e-5)


@pytest.mark.parametrize(("estimator", "value", "slope"), [("k1", -30, 1), ("k2", 450, -30), ("k3", 10, 0)])
def test_k3_alone_is_bounded(estimator: str, value: float, slope: float):
    zero = jnp.zeros((1, 1))
    assert jax.value_and_grad(lambda x: kl_divergence(x, zero, estimator)[0, 0])(zero - 30) == (value, slope)


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
def test_gradient_equals_central_differences(estimator: str):
    log_probs, old, reference, advantages = random_tokens()
    entropy = np.abs(log_probs) + 1
    objective = ObjectiveConfig(kl_estimator=estimator, kl_coefficient=0.3, entropy_coefficient=0.1)
    step = 1e-6

    def total(log_probs: jax.Array) -> jax.Array:
        inputs = (x[None] for x in (log_probs, jnp.array(entropy), old, old, reference, advantages))
        loss, _ = objective_loss(*inputs, np.ones((1, log_probs.size), int), objective)
        return jnp.sum(loss)

    def expected(log_prob: float, row: int) -> float:
        kl = objective.kl_coefficient * expected_kl(log_prob, reference[row], estimator)
        return expected_ppo(log_prob, old[row], advantages[row]) + kl

    with jax.enable_x64(True):
        gradient = jax.grad(total)(jnp.array(log_probs))
    differences = [(expected(x + step, row) - expected(x - step, row)) / (2 * step) for row, x in enumerate(log_probs)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-6)


def test_importance_weights_are_truncated_constants():
    old, sampler = jnp.array([[-1.0, -1.0, -1.0]]), jnp.array([[-1.0, -1.5, -9.0]])
    expected = [[1.0, math.exp(0.5), 2.0]]
    np.testing.assert_allclose(importance_weights(old, sampler, 2.0), expected, rtol=1e-6)
    zeros, ones = jnp.zeros((1, 3)), np.ones((1, 3), int)
    objective = ObjectiveConfig(kl_coefficient=0.0, importance_cap=2.0)

    def loss(log_probs):
        return objective_loss(log_probs, zeros, old, sampler, None, zeros + 1, ones, objective)[0]

    np.testing.assert_allclose(loss(old), -np.array(expected), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(loss(x)))(old), -np.array(expected), rtol=1e-6)


def test_entropy_bonus_lowers_the_loss():
    zeros, entropy = jnp.zeros((1, 2)), jnp.array([[1.0, 3.0]])
    objective = ObjectiveConfig(kl_coefficient=0.0, entropy_coefficient=0.5)
    loss, diagnostics = objective_loss(zeros, entropy, zeros, zeros, None, zeros, np.ones((1, 2), int), objective)
    np.testing.assert_allclose(loss, [[-0.5, -1.5]])
    assert "kl_ref" not in diagnostics


def test_kl_without_reference_is_refused():
    zeros = jnp.zeros((1, 2))
    with pytest.raises(ValueError, match="reference policy"):
        objective_loss(zeros, zeros, zeros, zeros, None, zeros, np.ones((1, 2), int), PAPER)


LENGTHS = [2, 1, 0]  # tokens in responses


@pytest.mark.parametrize(
    ("aggregation", "first", "second"),
    [
        ("token-mean", 1 / 3, 1 / 3),
        ("seq-mean-token-mean", 1 / 4, 1 / 2),
        ("seq-mean-token-sum", 1 / 2, 1 / 2),
        ("dr-grpo", 1 / 16, 1 / 16),
    ],
)
def test_token_weights_by_hand(aggregation: str, first: float, second: float):
    weights = token_weights(LENGTHS, aggregation, max_response_length=8)
    np.testing.assert_allclose(weights, [first, second, 0], rtol=1e-6)
    assert weights.dtype == np.float32


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_weights_of_nothing_are_zero(aggregation: str):
    with np.errstate(all="raise"):
        assert not token_weights([0, 0], aggregation, max_response_length=8).any()


@pytest.mark.parametrize(("aggregation", "weight"), list(zip(AGGREGATIONS, (1, 1, 1, 1 / 8), strict=True)))
def test_the_weight_of_a_single_token(aggregation: str, weight: float):
    assert token_weights([1], "".join([*aggregation]), max_response_length=8) == weight  # known by its letters


def test_unless_asked_for_neither_entropy_nor_the_sampler_counts():
    ones, zeros, responses = jnp.ones((1, 2)), jnp.zeros((1, 2)), np.ones((1, 2), int)
    objective = ObjectiveConfig(kl_coefficient=0.0)
    loss, diagnostics = objective_loss(zeros, 5 * ones, zeros, 3 * ones, None, ones, responses, objective)
    np.testing.assert_array_equal(loss, [[-1.0, -1.0]])
    assert "importance_weight" not in diagnostics


def test_unknown_names_are_refused():
    for name in ("average", "mean", "token-median"):
        with pytest.raises(KeyError, match=name):
            token_weights(LENGTHS, name, max_response_length=8)
    for name in ("k", "k4"):
        with pytest.raises(KeyError, match=f"'{name}'"):
            kl_divergence(jnp.zeros((1, 1)), jnp.zeros((1, 1)), name)
    with pytest.raises(TypeError, match="positional"):
        token_weights(LENGTHS, "token-mean", 8)
