"""Log-probabilities and entropies of given tokens, never holding logits [B, T, V] at once.

The vocabulary makes logits the largest array of an update, so they exist for one chunk of time at a time and
are computed again in the backward pass instead of being stored.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, PartitionSpec

from codea1.learn.batch import batch_sharding
from codea1.models.qwen2 import Params, logits
from codea1.sharding import ACTIVATION_RULES


def token_log_probs(
    logits_of: Callable[[jax.Array], jax.Array],
    hidden_BTD: jax.Array,
    tokens_BT: jax.Array,
    temperature: jax.Array | float,
    chunk_length: int,
) -> tuple[jax.Array, jax.Array]:
    """Returns float32 log-probabilities of `tokens_BT` and entropies (nats) of their distributions, both [B, T].

    The value at t concerns tokens[b, t] under softmax(logits_of(hidden[b, t - 1]) / temperature); at t = 0, which
    nothing predicts, both are 0. `logits_of` maps hidden states [B, C, D] to logits [B, C, V] and sees at most
    `chunk_length` (C) positions of each row at once.
    """
    batch_size, num_tokens, _ = hidden_BTD.shape
    num_chunks = -(-(num_tokens - 1) // chunk_length)
    chunk_length = -(-(num_tokens - 1) // num_chunks)
    padding = num_chunks * chunk_length - (num_tokens - 1)

    def to_chunks(x: jax.Array) -> jax.Array:
        x = jnp.pad(x, ((0, 0), (0, padding)) + ((0, 0),) * (x.ndim - 2))
        return jnp.moveaxis(x.reshape(batch_size, num_chunks, chunk_length, *x.shape[2:]), 1, 0)

    @jax.checkpoint
    def score_chunk(hidden_BCD: jax.Array, targets_BC: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _log_probs_and_entropy(logits_of(hidden_BCD).astype(jnp.float32) / temperature, targets_BC)

    chunks = (to_chunks(hidden_BTD[:, :-1]), to_chunks(tokens_BT[:, 1:]))
    _, scores = jax.lax.scan(lambda _, chunk: ((), score_chunk(*chunk)), (), chunks)

    def from_chunks(x_NBC: jax.Array) -> jax.Array:
        x_BT = jnp.moveaxis(x_NBC, 0, 1).reshape(batch_size, num_chunks * chunk_length)
        return jnp.pad(x_BT[:, : num_tokens - 1], ((0, 0), (1, 0)))

    return from_chunks(scores[0]), from_chunks(scores[1])


def _log_probs_and_entropy(logits_BCV: jax.Array, targets_BC: jax.Array) -> tuple[jax.Array, jax.Array]:
    # A comparison instead of a gather: it stays local where the vocabulary is sharded, and its gradient is no scatter.
    is_target_BCV = jnp.arange(logits_BCV.shape[-1]) == targets_BC[..., None]
    target_BC = jnp.sum(jnp.where(is_target_BCV, logits_BCV, 0.0), axis=-1)
    normaliser_BC = jax.nn.logsumexp(logits_BCV, axis=-1)
    probs_BCV = jnp.exp(logits_BCV - normaliser_BC[..., None])
    return target_BC - normaliser_BC, normaliser_BC - jnp.sum(probs_BCV * logits_BCV, axis=-1)


def model_log_probs(
    graphdef: nnx.GraphDef, params: Params, tokens_BT: jax.Array, temperature: jax.Array | float, chunk_tokens: int
) -> tuple[jax.Array, jax.Array]:
    """Returns `token_log_probs` of right-padded rows under a model, differentiable in `params`.

    Each device has the logits of at most `chunk_tokens` tokens, or of one per row, at once.
    """
    model = nnx.merge(graphdef, params)
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    hidden_BTD, _ = model(tokens_BT, positions_BT)

    def score(head_VD: jax.Array, hidden_BTD: jax.Array, tokens_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
        chunk_length = max(chunk_tokens // len(tokens_BT), 1)
        logits_of = functools.partial(logits, head_VD)
        return token_log_probs(logits_of, hidden_BTD, tokens_BT, temperature, chunk_length)

    return _each_device_its_rows(score, hidden_BTD)(model.head_VD, hidden_BTD, tokens_BT)


def _each_device_its_rows(
    score: Callable[[jax.Array, jax.Array, jax.Array], Any], hidden_BTD: jax.Array
) -> Callable[[jax.Array, jax.Array, jax.Array], Any]:
    """Wraps `score(head, hidden, tokens)` such that the head and its gradient cross the devices once.

    Left to the partitioner, the backward pass gathers the head and sums its gradient over the devices in every chunk.
    """
    mesh = jax.sharding.get_abstract_mesh()
    mesh = jax.typeof(hidden_BTD).sharding.mesh if mesh.empty else mesh
    axes = ACTIVATION_RULES["batch"]
    if mesh.empty or math.prod(mesh.shape[axis] for axis in axes) == 1:
        return score
    rows = PartitionSpec(axes)
    return jax.shard_map(
        score,
        mesh=mesh,
        in_specs=(PartitionSpec(), rows, rows),
        out_specs=rows,
        axis_names=set(axes),  # tensor is left to the partitioner
        check_vma=False,
    )


@functools.cache
def make_score(graphdef: nnx.GraphDef, chunk_tokens: int, mesh: Mesh) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Returns the compiled `score(params, tokens_BT, temperature)`; see `token_log_probs` for its two results."""

    def score(params: Params, tokens_BT: jax.Array, temperature: float) -> tuple[jax.Array, jax.Array]:
        return model_log_probs(graphdef, params, tokens_BT, temperature, chunk_tokens)

    return jax.jit(score, out_shardings=batch_sharding(mesh))
