"""Log-probabilities and entropies of given tokens, never holding logits [B, T, V] at once.

The vocabulary makes logits the largest array of the whole program, so they exist for one chunk of time at a time and
are computed again in the backward pass instead of being stored.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from codea1.learn.batch import batch_sharding
from codea1.models.qwen2 import Params


def token_log_probs(
    logits_of: Callable[[jax.Array], jax.Array],
    hidden_BTD: jax.Array,
    tokens_BT: jax.Array,
    temperature: jax.Array | float,
    chunk_length: int,
) -> tuple[jax.Array, jax.Array]:
    """Float32 log-probabilities of `tokens_BT` and entropies (nats) of their distributions, both [B, T].

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
    graphdef: nnx.GraphDef, params: Params, tokens_BT: jax.Array, temperature: jax.Array | float, chunk_length: int
) -> tuple[jax.Array, jax.Array]:
    """`token_log_probs` of right-padded rows under a model, differentiable in `params`."""
    model = nnx.merge(graphdef, params)
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    hidden_BTD, _ = model(tokens_BT, positions_BT)
    return token_log_probs(model.logits, hidden_BTD, tokens_BT, temperature, chunk_length)


@functools.cache
def make_score(graphdef: nnx.GraphDef, chunk_length: int, mesh: Mesh) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Compiled `score(params, tokens_BT, temperature) -> (log_probs_BT, entropy_BT)`; see `token_log_probs`."""

    def score(params: Params, tokens_BT: jax.Array, temperature: float) -> tuple[jax.Array, jax.Array]:
        return model_log_probs(graphdef, params, tokens_BT, temperature, chunk_length)

    return jax.jit(score, out_shardings=batch_sharding(mesh))
