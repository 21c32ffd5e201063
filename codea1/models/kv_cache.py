"""The keys and values of past tokens, in pages that sequences are given one at a time and that they can share.

A page holds P consecutive positions of one sequence, in every layer. Which page holds which is said by a table from
outside. Pages are cut over the batch axis as rows are, and a row's pages are in its own shard: they are counted within
it. Keys have positions last and values have head dimensions last, so that each of the two reductions of attention runs
over contiguous memory. On TPU one array holds both, as the kernel there reads them, in whole pages: a head's key, then
its value, head after head, with head dimensions padded to whole tiles.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Self

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Int32

from codea1.models.attention import attend_pages, read_block
from codea1.models.config import Qwen2Config
from codea1.models.grouped_attention import attend_grouped
from codea1.models.weights import Axes
from codea1.sharding import Array, constrain, on_each_device

KEY_AXES: Axes = ("layers", "batch", "kv_heads", "head_dim", None)
VALUE_AXES: Axes = ("layers", "batch", "kv_heads", None, "head_dim")
RAGGED_AXES: Axes = ("layers", "batch", None, "kv_heads", "head_dim")
LANES = 128  # head dimensions in a tile of TPU's memory


def page_size(platform: str) -> int:
    """Returns P, the positions of a page: a tile of TPU's memory, or what a processor's vectors fill."""
    return 128 if platform == "tpu" else 64


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PageTable:
    """Where the tokens of B rows lie. Arrays are cut over the batch axis in W shards."""

    # Page of positions m * P to (m + 1) * P - 1 of a row; one that is not there is dropped.
    pages_BM: Int32[Array, "B M"]
    # What the next queries read: (row, page, m) of those they see, rows counted within the shard. Only the form without
    # a kernel needs it.
    reads_WI3: Int32[Array, "W I 3"] | None = None
    num_reads_W: Int32[Array, " W"] | None = None
    # For the kernel: how many pages at its beginning a row reads together with the others of its group, and the rows of
    # each group, counted within the shard. A group of fewer than R repeats its first; -1 behind the last group.
    num_shared_B: Int32[Array, " B"] | None = None
    members_WGR: Int32[Array, "W G R"] | None = None
    # Rows are prompts, which have nothing before them; or else tokens of sequences that go on.
    is_prefill: bool = dataclasses.field(default=False, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """Keys and values of every layer in N pages.

    A position that its row has not reached holds anything: padding, or what another sequence left. Nothing reads it
    before it is written, because a query at position p attends positions 0..p alone.
    """

    # With the axes that `cache_axes` names: keys [L, N, K, h, P] and values [L, N, K, P, h]; or both [L, N, P, A, p].
    arrays: tuple[Float[Array, "L N _ _ _"], ...]
    table: PageTable | None = None  # of the rows that call the model
    platform: str = dataclasses.field(default="cpu", metadata={"static": True})

    @classmethod
    def zeros(cls, config: Qwen2Config, pages: int) -> Self:
        """Makes empty pages, of all shards together, sharded as activations."""
        K, h, P = config.num_kv_heads, config.head_dim, page_size(config.platform)
        shapes = [(P, 2 * K, _padded(h))] if config.platform == "tpu" else [(K, h, P), (K, P, h)]
        arrays = (
            constrain(jnp.zeros((config.num_layers, pages, *shape), config.activations), *axes)
            for shape, axes in zip(shapes, cache_axes(config.platform), strict=True)
        )
        return cls(tuple(arrays), platform=config.platform)

    def of_rows(self, table: PageTable | None) -> Self:
        """Returns the same pages for rows whose tokens lie as `table` says."""
        return dataclasses.replace(self, table=table)

    def write_prompts(
        self, layer: Int[Array, ""], k_BTKh: Float[Array, "B T K h"], v_BTKh: Float[Array, "B T K h"]
    ) -> Self:
        """Returns the cache with the keys and values of one layer at positions 0..T-1 of every row."""

        def put(cache: Array, axes: Axes, update_BTKh: Array) -> Array:
            update = _in_pages(update_BTKh, cache.shape[axes.index(None)])
            if axes != RAGGED_AXES:
                update = jnp.einsum("BMPKh->BMKhP" if axes == KEY_AXES else "BMPKh->BMKPh", update)
            return _write_pages(cache, layer, table_of(self).pages_BM, update, axes)

        return self._put(put, k_BTKh, v_BTKh)

    def write(
        self,
        layer: Int[Array, ""],
        position_B: Int[Array, " B"],
        k_BKh: Float[Array, "B K h"],
        v_BKh: Float[Array, "B K h"],
    ) -> Self:
        """Returns the cache with a token of each row written at its position; those beyond the table are dropped."""

        def put(cache: Array, axes: Axes, update_BKh: Array) -> Array:
            inputs = (axes, ("batch", "kv_heads", "head_dim"), (), ("batch",), ("batch", None))
            # By each device on its own rows and heads: the partitioner would gather all updates on all devices.
            put_own = on_each_device(partial(_write_tokens, axes), inputs, axes)
            return put_own(cache, update_BKh.astype(cache.dtype), layer, position_B, table_of(self).pages_BM)

        return self._put(put, k_BKh, v_BKh)

    def attend(
        self, layer: Int[Array, ""], q_BHh: Float[Array, "B H h"], position_B: Int[Array, " B"]
    ) -> Float[Array, "B H h"]:
        """Computes attention of each row's query over positions 0..p of its row."""
        heads, table, axes = ("batch", "heads", None), table_of(self), cache_axes(self.platform)
        if self.platform == "tpu":
            function, places = attend_grouped, (table.pages_BM, table.num_shared_B, table.members_WGR)
            place_axes = ("batch", None), ("batch",), ("batch", None, None)
        else:
            function, places = partial(attend_pages, platform=self.platform), (table.reads_WI3, table.num_reads_W)
            place_axes = ("batch", None, None), ("batch",)
        attend = on_each_device(function, (heads, *axes, (), *place_axes, ("batch",)), heads)
        return attend(q_BHh, *self.arrays, layer, *places, position_B)

    def copy_pages(self, from_WZ: Int[Array, "W Z"], to_WZ: Int[Array, "W Z"]) -> Self:
        """Returns the cache with page from_WZ[w, z] of shard w also in page to_WZ[w, z]; see `_copy_pages`."""
        parts = zip(self.arrays, cache_axes(self.platform), strict=True)
        return dataclasses.replace(self, arrays=tuple(_copy_pages(x, from_WZ, to_WZ, axes) for x, axes in parts))

    def _put(self, put: Callable[[Array, Axes, Array], Array], k: Array, v: Array) -> Self:
        """Returns the cache with keys and values put into the arrays that hold them."""
        updates = [_combined(k, v)] if self.platform == "tpu" else [k, v]
        parts = zip(self.arrays, cache_axes(self.platform), updates, strict=True)
        return dataclasses.replace(self, arrays=tuple(put(*part) for part in parts))


