"""Weights at their use: gathered over fsdp in the dtype of products, their gradients summed in float32.

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
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import DTypeLike
from jaxtyping import Float, Float32, Int, Num

from codea1.sharding import EMBED_AXIS, TRAIN_RULES, Array, batch_axes, constrain, mesh_of, on_each_device

Axes = tuple[str | None, ...]  # logical names of a weight's dimensions


def gathered(weight: Float[Array, "..."], axes: Axes, dtype: DTypeLike) -> Float[Array, "..."]:
    """Returns a weight cast, and whole along "embed"."""
    return constrain(weight.astype(dtype), *axes)


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


def product(
    x_XE: Float[Array, "X E"], y_EO: Float[Array, "E O"], dtype: DTypeLike, result: DTypeLike | None = None
) -> Float[Array, "X O"]:
    """Multiplies matrices in `dtype`; the result has that of x, or `result`.

    A CPU's activations are float32, and its products may be bfloat16. Of those XLA has a fast kernel, which it takes
    where the result is float32, both factors are row-major and there are two rows or more.
    """
    if x_XE.dtype == dtype:  # everywhere but on a CPU
        return jnp.matmul(x_XE, y_EO.astype(dtype), preferred_element_type=result)
    rows_XE = jnp.pad(x_XE, ((0, max(2 - len(x_XE), 0)), (0, 0)))
    return products(rows_XE, y_EO, dtype)[: len(x_XE)]


def product_of_few(x_XE: Float[Array, "X E"], y_OE: Float[Array, "O E"], dtype: DTypeLike) -> Float32[Array, "X O"]:
    """Multiplies few rows by the transpose of a weight in `dtype`, for a CPU.

    XLA for CPU packs what stands on the right of a product, which for few rows takes longer than to multiply. So the
    weight stands on the left, and barriers keep the compiler from turning that round.
    """
    rows = len(x_XE)
    if dtype == jnp.float32:
        return jax.lax.optimization_barrier(jnp.matmul(y_OE, x_XE.T)).T
    x_EX = jnp.pad(x_XE, ((0, max(2 - rows, 0)), (0, 0))).astype(dtype).T
    product_OX = products(y_OE, jax.lax.optimization_barrier(row_major(x_EX)), dtype)
    return row_major(product_OX.T)[:rows]


def products(
    x_nXE: Float[Array, "*n X E"], y_nEO: Float[Array, "*n E O"], dtype: DTypeLike
) -> Float32[Array, "*n X O"]:
    """Multiplies stacks of matrices in `dtype`, for a CPU; see `product`.

    The barrier keeps the compiler from turning the product round where its result is transposed.
    """
    factors = row_major(x_nXE.astype(dtype)), row_major(y_nEO.astype(dtype))
    return jax.lax.optimization_barrier(jnp.matmul(*factors, preferred_element_type=jnp.float32))


def row_major(x: Float[Array, "*n X Y"]) -> Float[Array, "*n X Y"]:
    """Returns a factor that lies row by row in memory. XLA makes of a transpose another layout, and no copy.

    On several devices, where a layout cannot be asked for, in float32: of bfloat16 not every layout has a product.
    """
    mesh = mesh_of(x)
    is_one = mesh.empty or mesh.size == 1
    return with_layout_constraint(x, Layout(tuple(range(x.ndim)))) if is_one else x.astype(jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def dense(
    x: Float[Array, "B T *E"], kernel: Float[Array, "..."], axes: Axes, dtype: DTypeLike, contracted: int = 1
) -> Float[Array, "B T *O"]:
    """Multiplies x by kernel [E..., O...] over its first dimensions, `contracted` of them, in `dtype`; see `product`.

    One product of two matrices: where tokens keep two dimensions, XLA for CPU transposes copies of its operands for the
    kernel's gradient, and computes again what they are made of.
    """
    rows_XE = x.reshape(x.shape[0] * x.shape[1], -1)
    kernel_EO = gathered(kernel, axes, dtype).reshape(rows_XE.shape[1], -1)
    return product(rows_XE, kernel_EO, dtype).reshape(*x.shape[:2], *kernel.shape[contracted:])


def _dense_backward(
    axes: Axes, dtype: DTypeLike, contracted: int, residuals: tuple, y_bar: Float[Array, "B T *O"]
) -> tuple[Float[Array, "B T *E"], Float[Array, "..."]]:
    x, kernel = residuals
    num_rows = x.shape[0] * x.shape[1]
    kernel_EO = gathered(kernel, axes, dtype).reshape(math.prod(kernel.shape[:contracted]), -1)
    x_bar = product(y_bar.reshape(num_rows, -1), kernel_EO.T, dtype).reshape(x.shape)
    return x_bar, _kernel_gradient(x, y_bar, axes, dtype, contracted).astype(kernel.dtype)


def _kernel_gradient(
    x: Float[Array, "B T *E"], y_bar: Float[Array, "B T *O"], axes: Axes, dtype: DTypeLike, contracted: int
) -> Float32[Array, "..."]:
    """Computes the gradient of a kernel as it lies at rest.

    Every device multiplies its own rows whole, then the sums are scattered: the partitioner would multiply in windows
    here too, as narrow as a device's part of "embed".
    """
    mesh, cut_by = mesh_of(x), batch_axes()

    def on_device(x: Float[Array, "B T *E"], y_bar: Float[Array, "B T *O"]) -> Float32[Array, "..."]:
        rows_XE = x.reshape(x.shape[0] * x.shape[1], -1)
        y_bar_XO = y_bar.reshape(len(rows_XE), -1)
        if x.dtype != dtype and len(y_bar_XO.T) < len(rows_XE.T):  # a CPU copies a transpose: better the narrow one's
            sums_EO = product(y_bar_XO.T, rows_XE, dtype).T
        else:
            sums_EO = product(rows_XE.T, y_bar_XO, dtype, jnp.float32)
        sums = sums_EO.reshape(*x.shape[2:], *y_bar.shape[2:])
        if not mesh.empty:
            sums = jax.lax.psum(sums, [axis for axis in cut_by if axis != EMBED_AXIS or "embed" not in axes])
        if not mesh.empty and "embed" in axes:
            sums = jax.lax.psum_scatter(sums, EMBED_AXIS, scatter_dimension=axes.index("embed"), tiled=True)
        return sums

    inputs = ("batch", None, *axes[:contracted]), ("batch", None, *axes[contracted:])
    return on_each_device(on_device, inputs, axes, output_rules=TRAIN_RULES)(x, y_bar)


dense.defvjp(lambda x, kernel, *how: (dense(x, kernel, *how), (x, kernel)), _dense_backward)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KernelForms:
    """A stacked kernel that does not change, in the forms in which a CPU multiplies by it.

    XLA for CPU copies a layer's part of a stack before it multiplies, and bfloat16 by way of float32: so stacks are
    uint16. The copy costs little compared to a product of many rows, but too much for one of few: `layers` avoids it.
    """

    stack: Any = None  # [L, E..., O...], for many rows
    turned: Any = None  # [L, O..., E...], for their gradients; None where `stack` will do
    layers: tuple[Array, ...] = ()  # of each layer [O..., E...], for few rows

    @classmethod
    def of(cls, stack: Float[Array, "L ..."], contracted: int) -> "KernelForms":
        """Returns the forms of a kernel with so many input dimensions, but for gradients."""
        order = *range(contracted, stack.ndim - 1), *range(contracted)
        return cls(_bits(stack), None, tuple(jnp.transpose(stack[layer], order) for layer in range(len(stack))))

    def for_gradients(self) -> "KernelForms":
        """Returns all forms."""
        needs = self.turned is None and self.stack.dtype == jnp.uint16
        return KernelForms(self.stack, _bits(jnp.stack(self.layers)) if needs else self.turned, self.layers)

    def __getitem__(self, layer: Any) -> "KernelForms":
        """Returns the form for few rows of one layer; or all that there are, of `...`."""
        return self if layer is ... else KernelForms(layers=(self.layers[layer],))


def table_forms(table_VD: Float[Array, "V D"]) -> Any:
    """Returns an embedding table that a CPU looks up at every decode step: as `KernelForms` where it is bfloat16."""
    return KernelForms(_bits(table_VD), None, (table_VD,)) if table_VD.dtype == jnp.bfloat16 else table_VD


def has_forms(leaf: Any) -> bool:
    return isinstance(leaf, KernelForms)


def for_many(leaf: Any) -> Any:
    """Returns the forms for many rows, which a scan over layers can take; what has no forms as it is."""
    return KernelForms(leaf.stack, leaf.turned) if has_forms(leaf) else leaf


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def dense_of_forms(
    x: Float[Array, "B T *E"], kernel: KernelForms, dtype: DTypeLike, contracted: int = 1
) -> Float[Array, "B T *O"]:
    """Computes `dense` by the kernel of one layer, which gets no gradient."""
    rows_XE = x.reshape(x.shape[0] * x.shape[1], -1)
    if kernel.layers:
        (kernel_OE,) = kernel.layers
        outputs = kernel_OE.shape[: kernel_OE.ndim - contracted]
        y_XO = product_of_few(rows_XE, kernel_OE.reshape(-1, rows_XE.shape[1]), dtype)
    else:
        kernel_EO = _of_bits(kernel.stack, dtype)
        outputs = kernel_EO.shape[contracted:]
        y_XO = product(rows_XE, kernel_EO.reshape(rows_XE.shape[1], -1), dtype)
    return y_XO.reshape(*x.shape[:2], *outputs)


def _dense_of_forms_backward(
    dtype: DTypeLike, contracted: int, kernel: KernelForms, y_bar: Float[Array, "B T *O"]
) -> tuple[Float[Array, "B T *E"], None]:
    y_bar_XO = y_bar.reshape(y_bar.shape[0] * y_bar.shape[1], -1)
    outputs, inputs = y_bar_XO.shape[1], kernel.stack.shape[:contracted]
    if kernel.turned is None:
        kernel_OE = _of_bits(kernel.stack, dtype).reshape(-1, outputs).T
    else:
        kernel_OE = _of_bits(kernel.turned, dtype).reshape(outputs, -1)
    return product(y_bar_XO, kernel_OE, dtype).reshape(*y_bar.shape[:2], *inputs), None


dense_of_forms.defvjp(lambda x, kernel, *how: (dense_of_forms(x, kernel, *how), kernel), _dense_of_forms_backward)


def _bits(x: Array) -> Array:
    """Returns bfloat16 as uint16, which XLA for CPU slices and gathers as it lies."""
    return jax.lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x


def _of_bits(x: Array, dtype: DTypeLike) -> Array:
    return jax.lax.bitcast_convert_type(x, dtype) if x.dtype == jnp.uint16 else x


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def look_up(
    table_VD: Num[Array, "V D"], tokens_BT: Int[Array, "B T"], dtype: DTypeLike, result: DTypeLike
) -> Float[Array, "B T D"]:
    """Returns the rows of an embedding table, or of its `KernelForms.stack`, rounded to `dtype`, in `result`."""
    # Gathered like every other weight. Left to itself the partitioner looks the tokens of the whole batch up on every
    # device and then exchanges the results.
    if dtype == result:
        rows_BTD = gathered(table_VD, ("vocab", "embed"), dtype)[tokens_BT]
    else:  # on a CPU, which would convert the whole table
        rows_BTD = _of_bits(constrain(_bits(table_VD), "vocab", "embed")[tokens_BT], dtype)
    return constrain(rows_BTD.astype(dtype).astype(result), "batch", None, None)


def _look_up_backward(
    dtype: DTypeLike, result: DTypeLike, residuals: tuple, y_bar_BTD: Float[Array, "B T D"]
) -> tuple[Float[Array, "V D"], None]:
    table_VD, tokens_BT = residuals
    # Every device adds up its own part of the dimensions, of all tokens: fewer bytes than the table has.
    mesh = mesh_of(y_bar_BTD)
    if not mesh.empty:
        rows = tuple(axis for axis in batch_axes() if axis != EMBED_AXIS)
        tokens_BT = jax.lax.with_sharding_constraint(tokens_BT, NamedSharding(mesh, PartitionSpec(rows)))
        layout = NamedSharding(mesh, PartitionSpec(rows, None, EMBED_AXIS))
        y_bar_BTD = jax.lax.with_sharding_constraint(y_bar_BTD, layout)
    table_bar_VD = jnp.zeros(table_VD.shape, jnp.float32).at[tokens_BT].add(y_bar_BTD.astype(jnp.float32))
    return constrain(table_bar_VD, "vocab", "embed", rules=TRAIN_RULES).astype(table_VD.dtype), None


look_up.defvjp(lambda table, tokens, *how: (look_up(table, tokens, *how), (table, tokens)), _look_up_backward)
