"""The keys and values of past tokens, one slot per position.

Keys are stored with positions last, values with head dimensions last. So each of the two reductions of attention runs
over contiguous memory, and nothing of the cache is transposed or copied at a decode step.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from codea1.models.config import Qwen2Config
from codea1.sharding import constrain, on_each_device

KEY_AXES = ("layers", "batch", "kv_heads", "head_dim", None)
VALUE_AXES = ("layers", "batch", "kv_heads", None, "head_dim")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVCache:
    """Keys and values of every layer. Slot s of row b holds position s of that row's sequence.

    A slot that its row's position has not reached holds anything: padding, or what a previous occupant left. Nothing
    reads it before it is written, because a query at position p attends slots 0..p alone.
    """

    k_LBKhS: jax.Array
    v_LBKSh: jax.Array
    # Slots that queries read, the first `span` of them; None is all. A query's position must be below it.
    span: int | None = dataclasses.field(default=None, metadata={"static": True})

    @classmethod
    def zeros(cls, config: Qwen2Config, batch: int, length: int, dtype: DTypeLike | None = None) -> Self:
        """Makes an empty cache of `length` slots per row, sharded as activations; `dtype` defaults to config.dtype."""
        outer, dtype = (config.num_layers, batch, config.num_kv_heads), dtype or config.dtype
        return cls(
            constrain(jnp.zeros((*outer, config.head_dim, length), dtype), *KEY_AXES),
            constrain(jnp.zeros((*outer, length, config.head_dim), dtype), *VALUE_AXES),
        )

    @property
    def length(self) -> int:
        """S, the number of slots per row."""
        return self.k_LBKhS.shape[-1]

    def write_prompts(self, layer: jax.Array, k_BTKh: jax.Array, v_BTKh: jax.Array) -> Self:
        """Returns the cache with the keys and values of one layer at positions 0..T-1 of every row."""

        def put(cache: jax.Array, update: jax.Array, axes: tuple[str | None, ...]) -> jax.Array:
            start = (layer, 0, 0, 0, 0)
            return constrain(jax.lax.dynamic_update_slice(cache, update[None].astype(cache.dtype), start), *axes)

        return dataclasses.replace(
            self,
            k_LBKhS=put(self.k_LBKhS, jnp.einsum("BTKh->BKhT", k_BTKh), KEY_AXES),
            v_LBKSh=put(self.v_LBKSh, jnp.einsum("BTKh->BKTh", v_BTKh), VALUE_AXES),
        )

    def write(self, layer: jax.Array, positions_B: jax.Array, k_BKh: jax.Array, v_BKh: jax.Array) -> Self:
        """Returns the cache with one token per row written at its position; those outside 0..S-1 are dropped."""

        # By each device on its own rows and heads: the partitioner would gather all updates on all devices. XLA for TPU
        # has a scatter for this form; one with batching dimensions becomes a loop over rows and heads.
        def put(cache: jax.Array, update_BKh: jax.Array, axes: tuple[str | None, ...]) -> jax.Array:
            def put_own(cache: jax.Array, update_BKh: jax.Array, layer: jax.Array, positions_B: jax.Array) -> jax.Array:
                B, K = update_BKh.shape[:2]
                rows_B1, heads_1K = jnp.arange(B)[:, None], jnp.arange(K)[None]
                index = {None: positions_B[:, None], "head_dim": slice(None)}
                place = cache.at[layer, rows_B1, heads_1K, index[axes[3]], index[axes[4]]]
                return place.set(update_BKh, mode="drop", wrap_negative_indices=False)

            inputs = (axes, ("batch", "kv_heads", "head_dim"), (), ("batch",))
            return on_each_device(put_own, inputs, axes)(cache, update_BKh.astype(cache.dtype), layer, positions_B)

        return dataclasses.replace(
            self,
            k_LBKhS=put(self.k_LBKhS, k_BKh, KEY_AXES),
            v_LBKSh=put(self.v_LBKSh, v_BKh, VALUE_AXES),
        )

    def read(self, layer: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns keys [B, K, h, span] and values [B, K, span, h] of one layer."""
        span = self.span or self.length
        return self.k_LBKhS[layer, ..., :span], self.v_LBKSh[layer, ..., :span, :]
