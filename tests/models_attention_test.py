"""The forms of attention against each other."""

import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo

from codea1.models import kv_cache
from codea1.models.attention import (
    PLACE_BITS,
    RESPONSE_BITS,
    Packing,
    _sees,
    attend,
    attend_causally,
    responses_from,
    splash_attend,
)
from codea1.models.config import Qwen2Config
from codea1.models.grouped_attention import MEMBERS, attend_grouped
from codea1.models.kv_cache import Cache, PageTable, num_reads, page_size

B, H, K, h = 3, 4, 2, 64
CONFIG = Qwen2Config(
    vocab_size=8, hidden_size=8, intermediate_size=8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=4
)


def arrays(num_tokens: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    return tuple(jnp.array(rng.normal(size=(B, num_tokens, heads, h)), jnp.float32) for heads in (H, K, K))


def value_and_gradients(attention, x: tuple[jax.Array, ...]) -> list[jax.Array]:
    """What attention returns, and the gradients of a weighted sum of it."""
    weight = jnp.cos(jnp.arange(x[0].size)).reshape(x[0].shape)
    gradients = jax.jit(jax.grad(lambda *x: jnp.sum(weight * attention(*x)), argnums=(0, 1, 2)))
    return [attention(*x), *gradients(*x)]


@pytest.mark.parametrize(
    ("num_tokens", "dtype"), [*((n, "float32") for n in (1, 64, 150, 600)), (1, "bfloat16"), (150, "bfloat16")]
)
def test_blocks_of_queries_are_all_queries_at_once(num_tokens: int, dtype: str):
    x, visible = arrays(num_tokens), jnp.tri(num_tokens, dtype=bool)[None]
    whole = value_and_gradients(lambda *x: attend(*x, visible), x)
    blocks = value_and_gradients(lambda *x: attend_causally(*x, "cpu", None, dtype), x)
    tolerance = 2e-6 if dtype == "float32" else 0.01
    for found, expected in zip(blocks, whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("num_tokens", [128, 150])
def test_splash_attention_is_dense_attention(num_tokens: int):
    x = arrays(num_tokens)
    dense = value_and_gradients(lambda *x: attend_causally(*x, "cpu"), x)
    splash = value_and_gradients(lambda *x: splash_attend(*x, interpret=True), x)
    for found, expected in zip(splash, dense, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def packed_rows() -> tuple[Packing, list[tuple[int, list[int]]]]:
    """Three rows of 600 tokens, in blocks of 128 for the kernel: some are visible whole, in part, or not at all.

    Also where in its row each sequence lies, prompt and response.
    """
    layout = [[(200, (9, 1, 130)), (5, (60,)), (0, (30, 2))], [(64, (86,))], [(600, ())]]
    prompts, responses = np.full((B, 600), -1, np.int32), np.zeros((B, 600), np.int32)
    sequences = []
    for row, groups in enumerate(layout):
        begin, end = 0, responses_from(sum(prompt for prompt, _ in groups), 600)
        for number, (prompt, lengths) in enumerate(groups):
            own = [*range(begin, begin + prompt)]
            begin += prompt
            prompts[row, own] = number
            for response, length in enumerate(lengths, 1):
                sequences.append((row, [*own, *range(end, end + length)]))
                prompts[row, end : end + length] = number
                responses[row, end : end + length] = response
                end += length
            sequences += [] if lengths else [(row, own)]
    ids = jnp.array(prompts), jnp.array(responses)
    return Packing(jnp.zeros_like(ids[0]), *ids), sequences


@pytest.mark.parametrize(
    ("form", "dtype", "atol"), [("cpu", "float32", 1e-5), ("tpu", "float32", 1e-5), ("cpu", "bfloat16", 0.02)]
)
def test_packed_sequences_see_what_they_see_alone(form: str, dtype: str, atol: float):
    packing, sequences = packed_rows()
    weight = jnp.cos(jnp.arange(600)) * (packing.prompts_BT >= 0)

    def packed(q, k, v):
        if form == "tpu":
            return splash_attend(q, k, v, packing.for_kernel(), interpret=True)
        return attend_causally(q, k, v, form, packing, dtype)

    def alone(q, k, v):
        found = jnp.zeros_like(q)
        for row, places in sequences:
            own = attend_causally(*(x[row, jnp.array(places)][None] for x in (q, k, v)), "cpu")
            found = found.at[row, jnp.array(places)].set(own[0])
        return found

    def loss(attention, *x):
        found = attention(*x)
        return jnp.sum(jnp.where(weight[..., None, None], weight[..., None, None] * found, 0.0)), found

    x = arrays(600)
    ours, expected = (jax.jit(jax.grad(partial(loss, each), (0, 1, 2), has_aux=True))(*x) for each in (packed, alone))
    lies = np.array(packing.prompts_BT >= 0)
    np.testing.assert_allclose(ours[1][lies], expected[1][lies], atol=atol)
    for found, wanted in zip(ours[0], expected[0], strict=True):
        np.testing.assert_allclose(found, wanted, atol=2 * atol)


def test_the_kernel_reads_the_blocks_in_which_something_is_visible():
    packing, _ = packed_rows()
    whole = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, 40)), constant_values=-1), packing)
    blocks = np.array(whole.visible()).reshape(B, 5, 128, 5, 128)
    np.testing.assert_array_equal(packing.for_kernel().reads_BQJ, blocks.any(axis=(2, 4)))


