"""Log-probabilities and entropies of given tokens, never holding logits [B, T, V] at once.

The vocabulary makes logits the largest array of an update, so they exist for one chunk of time at a time and
are computed again in the backward pass instead of being stored. That pass is written out: a chunk's logits become its
gradient, two products follow, and the head's gradient is added up in float32 and crosses the devices once.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, PartitionSpec
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Float32, Int, Integer, Shaped

from codea1.learn.batch import batch_sharding
from codea1.models.attention import Packing
from codea1.models.moe import Routing
from codea1.models.qwen2 import Params, logits
from codea1.models.weights import product
from codea1.sharding import EMBED_AXIS, Array, batch_axes, mesh_of

Scores = tuple[Float32[Array, "B T"], Float32[Array, "B T"]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6, 7))
def token_log_probs(
    head_Vd: Float[Array, "V d"],
    hidden_BTD: Float[Array, "B T D"],
    tokens_BT: Int[Array, "B T"],
    temperature: Float[Array, ""] | float,
    chunk_length: int,
    gathered_over: str | None = None,
    dtype: DTypeLike | None = None,
    head_learns: bool = True,
) -> Scores:
    """Returns log-probabilities of `tokens_BT` and entropies (nats) of their distributions.

    The value at t concerns tokens[b, t] under softmax(hidden[b, t - 1] @ head.T / temperature); at t = 0, which
    nothing predicts, both are 0. Differentiable in the head and the hidden states.

    Args:
      head_Vd: in any dtype.
      hidden_BTD: final hidden states.
      tokens_BT: token ids.
      temperature: of the softmax.
      chunk_length: C, most positions of each row whose logits there are at once.
      gathered_over: under `jax.shard_map`, the axis that cuts the head's D: the head is a device's part.
      dtype: of products with the head; that of the hidden states if None.
      head_learns: whether the head gets a gradient.
    """
    whole_VD = _gather(head_Vd, dtype or hidden_BTD.dtype, gathered_over)

    def score(chunk: tuple[Array, Array]) -> tuple[Float[Array, "B C"], Float[Array, "B C"]]:
        hidden_BCD, targets_BC = chunk
        logits_BCV = logits(whole_VD, hidden_BCD) / temperature
        normaliser_BC = jax.nn.logsumexp(logits_BCV, axis=-1)
        target_BC = jnp.sum(jnp.where(_is_target(logits_BCV, targets_BC), logits_BCV, 0.0), axis=-1)
        # As a product of vectors: a sum of products is the same to TPUs, and ten times slower by XLA for CPU.
        p_BCV = jnp.exp(logits_BCV - normaliser_BC[..., None])
        mean_BC = jnp.einsum("BCV,BCV->BC", p_BCV, logits_BCV, precision="highest")
        return target_BC - normaliser_BC, normaliser_BC - mean_BC

    scores = jax.lax.map(score, tuple(_in_chunks(x, chunk_length) for x in (hidden_BTD[:, :-1], tokens_BT[:, 1:])))
    positions = tokens_BT.shape[1] - 1
    log_probs_BT, entropy_BT = (jnp.pad(_joined(part, positions), ((0, 0), (1, 0))) for part in scores)
    return log_probs_BT, entropy_BT


def _forward(head_Vd, hidden_BTD, tokens_BT, temperature, *static):
    scores = token_log_probs(head_Vd, hidden_BTD, tokens_BT, temperature, *static)
    return scores, (head_Vd, hidden_BTD, tokens_BT, temperature, scores[1])


def _backward(
    chunk_length: int,
    gathered_over: str | None,
    dtype: DTypeLike | None,
    head_learns: bool,
    residuals: tuple,
    bars: Scores,
) -> tuple[Float[Array, "V d"] | None, Float[Array, "B T D"], None, None]:
    """Computes the gradients from those of the log-probs, a, and of the entropies H, b.

    By logit z_j: a (1[j is the target] - p_j) - b p_j (log p_j + H), over the temperature.
    """
    head_Vd, hidden_BTD, tokens_BT, temperature, entropy_BT = residuals
    dtype = dtype or hidden_BTD.dtype
    whole_VD = _gather(head_Vd, dtype, gathered_over)

    def step(
        head_bar_VD: Float[Array, "V D"] | None, chunk: tuple[Array, ...]
    ) -> tuple[Float[Array, "V D"] | None, Float[Array, "B C D"]]:
        hidden_BCD, targets_BC, entropy_BC, a_BC, b_BC = chunk
        logits_BCV = logits(whole_VD, hidden_BCD) / temperature
        log_p_BCV = logits_BCV - jax.nn.logsumexp(logits_BCV, axis=-1, keepdims=True)
        falls_BCV = jnp.exp(log_p_BCV) * (a_BC[..., None] + b_BC[..., None] * (log_p_BCV + entropy_BC[..., None]))
        rises_BCV = jnp.where(_is_target(logits_BCV, targets_BC), a_BC[..., None], 0.0)
        logits_bar_BCV = ((rises_BCV - falls_BCV) / temperature).astype(hidden_BCD.dtype)
        logits_bar_XV = logits_bar_BCV.reshape(-1, logits_bar_BCV.shape[-1])
        if head_bar_VD is not None:
            hidden_XD = hidden_BCD.reshape(len(logits_bar_XV), -1)
            head_bar_VD += product(logits_bar_XV.T, hidden_XD, dtype, jnp.float32)
        return head_bar_VD, product(logits_bar_XV, whole_VD, dtype).reshape(hidden_BCD.shape)

    parts = hidden_BTD[:, :-1], *(x_BT[:, 1:] for x_BT in (tokens_BT, entropy_BT, *bars))
    zeros_VD = jnp.zeros(whole_VD.shape, jnp.float32) if head_learns else None
    head_bar_Vd, hidden_bar_UBCD = jax.lax.scan(step, zeros_VD, tuple(_in_chunks(part, chunk_length) for part in parts))
    if head_learns and gathered_over:
        head_bar_Vd = jax.lax.psum_scatter(head_bar_Vd, gathered_over, scatter_dimension=1, tiled=True)
    hidden_bar_BTD = jnp.pad(_joined(hidden_bar_UBCD, tokens_BT.shape[1] - 1), ((0, 0), (0, 1), (0, 0)))
    return None if head_bar_Vd is None else head_bar_Vd.astype(head_Vd.dtype), hidden_bar_BTD, None, None


token_log_probs.defvjp(_forward, _backward)


def _gather(head_Vd: Float[Array, "V d"], dtype: DTypeLike, axis: str | None) -> Float[Array, "V D"]:
    head_Vd = head_Vd.astype(dtype)
    return jax.lax.all_gather(head_Vd, axis, axis=1, tiled=True) if axis else head_Vd


def _is_target(logits_BCV: Float[Array, "B C V"], targets_BC: Int[Array, "B C"]) -> Bool[Array, "B C V"]:
    # A comparison instead of a gather: it stays local where the vocabulary is sharded.
    return jnp.arange(logits_BCV.shape[-1]) == targets_BC[..., None]


def _in_chunks(x: Shaped[Array, "B t *inner"], most: int) -> Shaped[Array, "U B C *inner"]:
    """Returns positions that predict a token cut into equal chunks, one after another; the last is padded."""
    B, positions, *inner = x.shape
    count = -(-positions // most)
    length = -(-positions // count)
    x = jnp.pad(x, ((0, 0), (0, count * length - positions)) + ((0, 0),) * len(inner))
    return jnp.moveaxis(x.reshape(B, count, length, *inner), 1, 0)


def _joined(x: Shaped[Array, "U B C *inner"], positions: int) -> Shaped[Array, "B t *inner"]:
    """Returns what `_in_chunks` cut."""
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(len(x), -1, *x.shape[3:])[:, :positions]


def model_log_probs(
    graphdef: nnx.GraphDef,
    chunk_tokens: int,
    params: Params,
    tokens_BT: Int[Array, "B T"],
    temperature: Float[Array, ""] | float,
    packing: Packing | None = None,
    routes_BTLc: Integer[Array, "B T L c"] | None = None,
    counted_BT: Bool[Array, "B T"] | None = None,
) -> tuple[Scores, Routing | None]:
    """Returns `token_log_probs` of right-padded rows under a model, differentiable in `params`.

    And the routing of a mixture of experts; see `Qwen2`.

    Each device has the logits of at most `chunk_tokens` tokens, or of one per row, at once. With a packing, the first
    token of each sequence, and of each response, is one that nothing predicts: what stands there means nothing.
    """
    model = nnx.merge(graphdef, params)
    if packing is None:
        positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    else:
        positions_BT = packing.positions_BT
    hidden_BTD, _, routing = model(tokens_BT, positions_BT, None, packing, routes_BTLc, counted_BT)

    def score(
        head_Vd: Float[Array, "V d"],
        hidden_BTD: Float[Array, "B T D"],
        tokens_BT: Int[Array, "B T"],
        gathered_over: str | None = None,
    ) -> Scores:
        chunk_length = max(chunk_tokens // len(tokens_BT), 1)
        how = chunk_length, gathered_over, model.config.dtype, not model.config.lora_rank
        return token_log_probs(head_Vd, hidden_BTD, tokens_BT, temperature, *how)

    mesh, axes = mesh_of(hidden_BTD), batch_axes()
    if not mesh.empty and math.prod(mesh.shape[axis] for axis in axes) > 1:
        # Each device scores its own rows. Left to itself the partitioner gathers the head in every chunk.
        rows, cut = PartitionSpec(axes), EMBED_AXIS
        score = jax.shard_map(
            functools.partial(score, gathered_over=cut),
            mesh=mesh,
            in_specs=(PartitionSpec(None, cut), rows, rows),
            out_specs=rows,
            axis_names=set(axes),  # tensor is left to the partitioner
            check_vma=False,
        )
    return score(model.head_VD, hidden_BTD, tokens_BT), routing


@functools.cache
def make_score(graphdef: nnx.GraphDef, chunk_tokens: int, mesh: Mesh) -> Callable[..., Scores]:
    """Returns the compiled `score(params, tokens_BT, temperature, packing, routes_BTLc)`; see `model_log_probs`."""

    def score(*arguments: Any) -> Scores:
        return model_log_probs(graphdef, chunk_tokens, *arguments)[0]

    return jax.jit(score, out_shardings=batch_sharding(mesh))
