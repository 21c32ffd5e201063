"""One mesh, logical axis names, and the two tables that map names to mesh axes.

Parameters and activations name their dimensions ("embed", "heads", "batch"); a table says which mesh axis cuts each.
Weights at rest are cut over `fsdp` and `tensor` by TRAIN_RULES. At their use in training, and for generation, they drop
`fsdp`, a pure all-gather: they are then laid out as activations are, by ACTIVATION_RULES. The tables differ in "embed"
alone, which no activation carries.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.experimental import mesh_utils, multihost_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from codea1.runtime.errors import BadInput
from codea1.slices import SLICES, num_chips, split

# replica: copies of the weights, across slices; fsdp: weights cut and gathered for use; tensor: heads, MLP, vocabulary.
MESH_AXES = ("replica", "fsdp", "tensor")

# In a pytree: numpy on the host, JAX on devices and in compiled functions, and a shape where these are compiled.
Array = jax.Array | Any

AxisRules = Mapping[str, str | tuple[str, ...] | None]

BATCH_AXES, EMBED_AXIS, TENSOR_AXIS = ("replica", "fsdp"), "fsdp", "tensor"
ACTIVATION_RULES: AxisRules = {
    "batch": BATCH_AXES,
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "vocab": "tensor",
    "experts": (EMBED_AXIS, TENSOR_AXIS),  # in both tables: experts never move
    "layers": None,
    "head_dim": None,
    "norm": None,
    "rank": None,
    "embed": None,
}
TRAIN_RULES: AxisRules = {**ACTIVATION_RULES, "embed": EMBED_AXIS}


def make_mesh(replica: int, fsdp: int, tensor: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns the mesh over all `devices` (every device of every process by default), neighbours innermost.

    `fsdp` -1 takes the devices that the other two leave. Where there are several TPU slices, each has whole replicas.
    Raises BadInput when the sizes do not multiply to the number of devices, or the slices do not divide `replica`.
    """
    devices = jax.devices() if devices is None else devices
    if fsdp == -1 and replica * tensor > 0:
        fsdp = max(len(devices) // (replica * tensor), 1)
    shape = (replica, fsdp, tensor)
    if min(shape) < 1 or math.prod(shape) != len(devices):
        sizes = " x ".join(f"{axis} {size}" for axis, size in zip(MESH_AXES, shape, strict=True))
        raise BadInput(f"the mesh {sizes} does not multiply to the {len(devices)} devices there are")
    slices = len({getattr(device, "slice_index", 0) for device in devices if device.platform == "tpu"}) or 1
    if replica % slices:
        raise BadInput(f"config.mesh.replica is {replica}; the {slices} slices that there are must divide it.")
    # jax.make_mesh would refuse a mesh that cuts an axis of a TPU's torus, as tensor 2 does on 4x4 chips.
    if slices == 1:
        placed = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    else:
        within, across = (replica // slices, fsdp, tensor), (slices, 1, 1)
        placed = mesh_utils.create_hybrid_device_mesh(within, across, devices, allow_split_physical_axes=True)
    # Explicit axes want an output sharding on every gather and einsum.
    return Mesh(placed, MESH_AXES, axis_types=(AxisType.Auto,) * len(shape))


def require_topology(topology: str, devices: Sequence[jax.Device]) -> None:
    """Raises BadInput: TPUs are more or fewer than the slices that a config is made for, whatever mesh they would take.

    Other devices are not compared: a config for TPUs also runs on GPUs.
    """
    if devices[0].platform == "tpu" and split(topology)[1] in SLICES and len(devices) != num_chips(topology):
        raise BadInput(
            f"config.mesh.topology is {topology}, which has {num_chips(topology)} chips, and this run has "
            f"{len(devices)}: start it on all hosts of {topology}, or give the config the topology that there is."
        )


def data_parallel(mesh: Mesh) -> int:
    """Returns into how many parts the mesh cuts the batch axis."""
    return mesh.shape["replica"] * mesh.shape["fsdp"]


def require_multiple(key: str, rows: int, mesh: Mesh) -> None:
    """Raises BadInput where the mesh cuts the `rows` of field `key` of the config unevenly."""
    parts = data_parallel(mesh)
    if rows % parts:
        nearest = max(round(rows / parts), 1) * parts
        raise BadInput(f"config.{key} is {rows}; replica x fsdp = {parts} must divide it: use {nearest}.")


def partition_spec(axes: Sequence[str | None], rules: AxisRules) -> PartitionSpec:
    """Returns the mesh axes of an array whose dimensions are named `axes`; None is a dimension that is never cut."""
    return PartitionSpec(*(None if axis is None else rules[axis] for axis in axes))


def batch_axes() -> tuple[str, ...]:
    """Returns the mesh axes that cut the rows of what is traced: within `jax.shard_map` not those that did already."""
    mapped = jax.sharding.get_abstract_mesh().manual_axes
    return tuple(axis for axis in BATCH_AXES if axis not in mapped)


def _spec_within(axes: Sequence[str | None], rules: AxisRules) -> PartitionSpec:
    """Returns `partition_spec` of what is traced, with `batch_axes` alone for its rows."""
    return partition_spec(axes, {**rules, "batch": batch_axes()})


def param_shardings(abstract_params: nnx.State, mesh: Mesh, rules: AxisRules) -> dict[str, Any]:
    """Returns a nested dict of NamedSharding shaped like the parameters, from the names of their dimensions.

    `abstract_params` is the state of `codea1.models.qwen2.abstract`.
    """

    def cut(param: nnx.Variable) -> NamedSharding:
        return NamedSharding(mesh, partition_spec(param.get_metadata("out_sharding"), rules))

    return nnx.to_pure_dict(jax.tree.map(cut, abstract_params, is_leaf=lambda x: isinstance(x, nnx.Variable)))


def laid_out(arrays: Any, shardings: Any) -> Any:
    """Returns a pytree of arrays, or of shapes with dtypes, as shapes with the shardings of another pytree."""
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), arrays, shardings
    )


