"""Attention of the next tokens on TPU, by a kernel that reads pages which samples share once for all of them.

Samples of one prompt share its whole pages (`kv_cache`). Their queries meet those together, as the rows of one matrix.
Then each meets its own pages. The softmax is summed up over both as in FlashAttention (Dao et al., 2022). So the keys
and values of a prompt are read, and loaded into the matrix unit, once a group and not once a sample (as in Hydragen,
Juravsky et al., 2024).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Float, Int

from codea1.sharding import Array

MEMBERS = 8  # R, rows of which a group is made
SHARED_BLOCK, OWN_BLOCK = 4, 2  # I, pages that are on their way while as many are computed
SUBLANES = 8  # rows of a tile of float32
KERNEL_BYTES = 64 << 20
LOWEST = float(jnp.finfo(jnp.float32).min)


def attend_grouped(
    q_BHh: Float[Array, "B H h"],
    kv_LNPAp: Float[Array, "L N P A p"],
    layer: Int[Array, ""],
    pages_BM: Int[Array, "B M"],
    num_shared_B: Int[Array, " B"],
    members_1GR: Int[Array, "1 G R"],
    last_B: Int[Array, " B"],
    *,
    interpret: bool = False,
) -> Float[Array, "B H h"]:
    """Computes `attend_pages` on pages of one device that `Cache` has on TPU; `interpret` runs it anywhere, slowly.

    Args:
      q_BHh: queries.
      kv_LNPAp: the pages.
      layer: which one.
      pages_BM, num_shared_B, members_1GR: see `PageTable`.
      last_B: the last position that each query sees; -1 in a row that is not live, whose result is any number.
    """
    B, H, h = q_BHh.shape
    L, N, P, A, padded = kv_LNPAp.shape
    K, G = A // 2, 2 * H // A
    X = -(-G // SUBLANES) * SUBLANES
    # In float32 the query heads of a row are whole tiles, and rows are put together without moving any of them.
    q_BKGh = q_BHh.reshape(B, K, G, h).astype(jnp.float32)
    q_BKXp = jnp.pad(q_BKGh, ((0, 0), (0, 0), (0, X - G), (0, padded - h)))
    is_group_G = members_1GR[0, :, 0] >= 0
    tables = {
        "pages_BM": pages_BM + layer * N,
        "num_shared_B": num_shared_B,
        "last_B": last_B,
        "members_GR": members_1GR[0],
        "num_groups_1": jnp.sum(is_group_G, dtype=jnp.int32)[None],
    }

    def kernel(*refs: Ref) -> None:
        _Kernel(h**-0.5, q_BHh.dtype, *refs).run()

    vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    y_BKXp = pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(tables),
            in_specs=[vmem, pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=vmem,
            scratch_shapes=[
                *[pltpu.VMEM((B, K, X, 1), jnp.float32)] * 2,
                *[pltpu.VMEM((2, pages, P, A, padded), kv_LNPAp.dtype) for pages in (SHARED_BLOCK, OWN_BLOCK)],
                pltpu.SemaphoreType.DMA((2, 2)),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct(q_BKXp.shape, jnp.float32),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=KERNEL_BYTES),
        name="grouped_paged_attention",
        interpret=interpret,
    )(*tables.values(), q_BKXp, kv_LNPAp.reshape(L * N, P, A, padded))
    return y_BKXp[:, :, :G, :h].reshape(B, H, h).astype(q_BHh.dtype)


Ref = Any  # a reference to an array in memory; its name says the array's axes


class _Reading(NamedTuple):
    """Rows that read the same pages."""

    row_R: list[Array]
    first: Array  # page of its row, as `stop`
    stop: Array
    last: Array  # position that their queries see


@dataclass(frozen=True)
class _Kernel:
    """One call of the kernel: its references, and what it is compiled for.

    What was read is kept by row: the maximum of its scores, the sum of its weights and the sum of the values.
    """

    scale: float
    dtype: jnp.dtype
    pages_BM: Ref
    num_shared_B: Ref
    last_B: Ref
    members_GR: Ref
    num_groups_1: Ref
    q_BKXp: Ref
    kv_NPAp: Ref
    y_BKXp: Ref
    top_BKX1: Ref
    sum_BKX1: Ref
    shared_2IPAp: Ref
    own_2IPAp: Ref
    semaphores_22: Ref

    def run(self) -> None:
        """Lets groups read what they share, and then each row what is its own."""
        for buffer_2IPAp in (self.shared_2IPAp, self.own_2IPAp):  # 0 x NaN is NaN: a page not copied has weight 0
            buffer_2IPAp[...] = jnp.zeros(buffer_2IPAp.shape, buffer_2IPAp.dtype)
        of_groups = self.shared_2IPAp, self.semaphores_22.at[0]
        of_rows = self.own_2IPAp, self.semaphores_22.at[1]
        num_groups, zero = self.num_groups_1[0], jnp.int32(0)

        @pl.when(num_groups > 0)
        def _() -> None:
            self.copy("start", self.reading_group(zero), zero, *(x.at[0] for x in of_groups))

        self.copy("start", self.reading_row(zero), zero, *(x.at[0] for x in of_rows))
        self.read(num_groups, self.reading_group, *of_groups, is_last=False)
        self.read(self.q_BKXp.shape[0], self.reading_row, *of_rows, is_last=True)

    def reading_group(self, number: Array) -> _Reading:
        """Returns the members of a group, who read what they share."""
        row_R = [self.members_GR[number, nth] for nth in range(MEMBERS)]
        stop = self.num_shared_B[row_R[0]]
        return _Reading(row_R, jnp.int32(0), stop, stop * self.kv_NPAp.shape[1] - 1)

    def reading_row(self, number: Array) -> _Reading:
        """Returns a row, which reads what is its own."""
        first, last = self.num_shared_B[number], self.last_B[number]
        stop = jnp.clip(pl.cdiv(last + 1, self.kv_NPAp.shape[1]), first + 1, self.pages_BM.shape[1])
        return _Reading([number], first, stop, last)

    def copy(self, act: str, reader: _Reading, turn: Array, to_IPAp: Ref, semaphore: Ref) -> None:
        """Starts copying the pages of a turn into a buffer, or waits until they are there: "start" or "wait"."""

        def copy_page(nth: int, page: Array) -> None:
            from_PAp = self.kv_NPAp.at[self.pages_BM[reader.row_R[0], page]]
            getattr(pltpu.make_async_copy(from_PAp, to_IPAp.at[nth], semaphore), act)()

        for nth in range(to_IPAp.shape[0]):
            page = reader.first + turn * to_IPAp.shape[0] + nth
            pl.when(page < reader.stop)(partial(copy_page, nth, page))

    def read(
        self,
        count: Array | int,
        reader_of: Callable[[Array], _Reading],
        buffer_2IPAp: Ref,
        semaphore_2: Ref,
        *,
        is_last: bool,
    ) -> None:
        """Lets readers 0 to `count` - 1 read; the first pages of the first one are on their way."""
        block, K = buffer_2IPAp.shape[1], self.q_BKXp.shape[1]

        def read_all(number: Array, half: Array) -> Array:
            reader = reader_of(number)
            turns = pl.cdiv(reader.stop - reader.first, block)
            q_KYp = [_of_rows(self.q_BKXp, reader, head).astype(self.dtype) for head in range(K)]

            def read_block(turn: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
                half, *sums_K = carry
                is_done = turn + 1 == turns
                next_number, next_turn = jnp.where(is_done, number + 1, number), jnp.where(is_done, 0, turn + 1)
                other = 1 - half

                @pl.when(next_number < count)
                def _() -> None:
                    ahead = buffer_2IPAp.at[other], semaphore_2.at[other]
                    self.copy("start", reader_of(next_number), next_turn, *ahead)

                self.copy("wait", reader, turn, buffer_2IPAp.at[half], semaphore_2.at[half])
                return 1 - half, *self.attend(q_KYp, reader, turn, buffer_2IPAp.at[half], sums_K)

            half, *sums_K = jax.lax.fori_loop(0, turns, read_block, (half, *self.kept(reader)))
            self.keep(reader, sums_K, is_last=is_last)
            return half

        jax.lax.fori_loop(0, count, read_all, jnp.int32(0))

    def attend(
        self, q_KYp: list[Array], reader: _Reading, turn: Array, kv_IPAp: Ref, sums_K: list[Any]
    ) -> list[tuple[Array, Array, Array]]:
        """Returns the sums of each head with those of the pages of a turn."""
        positions = kv_IPAp.shape[0] * kv_IPAp.shape[1]
        begin = reader.first * kv_IPAp.shape[1] + turn * positions
        shape = q_KYp[0].shape[0], positions  # Y are the query heads X of all rows
        visible_YS = begin + jax.lax.broadcasted_iota(jnp.int32, shape, 1) <= reader.last
        return [
            _add(q_Yp, *_keys_and_values(kv_IPAp, head), visible_YS, self.scale, *sums)
            for head, (q_Yp, sums) in enumerate(zip(q_KYp, sums_K, strict=True))
        ]

    def kept(self, reader: _Reading) -> list[tuple[Array, ...]]:
        """Returns the sums of each head over what comes before the first page, which a group has read."""
        empty = (self.top_BKX1, LOWEST), (self.sum_BKX1, 0.0), (self.y_BKXp, 0.0)
        return [
            tuple(jnp.where(reader.first > 0, _of_rows(x_BKX_, reader, head), none) for x_BKX_, none in empty)
            for head in range(self.q_BKXp.shape[1])
        ]

    def keep(self, reader: _Reading, sums_K: list[tuple[Array, Array, Array]], *, is_last: bool) -> None:
        """Writes the sums of each head; after the last pages, the values' mean instead of their sum."""
        X = self.q_BKXp.shape[2]
        for head, (top_Y1, sum_Y1, y_Yp) in enumerate(sums_K):
            if is_last:
                y_Yp /= jnp.maximum(sum_Y1, jnp.finfo(jnp.float32).tiny)
            for x_BKX_, x_Y_ in ((self.top_BKX1, top_Y1), (self.sum_BKX1, sum_Y1), (self.y_BKXp, y_Yp)):
                for nth, row in enumerate(reader.row_R):
                    x_BKX_[row, head] = x_Y_[nth * X : (nth + 1) * X]


