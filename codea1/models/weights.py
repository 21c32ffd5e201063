"""Weights at their use: gathered over fsdp in the dtype of activations, their gradients summed in float32.

Left to itself the partitioner does not gather a weight that lies cut along the contraction, but multiplies in windows,
and XLA for TPU adds those up in the dtype of the result. A gradient that is stated in bfloat16 is summed over the
devices in bfloat16. So both are written out here.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import DTypeLike
from jaxtyping import Float, Float32, Int

from codea1.sharding import EMBED_AXIS, TRAIN_RULES, Array, batch_axes, constrain, mesh_of, on_each_device

Axes = tuple[str | None, ...]  # logical names of a weight's dimensions


def gathered(weight: Float[Array, "..."], axes: Axes, dtype: DTypeLike) -> Float[Array, "..."]:
    """Returns a weight cast, and whole along "embed"."""
    return constrain(weight.astype(dtype), *axes)


def rows_of_all(x_BTD: Float[Array, "B T D"]) -> Float[Array, "X D"]:
    """Returns the rows of all devices along "embed", on each of them; for functions of `on_each_device`.

    With `own_rows` it is for weights that stay where they lie while rows move, as experts do.
    """
    return jax.lax.all_gather(x_BTD, EMBED_AXIS, tiled=True).reshape(-1, x_BTD.shape[-1])


def own_rows(part_XD: Float32[Array, "X D"]) -> Float32[Array, "Y D"]:
    """Returns this device's rows of the sum over devices of what each of them computed for the rows of all."""
    return jax.lax.psum_scatter(part_XD, EMBED_AXIS, tiled=True)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def rounded(weight: Float[Array, "*weight"], dtype: DTypeLike) -> Float32[Array, "*weight"]:
    """Returns a weight that is broadcast, in float32 with the values that it has in `dtype`.

    Its gradient is not rounded: the compiler would do so before it sums over the devices.
    """
    return weight.astype(dtype).astype(jnp.float32)


rounded.defvjp(
    lambda weight, dtype: (rounded(weight, dtype), weight),
    lambda _, weight, weight_bar: (weight_bar.astype(weight.dtype),),
)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def dense(
    x: Float[Array, "B T *E"], kernel: Float[Array, "..."], axes: Axes, contracted: int = 1
) -> Float[Array, "B T *O"]:
    """Multiplies x by kernel [E..., O...] over its first dimensions, `contracted` of them, in x's dtype.

    One product of two matrices: where tokens keep two dimensions, XLA for CPU transposes copies of its operands for the
    kernel's gradient, and computes again what they are made of.
    """
    return _dense_forward(x, kernel, axes, contracted)[0]


def _dense_forward(
    x: Float[Array, "B T *E"], kernel: Float[Array, "..."], axes: Axes, contracted: int
) -> tuple[Float[Array, "B T *O"], tuple]:
    rows_XE = x.reshape(x.shape[0] * x.shape[1], -1)
    product_XO = rows_XE @ gathered(kernel, axes, x.dtype).reshape(rows_XE.shape[1], -1)
    return product_XO.reshape(*x.shape[:2], *kernel.shape[contracted:]), (x, kernel)


def _dense_backward(
    axes: Axes, contracted: int, residuals: tuple, y_bar: Float[Array, "B T *O"]
) -> tuple[Float[Array, "B T *E"], Float[Array, "..."]]:
    x, kernel = residuals
    num_rows = x.shape[0] * x.shape[1]
    kernel_EO = gathered(kernel, axes, x.dtype).reshape(math.prod(kernel.shape[:contracted]), -1)
    x_bar = (y_bar.reshape(num_rows, -1) @ kernel_EO.T).reshape(x.shape)
    return x_bar, _kernel_gradient(x, y_bar, axes, contracted).astype(kernel.dtype)


def _kernel_gradient(
    x: Float[Array, "B T *E"], y_bar: Float[Array, "B T *O"], axes: Axes, contracted: int
) -> Float32[Array, "..."]:
    """Computes the gradient of a kernel as it lies at rest.

    Every device multiplies its own rows whole, then the sums are scattered: the partitioner would multiply in windows
    here too, as narrow as a device's part of "embed".
    """
    mesh, cut_by = mesh_of(x), batch_axes()

    def own(x: Float[Array, "B T *E"], y_bar: Float[Array, "B T *O"]) -> Float32[Array, "..."]:
        rows_XE = x.reshape(x.shape[0] * x.shape[1], -1)
        y_bar_XO = y_bar.reshape(len(rows_XE), -1)
        sums_EO = jnp.matmul(rows_XE.T, y_bar_XO, preferred_element_type=jnp.float32)
        sums = sums_EO.reshape(*x.shape[2:], *y_bar.shape[2:])
        if not mesh.empty:
            sums = jax.lax.psum(sums, [axis for axis in cut_by if axis != EMBED_AXIS or "embed" not in axes])
        if not mesh.empty and "embed" in axes:
            sums = jax.lax.psum_scatter(sums, EMBED_AXIS, scatter_dimension=axes.index("embed"), tiled=True)
        return sums

    inputs = ("batch", None, *axes[:contracted]), ("batch", None, *axes[contracted:])
    return on_each_device(own, inputs, axes, output_rules=TRAIN_RULES)(x, y_bar)


