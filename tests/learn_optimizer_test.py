"""The learning-rate schedule and one step of AdamW."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from codea1.learn.optimizer import AdamWConfig, ScheduleConfig, learning_rate, make_optimizer
from codea1.learn.update import TrainState, _apply

PAPER = ScheduleConfig()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, 0.0),
        (2, 1e-7),
        (10, 9e-7),
        (11, 1e-6),
        (12, 0.5e-6 * (1 + math.cos(math.pi / 101))),
        (111, 0.5e-6 * (1 + math.cos(math.pi * 100 / 101))),
        (112, 0.0),
        (500, 0.0),
    ],
)
def test_the_papers_schedule(step: int, expected: float):
    assert learning_rate(step, PAPER) == pytest.approx(expected, rel=1e-12, abs=1e-25)


def test_other_decays_share_the_warm_up():
    linear = ScheduleConfig(peak=1.0, warmup_steps=2, total_steps=6, decay="linear")
    assert [learning_rate(step, linear) for step in range(1, 8)] == [0, 0.5, 1, 0.75, 0.5, 0.25, 0]
    constant = ScheduleConfig(peak=1.0, warmup_steps=2, total_steps=6, decay="constant")
    assert [learning_rate(step, constant) for step in range(1, 8)] == [0, 0.5, 1, 1, 1, 1, 1]
    assert learning_rate(1, ScheduleConfig(peak=1.0, warmup_steps=0, total_steps=4)) == 1
    with pytest.raises(KeyError, match="sawtooth"):
        learning_rate(9, ScheduleConfig(peak=1.0, warmup_steps=0, total_steps=4, decay="sawtooth"))


def test_the_default_optimizer_is_the_papers():
    assert AdamWConfig() == AdamWConfig(beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.1, max_grad_norm=1.0)


def test_adamw_steps_equal_the_equations():
    config = AdamWConfig(beta1=0.9, beta2=0.99, epsilon=1e-8, weight_decay=0.1)
    theta, m, v, rate = np.array([1.0, -2.0, 0.5]), 0.0, 0.0, 0.05
    params = {"w": jnp.array(theta, jnp.float32)}
    state = TrainState(jnp.int32(0), params, make_optimizer(config).init(params))
    for t, gradient in enumerate([np.array([0.3, -0.1, 0.0]), np.array([-0.2, 0.4, 0.1])], start=1):
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        direction = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8) + 0.1 * theta
        theta = theta - rate * direction
        state, metrics = _apply(config, 1, state, {"w": jnp.array(gradient, jnp.float32)}, jnp.float32(rate))
        np.testing.assert_allclose(metrics["update_norm"], rate * np.linalg.norm(direction), rtol=1e-5)
        np.testing.assert_allclose(state.params["w"], theta, rtol=1e-6)


@pytest.mark.parametrize(("max_norm", "norm"), [(1.0, 1.0), (10.0, 5.0)])
@pytest.mark.parametrize("size", [1.0, 0.01])
def test_gradients_are_scaled_to_at_most_the_norm(max_norm: float, norm: float, size: float):
    config = AdamWConfig(beta1=0.0, max_grad_norm=max_norm * size)
    params = {"a": jnp.zeros(1), "b": jnp.zeros((1, 1))}
    state = TrainState(jnp.int32(0), params, make_optimizer(config).init(params))
    gradients = {"a": jnp.array([3.0 * size]), "b": jnp.array([[4.0 * size]])}
    state, metrics = _apply(config, 1, state, gradients, jnp.float32(1.0))
    clipped = state.opt_state[0].mu  # with beta1 0 the mean of gradients is the last one
    np.testing.assert_allclose(metrics["grad_norm"], 5 * size, rtol=1e-6)
    np.testing.assert_allclose(np.hypot(clipped["a"][0], clipped["b"][0, 0]), norm * size, rtol=1e-6)
    np.testing.assert_allclose(clipped["a"][0] / clipped["b"][0, 0], 0.75, rtol=1e-6)
