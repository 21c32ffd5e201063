"""The compiled functions of generation: one list of them, for all static sizes of an engine."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codea1.models.at_rest import at_rest, has_forms_on, with_forms
from codea1.models.config import Qwen2Config
from codea1.models.grouped_attention import MEMBERS
from codea1.models.kv_cache import Cache, PageTable, cache_axes, num_groups
from codea1.models.lora import split
from codea1.models.qwen2 import Params, abstract
from codea1.models.weights import has_forms, table_forms
from codea1.rollout import decoding
from codea1.rollout.decoding import DecodingConfig, abstract_rows
from codea1.rollout.scheduler import Sizes
from codea1.runtime.compilations import Function
from codea1.sharding import ACTIVATION_RULES, laid_out, param_shardings, partition_spec


@dataclasses.dataclass(frozen=True)
class GenerationFunctions:
    """What an engine calls: see `decoding` for the arguments."""

    publish: Function  # training parameters to those of generation; see `_publishing`
    empty: Function  # a cache
    prefill: Mapping[tuple[int, ...], Function]  # by prompts and their length
    copy_pages: Function
    decode: Mapping[tuple[int, bool], Function]  # by slots, and whether top_p restricts the draws


def generation_functions(
    config: DecodingConfig, graphdef: nnx.GraphDef, mesh: Mesh, sizes: Sizes, learns: bool = True
) -> GenerationFunctions:
    """Returns what an engine of such sizes calls, for weights that learn or not."""
    publish, params, weights = _publishing(config.model, mesh, learns)
    empty, prefill, copy_pages = _jitted(config.model, config.records_routes, graphdef, mesh)
    decode_chunk = _jitted_decode(config, graphdef, mesh)
    pages = sizes.pages * sizes.shards
    zeros = partial(Cache.zeros, config.model, pages)
    cache = laid_out(jax.eval_shape(zeros), _cache_layout(config.model, mesh))

    prefills: dict[tuple[int, ...], Function] = {}
    for length, prompts in itertools.product(sizes.prompt_lengths, sizes.prompts):
        tokens, table = _array(np.int32, prompts, length), _array(np.int32, prompts, sizes.pages_of(length))
        arguments = weights, cache, tokens, table
        prefills[prompts, length] = Function("prefill", f"prefill {prompts} x {length}", prefill, arguments)
    copied = _array(np.int32, sizes.shards, sizes.inserted)
    decode: dict[tuple[int, bool], Function] = {}
    scalars = _array(np.uint32, 2), _array(np.float32), _array(np.int32)
    for slots in sizes.slots:
        state = weights, cache, _table(sizes, slots), abstract_rows(slots), *scalars
        for end, limit in (("", None), (", restricted", _array(np.float32))):
            name = f"decode {slots} slots{end}"
            decode[slots, limit is not None] = Function("decode", name, decode_chunk, (*state, limit))
    return GenerationFunctions(
        Function("publish", "publish", publish, (params,)),
        Function("empty", f"empty {pages} pages", empty, (), (pages,)),
        prefills,
        Function("copy_pages", f"copy {sizes.inserted} pages", copy_pages, (cache, copied, copied)),
        decode,
    )


def _array(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _table(sizes: Sizes, slots: int) -> PageTable:
    pages = _array(np.int32, slots, sizes.longest)
    if sizes.platform == "tpu":
        groups = _array(np.int32, sizes.shards, num_groups(slots // sizes.shards), MEMBERS)
        return PageTable(pages, num_shared_B=_array(np.int32, slots), members_WGR=groups)
    reads = _array(np.int32, sizes.shards, sizes.reads[slots], 3)
    return PageTable(pages, reads, _array(np.int32, sizes.shards))


@functools.cache
def _publishing(model: Qwen2Config, mesh: Mesh, learns: bool) -> tuple[Callable, Params, Params]:
    """Returns the jitted `publish` and, as shapes in their layout, the parameters that it takes and all weights.

    It does not take those that never change and lie as they would be published: they are there once.
    """
    params = at_rest(model, mesh, learns)
    takes_forms = has_forms_on(model, mesh)

    def publish(params: Params) -> Params:
        flat = flatten_dict(params)
        cast = {path: p if has_forms(p) else p.astype(_published_dtype(model, path)) for path, p in flat.items()}
        if takes_forms:
            stacked = {path: p for path, p in cast.items() if not has_forms(p)}
            cast |= flatten_dict(with_forms(unflatten_dict(stacked), learns=False))
            cast |= {path: table_forms(cast[path]) for path in cast.keys() & {("embedding",)}}
        return unflatten_dict(cast)

    _, declared = abstract(model)
    layouts = param_shardings(declared, mesh, ACTIVATION_RULES)
    published = flatten_dict(jax.eval_shape(publish, params))
    of_forms = NamedSharding(mesh, PartitionSpec())
    layout_of = {
        path: jax.tree.map(lambda _: of_forms, published[path]) if has_forms(published[path]) else layout
        for path, layout in flatten_dict(layouts).items()
    }
    weights = laid_out(published, layout_of)

    def is_kept(path: tuple[str, ...], p: Any) -> bool:
        if has_forms(p) or has_forms(weights[path]):
            return has_forms(p)
        wanted = weights[path]
        return p.dtype == wanted.dtype and p.sharding.is_equivalent_to(wanted.sharding, p.ndim)

    frozen = flatten_dict(split(params)[1] if learns else params)
    taken = {path: p for path, p in flatten_dict(params).items() if path not in frozen or not is_kept(path, p)}
    jitted = jax.jit(publish, out_shardings=unflatten_dict({path: layout_of[path] for path in taken}))
    return jitted, unflatten_dict(taken), unflatten_dict(weights)


def _published_dtype(model: Qwen2Config, path: tuple[str, ...]) -> jnp.dtype:
    """Returns that of products where a parameter is a factor of one, or that of activations."""
    is_factor = path[-1] in ("embedding", "lm_head") or path[-1].endswith(("_kernel", "_experts"))
    return jnp.dtype(model.dtype) if is_factor else model.activations


@functools.cache
def _cache_layout(model: Qwen2Config, mesh: Mesh) -> Any:
    """Returns the shardings of a cache. They are pinned, or a chunk would hand it back cut in another way."""
    structure = jax.tree.structure(jax.eval_shape(partial(Cache.zeros, model, 1)))
    specs = (partition_spec(axes, ACTIVATION_RULES) for axes in cache_axes(model.platform))
    return jax.tree.unflatten(structure, [NamedSharding(mesh, spec) for spec in specs])


@functools.cache
def _jitted(
    model: Qwen2Config, records_routes: bool, graphdef: nnx.GraphDef, mesh: Mesh
) -> tuple[Callable, Callable, Callable]:
    """Returns the jitted `empty`, `prefill` and `copy_pages`, shared by all engines that would compile the same."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    layout = _cache_layout(model, mesh)

    def prefill(*arguments: Any) -> tuple[Cache, jax.Array | None]:
        cache, routes = decoding.prefill(graphdef, *arguments)
        return cache, routes if records_routes else None

    return (
        jax.jit(partial(Cache.zeros, model), static_argnums=0, out_shardings=layout),
        jax.jit(prefill, donate_argnums=1, out_shardings=(layout, everywhere)),
        jax.jit(Cache.copy_pages, donate_argnums=0, out_shardings=layout),
    )


@functools.cache
def _jitted_decode(config: DecodingConfig, graphdef: nnx.GraphDef, mesh: Mesh) -> Callable:
    """Returns the jitted `decode_chunk`, shared by all engines that would compile the same."""
    everywhere = NamedSharding(mesh, PartitionSpec())  # every process reads every response
    layouts = _cache_layout(config.model, mesh), everywhere
    return jax.jit(partial(decoding.decode_chunk, config, graphdef), donate_argnums=1, out_shardings=layouts)