def test_the_longest_row_and_response_are_told_in_one_number():
    length, longest = 1 << PLACE_BITS, 1 << RESPONSE_BITS
    prompts, responses = np.full((1, length), -1, np.int32), np.zeros((1, length), np.int32)
    begin = responses_from(7900, length)
    prompts[0, :7900] = prompts[0, begin : begin + longest + 200] = 0
    responses[0, begin : begin + longest], responses[0, begin + longest : begin + longest + 200] = 1, 2
    packing = Packing(prompts, prompts, responses)
    codes = packing.for_kernel().codes_BT[0]
    for first in (0, 7890, begin, begin + longest - 4, begin + longest + 190):
        queries = slice(first, first + 8)
        told = _sees(length)(codes[queries, None], jnp.arange(length)) & (prompts[0, queries, None] == prompts[0])
        np.testing.assert_array_equal(told, packing.visible(queries)[0])
    with pytest.raises(ValueError, match="rows of 16385 tokens share prompts"):
        Packing(*[np.zeros((1, length + 1), np.int32)] * 3).for_kernel()


def test_the_program_for_tpu_holds_the_kernel():
    q, k, v = arrays(128)
    lowered = jax.jit(lambda *x: attend_causally(*x, "tpu")).trace(q, k, v).lower(lowering_platforms=("tpu",))
    assert "tpu_custom_call" in lowered.as_text()


@pytest.mark.parametrize("num_tokens", [150, 191])
def test_the_program_for_gpu_holds_cudnns_kernels_and_no_scores(num_tokens: int, monkeypatch):
    # As on a machine that has cuDNN and a GPU: this one only lowers.
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91000)

    def loss(*x):
        return jnp.sum(attend_causally(*x, "gpu").astype(jnp.float32))

    x = (each.astype(jnp.bfloat16) for each in arrays(num_tokens))
    text = jax.jit(jax.grad(loss, (0, 1, 2))).trace(*x).lower(lowering_platforms=("cuda",)).as_text()
    assert {"__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"} <= set(re.findall(r"__cudnn\$\w+", text))
    assert not re.search(rf"({num_tokens}|{num_tokens + 1})x({num_tokens}|{num_tokens + 1})x", text)


