"""What runs on the devices: prompts into pages, slots decoding in chunks, and the draw of each token.

The devices hold the pages alone. Everything else about a slot is a few numbers, which the host passes to each chunk and
reads back from its small outputs: which sample is in which slot and pages is decided in one place, `scheduler`.

A token's key is a function of (seed, stream, step, question, sample, position) alone; a player, and each purpose of an
evaluation, has a stream of its own. The same sample therefore gets the same draws whatever batch, slot, order or
restart it is generated in.
"""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from codea1.models.config import Qwen2Config
from codea1.models.kv_cache import Cache, PageTable
from codea1.models.qwen2 import Params
from codea1.runtime.hosts import stable_hash
from codea1.sharding import Array


@dataclass(frozen=True)
class DecodingConfig:
    """What is static in the compiled functions besides array shapes."""

    model: Qwen2Config
    chunk: int  # C, most decode steps of a chunk
    stop_ids: tuple[int, ...]  # a response ends when it has drawn one of these
    pad_id: int  # what follows in the row
    replicas: int = 1  # of the mesh
    records_routes: bool = False  # whether samples come with the experts of their tokens


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


def abstract_rows(slots: int) -> Rows:
    """Returns the rows of so many slots as shapes."""
    numbers, hashes, flags = (jax.ShapeDtypeStruct((slots,), dtype) for dtype in (np.int32, np.uint32, bool))
    return Rows(numbers, numbers, numbers, numbers, hashes, numbers, flags)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chunk:
    """What the slots drew in one chunk."""

    tokens: Array  # int32 [B, C], pad_id where nothing was drawn
    log_probs: Array  # float32 [B, C], 0 where nothing was drawn
    drawn: Array  # int32 [B], tokens of the response including these
    stopped: Array  # bool [B], whether the last token drawn is a stop id
    steps: Array  # int32, decode steps of the chunk
    routes: Array | None = None  # [B, C, L, c], experts of the token behind which each was drawn; see `Qwen2Config`


def prefill(
    graphdef: nnx.GraphDef,
    params: Params,
    cache: Cache,
    tokens_BT: jax.Array,
    pages_BM: jax.Array,
) -> tuple[Cache, jax.Array | None]:
    """Returns the cache with prompts int32 [B, T], padded on the right, in pages_BM; see `PageTable`.

    And the experts [B, T, L, c] of their tokens, where there are some.
    """
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    table = PageTable(pages_BM, is_prefill=True)
    _, cache, routing = nnx.merge(graphdef, params)(tokens_BT, positions_BT, cache.of_rows(table))
    return cache.of_rows(None), None if routing is None else jnp.moveaxis(routing.chosen_BTc, 0, 2)


def decode_chunk(
    config: DecodingConfig,
    graphdef: nnx.GraphDef,
    params: Params,
    cache: Cache,
    table: PageTable,
    rows: Rows,
    key_data: jax.Array,
    temperature: jax.Array,
    exit_when_live: jax.Array,
    top_p: jax.Array | None = None,
) -> tuple[Cache, Chunk]:
    """Draws up to C tokens in every live slot; with one replica, ends early when `exit_when_live` are live.

    Several replicas make all C steps in any case: they lie in different slices, and after each step would wait for the
    network between these to learn what all drew.

    Args:
      table: has pages for all positions that live slots come to in the chunk.
      key_data: of `stream_key`, uint32 [2].
    """
    model = nnx.merge(graphdef, params)
    keys_B = sample_keys(jax.random.wrap_key_data(key_data, impl="threefry2x32"), rows.question_hash, rows.sample_index)
    stop_ids, columns_C = jnp.array(config.stop_ids, jnp.int32), jnp.arange(config.chunk)

    def cond(carry: tuple[Cache, Rows, Chunk]) -> jax.Array:
        _, rows, chunk = carry
        has_room = chunk.steps < config.chunk
        return has_room if config.replicas > 1 else has_room & (jnp.sum(rows.live) > exit_when_live)

    def step(carry: tuple[Cache, Rows, Chunk]) -> tuple[Cache, Rows, Chunk]:
        cache, rows, chunk = carry
        position_B = jnp.where(rows.live, rows.position, -1)  # -1: nowhere
        hidden_B1D, cache, routing = model(rows.token[:, None], position_B[:, None], cache)
        drawn_B, log_prob_B = sample_tokens(model.logits(hidden_B1D)[:, 0], keys_B, rows.drawn, temperature, top_p)
        is_stop_B = jnp.isin(drawn_B, stop_ids)
        count_B = rows.drawn + rows.live.astype(jnp.int32)
        # By comparison: XLA would gather the rows of all devices for a scatter.
        is_place_BC = (columns_C == chunk.steps) & rows.live[:, None]
        routes = chunk.routes
        if routes is not None:
            chosen_BLc = jnp.swapaxes(routing.chosen_BTc[:, :, 0], 0, 1)
            routes = jnp.where(is_place_BC[..., None, None], chosen_BLc[:, None], routes)
        chunk = Chunk(
            tokens=jnp.where(is_place_BC, drawn_B[:, None], chunk.tokens),
            log_probs=jnp.where(is_place_BC, log_prob_B[:, None], chunk.log_probs),
            drawn=count_B,
            stopped=chunk.stopped | (rows.live & is_stop_B),
            steps=chunk.steps + 1,
            routes=routes,
        )
        rows = replace(
            rows,
            token=jnp.where(rows.live, drawn_B, rows.token),
            position=rows.position + count_B - rows.drawn,
            drawn=count_B,
            live=rows.live & ~is_stop_B & (count_B < rows.limit),
        )
        return cache, rows, chunk

    shape = len(rows.live), config.chunk
    nothing = Chunk(
        jnp.full(shape, config.pad_id, jnp.int32),
        jnp.zeros(shape, jnp.float32),
        rows.drawn,
        jnp.zeros(shape[0], bool),
        jnp.int32(0),
    )
    of_token = config.model.routes if config.records_routes else None
    if of_token is not None:
        nothing = replace(nothing, routes=jnp.zeros((*shape, *of_token.shape), of_token.dtype))
    cache, _, chunk = jax.lax.while_loop(cond, step, (cache.of_rows(table), rows, nothing))
    return cache.of_rows(None), chunk


def seed_key(seed: int) -> jax.Array:
    """Returns the key of a seed of up to 64 bits. JAX reads 32 of them."""
    key = jax.random.key(seed & 0xFFFFFFFF, impl="threefry2x32")
    return jax.random.fold_in(key, seed >> 32) if seed >> 32 else key


def stream_key(seed: int, stream: str, step: int) -> jax.Array:
    """Returns the key of everything that one stream samples in one step.

    The implementation is named, because the alternatives that JAX can be configured to use by default do not promise
    that a vectorised draw equals the same draw made alone.
    """
    return jax.random.fold_in(jax.random.fold_in(seed_key(seed), stable_hash(stream)), step)


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
