"""A mixture of experts instead of an MLP: the few experts that a token's router chooses, weighted and summed.

Experts are cut over all chips of a replica and never move; rows do. A chip takes the rows of all, multiplies those that
chose its experts, and sends the sums back. Rows lie sorted by expert: on TPUs and GPUs for XLA's ragged product, on a
CPU in blocks of one expert, because XLA for CPU multiplies every row by every expert. The ragged product was compared
on a CPU alone; XLA for GPU may expand it too. Axes have the letters of `codea1.models`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int, Int32, Integer

from codea1.models.config import Qwen2Config
from codea1.models.weights import gathered, product
from codea1.sharding import EMBED_AXIS, TENSOR_AXIS, Array, mesh_of, on_each_device

_BLOCK = 32  # rows of one expert that a CPU multiplies at once
PLACES = 1 << 16  # rows times their experts that lie sorted at once: of more, one part after another


class Routing(NamedTuple):
    """What the router of a layer decided; of all layers with a leading L."""

    chosen_BTc: Integer[Array, "B T c"]  # the experts, in the dtype of `Qwen2Config.routes`
    # Of tokens that are counted; None where none are.
    differs_BT: Bool[Array, "B T"] | None = None  # experts were given, and the router would choose others
    rows_e: Int32[Array, " e"] | None = None  # that chose an expert
    balance: Float32[Array, ""] | None = None  # the loss of Fedus et al. (2022, arXiv 2101.03961); c is balanced


def route(
    x_BTD: Float[Array, "B T D"],
    router_De: Float[Array, "D e"],
    config: Qwen2Config,
    given_BTc: Integer[Array, "B T c"] | None = None,
    counted_BT: Bool[Array, "B T"] | None = None,
) -> tuple[Float32[Array, "B T c"], Routing]:
    """Returns the weights of the experts of all tokens, from probabilities in float32; and which experts those are.

    With `given_BTc` these are a token's experts, and the router only weighs them: routing replay (Ma et al., 2025,
    arXiv 2510.11370). A number that no expert has stands for none, which adds 0 and takes no time.
    """
    factors = x_BTD.astype(jnp.float32), gathered(router_De, ("embed", None), jnp.float32)
    logits_BTe = jnp.einsum("BTD,De->BTe", *factors, precision=jax.lax.Precision.HIGHEST)  # exact in gradients too
    prob_BTe = jax.nn.softmax(logits_BTe, axis=-1)
    highest_BTc, chosen_BTc = jax.lax.top_k(jax.lax.stop_gradient(logits_BTe), config.experts_per_token)
    if given_BTc is not None:
        chosen_BTc = given_BTc.astype(jnp.int32)
    logits_BTc, prob_BTc = (jnp.take_along_axis(x, chosen_BTc, axis=-1, mode="clip") for x in (logits_BTe, prob_BTe))
    # Not p / sum(p), whose gradient is NaN where given experts have become most unlikely.
    weight_BTc = jax.nn.softmax(logits_BTc, axis=-1) if config.norm_experts else prob_BTc
    assert config.routes is not None
    routing = Routing(chosen_BTc.astype(config.routes.dtype))
    if counted_BT is not None:
        is_chosen_BTce = (chosen_BTc[..., None] == jnp.arange(config.num_experts)) & counted_BT[..., None, None]
        rows_e, tokens = jnp.sum(is_chosen_BTce, axis=(0, 1, 2), dtype=jnp.int32), jnp.sum(counted_BT)
        prob_e = jnp.sum(jnp.where(counted_BT[..., None], prob_BTe, 0.0), axis=(0, 1))
        balance = config.num_experts * jnp.sum(rows_e * prob_e) / jnp.square(jnp.maximum(tokens, 1))
        differs_BT = counted_BT & (jnp.min(logits_BTc, axis=-1) < highest_BTc[..., -1])
        routing = Routing(routing.chosen_BTc, differs_BT, rows_e, balance)
    return weight_BTc, routing


def mixed(
    x_BTD: Float[Array, "B T D"],
    chosen_BTc: Integer[Array, "B T c"],
    weight_BTc: Float32[Array, "B T c"],
    gate_eDF: Float[Array, "e D F"],
    up_eDF: Float[Array, "e D F"],
    down_eFD: Float[Array, "e F D"],
    config: Qwen2Config,
) -> Float[Array, "B T D"]:
    """Computes the sums of SwiGLU experts, weighted by `weight_BTc`, in the dtype of x."""
    mesh, chosen_BTc = mesh_of(x_BTD), chosen_BTc.astype(jnp.int32)

    def of_rows(kernels: tuple[Array, ...], *rows: Array) -> Array:
        if mesh.empty:
            flat = [x.reshape(-1, x.shape[-1]) for x in rows]
            return _of_experts(flat, kernels, jnp.int32(0), config)
        number = jax.lax.axis_index(EMBED_AXIS) * jax.lax.axis_size(TENSOR_AXIS) + jax.lax.axis_index(TENSOR_AXIS)
        flat = [jax.lax.all_gather(x, EMBED_AXIS, tiled=True).reshape(-1, x.shape[-1]) for x in rows]
        y_XD = _of_experts(flat, kernels, number * len(kernels[0]), config)
        return jax.lax.psum(jax.lax.psum_scatter(y_XD, EMBED_AXIS, tiled=True), TENSOR_AXIS)

    def of_device(x_BTD: Array, chosen_BTc: Array, weight_BTc: Array, *kernels: Array) -> Array:
        rows = x_BTD, chosen_BTc, weight_BTc
        length, c = x_BTD.shape[0] * x_BTD.shape[1], chosen_BTc.shape[-1]
        most = max(PLACES // (c * (1 if mesh.empty else mesh.shape[EMBED_AXIS])), 1)
        parts = -(-length // most)
        if parts == 1:
            return of_rows(kernels, *rows).reshape(x_BTD.shape)
        part = -(-length // parts)

        def cut(x: Array, padding: int) -> Array:
            flat = x.reshape(length, -1)
            padded = jnp.pad(flat, ((0, parts * part - length), (0, 0)), constant_values=padding)
            return padded.reshape(parts, 1, part, -1)

        # What a part needs for its gradients is computed again.
        of_part = jax.checkpoint(lambda part: of_rows(kernels, *part), prevent_cse=False)
        none = config.num_experts
        y_UXD = jax.lax.map(of_part, (cut(x_BTD, 0), cut(chosen_BTc, none), cut(weight_BTc, 0)))
        return y_UXD.reshape(parts * part, -1)[:length].reshape(x_BTD.shape)

    rows, experts = ("batch", None, None), ("experts", None, None)
    y_BTD = on_each_device(of_device, (rows, rows, rows, experts, experts, experts), rows)(
        x_BTD, chosen_BTc, weight_BTc, gate_eDF, up_eDF, down_eFD
    )
    return y_BTD.astype(x_BTD.dtype)


def _of_experts(
    rows: Sequence[Array], kernels: tuple[Array, ...], first: Int[Array, ""], config: Qwen2Config
) -> Float32[Array, "X D"]:
    """Computes what the experts from `first` on, whose kernels these are, add to rows, chosen experts and weights."""
    x_XD, chosen_Xc, weight_Xc = rows
    block = _BLOCK if config.platform == "cpu" else 1
    places = _Sorted.of(chosen_Xc, first, len(kernels[0]), block)
    if config.lora_rank:
        kernels = jax.lax.stop_gradient(kernels)
    # There are places for all rows at these experts, and most are at others. Twice their share mostly suffices.
    n = len(places.row_n)
    few = -(-2 * n * len(kernels[0]) // (config.num_experts * block)) * block
    if few >= n:
        return _in_places(n, config, places, x_XD, weight_Xc, kernels)
    return _in_few_or_all(few, config, places, x_XD, weight_Xc, kernels)


def _in_places(
    n: int, config: Qwen2Config, places: "_Sorted", x_XD: Array, weight_Xc: Array, kernels: tuple[Array, ...]
) -> Float32[Array, "X D"]:
    """Computes `_of_experts` from the first n places, which hold all rows that are at its experts."""
    gate_eDF, up_eDF, down_eFD = kernels

    def multiply(rows: Array, kernel: Array) -> Array:
        if config.platform == "cpu":
            return _product_of_blocks(rows, kernel, places.expert_n[:n:_BLOCK], config.dtype)
        return _ragged_product(rows, kernel, places.size_e, config.dtype)

    rows_nD = x_XD.at[places.row_n[:n]].get(mode="fill", fill_value=0)
    hidden_nF = jax.nn.silu(multiply(rows_nD, gate_eDF)) * multiply(rows_nD, up_eDF)
    y_nD = multiply(hidden_nF, down_eFD).astype(jnp.float32)
    # By a gather, which adds in a fixed order. A place from n on belongs to another device's expert: it adds 0.
    y_XcD = y_nD.at[places.place_Xc].get(mode="fill", fill_value=0)
    return jnp.einsum("XcD,Xc->XD", y_XcD, weight_Xc)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_few_or_all(few: int, config: Qwen2Config, places: "_Sorted", *factors: Any) -> Float32[Array, "X D"]:
    """Computes `_in_places` from the first few, where these suffice.

    Its gradients begin from its arguments: JAX would keep what both branches of a condition need.
    """
    branches = (partial(_in_places, n, config) for n in (few, len(places.row_n)))
    return jax.lax.cond(jnp.sum(places.size_e) <= few, *branches, places, *factors)


def _few_or_all_backward(few: int, config: Qwen2Config, residuals: tuple, y_bar_XD: Array) -> tuple:
    places, x_XD, weight_Xc, kernels = residuals

    def gradients(n: int) -> tuple:
        frozen = (kernels,) if config.lora_rank else ()  # they get no gradient, and none is computed
        learns = (x_XD, weight_Xc, *(() if frozen else (kernels,)))
        _, pull = jax.vjp(lambda *of: _in_places(n, config, places, *of, *frozen), *learns)
        return pull(y_bar_XD)

    branches = (partial(gradients, n) for n in (few, len(places.row_n)))
    bars = jax.lax.cond(jnp.sum(places.size_e) <= few, *branches)
    return None, *bars, *((None,) if config.lora_rank else ())


_in_few_or_all.defvjp(lambda few, config, *of: (_in_few_or_all(few, config, *of), of), _few_or_all_backward)


class _Sorted(NamedTuple):
    """How rows lie sorted by expert."""

    row_n: Int32[Array, " n"]  # that lies there; X where none does
    expert_n: Int32[Array, " n"]  # counted among the device's
    size_e: Int32[Array, " e"]  # places of an expert, a multiple of the block
    place_Xc: Int32[Array, "X c"]  # of a row's experts; n for another device's

    @classmethod
    def of(cls, chosen_Xc: Int[Array, "X c"], first: Int[Array, ""], experts: int, block: int) -> "_Sorted":
        """Sorts rows by the experts from `first` on, so many, which begin at multiples of the block."""
        X, c = chosen_Xc.shape
        n = (X * c // block + experts) * block if block > 1 else X * c
        local_I = chosen_Xc.ravel() - first
        local_I = jnp.where((local_I >= 0) & (local_I < experts), local_I, experts)
        count_e = jnp.bincount(local_I, length=experts + 1)
        size_e = (-(-count_e // block) * block)[:experts].astype(jnp.int32)
        begin_e = jnp.append(jnp.cumsum(size_e) - size_e, n)
        order_I = jnp.argsort(local_I, stable=True)
        nth_I = jnp.arange(X * c) - (jnp.cumsum(count_e) - count_e)[local_I[order_I]]
        place_I = jnp.minimum(begin_e[local_I[order_I]] + nth_I, n).astype(jnp.int32)
        row_n = jnp.full(n, X, jnp.int32).at[place_I].set((order_I // c).astype(jnp.int32), mode="drop")
        expert_n = jnp.searchsorted(jnp.cumsum(size_e), jnp.arange(n), side="right").astype(jnp.int32)
        place_Xc = jnp.zeros_like(place_I).at[order_I].set(place_I).reshape(X, c)
        return cls(row_n, jnp.minimum(expert_n, experts - 1), size_e, place_Xc)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _ragged_product(
    rows_nE: Float[Array, "n E"], kernel_eEO: Float[Array, "e E O"], size_e: Int32[Array, " e"], dtype: DTypeLike
) -> Float[Array, "n O"]:
    """Multiplies rows that lie sorted by expert, in `dtype`. JAX would make a kernel's gradient in `dtype` too."""
    return _ragged(rows_nE, kernel_eEO, size_e, dtype, (1, 1), [0]).astype(rows_nE.dtype)


