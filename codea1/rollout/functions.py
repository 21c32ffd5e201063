"""The compiled functions of generation: the static sizes that there are, and one list of functions for all of them."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import jax
import numpy as np
from flax import nnx
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codea1.models import kv_cache, qwen2
from codea1.models.kv_cache import KVCache
from codea1.models.qwen2 import Params
from codea1.rollout import decoding
from codea1.rollout.decoding import DecodingConfig, Rows
from codea1.runtime.compilations import Function
from codea1.sharding import (
    ACTIVATION_RULES,
    TRAIN_RULES,
    data_parallel,
    laid_out,
    param_shardings,
    partition_spec,
    require_multiple,
)

SHORTEST_SPAN = 64  # positions: below it attention costs little beside the rest of a decode step
# The last axis of an array on TPU is padded to whole tiles; a cache whose positions are none is copied to rearrange it.
TILE = 128
FEWEST_SLOTS = 8  # below it a decode step takes hardly less time


@dataclass(frozen=True)
class Sizes:
    """The static sizes of an engine; what is plural is ascending."""

    shards: int  # W, parts into which the mesh cuts the batch axis, of slots and of prompts
    slots: tuple[int, ...]  # sequences that decode at once; the largest, and smaller ones for the last stragglers
    prompts: tuple[int, ...]  # prompts of one prefill
    inserted: int  # slots of each shard that one insertion fills
    prompt_lengths: tuple[int, ...]  # tokens
    spans: tuple[int, ...]  # positions that attention reads; the largest is the length of the cache
    straggler_spans: tuple[int, ...]  # the same for fewer than the largest number of slots

    @classmethod
    def of(
        cls, mesh: Mesh, *, slots: int, prompt_lengths: Sequence[int], max_prompt_length: int, max_response_length: int
    ) -> Self:
        """Returns the sizes of an engine.

        Halving the slots halves the time of a decode step on a CPU. An accelerator spends it on reading the weights and
        the cache. So it has fewer sizes, but on long caches all spans for each: the last samples decode for long.

        Raises BadInput when the mesh does not cut the slots evenly.
        """
        require_multiple("rollout.slots", slots, mesh)
        shards = data_parallel(mesh)
        on_cpu = mesh.devices.flat[0].platform == "cpu"
        parts = (1, 2, 4, 8) if on_cpu else (1, 4, 16)
        even = {slots // part for part in parts if slots % (part * shards) == 0}
        length = max_prompt_length + max_response_length - 1  # the last token of a response is never attended to
        tile = 1 if on_cpu else TILE
        length = -(-length // tile) * tile
        shorter = {max(-(-length * eighths // 8 // tile) * tile, SHORTEST_SPAN) for eighths in (1, 2, 4, 6)}
        spans = (*sorted(span for span in shorter if span < length), length)
        return cls(
            shards=shards,
            slots=tuple(sorted(size for size in even if size >= FEWEST_SLOTS or size == slots)),
            prompts=tuple(sorted({max(slots // shards // part, 1) * shards for part in (8, 32)})),
            inserted=max(slots // shards // 8, 1),
            prompt_lengths=tuple(sorted({*prompt_lengths, max_prompt_length})),
            spans=spans,
            straggler_spans=spans[-1:] if on_cpu else spans,
        )

    @property
    def prompts_per_shard(self) -> int:
        """Prompts of a shard that one prefill can hold."""
        return self.prompts[-1] // self.shards

    def span(self, slots: int, positions: int) -> int:
        """Returns how much of the cache attention reads where no query is beyond so many positions."""
        return smallest(self.spans_of(slots), positions)

    def spans_of(self, slots: int) -> tuple[int, ...]:
        """Returns the spans for so many slots."""
        return self.spans if slots == self.slots[-1] else self.straggler_spans

    def fewer_slots(self, slots: int) -> int:
        """Returns the next smaller number of slots; 0 below the smallest."""
        return max((fewer for fewer in self.slots if fewer < slots), default=0)


def smallest(sizes: Sequence[int], count: int) -> int:
    """Returns the smallest of ascending `sizes` that holds `count`, or else the largest."""
    return next((size for size in sizes if size >= count), sizes[-1])


# What a function does, and its static sizes:
#   ("publish",)                                                  training parameters to those of generation
#   ("empty", slots)                                              a cache
#   ("prefill", prompts, length), ("insert", prompts, length, slots), ("take_slots", fewer, slots)
#   ("decode", slots, span), ("decode restricted", slots, span)
Functions = dict[tuple[str | int, ...], Function]


def generation_functions(config: DecodingConfig, graphdef: nnx.GraphDef, mesh: Mesh, sizes: Sizes) -> Functions:
    """Lists what an engine of such sizes calls; see `decoding` for what takes which arguments."""
    jitted, layouts = _jitted(config, graphdef, mesh)
    _, declared = qwen2.abstract(config.model)
    params = laid_out(nnx.to_pure_dict(declared), param_shardings(declared, mesh, TRAIN_RULES))
    weights = laid_out(jax.eval_shape(jitted["publish"], params), layouts["publish"])
    found: Functions = {}

    def add(kind: str, *key: int, name: str, arguments: tuple[Any, ...], static: tuple[int, ...] = ()) -> None:
        function = jitted[kind.partition(" ")[0]]
        found.setdefault((kind, *key), Function(kind, name, function, arguments, static))

    def cache(rows: int, length: int) -> KVCache:
        shapes = jax.eval_shape(partial(KVCache.zeros, config.model, rows, length))
        return laid_out(shapes, layouts["prefill"])

    add("publish", name="publish", arguments=(params,))
    length = sizes.spans[-1]
    inserted = [_array(np.int32, sizes.shards, sizes.inserted)] * 2
    for slots in sizes.slots:
        add("empty", slots, name=f"empty {slots} slots", arguments=(), static=(slots, length))
        for size in ((prompts, tokens) for tokens in sizes.prompt_lengths for prompts in sizes.prompts):
            prefill = "{} x {}".format(*size)
            add("prefill", *size, name=f"prefill {prefill}", arguments=(weights, _array(np.int32, *size)))
            arguments = (cache(slots, length), cache(*size), *inserted)
            add("insert", *size, slots, name=f"insert {prefill} into {slots} slots", arguments=arguments)
        for span in sizes.spans_of(slots):
            name = f"decode {slots} slots, span {span}"
            scalars = _array(np.uint32, 2), _array(np.float32), _array(np.int32)
            arguments = (weights, cache(slots, length), _rows(slots), *scalars)
            add("decode", slots, span, name=name, arguments=(*arguments, None), static=(span,))
            restricted = (*arguments, _array(np.float32))
            add("decode restricted", slots, span, name=f"{name}, restricted", arguments=restricted, static=(span,))
        if fewer := sizes.fewer_slots(slots):
            kept = _array(np.int32, sizes.shards, fewer // sizes.shards)
            name = f"take {fewer} of {slots} slots"
            add("take_slots", fewer, slots, name=name, arguments=(cache(slots, length), kept))
    return found


def _array(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _rows(slots: int) -> Rows:
    numbers, is_live = _array(np.int32, slots), _array(bool, slots)
    return Rows(numbers, numbers, numbers, numbers, _array(np.uint32, slots), numbers, is_live)


@functools.cache
def _jitted(config: DecodingConfig, graphdef: nnx.GraphDef, mesh: Mesh) -> tuple[dict[str, Callable], dict[str, Any]]:
    """Returns the jitted functions, shared by all engines that would compile the same, and the layouts of results."""
    _, declared = qwen2.abstract(config.model)

    def publish(params: Params) -> Params:
        return jax.tree.map(lambda p: p.astype(config.model.dtype), params)

    def cache_format(axes: tuple[str | None, ...]) -> NamedSharding | Format:
        """Returns a layout, on TPU with the order of axes in which decoding writes: it would copy all of another.

        Last is the head dimension where it fills whole tiles; else the positions do, and it is not padded to them.
        """
        sharding = NamedSharding(mesh, partition_spec(axes, ACTIVATION_RULES))
        if mesh.devices.flat[0].platform != "tpu":
            return sharding
        last = axes.index(None if config.model.head_dim % TILE else "head_dim")
        return Format(Layout(major_to_minor=(0, 1, 2, 7 - last, last)), sharding)

    # Pinned, or a chunk would hand back a cache cut in another way than it came.
    cache = KVCache(cache_format(kv_cache.KEY_AXES), cache_format(kv_cache.VALUE_AXES))
    everywhere = NamedSharding(mesh, PartitionSpec())  # every process reads every response
    layouts = {
        "publish": param_shardings(declared, mesh, ACTIVATION_RULES),
        "empty": cache,
        "prefill": cache,
        "insert": cache,
        "take_slots": cache,
        "decode": (cache, everywhere),
    }

    def jit(name: str, function: Callable, **options: Any) -> Callable:
        return jax.jit(function, out_shardings=layouts[name], **options)

    return {
        "publish": jit("publish", publish),
        "empty": jit("empty", partial(KVCache.zeros, config.model), static_argnums=(0, 1)),
        "prefill": jit("prefill", partial(decoding.prefill, config, graphdef)),
        "insert": jit("insert", decoding.insert, donate_argnums=0),
        "take_slots": jit("take_slots", decoding.take_slots),
        "decode": jit("decode", partial(decoding.decode_chunk, config, graphdef), static_argnums=0, donate_argnums=2),
    }, layouts
