"""The critic: what a value may see, its loss against the equation, and that it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from codea1.learn.batch import batch_sharding
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.update import Update, abstract_state, init_state
from codea1.learn.values import ValueBatch, ValueLoss, make_values, value_loss, value_params
from codea1.sharding import laid_out
from tests.tiny_policy import make_policy

OPTIMIZER = AdamWConfig(weight_decay=0.0)


@pytest.fixture(scope="module")
def critic():
    policy = make_policy()
    policy.critic_params = value_params(policy.params, policy.config.hidden_size, policy.mesh)
    policy.values = make_values(policy.graphdef, policy.mesh)
    return policy


def tokens(policy) -> np.ndarray:
    return np.random.default_rng(0).integers(1, policy.config.vocab_size, (4, 10)).astype(np.int32)


def test_a_value_sees_the_tokens_before_its_own_alone(critic):
    params = critic.critic_params | {"head": jnp.ones_like(critic.critic_params["head"])}
    first = np.array(critic.values(params, tokens(critic)))
    changed = tokens(critic)
    changed[:, 6] += 1
    second = np.array(critic.values(params, changed % critic.config.vocab_size))
    np.testing.assert_array_equal(first[:, :7], second[:, :7])
    assert (np.abs(first - second)[:, 7:] > 1e-4).all()
    assert not first[:, 0].any()
    hidden, *_ = nnx.merge(critic.graphdef, critic.params)(tokens(critic), jnp.arange(10)[None].repeat(4, 0))
    np.testing.assert_allclose(first[:, 1:], np.array(hidden.sum(-1))[:, :-1], rtol=1e-4, atol=1e-4)


def test_a_new_critic_says_zero(critic):
    assert not np.array(critic.values(critic.critic_params, tokens(critic))).any()


def test_value_loss_equals_the_equation():
    clip = 0.2
    rng = np.random.default_rng(0)
    values, old, returns = rng.normal(size=(3, 200))
    (found,) = value_loss(jnp.array([values]), jnp.array([old]), jnp.array([returns]), clip)
    expected = []
    for v, o, r in zip(values, old, returns, strict=True):
        near = min(max(v, o - clip), o + clip)
        expected.append(0.5 * max((v - r) ** 2, (near - r) ** 2))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_the_gradient_of_the_value_loss_is_that_of_the_equation():
    clip = 0.2
    rng = np.random.default_rng(1)
    values, old, returns = rng.normal(size=(3, 200))
    with jax.enable_x64(True):
        others = jnp.array([old]), jnp.array([returns])
        (found,) = jax.grad(lambda v: value_loss(v, *others, clip).sum())(jnp.array([values]))
    expected = []
    for v, o, r in zip(values, old, returns, strict=True):
        near = min(max(v, o - clip), o + clip)
        # The clipped value does not move with the value.
        held = near != v and (near - r) ** 2 > (v - r) ** 2
        expected.append(0.0 if held else v - r)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_the_critic_learns_returns_it_can_see(critic):
    params = critic.critic_params
    state, layout = init_state(params, OPTIMIZER), abstract_state(params, OPTIMIZER)
    rows = tokens(critic)
    mask = np.broadcast_to(np.arange(10) >= 3, rows.shape)
    returns = np.broadcast_to((rows[:, :1] % 3).astype(np.float32), rows.shape)
    weights = (mask / mask.sum()).astype(np.float32)
    batch = ValueBatch(rows, mask, weights, np.zeros(rows.shape, np.float32), returns)
    abstract = laid_out(batch, jax.tree.map(lambda _: batch_sharding(critic.mesh), batch))
    update = Update(ValueLoss(critic.graphdef, value_clip=10.0), OPTIMIZER, layout, [abstract])
    losses = []
    for _ in range(60):
        state, report = update(state, [batch], 1e-2)
        losses.append(report.metrics()["value_loss"])
    assert losses[0] == pytest.approx(0.5 * np.mean(np.square(returns[mask])), rel=1e-5)
    assert losses[-1] < 0.1 * losses[0]
    learned = np.array(critic.values(state.params, rows))
    assert np.abs(learned - returns)[mask].mean() < 0.4
    jax.tree.map(lambda x: np.testing.assert_array_equal(np.isfinite(x), True), state.params)
