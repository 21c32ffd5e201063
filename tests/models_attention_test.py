"""The forms of attention against each other."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import literals
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel

from codea1.models.attention import attend, attend_causally, splash_attend
from codea1.models.config import Qwen2Config
from codea1.models.kv_cache import Cache, KVCache, PageTable, RaggedKVCache, form_of, num_reads, page_size

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


def paged(form: type[Cache], platform: str, k: jax.Array, v: jax.Array, last: np.ndarray, num_last: int) -> Cache:
    """A cache of two layers, in whose second one rows have tokens up to `last`, in pages in no order."""
    num_rows, num_tokens = k.shape[:2]
    config = Qwen2Config(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_layers=2,
        num_heads=H,
        num_kv_heads=K,
        head_dim=h,
        platform=platform,
    )
    rng, size = np.random.default_rng(1), page_size(platform)
    count = -(-num_tokens // size)
    cache = form.zeros(config, num_rows * count + 3)
    cache = jax.tree.map(lambda x: x + 7.0, cache)  # what another sequence left
    pages = rng.permutation(num_rows * count + 3)[: num_rows * count].reshape(num_rows, count).astype(np.int32)
    reads = np.full((1, num_reads(num_rows, count, platform), 3), num_rows, np.int32)
    used = [(row, pages[row, place], place) for row in range(num_rows) for place in range(last[row] // size + 1)]
    reads[0, : len(used)] = rng.permutation(used)
    table = PageTable(jnp.array(pages), jnp.array(reads), jnp.array([len(used)], jnp.int32))
    cache = cache.of_rows(table)
    cache = cache.write_prompts(jnp.int32(1), k, v)
    # The last tokens are written one at a time.
    places = np.maximum(last[:, None] - np.arange(num_last)[::-1], -1)
    rows = np.arange(num_rows)[:, None]
    cache = cache.write(jnp.int32(1), jnp.array(places), jnp.ones_like(k[rows, places]), jnp.ones_like(v[rows, places]))
    return cache.write(jnp.int32(1), jnp.array(places), k[rows, places], v[rows, places])


@pytest.fixture
def ragged_kernel_anywhere(monkeypatch):
    """JAX's ragged paged attention, interpreted: it has no option for that, and the interpreter misses ints' shape."""
    monkeypatch.setattr(literals.TypedInt, "shape", (), raising=False)
    monkeypatch.setattr(kernel.pl, "pallas_call", partial(kernel.pl.pallas_call, interpret=True))
    yield
    kernel.ragged_paged_attention.clear_cache()


@pytest.mark.parametrize("num_last", [1, 4])
@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_last_queries_on_pages_are_rows_of_dense_attention(platform: str, num_last: int, request):
    if platform == "tpu":
        request.getfixturevalue("ragged_kernel_anywhere")
    q, k, v = arrays(150)
    last = np.array([3, 149])
    cache = paged(form_of(platform), platform, k, v, last, num_last)
    places = jnp.array(last[:, None] - np.arange(num_last)[::-1])
    found = cache.attend(jnp.int32(1), q[:, :num_last], places)
    np.testing.assert_allclose(found, attend(q[:, :num_last], k, v, places), atol=1e-5)
    layer_0 = jax.tree.leaves(cache.of_rows(None))[0][0]
    np.testing.assert_array_equal(layer_0, jnp.full_like(layer_0, 7.0))


@pytest.mark.parametrize("form", [KVCache, RaggedKVCache])
def test_pages_are_copied_in_order_until_one_is_not_there(form: type[Cache]):
    cache = form.zeros(
        Qwen2Config(
            vocab_size=8, hidden_size=8, intermediate_size=8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=4
        ),
        pages=4,
    )
    cache = jax.tree.map(lambda x: x + jnp.arange(4.0).reshape(1, 4, 1, 1, 1), cache)
    copied = cache.copy_pages(jnp.array([[3, 3, 0]]), jnp.array([[0, 1, 9]]))
    for x in jax.tree.leaves(copied):
        assert x[0, :, 0, 0, 0].tolist() == [3, 3, 2, 3]
