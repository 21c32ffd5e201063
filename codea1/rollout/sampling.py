"""Random draws of the sampler: which key a token is drawn with, and the draw itself.

A token's key is a function of (seed, stream, step, question, sample, position) alone; a player, and each purpose of an
evaluation, has a stream of its own. The same sample therefore gets
the same draws whatever batch, slot, order or restart it is generated in.
"""

import math

import jax
import jax.numpy as jnp

from codea1.runtime.hosts import stable_hash


def stream_key(seed: int, stream: str, step: int) -> jax.Array:
    """Returns the key of everything that one stream samples in one step.

    The implementation is named, because the alternatives that JAX can be configured to use by default do not promise
    that a vectorised draw equals the same draw made alone.
    """
    key = jax.random.key(seed, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, stable_hash(stream)), step)


def sample_keys(key: jax.Array, question_hashes_B: jax.Array, sample_indices_B: jax.Array) -> jax.Array:
    """Returns keys [B] of a stream's key for `stable_hash`es of question ids (uint32) and sample indices (int32)."""
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return jax.vmap(jax.random.fold_in)(fold(key, question_hashes_B), sample_indices_B)


def sample_tokens(
    logits_BV: jax.Array,
    keys_B: jax.Array,
    positions_B: jax.Array,
    temperature: jax.Array,
    top_p: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Draws the tokens of response positions `positions_B` from softmax(logits / temperature); greedy at temperature 0.

    Returns int32 tokens [B] and their float32 log-probabilities [B] under the full-vocabulary softmax (under
    temperature 1 when greedy). That is what they were drawn from, unless `top_p` keeps part of the vocabulary, for
    evaluation: then draws are from the kept part, renormalised, and log-probabilities are still those of the whole.
    Training draws from the whole vocabulary: the policy gradient is that of the distribution that was sampled.

    Draws first a block of the vocabulary and then a token of the block, both by the Gumbel-max trick. By the chain rule
    the distribution is the same as that of one draw, with about 2 sqrt(V) random numbers instead of V, and the maximum
    needs no gathering of a vocabulary that is sharded.
    """
    scaled_BV = logits_BV.astype(jnp.float32) / jnp.where(temperature > 0, temperature, 1.0)
    kept_BV = scaled_BV if top_p is None else restrict(scaled_BV, top_p)
    num_blocks = _num_blocks(scaled_BV.shape[-1])
    kept_BNW = kept_BV.reshape(len(kept_BV), num_blocks, -1)
    block_width = kept_BNW.shape[-1]
    token_keys_B = jax.vmap(jax.random.fold_in)(keys_B, positions_B)
    noise_BR = jax.vmap(lambda key: jax.random.gumbel(key, (num_blocks + block_width,), jnp.float32))(token_keys_B)

    block_BN, greedy_BN = jax.nn.logsumexp(kept_BNW, axis=-1), jnp.max(kept_BNW, axis=-1)
    block_B = _argmax(jnp.where(temperature > 0, block_BN + noise_BR[:, :num_blocks], greedy_BN))
    is_block_BN = jnp.arange(num_blocks) == block_B[:, None]
    kept_BW = jnp.max(jnp.where(is_block_BN[..., None], kept_BNW, -jnp.inf), axis=1)
    within_B = _argmax(jnp.where(temperature > 0, kept_BW + noise_BR[:, num_blocks:], kept_BW))
    drawn_B = jnp.max(jnp.where(jnp.arange(block_width) == within_B[:, None], kept_BW, -jnp.inf), axis=-1)
    # Where nothing is left out the blocks already hold the normaliser.
    all_BN = block_BN if top_p is None else scaled_BV
    return block_B * block_width + within_B, drawn_B - jax.nn.logsumexp(all_BN, axis=-1)


def restrict(scaled_BV: jax.Array, top_p: jax.Array) -> jax.Array:
    """Returns the tempered logits with -inf for the tokens that nucleus sampling leaves out (Holtzman et al., 2020).

    A token stays when the likelier ones together have less than `top_p`, in (0, 1], of the probability: the likeliest
    always does. Tokens as likely as the last one kept stay too.
    """
    descending_BV = -jnp.sort(-scaled_BV, axis=-1)
    prob_BV = jax.nn.softmax(descending_BV, axis=-1)
    stays_BV = jnp.cumsum(prob_BV, axis=-1) - prob_BV < top_p
    lowest_B1 = jnp.min(jnp.where(stays_BV, descending_BV, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(scaled_BV >= lowest_B1, scaled_BV, -jnp.inf)


def _num_blocks(vocab_size: int) -> int:
    """Returns the largest divisor of V that is at most sqrt(V)."""
    return next(n for n in range(math.isqrt(vocab_size), 0, -1) if vocab_size % n == 0)


def _argmax(x_BN: jax.Array) -> jax.Array:
    """Returns the first index of the maximum, int32; unlike `jnp.argmax`, which XLA for CPU does not vectorise."""
    N = x_BN.shape[-1]
    is_max_BN = x_BN == jnp.max(x_BN, axis=-1, keepdims=True)
    return jnp.min(jnp.where(is_max_BN, jnp.arange(N), N - 1), axis=-1).astype(jnp.int32)
