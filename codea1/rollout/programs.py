"""The compiled programs of generation, and a record of each compilation."""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codea1.models import kv_cache, qwen2
from codea1.models.kv_cache import KVCache
from codea1.models.qwen2 import Params
from codea1.rollout import decoding
from codea1.rollout.decoding import Chunk, DecodingConfig, Rows
from codea1.rollout.sampling import Restriction
from codea1.runtime.compilations import Compilation, noted
from codea1.sharding import ACTIVATION_RULES, ROLLOUT_RULES, param_shardings, partition_spec


class Programs:
    """Calls the programs of one model on one mesh; `compilations` lists what its calls compiled.

    `functions` holds them by name, and `layouts` the shardings of what they return.
    """

    def __init__(self, config: DecodingConfig, graphdef: nnx.GraphDef, mesh: Mesh) -> None:
        self.compilations: list[Compilation] = []
        self.functions, self.layouts = _make(config, graphdef, mesh)

    def publish(self, params: Params) -> Params:
        """Training parameters in the layout and dtype of generation."""
        return self._call("publish", "publish", params)

    def empty(self, slots: int, length: int) -> KVCache:
        """A cache for so many slots of so many positions."""
        return self._call("empty", f"empty {slots} slots", slots, length)

    def prefill(self, params: Params, tokens_PT: np.ndarray) -> KVCache:
        """See `decoding.prefill`."""
        return self._call("prefill", f"prefill {tokens_PT.shape[0]} x {tokens_PT.shape[1]}", params, tokens_PT)

    def insert(self, cache: KVCache, prompts: KVCache, prompt_WI: np.ndarray, slot_WI: np.ndarray) -> KVCache:
        """See `decoding.insert`; uses `cache` up."""
        _, slots, *_ = cache.k_LBKhS.shape
        _, num_prompts, _, _, length = prompts.k_LBKhS.shape
        name = f"insert {num_prompts} x {length} into {slots} slots"
        return self._call("insert", name, cache, prompts, prompt_WI, slot_WI)

    def take_slots(self, cache: KVCache, slot_WB: np.ndarray) -> KVCache:
        """See `decoding.take_slots`."""
        return self._call("take_slots", f"take {slot_WB.size} of {cache.k_LBKhS.shape[1]} slots", cache, slot_WB)

    def decode(
        self,
        span: int,
        params: Params,
        cache: KVCache,
        rows: Rows,
        key_data: np.ndarray,
        temperature: np.float32,
        leave_at: int,
        restriction: Restriction | None,
    ) -> tuple[KVCache, Chunk]:
        """See `decoding.decode_chunk`; uses `cache` up."""
        name = f"decode {len(rows.live)} slots, span {span}" + (", restricted" if restriction else "")
        if restriction:
            top_k, top_p, min_p = restriction.top_k, restriction.top_p, restriction.min_p
            restriction = Restriction(np.int32(top_k), np.float32(top_p), np.float32(min_p))
        arguments = (span, params, cache, rows, key_data, temperature, np.int32(leave_at), restriction)
        return self._call("decode", name, *arguments)

    def _call(self, key: str, name: str, *arguments: Any) -> Any:
        return noted(self.compilations, name, self.functions[key], *arguments)


@functools.cache
def _make(config: DecodingConfig, graphdef: nnx.GraphDef, mesh: Mesh) -> tuple[dict[str, Callable], dict[str, Any]]:
    """The jitted functions, shared by all engines that would compile the same, and the layouts of their results."""
    _, abstract_params = qwen2.abstract(config.model)

    def sharded(*axes: str | None) -> NamedSharding:
        return NamedSharding(mesh, partition_spec(axes, ACTIVATION_RULES))

    def publish(params: Params) -> Params:
        return jax.tree.map(lambda p: p.astype(config.model.dtype), params)

    # Pinned, or a chunk that hands back a cache cut in another way than it came would compile the next one again.
    key_format = _head_dim_last(sharded(*kv_cache.KEY_AXES), (0, 1, 2, 4, 3), mesh)
    value_format = _head_dim_last(sharded(*kv_cache.VALUE_AXES), (0, 1, 2, 3, 4), mesh)
    cache = KVCache(key_format, value_format)
    everywhere = NamedSharding(mesh, PartitionSpec())  # every process reads every response
    layouts = {
        "publish": param_shardings(abstract_params, mesh, ROLLOUT_RULES),
        "empty": cache,
        "prefill": cache,
        "insert": cache,
        "take_slots": cache,
        "decode": (cache, everywhere),
    }
    jit = partial(_jit, layouts)
    functions = {
        "publish": jit("publish", publish),
        "empty": jit("empty", partial(KVCache.zeros, config.model), static_argnums=(0, 1)),
        "prefill": jit("prefill", partial(decoding.prefill, config, graphdef)),
        "insert": jit("insert", partial(decoding.insert, mesh), donate_argnums=0),
        "take_slots": jit("take_slots", partial(decoding.take_slots, mesh)),
        "decode": jit("decode", partial(decoding.decode_chunk, config, graphdef), static_argnums=0, donate_argnums=2),
    }
    return functions, layouts


def _head_dim_last(sharding: NamedSharding, axis_order: tuple[int, ...], mesh: Mesh) -> NamedSharding | Format:
    """On TPU caches lie in memory with the head dimension last: decoding would copy others to that order as a whole."""
    on_tpu = mesh.devices.flat[0].platform == "tpu"
    return Format(Layout(major_to_minor=axis_order), sharding) if on_tpu else sharding


def _jit(layouts: dict[str, Any], name: str, function: Callable, **options: Any) -> Callable:
    return jax.jit(function, out_shardings=layouts[name], **options)