def _of_rows(x_BKX_: Ref, reader: _Reading, head: int) -> Array:
    """Returns a head's part of all rows of a reader, below one another."""
    return jnp.concatenate([x_BKX_[row, head] for row in reader.row_R])


def _add(
    q_Yp: Array, k_Sp: Array, v_Sp: Array, visible_YS: Array, scale: float, top_Y1: Array, sum_Y1: Array, y_Yp: Array
) -> tuple[Array, Array, Array]:
    """Returns the maximum of the scores, the sum of the weights and of the values with those of further keys."""
    contracted = (((1,), (1,)), ((), ()))
    score_YS = scale * jax.lax.dot_general(q_Yp, k_Sp, contracted, preferred_element_type=jnp.float32)
    score_YS = jnp.where(visible_YS, score_YS, LOWEST)
    new_top_Y1 = jnp.maximum(top_Y1, jnp.max(score_YS, axis=1, keepdims=True))
    weight_YS = jnp.where(visible_YS, jnp.exp(score_YS - new_top_Y1), 0.0)
    old_Y1 = jnp.exp(top_Y1 - new_top_Y1)
    part_Yp = jnp.dot(weight_YS.astype(v_Sp.dtype), v_Sp, preferred_element_type=jnp.float32)
    return new_top_Y1, sum_Y1 * old_Y1 + jnp.sum(weight_YS, axis=1, keepdims=True), y_Yp * old_Y1 + part_Yp


def _keys_and_values(kv_IPAp: Ref, head: int) -> tuple[Array, Array]:
    """Returns the keys and values [S, p] of one head in a block of pages."""
    block, P, A, p = kv_IPAp.shape
    kv_Zp = kv_IPAp.reshape(block * P * A, p)
    if kv_IPAp.dtype == jnp.float32:
        return kv_Zp[2 * head :: A, :], kv_Zp[2 * head + 1 :: A, :]
    # Only 32 bits are read with a stride: a key and its value together, the key in the lower half.
    both_Sp = kv_Zp.bitcast(jnp.uint32)[head :: A // 2, :]
    halves = both_Sp << 16, both_Sp & jnp.uint32(0xFFFF0000)
    k_Sp, v_Sp = (pltpu.bitcast(half_Sp, jnp.float32).astype(kv_IPAp.dtype) for half_Sp in halves)
    return k_Sp, v_Sp
