"""Chunked log-probabilities against a full softmax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1.learn.log_probs import make_score, token_log_probs
from tests.tiny_policy import make_policy

B, T, D, V = 3, 8, 4, 11


@pytest.fixture(scope="module")
def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(B, T, D)), rng.normal(size=(D, V)), rng.integers(0, V, (B, T))


def reference(hidden, head, tokens, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    log_probs, entropy = np.zeros((B, T)), np.zeros((B, T))
    for b in range(B):
        for t in range(1, T):
            logits = hidden[b, t - 1] @ head / temperature
            p = np.exp(logits - logits.max())
            p /= p.sum()
            log_probs[b, t], entropy[b, t] = np.log(p[tokens[b, t]]), -np.sum(p * np.log(p))
    return log_probs, entropy


@pytest.fixture(scope="module")
def policy():
    policy = make_policy()
    policy.score = make_score(policy.graphdef, 512, policy.mesh)
    return policy


@pytest.mark.parametrize(("chunk_length", "temperature"), [(1, 1.0), (3, 0.6), (7, 0.6), (512, 0.6)])
def test_equals_a_full_softmax_whatever_the_chunk(arrays, chunk_length: int, temperature: float):
    hidden, head, tokens = arrays
    values = token_log_probs(head.T, hidden.astype(np.float32), tokens, temperature, chunk_length)
    for value, expected in zip(values, reference(hidden, head, tokens, temperature), strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-5)


def test_gradient_equals_that_of_a_full_softmax(arrays):
    hidden, head, tokens = (jnp.array(x) for x in arrays)
    weights = jnp.array(np.random.default_rng(1).normal(size=(2, B, T)))

    def chunked(hidden, head):
        log_probs, entropy = token_log_probs(head.T, hidden, tokens, 0.7, 3)
        return jnp.sum(weights[0] * log_probs + weights[1] * entropy)

    def full(hidden, head):
        log_p = jax.nn.log_softmax(hidden[:, :-1] @ head / 0.7)
        log_probs = jnp.take_along_axis(log_p, tokens[:, 1:, None], axis=-1)[..., 0]
        entropy = -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)
        return jnp.sum(weights[0, :, 1:] * log_probs + weights[1, :, 1:] * entropy)

    gradients = jax.jit(jax.grad(chunked, argnums=(0, 1)))(hidden, head)
    for gradient, expected in zip(gradients, jax.jit(jax.grad(full, argnums=(0, 1)))(hidden, head), strict=True):
        np.testing.assert_allclose(gradient, expected, atol=2e-5)


def test_logits_exist_for_one_chunk_at_a_time(arrays):
    hidden, head, tokens = arrays
    hidden = hidden.astype(np.float32)

    def value(h: jax.Array) -> jax.Array:
        return sum(map(jnp.sum, token_log_probs(head.T, h, tokens, 1.0, 2)))

    for program in (jax.make_jaxpr(value)(hidden), jax.make_jaxpr(jax.grad(value))(hidden)):
        assert f"f32[{B},2,{V}]" in str(program)
        assert f"{B},{T - 1},{V}]" not in str(program)


def test_a_token_is_scored_from_the_tokens_before_it_alone(policy):
    tokens = np.random.default_rng(0).integers(0, policy.config.vocab_size, (2, 12))
    log_probs, entropy = policy.score(policy.params, tokens, 1.0)
    assert not log_probs[:, 0].any()
    assert not entropy[:, 0].any()
    changed = tokens.copy()
    changed[:, 6] = (changed[:, 6] + 1) % policy.config.vocab_size
    other_log_probs, other_entropy = policy.score(policy.params, changed, 1.0)
    np.testing.assert_array_equal(other_log_probs[:, :6], log_probs[:, :6])
    np.testing.assert_array_equal(other_entropy[:, :7], entropy[:, :7])
    assert (np.abs(other_log_probs - log_probs)[:, 6:] > 1e-4).all()
