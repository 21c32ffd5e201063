"""Rotary positions and attention: the only place that knows how queries meet keys."""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel,
    splash_attention_mask,
    splash_attention_mask_info,
)
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int, Int8, Int32

from codea1.models.weights import products
from codea1.sharding import Array, on_each_device

QUERY_BLOCK, MOST_QUERY_BLOCKS = 64, 8
SPLASH_BLOCK = 128  # sequences are padded to a multiple of it
SPLASH_LARGEST_BLOCK = 512
SPLASH_BLOCK_NAMES = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")


# Bits of what a query sees in a packed row, in the one number that the kernel has of it.
PLACE_BITS, RESPONSE_BITS, PARTS_BITS = 14, 13, 5


def responses_from(prompt_tokens: int, length: int) -> int:
    """Returns where the responses of a packed row of so many tokens begin, behind so many tokens of prompts."""
    part = _part(length)
    return -(-prompt_tokens // part) * part


def _part(length: int) -> int:
    """Returns of what the beginning of a row's responses is a multiple: a 31st, so that it takes five bits."""
    return -(-length // ((1 << PARTS_BITS) - 1))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packing:
    """What lies where in rows that hold several sequences: first their prompts, each once, then all the responses.

    A token sees those before it of its own prompt and, in a response, of that response (tree attention, as in Prefix
    Grouper, Liu et al., 2025). Prompts lie in the order of their numbers. Responses begin where `responses_from` says,
    and take at most 2**RESPONSE_BITS positions. A row that is one sequence may say that all of it is prompt.
    """

    positions_BT: Int32[Array, "B T"]  # of each token in its own sequence
    prompts_BT: Int32[Array, "B T"]  # which prompt of its row; -1 where nothing lies
    responses_BT: Int32[Array, "B T"]  # which response of its prompt, from 1; 0 in the prompt

    def visible(self, queries: slice = slice(None), keys: slice = slice(None)) -> Bool[Array, "B T S"]:
        """Returns whether each query sees each key; where nothing lies, it sees itself alone."""
        places = jnp.arange(self.prompts_BT.shape[1])
        query_T1, key_S = places[queries, None], places[keys]
        prompt_BT1, response_B1S = self.prompts_BT[:, queries, None], self.responses_BT[:, None, keys]
        same_BTS = (prompt_BT1 >= 0) & (prompt_BT1 == self.prompts_BT[:, None, keys])
        own_BTS = (response_B1S == 0) | (response_B1S == self.responses_BT[:, queries, None])
        return (same_BTS & own_BTS & (key_S < query_T1)) | (key_S == query_T1)

    def for_kernel(self) -> "SplashPacking":
        """Returns what the kernel for TPU computes `visible` from, instead of reading it."""
        B, T = self.prompts_BT.shape
        if T > 1 << PLACE_BITS:
            raise ValueError(f"rows of {T} tokens share prompts, the longest that can has {1 << PLACE_BITS}")
        padding = (0, 0), (0, -T % SPLASH_BLOCK)  # at the end, where no real query looks
        whole = jax.tree.map(lambda x_BT: jnp.pad(x_BT, padding, constant_values=-1), self)
        places, lies_BT = jnp.arange(whole.prompts_BT.shape[1]), whole.prompts_BT >= 0
        is_response_BT = lies_BT & (whole.responses_BT > 0)
        ids_BT2 = jnp.stack([whole.prompts_BT, whole.responses_BT], axis=-1)
        begins_BT = jnp.any(ids_BT2 != jnp.roll(ids_BT2, 1, axis=1), axis=-1) | (places == 0)
        offset_BT = places - jax.lax.cummax(jnp.where(begins_BT, places, 0), axis=1)
        parts_B1 = -(-jnp.min(jnp.where(is_response_BT, places, T), axis=1, keepdims=True) // _part(T))
        codes_BT = places | (jnp.where(is_response_BT, offset_BT, 0) << PLACE_BITS)
        codes_BT |= jnp.where(lies_BT, parts_B1, 0) << (PLACE_BITS + RESPONSE_BITS)
        block = splash_block(T)
        begin_J = jnp.arange(0, len(places), block)
        # A block of keys has the prompts from one number to another, if any.
        prompts_BJs = jnp.where(is_response_BT, -1, whole.prompts_BT).reshape(B, len(begin_J), block)
        least_BJ = jnp.min(jnp.where(prompts_BJs >= 0, prompts_BJs, T), axis=2)
        sees_prompt_BTJ = whole.prompts_BT[..., None] >= least_BJ[:, None]
        sees_prompt_BTJ &= whole.prompts_BT[..., None] <= jnp.max(prompts_BJs, axis=2)[:, None]
        first_BT = jnp.where(is_response_BT, places - offset_BT, places)  # of the own response, or the token itself
        sees_BTJ = (begin_J <= places[:, None]) & (sees_prompt_BTJ | (first_BT[..., None] < begin_J + block))
        reads_BQJ = jnp.any(sees_BTJ.reshape(B, len(begin_J), block, len(begin_J)), axis=2)
        return SplashPacking(codes_BT, whole.prompts_BT, reads_BQJ.astype(jnp.int8))


class SplashPacking(NamedTuple):
    """A Packing for the kernel, of rows padded to its blocks."""

    codes_BT: Int32[Array, "B T"]  # the query's place, its place in its response, and where the row's responses begin
    prompts_BT: Int32[Array, "B T"]
    reads_BQJ: Int8[Array, "B Q J"]  # 1 where a query of the block sees a key of that block


@functools.cache  # the kernel is compiled again for another function
def _sees(length: int) -> Callable[[Array, Array], Array]:
    """Returns the function by which the kernel knows whether a query sees a key of its own prompt, in rows so long."""
    part = _part(length)

    def sees(code: Array, key: Array) -> Array:
        place = code & ((1 << PLACE_BITS) - 1)
        begin = place - (code >> PLACE_BITS & ((1 << RESPONSE_BITS) - 1))
        end = jax.lax.shift_right_logical(code, PLACE_BITS + RESPONSE_BITS) * part
        return (key <= place) & ((key < end) | (key >= begin))

    return sees


def splash_block(length: int) -> int:
    """Returns the side of the kernel's blocks of queries and keys in rows so long."""
    return math.gcd(-(-length // SPLASH_BLOCK) * SPLASH_BLOCK, SPLASH_LARGEST_BLOCK)


def rope(x_BTHh: Float[Array, "B T H h"], positions_BT: Int[Array, "B T"], theta: float) -> Float[Array, "B T H h"]:
    """Applies rotary position embedding (Su et al., 2021) in float32, pairing dimension i with i + h/2 as in Qwen2."""
    h = x_BTHh.shape[-1]
    frequency = theta ** (-jnp.arange(0, h, 2, dtype=jnp.float32) / h)
    angle_BT1f = positions_BT[:, :, None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle_BT1f), jnp.sin(angle_BT1f)
    first, second = jnp.split(x_BTHh.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x_BTHh.dtype)


def attend(
    q_BTHh: Float[Array, "B T H h"],
    k_BSKh: Float[Array, "B S K h"],
    v_BSKh: Float[Array, "B S K h"],
    visible_BTS: Bool[Array, "#B T S"],
) -> Float[Array, "B T H h"]:
    """Computes grouped-query attention in which query (b, t) sees the keys (b, s) that are visible to it.

    Scores and softmax are float32; query head n reads key/value head n // (H / K).
    """
    B, T, H, h = q_BTHh.shape
    K = k_BSKh.shape[2]
    q_BTKGh = q_BTHh.reshape(B, T, K, H // K, h)
    score_BKGTS = jnp.einsum("BTKGh,BSKh->BKGTS", q_BTKGh, k_BSKh, preferred_element_type=jnp.float32) * h**-0.5
    score_BKGTS = jnp.where(visible_BTS[:, None, None], score_BKGTS, jnp.finfo(jnp.float32).min)
    weight_BKGTS = jax.nn.softmax(score_BKGTS, axis=-1).astype(v_BSKh.dtype)
    return jnp.einsum("BKGTS,BSKh->BTKGh", weight_BKGTS, v_BSKh).reshape(B, T, H, h)


def attend_causally(
    q_BTHh: Float[Array, "B T H h"],
    k_BTKh: Float[Array, "B T K h"],
    v_BTKh: Float[Array, "B T K h"],
    platform: str,
    packing: Packing | SplashPacking | None = None,
    dtype: DTypeLike | None = None,
) -> Float[Array, "B T H h"]:
    """Computes `attend` of whole rows, token t seeing tokens 0..t, or those of them that belong to it by the packing.

    That is `Packing.for_kernel` on TPU. Without holding the scores [T, T] there and, of sequences in bfloat16 or
    float16, on GPU, by cuDNN. Where `dtype` is not that of the arrays, on a CPU, products are in `dtype`.
    """
    B, T, H, h = q_BTHh.shape
    if platform == "tpu":
        assert not isinstance(packing, Packing)
        return splash_attend(q_BTHh, k_BTKh, v_BTKh, packing)
    assert not isinstance(packing, SplashPacking)
    if platform == "gpu" and packing is None and q_BTHh.dtype.itemsize == 2:
        # cuDNN's backward pass takes an even number of tokens; no real one sees what is added at the end.
        even = [jnp.pad(x, ((0, 0), (0, T % 2), (0, 0), (0, 0))) for x in (q_BTHh, k_BTKh, v_BTKh)]
        return jax.nn.dot_product_attention(*even, is_causal=True, implementation="cudnn")[:, :T]
    blocks = []
    if dtype is None or dtype == q_BTHh.dtype:
        for start, end, visible_BTS in _query_blocks(T, packing):
            blocks.append(attend(q_BTHh[:, start:end], k_BTKh[:, :end], v_BTKh[:, :end], visible_BTS))
        return jnp.concatenate(blocks, axis=1)
    K = k_BTKh.shape[2]
    q_BKGTh = jnp.moveaxis(q_BTHh.reshape(B, T, K, H // K, h), 1, 3)
    k_BKTh, v_BKTh = jnp.swapaxes(k_BTKh, 1, 2), jnp.swapaxes(v_BTKh, 1, 2)
    for start, end, visible_BTS in _query_blocks(T, packing):
        visible_B1XS = jnp.tile(visible_BTS, (1, H // K, 1))[:, None]
        q_BKXh = q_BKGTh[:, :, :, start:end].reshape(B, K, -1, h)
        y_BKXh = attend_heads(q_BKXh, k_BKTh[:, :, :end], v_BKTh[:, :, :end], visible_B1XS, dtype)
        blocks.append(y_BKXh.reshape(B, K, H // K, end - start, h))
    return jnp.moveaxis(jnp.concatenate(blocks, axis=3), 3, 1).reshape(B, T, H, h)


def _query_blocks(length: int, packing: Packing | None) -> Iterator[tuple[int, int, Bool[Array, "B T S"]]]:
    """Yields where blocks of queries begin and end, and which keys up to their ends they see: half the products."""
    step = -(-length // min(-(-length // QUERY_BLOCK), MOST_QUERY_BLOCKS))
    for start in range(0, length, step):
        end = min(start + step, length)
        if packing is None:
            yield start, end, (jnp.arange(end) <= jnp.arange(start, end)[:, None])[None]
        else:
            yield start, end, packing.visible(slice(start, end), slice(end))


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def attend_heads(
    q_BKXh: Float[Array, "B K X h"],
    k_BKSh: Float[Array, "B K S h"],
    v_BKSh: Float[Array, "B K S h"],
    visible_B1XS: Bool[Array, "#B 1 X S"],
    dtype: DTypeLike,
) -> Float32[Array, "B K X h"]:
    """Computes `attend` of the queries X of each key/value head, with products in `dtype`, for a CPU.

    Its gradient is FlashAttention's (Dao et al., 2022). Left to itself XLA for CPU transposes copies of the weights
    [X, S], and adds up products of their gradients one by one.
    """
    return _attend_heads_forward(q_BKXh, k_BKSh, v_BKSh, visible_B1XS, dtype)[0]


def _attend_heads_forward(q_BKXh, k_BKSh, v_BKSh, visible_B1XS, dtype):
    score_BKXS = products(q_BKXh, jnp.swapaxes(k_BKSh, 2, 3), dtype) * q_BKXh.shape[-1] ** -0.5
    score_BKXS = jnp.where(visible_B1XS, score_BKXS, jnp.finfo(jnp.float32).min)
    weight_BKXS = jnp.exp(score_BKXS - jnp.max(score_BKXS, axis=-1, keepdims=True))
    ones_BKS1 = jnp.ones((*v_BKSh.shape[:-1], 1))  # the sum of the weights as one more value: XLA adds up slowly
    y_BKXi = products(weight_BKXS, jnp.concatenate([v_BKSh, ones_BKS1], axis=-1), dtype)
    y_BKXh = y_BKXi[..., :-1] / y_BKXi[..., -1:]
    return y_BKXh, (q_BKXh, k_BKSh, v_BKSh, weight_BKXS / y_BKXi[..., -1:], y_BKXh)


def _attend_heads_backward(dtype: DTypeLike, residuals: tuple, y_bar_BKXh: Float[Array, "B K X h"]) -> tuple:
    q_BKXh, k_BKSh, v_BKSh, weight_BKXS, y_BKXh = residuals
    fall_BKX1 = jnp.sum(y_bar_BKXh * y_BKXh, axis=-1, keepdims=True)
    weight_bar_BKXS = products(y_bar_BKXh, jnp.swapaxes(v_BKSh, 2, 3), dtype)
    score_bar_BKXS = weight_BKXS * (weight_bar_BKXS - fall_BKX1) * q_BKXh.shape[-1] ** -0.5
    k_bar_BKhS = products(jnp.swapaxes(q_BKXh, 2, 3), score_bar_BKXS, dtype)
    v_bar_BKhS = products(jnp.swapaxes(y_bar_BKXh, 2, 3), weight_BKXS, dtype)
    q_bar_BKXh = products(score_bar_BKXS, k_BKSh, dtype)
    return q_bar_BKXh, jnp.swapaxes(k_bar_BKhS, 2, 3), jnp.swapaxes(v_bar_BKhS, 2, 3), None


attend_heads.defvjp(_attend_heads_forward, _attend_heads_backward)


def splash_attend(
    q_BTHh: Float[Array, "B T H h"],
    k_BTKh: Float[Array, "B T K h"],
    v_BTKh: Float[Array, "B T K h"],
    packing: SplashPacking | None = None,
    *,
    interpret: bool = False,
) -> Float[Array, "B T H h"]:
    """Computes `attend_causally` by the Pallas kernel for TPU, differentiable; `interpret` runs it anywhere, slowly.

    Each device computes its own rows and heads, on the mesh that the arrays live on or that of `jax.set_mesh`. With a
    packing the kernel computes what each query sees, and skips the blocks in which nothing is visible.
    """
    q_axes, kv_axes = ("batch", None, "heads", None), ("batch", None, "kv_heads", None)
    local = partial(_splash_on_one_device, interpret=interpret)
    if packing is None:
        return on_each_device(local, (q_axes, kv_axes, kv_axes), q_axes)(q_BTHh, k_BTKh, v_BTKh)

    def packed(*arrays: Array) -> Float[Array, "B T H h"]:
        # One row after the other: the kernel takes the blocks of one.
        rows = [x[:, None] for x in arrays]
        return jax.lax.map(lambda row: local(row[0], row[1], row[2], SplashPacking(*row[3:])), rows)[:, 0]

    axes = (q_axes, kv_axes, kv_axes, ("batch", None), ("batch", None), ("batch", None, None))
    return on_each_device(packed, axes, q_axes)(q_BTHh, k_BTKh, v_BTKh, *packing)


def _splash_on_one_device(
    q_BTHh: Float[Array, "B T H h"],
    k_BTKh: Float[Array, "B T K h"],
    v_BTKh: Float[Array, "B T K h"],
    packing: SplashPacking | None = None,
    *,
    interpret: bool,
) -> Float[Array, "B T H h"]:
    """Computes `splash_attend` of rows of one device; with a packing, of one row."""
    B, T, H, h = q_BTHh.shape
    K = k_BTKh.shape[2]
    padded = -(-T // SPLASH_BLOCK) * SPLASH_BLOCK  # at the end, where no real query looks

    def heads_first(x_BTHh: Float[Array, "B T H h"]) -> Float[Array, "B H _ h"]:
        return jnp.pad(jnp.swapaxes(x_BTHh, 1, 2), ((0, 0), (0, 0), (0, padded - T), (0, 0)))

    sizes: dict[str, Any] = dict.fromkeys((f"block_{name}" for name in SPLASH_BLOCK_NAMES), splash_block(T))
    options = {"block_sizes": splash_attention_kernel.BlockSizes(**sizes), "interpret": interpret}
    kernel: Callable[..., Any]
    if packing is None:
        mask = splash_attention_mask.MultiHeadMask(
            [splash_attention_mask.CausalMask((padded, padded)) for _ in range(H // K)]
        )
        kernel = splash_attention_kernel.make_splash_mqa_single_device(mask, **options)
        for infos in ("fwd_mask_info", "dq_mask_info", "dkv_mask_info"):
            # Under jit the kernel would make this flag an array, and then branch on it.
            setattr(kernel, infos, getattr(kernel, infos)._replace(is_dynamic_mask=None))
    else:
        kernel = _packed_kernel(packing, T, options)
    q_BKGTh = heads_first(q_BTHh * h**-0.5).reshape(B, K, H // K, padded, h)
    y_BKGTh = jax.vmap(jax.vmap(kernel))(q_BKGTh, heads_first(k_BTKh), heads_first(v_BTKh))
    return jnp.swapaxes(y_BKGTh.reshape(B, H, padded, h), 1, 2)[:, :T]


def _packed_kernel(packing: SplashPacking, length: int, options: dict[str, Any]) -> Callable[..., Any]:
    """Returns the kernel for one packed row, which JAX's own constructor would give an array [T, T] as its mask."""
    reads_1QJ, ids_T, codes_T = packing.reads_BQJ, packing.prompts_BT[0], packing.codes_BT[0]
    places = jnp.arange(reads_1QJ.shape[1])

    def blocks(next_block: Int[Array, "..."]) -> splash_attention_mask_info.MaskInfo:
        arrays: dict[str, Any] = {"block_mask": reads_1QJ, "q_sequence": codes_T}
        arrays["data_next"] = jnp.where(reads_1QJ > 0, next_block, 0).astype(jnp.int8)
        return splash_attention_mask_info.MaskInfo(**arrays, mask_next=None, partial_mask_blocks=None)

    kernel = splash_attention_kernel.SplashAttentionKernel(
        fwd_mask_info=blocks(places),
        dq_mask_info=blocks(places),
        dkv_mask_info=blocks(places[:, None]),
        is_mqa=True,
        save_residuals=False,
        mask_value=splash_attention_kernel.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=None,
        residual_checkpoint_name=None,
        mask_function=_sees(length),
        **options,
    )
    return partial(kernel, segment_ids=splash_attention_kernel.SegmentIds(ids_T, ids_T))


def read_block(platform: str) -> int:
    """Returns how many pages `attend_pages` reads at once: few where they should stay in a processor's cache."""
    return 64 if platform == "cpu" else 1024


def attend_pages(
    q_BHh: Float[Array, "B H h"],
    k_LNKhP: Float[Array, "L N K h P"],
    v_LNKPh: Float[Array, "L N K P h"],
    layer: Int[Array, ""],
    reads_1I3: Int[Array, "1 I 3"],
    num_reads_1: Int[Array, " 1"],
    last_B: Int[Array, " B"],
    platform: str,
) -> Float[Array, "B H h"]:
    """Computes `attend` of one query per row on the pages of one layer of a cache.

    A block of pages at a time, of which each is met by the query of one row; the softmax is summed up over them as in
    FlashAttention (Dao et al., 2022). So it reads the pages that there are, whatever the longest row has, and a page
    that rows share while it is in the processor's cache. The arithmetic is the same on every `platform`, its form is
    not: XLA for CPU would copy the pages to multiply them as matrices, and reads them in place when the products are
    written out.

    Args:
      q_BHh: queries, of one device as all else.
      k_LNKhP, v_LNKPh: the pages.
      layer: which one.
      reads_1I3: (row, page, number of the page in its row) of what is read, in whole blocks.
      num_reads_1: how many of them there are.
      last_B: the last position that each query sees.
      platform: of the device.
    """
    B, H, h = q_BHh.shape
    L, N, K, _, P = k_LNKhP.shape
    q_BKGh = q_BHh.reshape(B, K, H // K, h)
    size = read_block(platform)
    k_YKhP, v_YKPh = k_LNKhP.reshape(L * N, K, h, P), v_LNKPh.reshape(L * N, K, P, h)

    def block(number: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        max_BKG, sum_BKG, y_BKGh = carry
        reads_I3 = jax.lax.dynamic_slice_in_dim(reads_1I3[0], number * size, size)
        row_I, page_I, place_I = reads_I3[:, 0], reads_I3[:, 1] + layer * N, reads_I3[:, 2]
        q_IKGh, k_IKhP, v_IKPh = q_BKGh[row_I], k_YKhP[page_I], v_YKPh[page_I]
        if platform == "cpu":
            score_IKGP = jnp.sum(q_IKGh[..., None] * k_IKhP[:, :, None], axis=3, dtype=jnp.float32)
        else:
            score_IKGP = jnp.einsum("IKGh,IKhP->IKGP", q_IKGh, k_IKhP, preferred_element_type=jnp.float32)
        is_visible_IP = place_I[:, None] * P + jnp.arange(P) <= last_B[row_I][:, None]
        score_IKGP = jnp.where(is_visible_IP[:, None, None], score_IKGP * h**-0.5, jnp.finfo(jnp.float32).min)
        top_IKG = jnp.max(score_IKGP, axis=-1)
        weight_IKGP = jnp.exp(score_IKGP - top_IKG[..., None])
        rounded_IKGP = weight_IKGP.astype(v_IKPh.dtype)
        if platform == "cpu":
            part_IKGh = jnp.sum(rounded_IKGP[..., None] * v_IKPh[:, :, None], axis=3)
        else:
            part_IKGh = jnp.einsum("IKGP,IKPh->IKGh", rounded_IKGP, v_IKPh, preferred_element_type=jnp.float32)
        new_max_BKG = max_BKG.at[row_I].max(top_IKG, mode="drop")
        old_BKG, scale_IKG = jnp.exp(max_BKG - new_max_BKG), jnp.exp(top_IKG - new_max_BKG[row_I])
        sum_BKG = (sum_BKG * old_BKG).at[row_I].add(jnp.sum(weight_IKGP, axis=-1) * scale_IKG, mode="drop")
        y_BKGh = (y_BKGh * old_BKG[..., None]).at[row_I].add(part_IKGh * scale_IKG[..., None], mode="drop")
        return new_max_BKG, sum_BKG, y_BKGh

    lowest = jnp.full((B, K, H // K), jnp.finfo(jnp.float32).min)
    carry = lowest, jnp.zeros_like(lowest), jnp.zeros((*lowest.shape, h), jnp.float32)
    _, sum_BKG, y_BKGh = jax.lax.fori_loop(0, -(-num_reads_1[0] // size), block, carry)
    # A row that reads nothing gets zeros: it is not live.
    y_BKGh /= jnp.maximum(sum_BKG, jnp.finfo(jnp.float32).tiny)[..., None]
    return y_BKGh.astype(q_BHh.dtype).reshape(B, H, h)