def paged(platform: str, k: jax.Array, v: jax.Array, last: np.ndarray) -> Cache:
    """A cache of two layers, in whose second one rows have tokens up to `last`, in pages in no order."""
    num_rows, num_tokens = k.shape[:2]
    config = replace(CONFIG, num_layers=2, num_heads=H, num_kv_heads=K, head_dim=h, platform=platform)
    rng, size = np.random.default_rng(1), page_size(platform)
    count = -(-num_tokens // size)
    cache = Cache.zeros(config, num_rows * count + 3)
    cache = jax.tree.map(lambda x: x + 7.0, cache)  # what another sequence left
    pages = rng.permutation(num_rows * count + 3)[: num_rows * count].reshape(num_rows, count).astype(np.int32)
    reads = np.full((1, num_reads(num_rows, count, platform), 3), num_rows, np.int32)
    used = [(row, pages[row, place], place) for row in range(num_rows) for place in range(last[row] // size + 1)]
    reads[0, : len(used)] = rng.permutation(used)
    no_groups = jnp.zeros(num_rows, jnp.int32), jnp.full((1, num_rows // 2, MEMBERS), -1, jnp.int32)
    table = PageTable(jnp.array(pages), jnp.array(reads), jnp.array([len(used)], jnp.int32), *no_groups)
    cache = cache.of_rows(table)
    cache = cache.write_prompts(jnp.int32(1), k, v)
    # The last token is written by itself, over another one.
    rows = np.arange(num_rows)
    cache = cache.write(jnp.int32(1), jnp.array(last), jnp.ones_like(k[rows, last]), jnp.ones_like(v[rows, last]))
    return cache.write(jnp.int32(1), jnp.array(last), k[rows, last], v[rows, last])


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_last_queries_on_pages_are_rows_of_dense_attention(platform: str, monkeypatch):
    monkeypatch.setattr(kv_cache, "attend_grouped", partial(attend_grouped, interpret=True))
    q, k, v = arrays(150)
    last = np.array([3, 149, 70])
    cache = paged(platform, k, v, last)
    found = cache.attend(jnp.int32(1), q[:, 0], jnp.array(last))
    expected = attend(q[:, :1], k, v, jnp.arange(150) <= last[:, None, None])
    np.testing.assert_allclose(found, expected[:, 0], atol=1e-5)
    layer_0 = jax.tree.leaves(cache.of_rows(None))[0][0]
    np.testing.assert_array_equal(layer_0, jnp.full_like(layer_0, 7.0))


def groups_of(
    sizes: list[int], shared: list[int], num_pages: int, size: int, rng: np.random.Generator
) -> SimpleNamespace:
    """Rows of groups of such sizes in no order, which share so many pages each, and have the others for themselves.

    Every seventh row is not live. Groups of more than go together are as many as are needed.
    """
    num_rows = sum(sizes)
    made = SimpleNamespace(
        pages_BM=rng.permutation(num_rows * num_pages).reshape(num_rows, num_pages).astype(np.int32),
        num_shared_B=np.zeros(num_rows, np.int32),
        members_1GR=np.full((1, max(num_rows // 2, 1), MEMBERS), -1, np.int32),
        last_B=rng.integers(0, num_pages * size, num_rows).astype(np.int32),
    )
    order, number = rng.permutation(num_rows), 0
    for rows, num_shared in zip(np.split(order, np.cumsum(sizes)[:-1]), shared, strict=True):
        made.pages_BM[rows, :num_shared] = made.pages_BM[rows[0], :num_shared]
        made.last_B[rows] = rng.integers(num_shared * size, num_pages * size, len(rows))
        for together in np.split(rows, range(MEMBERS, len(rows), MEMBERS)):
            if num_shared and len(together) > 1:
                made.num_shared_B[together] = num_shared
                made.members_1GR[0, number] = together[0]
                made.members_1GR[0, number, : len(together)] = together
                number += 1
    made.last_B[order[::7]] = -1
    return made


GROUPS = [([8, 2, 1, 5], [3, 1, 2, 0]), ([1], [2]), ([9, 3], [4, 4])]  # their rows, and the pages that those share
FORMS = ((12, 2, 128), np.float32), ((4, 2, 64), "bfloat16")  # heads, and the dtype of keys and values


@pytest.mark.parametrize(
    ("sizes", "shared", "heads", "dtype"),
    [(*groups, *form) for groups in GROUPS for form in FORMS] + [([64], [5], *FORMS[1])],
)
def test_what_groups_share_and_rows_have_is_dense_attention(sizes, shared, heads, dtype):
    H, K, h = heads
    rng, size, longest = np.random.default_rng(0), page_size("tpu"), 6
    made = groups_of(sizes, shared, longest, size, rng)
    rows, padded = len(made.last_B), 128
    kv_LNPAp = rng.normal(size=(2, rows * longest, size, 2 * K, padded)).astype(np.float32)
    kv_LNPAp[..., h:] = 0
    q, kv = jnp.array(rng.normal(size=(rows, H, h)), dtype), jnp.array(kv_LNPAp, dtype)
    groups = made.num_shared_B, made.members_1GR
    tables = map(jnp.array, (made.pages_BM, *groups, made.last_B))
    found = attend_grouped(q, kv, jnp.int32(1), *tables, interpret=True)
    assert np.isfinite(found.astype(np.float32)).all()
    positions_BSAh = kv[1][made.pages_BM].reshape(rows, longest * size, 2 * K, padded)[..., :h]
    visible_B1S = np.arange(longest * size) <= made.last_B[:, None, None]
    expected = attend(q[:, None], positions_BSAh[:, :, ::2], positions_BSAh[:, :, 1::2], visible_B1S)[:, 0]
    live_B = made.last_B >= 0
    tolerance = 1e-5 if dtype == np.float32 else 0.02
    np.testing.assert_allclose(found[live_B].astype(np.float32), expected[live_B].astype(np.float32), atol=tolerance)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_pages_are_copied_in_order_until_one_is_not_there(platform: str):
    cache = Cache.zeros(replace(CONFIG, platform=platform), pages=4)
    cache = jax.tree.map(lambda x: x + jnp.arange(4.0).reshape(1, 4, 1, 1, 1), cache)
    copied = cache.copy_pages(jnp.array([[3, 3, 0]]), jnp.array([[0, 1, 9]]))
    for x in jax.tree.leaves(copied):
        assert x[0, :, 0, 0, 0].tolist() == [3, 3, 2, 3]
