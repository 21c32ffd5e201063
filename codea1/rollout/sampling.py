"""Random draws of the sampler: which key a token is drawn with, and the draw itself.

A token's key is a function of (seed, player, step, question, sample, position) alone. The same sample therefore gets
the same draws whatever batch, slot, order or restart it is generated in.
"""

import hashlib

import jax
import jax.numpy as jnp


def stable_hash(text: str) -> int:
    """32 bits of BLAKE2b: the same in every process, unlike Python's `hash`."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def phase_key(seed: int, player: str, step: int) -> jax.Array:
    """The key of everything one player samples in one step.

    The implementation is named, because the alternatives that JAX can be configured to use by default do not promise
    that a vectorised draw equals the same draw made alone.
    """
    key = jax.random.key(seed, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, stable_hash(player)), step)


def sample_keys(key: jax.Array, question_hashes_B: jax.Array, sample_indices_B: jax.Array) -> jax.Array:
    """One key per row from a phase key, `stable_hash`es of question ids (uint32) and indices of samples (int32)."""
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return jax.vmap(jax.random.fold_in)(fold(key, question_hashes_B), sample_indices_B)


def sample_tokens(
    logits_BV: jax.Array, keys_B: jax.Array, position: jax.Array, temperature: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Draws the tokens of response position `position` from softmax(logits / temperature); greedy at temperature 0.

    Returns int32 tokens [B] and their float32 log-probabilities [B] under the full-vocabulary softmax they were drawn
    from (under temperature 1 when greedy). Draws by the Gumbel-max trick, which needs only a maximum over the
    vocabulary and so no gathering of it where it is sharded.
    """
    vocab_size = logits_BV.shape[-1]
    scaled_BV = logits_BV.astype(jnp.float32) / jnp.where(temperature > 0, temperature, 1.0)
    token_keys_B = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, position)
    noise_BV = jax.vmap(lambda key: jax.random.gumbel(key, (vocab_size,), jnp.float32))(token_keys_B)
    tokens_B = jnp.argmax(jnp.where(temperature > 0, scaled_BV + noise_BV, scaled_BV), axis=-1).astype(jnp.int32)
    is_drawn_BV = jnp.arange(vocab_size) == tokens_B[:, None]
    drawn_B = jnp.sum(jnp.where(is_drawn_BV, scaled_BV, 0.0), axis=-1)
    return tokens_B, drawn_B - jax.nn.logsumexp(scaled_BV, axis=-1)