dense.defvjp(_dense_forward, _dense_backward)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transposed:
    """A stacked kernel as a CPU multiplies few rows by it: of each layer its transpose [O..., E...].

    They are arrays of their own, or XLA for CPU would copy a layer's part of the stack at every use.
    """

    layers: tuple[Array, ...]

    def __getitem__(self, layer: Any) -> Any:
        """Returns the kernel of one layer, a stack of one; or all that there are, of `...`."""
        return self if layer is ... else Transposed((self.layers[layer],))


def is_transposed(leaf: Any) -> bool:
    return isinstance(leaf, Transposed)


def dense_of_few(x: Float[Array, "B T *E"], kernel: Transposed, contracted: int = 1) -> Float[Array, "B T *O"]:
    """Computes `dense` by the kernel of one layer."""
    (weight,) = kernel.layers
    outputs = weight.shape[: weight.ndim - contracted]
    weight_OE = weight.reshape(math.prod(outputs), -1)
    return times_few(weight_OE, x.reshape(x.shape[0] * x.shape[1], -1)).reshape(*x.shape[:2], *outputs)


def times_few(
    weight_OE: Float[Array, "O E"], rows_XE: Float[Array, "X E"], dtype: DTypeLike | None = None
) -> Float[Array, "X O"]:
    """Multiplies few rows by the transpose of a weight, in `dtype` or that of the rows.

    XLA for CPU packs what stands on the right of a product, which for few rows takes longer than to multiply. So the
    weight stands on the left, and a barrier keeps the compiler from turning that round.
    """
    product_OX = jnp.matmul(weight_OE, rows_XE.T, preferred_element_type=dtype or rows_XE.dtype)
    return jax.lax.optimization_barrier(product_OX).T


def low_rank(
    x: Float[Array, "B T *E"],
    a: Float[Array, "*E r"],
    b: Float[Array, "r ..."],
    axes: Axes,
    contracted: int,
    scale: float,
) -> Float[Array, "B T *O"]:
    """Multiplies x by a, b and a scale: what an adapter adds to `dense`."""
    x_BTr = dense(x, a, (*axes[:contracted], "rank"), contracted)
    return dense(scale * x_BTr, b, ("rank", *axes[contracted:]))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def look_up(table_VD: Float[Array, "V D"], tokens_BT: Int[Array, "B T"], dtype: DTypeLike) -> Float[Array, "B T D"]:
    """Returns the rows of an embedding table that tokens name."""
    # Gathered like every other weight. Left to itself the partitioner looks the tokens of the whole batch up on every
    # device and then exchanges the results.
    return constrain(gathered(table_VD, ("vocab", "embed"), dtype)[tokens_BT], "batch", None, None)


def _look_up_forward(
    table_VD: Float[Array, "V D"], tokens_BT: Int[Array, "B T"], dtype: DTypeLike
) -> tuple[Float[Array, "B T D"], tuple]:
    return look_up(table_VD, tokens_BT, dtype), (table_VD, tokens_BT)


def _look_up_backward(
    dtype: DTypeLike, residuals: tuple, y_bar_BTD: Float[Array, "B T D"]
) -> tuple[Float[Array, "V D"], None]:
    table_VD, tokens_BT = residuals
    # Every device adds up its own part of the dimensions, of all tokens: fewer bytes than the table has.
    mesh = mesh_of(y_bar_BTD)
    if not mesh.empty:
        rows = tuple(axis for axis in batch_axes() if axis != EMBED_AXIS)
        tokens_BT = jax.lax.with_sharding_constraint(tokens_BT, NamedSharding(mesh, PartitionSpec(rows)))
        own = NamedSharding(mesh, PartitionSpec(rows, None, EMBED_AXIS))
        y_bar_BTD = jax.lax.with_sharding_constraint(y_bar_BTD, own)
    table_bar_VD = jnp.zeros(table_VD.shape, jnp.float32).at[tokens_BT].add(y_bar_BTD.astype(jnp.float32))
    return constrain(table_bar_VD, "vocab", "embed", rules=TRAIN_RULES).astype(table_VD.dtype), None


look_up.defvjp(_look_up_forward, _look_up_backward)
