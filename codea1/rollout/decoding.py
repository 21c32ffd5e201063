"""What runs on the devices: prompts into pages, slots decoding in chunks, and the draw of each token.

The devices hold the pages alone. Everything else about a slot is a few numbers, which the host passes to each chunk and
reads back from its small outputs: which sample is in which slot and pages is decided in one place, `scheduler`.

A token's key is a function of (seed, stream, step, question, sample, position) alone; a player, and each purpose of an
evaluation, has a stream of its own. The same sample therefore gets the same draws whatever batch, slot, order or
restart it is generated in.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from codea1.models.config import Qwen2Config
from codea1.models.kv_cache import Cache, PageTable
from codea1.models.qwen2 import Params
from codea1.runtime.hosts import stable_hash
from codea1.sharding import Array

GUESSED_CHUNKS = 4  # times as long is a chunk whose steps guess, or it would have few of them
NGRAM = 3  # tokens at most by which the place is found whose next tokens are guessed


@dataclass(frozen=True)
class DecodingConfig:
    """What is static in the compiled functions besides array shapes."""

    model: Qwen2Config
    chunk: int  # most steps of a chunk that guesses nothing
    guesses: int  # tokens that a step guesses, where it does
    stop_ids: tuple[int, ...]  # a response ends when it has drawn one of these
    pad_id: int  # what follows in the row
    replicas: int = 1  # of the mesh

    def columns(self, guesses: bool) -> int:
        """Returns the most tokens that a slot draws in one chunk, whose steps guess some or none."""
        return self.chunk * (GUESSED_CHUNKS if guesses else 1)

    def fixed_steps(self, guesses: bool) -> int:
        """Returns how many steps a chunk makes whatever is drawn; 0 where it goes on while it has room.

        Several replicas make so many as have room in any case: they lie in different slices, and after each step would
        wait for the network between these to learn what all drew.
        """
        return self.columns(guesses) // (1 + self.guesses * guesses) if self.replicas > 1 else 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """What is in the slots, [B] each. A slot's next query is `token` at `position`: first a prompt's last token."""

    token: Array  # int32
    position: Array  # int32
    drawn: Array  # int32, tokens of the response so far
    limit: Array  # int32, the response ends when it has this many
    question_hash: Array  # uint32, `stable_hash` of the question id
    sample_index: Array  # int32
    live: Array  # bool; the others draw nothing


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chunk:
    """What the slots drew in one chunk."""

    tokens: Array  # int32 [B, C], pad_id where nothing was drawn
    log_probs: Array  # float32 [B, C], 0 where nothing was drawn
    drawn: Array  # int32 [B], tokens of the response including these
    stopped: Array  # bool [B], whether the last token drawn is a stop id
    steps: Array  # int32, decode steps of the chunk


def prefill(
    graphdef: nnx.GraphDef,
    params: Params,
    cache: Cache,
    tokens_BT: jax.Array,
    pages_BM: jax.Array,
) -> Cache:
    """Returns the cache with prompts int32 [B, T], padded on the right, in pages_BM; see `PageTable`."""
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    table = PageTable(pages_BM, is_prefill=True)
    _, cache = nnx.merge(graphdef, params)(tokens_BT, positions_BT, cache.of_rows(table))
    return cache.of_rows(None)


Carry = tuple[Cache, Rows, jax.Array | None, Chunk]  # of a loop over decode steps


def decode_chunk(
    config: DecodingConfig,
    graphdef: nnx.GraphDef,
    params: Params,
    cache: Cache,
    table: PageTable,
    rows: Rows,
    known_BS: jax.Array | None,
    key_data: jax.Array,
    temperature: jax.Array,
    exit_when_live: jax.Array,
    top_p: jax.Array | None = None,
) -> tuple[Cache, Chunk]:
    """Draws up to C tokens in every live slot; ends early when only `exit_when_live` slots are live, in one replica.

    With `known_BS`, the tokens of the slots' prompts and responses so far, int32, a step guesses a slot's next tokens
    (`guess_next`), runs the model on all of them at once, and draws as many as it had guessed right, and one more. A
    token's draw depends on its position alone: so these are the tokens that one step after another would draw.

    Args:
      table: has pages for all positions that live slots come to in the chunk.
      key_data: of `stream_key`, uint32 [2].
    """
    model = nnx.merge(graphdef, params)
    keys_B = sample_keys(jax.random.wrap_key_data(key_data, impl="threefry2x32"), rows.question_hash, rows.sample_index)
    B, T = len(rows.live), 1 if known_BS is None else 1 + config.guesses
    columns_C = jnp.arange(config.columns(guesses=known_BS is not None))
    keys_X = jnp.repeat(keys_B, T)
    stop_ids, nth_T = jnp.array(config.stop_ids, jnp.int32), jnp.arange(T)
    first_drawn_B, fixed_steps = rows.drawn, config.fixed_steps(guesses=known_BS is not None)

    def cond(carry: Carry) -> jax.Array:
        _, rows, _, chunk = carry
        if fixed_steps:
            return chunk.steps < fixed_steps
        has_room = jnp.max(chunk.drawn - first_drawn_B) <= len(columns_C) - T
        return has_room & (jnp.sum(rows.live) > exit_when_live)

    def step(carry: Carry) -> Carry:
        cache, rows, known_BS, chunk = carry
        given_BT = rows.token[:, None]
        if known_BS is not None:
            given_BT = jnp.concatenate([given_BT, guess_next(known_BS, rows.position, config.guesses)], axis=1)
        nth_drawn_BT = rows.drawn[:, None] + nth_T
        may_be_drawn_BT = rows.live[:, None] & (nth_drawn_BT < rows.limit[:, None])
        position_BT = jnp.where(may_be_drawn_BT, rows.position[:, None] + nth_T, -1)  # -1: nowhere
        hidden_BTD, cache = model(given_BT, position_BT, cache)
        logits_XV = model.logits(hidden_BTD.reshape(B * T, 1, -1))[:, 0]
        drawn_X, log_probs_X = sample_tokens(logits_XV, keys_X, nth_drawn_BT.reshape(-1), temperature, top_p)
        drawn_BT = drawn_X.reshape(B, T)
        is_stop_BT = jnp.isin(drawn_BT, stop_ids)
        counts_BT = may_be_drawn_BT & _accepted(given_BT, drawn_BT, is_stop_BT)
        num_new_B = jnp.sum(counts_BT, axis=1, dtype=jnp.int32)
        put = partial(_put, counts_BT)
        first_B = rows.drawn - first_drawn_B
        drawn_B = rows.drawn + num_new_B
        chunk = Chunk(
            tokens=put(chunk.tokens, columns_C, first_B, drawn_X),
            log_probs=put(chunk.log_probs, columns_C, first_B, log_probs_X),
            drawn=drawn_B,
            stopped=chunk.stopped | jnp.any(counts_BT & is_stop_BT, axis=1),
            steps=chunk.steps + 1,
        )
        if known_BS is not None:
            known_BS = put(known_BS, jnp.arange(known_BS.shape[1]), rows.position + 1, drawn_X)
        token_B = jnp.where(num_new_B > 0, _at(drawn_BT, num_new_B - 1), rows.token)
        live_B = rows.live & ~chunk.stopped & (drawn_B < rows.limit)
        rows = replace(rows, token=token_B, position=rows.position + num_new_B, drawn=drawn_B, live=live_B)
        return cache, rows, known_BS, chunk

    nothing = Chunk(
        jnp.full((B, len(columns_C)), config.pad_id, jnp.int32),
        jnp.zeros((B, len(columns_C)), jnp.float32),
        rows.drawn,
        jnp.zeros(B, bool),
        jnp.int32(0),
    )
    cache, _, _, chunk = jax.lax.while_loop(cond, step, (cache.of_rows(table), rows, known_BS, nothing))
    return cache.of_rows(None), chunk


def _accepted(given_BT: jax.Array, drawn_BT: jax.Array, is_stop_BT: jax.Array) -> jax.Array:
    """Returns which tokens count: the first, and further ones as long as each was guessed as it was drawn."""
    follows_BT = (given_BT[:, 1:] == drawn_BT[:, :-1]) & ~is_stop_BT[:, :-1]
    follows_BT = jnp.concatenate([jnp.ones_like(is_stop_BT[:, :1]), follows_BT], axis=1)
    return jnp.cumsum(~follows_BT, axis=1) == 0


def _put(
    counts_BT: jax.Array, array_BC: jax.Array, columns_C: jax.Array, first_B: jax.Array, values_X: jax.Array
) -> jax.Array:
    """Writes those of the values [B * T] that count into their rows, from column `first_B` on.

    By comparison: XLA would gather the rows of all devices for a scatter.
    """
    for nth, values_B in enumerate(values_X.reshape(counts_BT.shape).T):
        is_place_BC = (columns_C == first_B[:, None] + nth) & counts_BT[:, nth, None]
        array_BC = jnp.where(is_place_BC, values_B[:, None], array_BC)
    return array_BC


def guess_next(known_BS: jax.Array, position_B: jax.Array, count: int) -> jax.Array:
    """Guesses the next tokens int32 [B, count] of sequences whose last known token is at `position_B`.

    They are what followed the last NGRAM tokens where those came last before (prompt lookup decoding, Saxena, 2023), or
    where those never came, the last ones of them that did; again from there on where that ends with what is known;
    anything where none ever came.
    """
    size = known_BS.shape[1]
    positions_S = jnp.arange(size)
    matches_BS, length_BS = positions_S < position_B[:, None], jnp.zeros_like(known_BS)
    for back in range(NGRAM):
        matches_BS &= jnp.roll(known_BS, back, axis=1) == _at(known_BS, position_B - back)[:, None]
        matches_BS &= (positions_S >= back) & (position_B >= back)[:, None]
        length_BS += matches_BS
    # The longest one first, of those the last.
    found_B = jnp.max(jnp.where(length_BS > 0, length_BS * size + positions_S, 0), axis=1) % size
    period_B = jnp.maximum(position_B - found_B, 1)
    return jnp.stack([_at(known_BS, found_B + 1 + nth % period_B) for nth in range(count)], axis=1)


def _at(x_BS: jax.Array, place_B: jax.Array) -> jax.Array:
    """Returns x_BS[b, place_B[b]], by comparison; 0 beyond the ends."""
    return jnp.sum(jnp.where(jnp.arange(x_BS.shape[1]) == place_B[:, None], x_BS, 0), axis=1)


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