def _ragged(
    a: Array, b: Array, size_e: Array, dtype: DTypeLike, contracted: tuple[int, int], groups: list[int]
) -> Array:
    axes = ((contracted[:1], contracted[1:]), ((), ()))
    how = jax.lax.RaggedDotDimensionNumbers(axes, lhs_ragged_dimensions=[0], rhs_group_dimensions=groups)
    factors = a.astype(dtype), b.astype(dtype)
    return jax.lax.ragged_dot_general(*factors, size_e, how, preferred_element_type=jnp.float32)


def _ragged_backward(dtype: DTypeLike, residuals: tuple, y_bar_nO: Float[Array, "n O"]) -> tuple[Array, Array, None]:
    rows_nE, kernel_eEO, size_e = residuals
    rows_bar_nE = _ragged(y_bar_nO, kernel_eEO, size_e, dtype, (1, 2), [0]).astype(rows_nE.dtype)
    kernel_bar_eEO = _ragged(rows_nE, y_bar_nO, size_e, dtype, (0, 0), [])
    return rows_bar_nE, kernel_bar_eEO.astype(kernel_eEO.dtype), None


_ragged_product.defvjp(lambda *factors: (_ragged_product(*factors), factors[:3]), _ragged_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _product_of_blocks(
    rows_nE: Float[Array, "n E"], kernel_eEO: Float[Array, "e E O"], expert_U: Int32[Array, " U"], dtype: DTypeLike
) -> Float[Array, "n O"]:
    """Multiplies blocks of rows by the kernels of their experts, in `dtype`."""
    blocks = rows_nE.reshape(len(expert_U), -1, rows_nE.shape[1]), expert_U
    y_UbO = jax.lax.map(lambda block: product(block[0], kernel_eEO[block[1]], dtype), blocks)
    return y_UbO.reshape(len(rows_nE), -1)


def _blocks_backward(dtype: DTypeLike, residuals: tuple, y_bar_nO: Float[Array, "n O"]) -> tuple[Array, Array, None]:
    rows_nE, kernel_eEO, expert_U = residuals

    def add_block(kernel_bar_eEO: Array, block: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        rows_bE, y_bar_bO, expert = block
        sum_EO = product(rows_bE.T, y_bar_bO, dtype, jnp.float32)
        return kernel_bar_eEO.at[expert].add(sum_EO), product(y_bar_bO, kernel_eEO[expert].T, dtype)

    zeros_eEO = jnp.zeros(kernel_eEO.shape, jnp.float32)
    blocks = (x.reshape(len(expert_U), -1, x.shape[1]) for x in (rows_nE, y_bar_nO))
    kernel_bar_eEO, rows_bar_UbE = jax.lax.scan(add_block, zeros_eEO, (*blocks, expert_U))
    return rows_bar_UbE.reshape(rows_nE.shape), kernel_bar_eEO.astype(kernel_eEO.dtype), None


_product_of_blocks.defvjp(lambda *factors: (_product_of_blocks(*factors), factors[:3]), _blocks_backward)
