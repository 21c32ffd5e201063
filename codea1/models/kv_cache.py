"""The keys and values of past tokens, one slot per position."""

import dataclasses
from typing import TYPE_CHECKING, Self

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from codea1.sharding import constrain

if TYPE_CHECKING:
    from codea1.models.qwen2 import Qwen2Config

AXES = ("layers", "batch", None, "kv_heads", "head_dim")

# Updates [B, T, K, h] go to (layer, position) of their own row. Rows are a batching dimension, which tells the
# partitioner that they are independent: a cache cut over its rows is written in place, without communication.
# (Indexing with `.at[layer, rows, positions]` gathers all updates on all devices; `jax.vmap` transposes the cache.)
_ROW_SCATTER = jax.lax.ScatterDimensionNumbers(
    update_window_dims=(2, 3),
    inserted_window_dims=(0, 2),
    scatter_dims_to_operand_dims=(0, 2),
    operand_batching_dims=(1,),
    scatter_indices_batching_dims=(0,),
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVCache:
    """Keys and values of every layer. Slot s of row b holds position s of that row's sequence.

    A slot that its row's position has not reached holds anything: padding, or what a previous occupant left. Nothing
    reads it before it is written, because a query at position p attends slots 0..p alone.
    """

    k_LBSKh: jax.Array
    v_LBSKh: jax.Array

    @classmethod
    def zeros(cls, config: "Qwen2Config", batch: int, length: int, dtype: DTypeLike | None = None) -> Self:
        """An empty cache of `length` slots per row, sharded as activations are; `dtype` is config.dtype by default."""
        shape = (config.num_layers, batch, length, config.num_kv_heads, config.head_dim)
        return cls(*(constrain(jnp.zeros(shape, dtype or config.dtype), *AXES) for _ in range(2)))

    @property
    def length(self) -> int:
        """S, the number of slots per row."""
        return self.k_LBSKh.shape[2]

    def write(self, layer: jax.Array, positions_BT: jax.Array, k_BTKh: jax.Array, v_BTKh: jax.Array) -> Self:
        """The cache with the keys and values of one layer put at their positions; those outside 0..S-1 are dropped.

        Positions within the cache must not repeat within a row.
        """
        index_BT2 = jnp.stack([jnp.full_like(positions_BT, layer), positions_BT], axis=-1)

        def put(cache_LBSKh: jax.Array, update_BTKh: jax.Array) -> jax.Array:
            update_BTKh = update_BTKh.astype(cache_LBSKh.dtype)
            written = jax.lax.scatter(cache_LBSKh, index_BT2, update_BTKh, _ROW_SCATTER, mode="drop")
            return constrain(written, *AXES)

        return type(self)(put(self.k_LBSKh, k_BTKh), put(self.v_LBSKh, v_BTKh))

    def read(self, layer: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values of one layer, [B, S, K, h] each."""
        return self.k_LBSKh[layer], self.v_LBSKh[layer]
