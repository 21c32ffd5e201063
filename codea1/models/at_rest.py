"""How the parameters of a policy lie in memory: stacked over layers, or as `KernelForms` on a CPU."""

import functools
from typing import Any

import jax
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codea1.models.config import Qwen2Config
from codea1.models.flops import layer_weights
from codea1.models.lora import join, split
from codea1.models.qwen2 import Params, abstract
from codea1.models.weights import KernelForms, has_forms
from codea1.sharding import TRAIN_RULES, laid_out, param_shardings

MOST_CACHED = 64 << 20  # bytes of kernels that may stay in a processor's cache from one decode step to the next


def has_forms_on(config: Qwen2Config, mesh: Mesh) -> bool:
    """Returns whether frozen and published kernels are `KernelForms`: on one CPU, which reads them from memory.

    A model with experts has none: forms unroll the layers of a decode step, which would then copy every expert.
    """
    is_large = 4 * config.num_layers * layer_weights(config) > MOST_CACHED
    return config.platform == "cpu" and mesh.size == 1 and is_large and not config.num_experts


def with_forms(params: Params, learns: bool) -> Params:
    """Returns parameters with `KernelForms` instead of kernels. Converts one kernel at a time, to save memory.

    They may have them already, from a player that shares the base.
    """
    leaves = flatten_dict(params)

    def with_form(path: tuple[str, ...]) -> Any:
        leaf = leaves.pop(path)
        if not path[-1].endswith("_kernel"):
            return leaf
        forms = leaf if has_forms(leaf) else _forms(leaf, 2 if path[-1] == "o_kernel" else 1)
        return forms.for_gradients() if learns else KernelForms(forms.stack, None, forms.layers)

    return unflatten_dict({path: with_form(path) for path in list(leaves)})


_forms = jax.jit(KernelForms.of, static_argnums=1)


def at_rest(config: Qwen2Config, mesh: Mesh, learns: bool) -> Params:
    """Returns the parameters of a policy as shapes in their layout: of training, or of a policy that only answers."""
    _, declared = abstract(config)
    params = laid_out(nnx.to_pure_dict(declared), param_shardings(declared, mesh, TRAIN_RULES))
    if not has_forms_on(config, mesh):
        return params
    trained, frozen = split(params) if learns else ({}, params)
    layout = NamedSharding(mesh, PartitionSpec())
    shapes = jax.eval_shape(functools.partial(with_forms, learns=learns), frozen)
    return join(trained, jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout), shapes))