def constrain(x: jax.Array, *axes: str | None, rules: AxisRules = ACTIVATION_RULES) -> jax.Array:
    """Pins the layout of an activation, or of a weight at its use, by the names of its dimensions.

    The mesh is the one of `jax.set_mesh`, or else that of `x`. Only where there is neither, on a single
    device, does this do nothing.
    """
    spec = _spec_within(axes, rules)
    if len(axes) != x.ndim:
        raise ValueError(f"{len(axes)} axis names for an array of {x.ndim} dimensions: {axes}")
    mesh = mesh_of(x)
    return x if mesh.empty else jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def mesh_of(x: jax.Array) -> AbstractMesh | Mesh:
    """Returns the mesh of `jax.set_mesh`, or else that of `x`; it is empty on a single device without either."""
    mesh = jax.sharding.get_abstract_mesh()
    return jax.typeof(x).sharding.mesh if mesh.empty else mesh


def on_each_device(
    function: Callable[..., jax.Array],
    inputs: Sequence[Sequence[str | None]],
    output: Sequence[str | None],
    output_rules: AxisRules = ACTIVATION_RULES,
) -> Callable[..., jax.Array]:
    """Wraps a function of activations such that every device computes it on its own parts of them.

    `inputs` and `output` name the dimensions of the arrays, as `constrain` takes them; the mesh is found as there.
    """

    def mapped(*arrays: jax.Array) -> jax.Array:
        mesh = mesh_of(arrays[0])
        if mesh.empty:
            return function(*arrays)
        in_specs = tuple(_spec_within(axes, ACTIVATION_RULES) for axes in inputs)
        out_specs = _spec_within(output, output_rules)
        # Pallas kernels do not declare how their results vary over the mesh, so that is not checked.
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)(*arrays)

    return mapped


def to_host(tree: Any) -> Any:
    """Returns the pytree with numpy arrays for jax.Arrays, whole on every process.

    A collective when an array is cut across processes: every process must call it, in the same order.
    """

    def copy(x: jax.Array | np.ndarray) -> np.ndarray:
        if not isinstance(x, jax.Array) or x.is_fully_addressable:
            return np.asarray(x)
        if x.is_fully_replicated:
            return np.asarray(x.addressable_data(0))
        return multihost_utils.process_allgather(x, tiled=True)

    return jax.tree.map(copy, tree)