def cache_axes(platform: str) -> tuple[Axes, ...]:
    """Returns the names of the axes of a cache's arrays on a platform."""
    return (RAGGED_AXES,) if platform == "tpu" else (KEY_AXES, VALUE_AXES)


def table_of(cache: Cache) -> PageTable:
    """Returns the table that `of_rows` gave the cache."""
    assert cache.table is not None
    return cache.table


def page_bytes(config: Qwen2Config, tensor: int) -> int:
    """Returns the bytes of a page on each chip, of a mesh whose axis `tensor` cuts the heads."""
    pages = jax.eval_shape(lambda: Cache.zeros(config, 1))
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(pages)) // tensor


def num_groups(rows: int) -> int:
    """Returns G, the most groups of two or more that so many rows of a shard can form."""
    return max(rows // 2, 1)


def num_reads(rows: int, pages: int, platform: str) -> int:
    """Returns I, the most that so many rows of a shard with so many pages each can read, in whole blocks."""
    return -(-rows * pages // read_block(platform)) * read_block(platform)


def _padded(head_dim: int) -> int:
    return -(-head_dim // LANES) * LANES


def _combined(k: Float[Array, "*rows K h"], v: Float[Array, "*rows K h"]) -> Float[Array, "*rows 2*K p"]:
    """Returns keys and values in turn, with padded head dimensions."""
    *rows, K, h = k.shape
    both = jnp.stack([k, v], axis=-2).reshape(*rows, 2 * K, h)
    return jnp.pad(both, (*[(0, 0)] * (len(rows) + 1), (0, _padded(h) - h)))


def _in_pages(x: Float[Array, "B T *inner"], size: int) -> Float[Array, "B M P *inner"]:
    """Returns positions 0..T-1 in pages, with zeros behind them."""
    B, T, *inner = x.shape
    padded = jnp.pad(x, ((0, 0), (0, -T % size), (0, 0), (0, 0)))
    return padded.reshape(B, -1, size, *inner)


def _write_tokens(
    axes: Axes,
    cache: Float[Array, "L N *inner"],
    update: Float[Array, "B _ _"],
    layer: Int[Array, ""],
    position_B: Int[Array, " B"],
    pages_BM: Int[Array, "B M"],
) -> Float[Array, "L N *inner"]:
    """Writes a token of each row where the table has a page for its position."""
    size, num_pages = cache.shape[axes.index(None)], cache.shape[1]
    number_B = position_B // size
    page_B = jnp.take_along_axis(pages_BM, jnp.clip(number_B, 0, pages_BM.shape[1] - 1)[:, None], axis=1)[:, 0]
    page_B = jnp.where((position_B >= 0) & (number_B < pages_BM.shape[1]), page_B, num_pages)
    if axes == RAGGED_AXES:
        # XLA for TPU has a scatter for this form; one with batching dimensions becomes a loop over rows and heads.
        place = cache.at[layer, page_B, position_B % size]
    else:
        heads_1K = jnp.arange(update.shape[1])[None]
        index = {None: (position_B % size)[:, None], "head_dim": slice(None)}
        place = cache.at[layer, page_B[:, None], heads_1K, index[axes[3]], index[axes[4]]]
    return place.set(update, mode="drop", wrap_negative_indices=False)


def _write_pages(
    cache: Float[Array, "L N *inner"],
    layer: Int[Array, ""],
    pages_BM: Int[Array, "B M"],
    update: Float[Array, "B M *inner"],
    axes: Axes,
) -> Float[Array, "L N *inner"]:
    """Writes whole pages of one layer where the table has them.

    One after another: for a scatter of pages XLA for TPU copies the whole cache into another layout.
    """

    def put_own(
        cache: Array, update: Float[Array, "B M *inner"], layer: Int[Array, ""], pages_BM: Int[Array, "B M"]
    ) -> Array:
        pages, update = pages_BM.ravel(), update.reshape(-1, *update.shape[2:])
        last = cache.shape[1] - 1

        def put(i: Array, cache: Array) -> Array:
            start = (layer, jnp.minimum(pages[i], last), 0, 0, 0)
            known = jax.lax.dynamic_slice(cache, start, (1, 1, *cache.shape[2:]))
            return jax.lax.dynamic_update_slice(cache, jnp.where(pages[i] <= last, update[i], known), start)

        return jax.lax.fori_loop(0, len(pages), put, cache)

    inputs = (axes, ("batch", None, *axes[2:]), (), ("batch", None))
    return on_each_device(put_own, inputs, axes)(cache, update.astype(cache.dtype), layer, pages_BM)


def _copy_pages(
    x: Float[Array, "L N *inner"], from_WZ: Int[Array, "W Z"], to_WZ: Int[Array, "W Z"], axes: Axes
) -> Float[Array, "L N *inner"]:
    """Computes x[:, to] = x[:, from] in every shard, in the order of Z; a `to` beyond the last page ends it.

    One page after another: as a gather and a scatter, XLA for TPU transposes all of both.
    """

    def copy_own(x: Array, from_1Z: Int[Array, "1 Z"], to_1Z: Int[Array, "1 Z"]) -> Array:
        def copy(i: Array, x: Array) -> Array:
            page = jax.lax.dynamic_slice_in_dim(x, from_1Z[0, i], 1, axis=1)
            return jax.lax.dynamic_update_slice_in_dim(x, page, to_1Z[0, i], axis=1)

        return jax.lax.fori_loop(0, jnp.sum(to_1Z < x.shape[1]), copy, x)

    return on_each_device(copy_own, (axes, ("batch", None), ("batch", None)), axes)(x, from_WZ, to_WZ)
