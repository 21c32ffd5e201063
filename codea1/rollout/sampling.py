"""Random draws of the sampler: which key a token is drawn with, and the draw itself.

A token's key is a function of (seed, player, step, question, sample, position) alone. The same sample therefore gets
the same draws whatever batch, slot, order or restart it is generated in.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from codea1.runtime.shares import stable_hash


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Restriction:
    """Which part of the vocabulary is drawn from, for evaluation; see `restrict`. The defaults leave nothing out.

    Training draws from the whole vocabulary: the policy gradient is that of the distribution that was sampled.
    """

    top_k: int = 2**31 - 1
    top_p: float = 1.0
    min_p: float = 0.0

    def check(self) -> None:
        """Raises ValueError for values outside top_k >= 1, 0 < top_p <= 1, 0 <= min_p <= 1."""
        if not (self.top_k >= 1 and 0 < self.top_p <= 1 and 0 <= self.min_p <= 1):
            raise ValueError(f"{self} must have top_k >= 1, 0 < top_p <= 1 and 0 <= min_p <= 1")


def phase_key(seed: int, player: str, step: int) -> jax.Array:
    """Returns the key of everything one player samples in one step.

    The implementation is named, because the alternatives that JAX can be configured to use by default do not promise
    that a vectorised draw equals the same draw made alone.
    """
    key = jax.random.key(seed, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, stable_hash(player)), step)


def sample_keys(key: jax.Array, question_hashes_B: jax.Array, sample_indices_B: jax.Array) -> jax.Array:
    """Returns keys [B] of a phase key for `stable_hash`es of question ids (uint32) and sample indices (int32)."""
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return jax.vmap(jax.random.fold_in)(fold(key, question_hashes_B), sample_indices_B)


def sample_tokens(
    logits_BV: jax.Array,
    keys_B: jax.Array,
    positions_B: jax.Array,
    temperature: jax.Array,
    restriction: Restriction | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Draws the tokens of response positions `positions_B` from softmax(logits / temperature); greedy at temperature 0.

    Returns int32 tokens [B] and their float32 log-probabilities [B] under the full-vocabulary softmax (under
    temperature 1 when greedy). That is what they were drawn from, unless a `restriction` keeps part of the vocabulary:
    then draws are from the kept part, renormalised, and log-probabilities are still those of the whole.

    Draws first a block of the vocabulary and then a token of the block, both by the Gumbel-max trick. By the chain rule
    the distribution is the same as that of one draw, with about 2 sqrt(V) random numbers instead of V, and the maximum
    needs no gathering of a vocabulary that is sharded.
    """
    scaled_BV = logits_BV.astype(jnp.float32) / jnp.where(temperature > 0, temperature, 1.0)
    kept_BV = scaled_BV if restriction is None else restrict(scaled_BV, restriction)
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
    all_BN = block_BN if restriction is None else scaled_BV
    return block_B * block_width + within_B, drawn_B - jax.nn.logsumexp(all_BN, axis=-1)


def restrict(scaled_BV: jax.Array, restriction: Restriction) -> jax.Array:
    """Returns the tempered logits with -inf for the tokens that a restriction leaves out.

    A token stays when it is among the `top_k` likeliest, and the likelier ones together have less than `top_p` of the
    probability (Holtzman et al., 2020), and it has at least `min_p` of the likeliest token's probability (Nguyen et
    al., 2024). Each is judged on the whole distribution; tokens as likely as the last one kept stay; the likeliest
    always stays.
    """
    descending_BV = -jnp.sort(-scaled_BV, axis=-1)
    rank_V = jnp.arange(scaled_BV.shape[-1])
    prob_BV = jax.nn.softmax(descending_BV, axis=-1)
    likelier_BV = jnp.cumsum(prob_BV, axis=-1) - prob_BV
    # With top_p 1, rounding of the sum must not leave out the unlikeliest.
    stays_BV = (rank_V < restriction.top_k) & ((likelier_BV < restriction.top_p) | (restriction.top_p >= 1))
    stays_BV &= prob_BV >= restriction.min_p * prob_BV[:, :1]
    lowest_B1 = jnp.min(jnp.where(stays_BV | (rank_V == 0), descending_BV, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(scaled_BV >= lowest_B1, scaled_BV, -jnp.inf)


def _num_blocks(vocab_size: int) -> int:
    """Returns the largest divisor of V that is at most sqrt(V)."""
    return next(n for n in range(math.isqrt(vocab_size), 0, -1) if vocab_size % n == 0)


def _argmax(x_BN: jax.Array) -> jax.Array:
    """Returns the first index of the maximum, int32; unlike `jnp.argmax`, which XLA for CPU does not vectorise."""
    N = x_BN.shape[-1]
    is_max_BN = x_BN == jnp.max(x_BN, axis=-1, keepdims=True)
    return jnp.min(jnp.where(is_max_BN, jnp.arange(N), N - 1), axis=-1).astype(jnp.int32)
