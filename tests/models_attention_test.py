"""The forms of attention against each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1.models.attention import attend, attend_cached, attend_causally, splash_attend

B, H, K, h = 2, 4, 2, 64


def arrays(num_tokens: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    return tuple(jnp.array(rng.normal(size=(B, num_tokens, heads, h)), jnp.float32) for heads in (H, K, K))


@pytest.mark.parametrize("num_tokens", [1, 64, 150, 600])
def test_blocks_of_queries_are_all_queries_at_once(num_tokens: int):
    q, k, v = arrays(num_tokens)
    weight = jnp.cos(jnp.arange(q.size)).reshape(q.shape)
    last_slot = jnp.broadcast_to(jnp.arange(num_tokens), (B, num_tokens))

    def value_and_gradients(attention):
        gradients = jax.jit(jax.grad(lambda *x: jnp.sum(weight * attention(*x)), argnums=(0, 1, 2)))
        return attention(q, k, v), *gradients(q, k, v)

    whole = value_and_gradients(lambda *x: attend(*x, last_slot))
    blocks = value_and_gradients(lambda *x: attend_causally(*x, "cpu"))
    for found, expected in zip(blocks, whole, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("num_tokens", [128, 150])
def test_splash_attention_is_dense_attention(num_tokens: int):
    q, k, v = arrays(num_tokens)
    found = splash_attend(q, k, v, interpret=True)
    np.testing.assert_allclose(found, attend_causally(q, k, v, "cpu"), atol=1e-5)


def test_gradients_of_splash_attention_are_those_of_dense_attention():
    q, k, v = arrays(130)
    weight = jnp.cos(jnp.arange(q.size)).reshape(q.shape)
    dense = jax.grad(lambda *x: jnp.sum(weight * attend_causally(*x, "cpu")), argnums=(0, 1, 2))(q, k, v)
    splash = jax.grad(lambda *x: jnp.sum(weight * splash_attend(*x, interpret=True)), argnums=(0, 1, 2))(q, k, v)
    for found, expected in zip(splash, dense, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_the_program_for_tpu_holds_the_kernel():
    q, k, v = arrays(128)
    lowered = jax.jit(lambda *x: attend_causally(*x, "tpu")).trace(q, k, v).lower(lowering_platforms=("tpu",))
    assert "tpu_custom_call" in lowered.as_text()


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_one_query_on_a_cache_is_a_row_of_dense_attention(platform: str):
    q, k, v = arrays(9)
    last = jnp.array([3, 8])
    stored = jnp.einsum("BSKh->BKhS", k), jnp.einsum("BSKh->BKSh", v)
    found = attend_cached(q[:, 0], *stored, last, platform)
    np.testing.assert_allclose(found, attend(q[:, :1], k, v, last[:, None])[:, 0], atol=1e-5)
