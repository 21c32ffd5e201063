"""Rotary positions and attention: the only place that knows how queries meet keys."""

import jax
import jax.numpy as jnp


def rope(x_BTHh: jax.Array, positions_BT: jax.Array, theta: float) -> jax.Array:
    """Rotary position embedding (Su et al., 2021), pairing dimension i with i + h/2 as Qwen2 does; in float32."""
    h = x_BTHh.shape[-1]
    frequency = theta ** (-jnp.arange(0, h, 2, dtype=jnp.float32) / h)
    angle_BT1f = positions_BT[:, :, None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle_BT1f), jnp.sin(angle_BT1f)
    first, second = jnp.split(x_BTHh.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x_BTHh.dtype)


def attend(q_BTHh: jax.Array, k_BSKh: jax.Array, v_BSKh: jax.Array, last_slot_BT: jax.Array) -> jax.Array:
    """Grouped-query attention in which query (b, t) sees slots 0..last_slot_BT[b, t]. Returns [B, T, H, h].

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


def attend_cached(
    q_BHh: jax.Array, k_BKhS: jax.Array, v_BKSh: jax.Array, last_slot_B: jax.Array, platform: str
) -> jax.Array:
    """`attend` of one query per row, for keys and values as a cache stores them. Returns [B, H, h].

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
