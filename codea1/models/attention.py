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
