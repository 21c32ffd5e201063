"""Rotary positions and attention: the only place that knows how queries meet keys."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

from codea1.sharding import on_each_device

QUERY_BLOCK, MOST_QUERY_BLOCKS = 64, 8
SPLASH_BLOCK = 128  # sequences are padded to a multiple of it
SPLASH_LARGEST_BLOCK = 512
SPLASH_BLOCK_NAMES = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")


def rope(x_BTHh: jax.Array, positions_BT: jax.Array, theta: float) -> jax.Array:
    """Applies rotary position embedding (Su et al., 2021) in float32, pairing dimension i with i + h/2 as in Qwen2."""
    h = x_BTHh.shape[-1]
    frequency = theta ** (-jnp.arange(0, h, 2, dtype=jnp.float32) / h)
    angle_BT1f = positions_BT[:, :, None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle_BT1f), jnp.sin(angle_BT1f)
    first, second = jnp.split(x_BTHh.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x_BTHh.dtype)


def attend(q_BTHh: jax.Array, k_BSKh: jax.Array, v_BSKh: jax.Array, last_slot_BT: jax.Array) -> jax.Array:
    """Computes grouped-query attention [B, T, H, h] in which query (b, t) sees slots 0..last_slot_BT[b, t].

    Scores and softmax are float32; query head n reads key/value head n // (H / K).
    """
    B, T, H, h = q_BTHh.shape
    S, K = k_BSKh.shape[1:3]
    q_BTKGh = q_BTHh.reshape(B, T, K, H // K, h)
    score_BKGTS = jnp.einsum("BTKGh,BSKh->BKGTS", q_BTKGh, k_BSKh, preferred_element_type=jnp.float32) * h**-0.5
    visible_BTS = jnp.arange(S) <= last_slot_BT[:, :, None]
    score_BKGTS = jnp.where(visible_BTS[:, None, None], score_BKGTS, jnp.finfo(jnp.float32).min)
    weight_BKGTS = jax.nn.softmax(score_BKGTS, axis=-1).astype(v_BSKh.dtype)
    return jnp.einsum("BKGTS,BSKh->BTKGh", weight_BKGTS, v_BSKh).reshape(B, T, H, h)


def attend_causally(q_BTHh: jax.Array, k_BTKh: jax.Array, v_BTKh: jax.Array, platform: str) -> jax.Array:
    """Computes `attend` of whole sequences, token t seeing tokens 0..t; on TPU without holding the scores [T, T]."""
    if platform == "tpu":
        return splash_attend(q_BTHh, k_BTKh, v_BTKh)
    B, T = q_BTHh.shape[:2]
    length = -(-T // min(-(-T // QUERY_BLOCK), MOST_QUERY_BLOCKS))
    blocks = []
    for start in range(0, T, length):  # each meets the tokens up to its own last one, which halves the products
        end = min(start + length, T)
        last_slot_BT = jnp.broadcast_to(jnp.arange(start, end), (B, end - start))
        blocks.append(attend(q_BTHh[:, start:end], k_BTKh[:, :end], v_BTKh[:, :end], last_slot_BT))
    return jnp.concatenate(blocks, axis=1)


def splash_attend(q_BTHh: jax.Array, k_BTKh: jax.Array, v_BTKh: jax.Array, *, interpret: bool = False) -> jax.Array:
    """Computes `attend_causally` by the Pallas kernel for TPU, differentiable; `interpret` runs it anywhere, slowly.

    Each device computes its own rows and heads, on the mesh that the arrays live on or that of `jax.set_mesh`.
    """
    q_axes, kv_axes = ("batch", None, "heads", None), ("batch", None, "kv_heads", None)
    local = partial(_splash_on_one_device, interpret=interpret)
    return on_each_device(local, (q_axes, kv_axes, kv_axes), q_axes)(q_BTHh, k_BTKh, v_BTKh)


def _splash_on_one_device(q_BTHh: jax.Array, k_BTKh: jax.Array, v_BTKh: jax.Array, interpret: bool) -> jax.Array:
    B, T, H, h = q_BTHh.shape
    K = k_BTKh.shape[2]
    padded = -(-T // SPLASH_BLOCK) * SPLASH_BLOCK  # at the end, where no real query looks

    def heads_first(x_BTHh: jax.Array) -> jax.Array:
        return jnp.pad(jnp.swapaxes(x_BTHh, 1, 2), ((0, 0), (0, 0), (0, padded - T), (0, 0)))

    block = math.gcd(padded, SPLASH_LARGEST_BLOCK)
    sizes = dict.fromkeys((f"block_{name}" for name in SPLASH_BLOCK_NAMES), block)
    mask = splash_attention_mask.MultiHeadMask(
        [splash_attention_mask.CausalMask((padded, padded)) for _ in range(H // K)]
    )
    kernel = splash_attention_kernel.make_splash_mqa_single_device(
        mask, block_sizes=splash_attention_kernel.BlockSizes(**sizes), interpret=interpret
    )
    q_BKGTh = heads_first(q_BTHh * h**-0.5).reshape(B, K, H // K, padded, h)
    y_BKGTh = jax.vmap(jax.vmap(kernel))(q_BKGTh, heads_first(k_BTKh), heads_first(v_BTKh))
    return jnp.swapaxes(y_BKGTh.reshape(B, H, padded, h), 1, 2)[:, :T]


def attend_cached(
    q_BHh: jax.Array, k_BKhS: jax.Array, v_BKSh: jax.Array, last_slot_B: jax.Array, platform: str
) -> jax.Array:
    """Computes `attend` of one query per row, [B, H, h], for keys and values as a cache stores them.

    The arithmetic is the same on every `platform`, its form is not: XLA for CPU would copy the slice of the cache to
    multiply it as matrices, and reads it in place when the products are written out.
    """
    B, H, h = q_BHh.shape
    K, S = v_BKSh.shape[1:3]
    q_BKGh = q_BHh.reshape(B, K, H // K, h)
    if platform == "cpu":
        score_BKGS = jnp.sum(q_BKGh[..., None] * k_BKhS[:, :, None], axis=3, dtype=jnp.float32)
    else:
        score_BKGS = jnp.einsum("BKGh,BKhS->BKGS", q_BKGh, k_BKhS, preferred_element_type=jnp.float32)
    is_visible_BS = jnp.arange(S) <= last_slot_B[:, None]
    score_BKGS = jnp.where(is_visible_BS[:, None, None], score_BKGS * h**-0.5, jnp.finfo(jnp.float32).min)
    weight_BKGS = jax.nn.softmax(score_BKGS, axis=-1).astype(v_BKSh.dtype)
    if platform == "cpu":
        y_BKGh = jnp.sum(weight_BKGS[..., None] * v_BKSh[:, :, None], axis=3)
    else:
        y_BKGh = jnp.einsum("BKGS,BKSh->BKGh", weight_BKGS, v_BKSh)
    return y_BKGh.reshape(B, H, h)
