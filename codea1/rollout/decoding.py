"""The compiled parts of generation: one prefill per prompt, fanned out to its samples, then a decode loop.

They are three programs because the number of prompts and the number of samples vary separately.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from codea1.models import kv_cache
from codea1.models.kv_cache import KVCache
from codea1.models.qwen2 import Params, Qwen2Config
from codea1.rollout.sampling import sample_keys, sample_tokens
from codea1.sharding import constrain


@dataclass(frozen=True)
class DecodingConfig:
    """What is static in a generation program besides its array shapes."""

    model: Qwen2Config
    max_response_length: int  # R, tokens
    stop_ids: tuple[int, ...]  # a row is finished once it has drawn one of these
    pad_id: int  # what follows in the row


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Contexts:
    """What the first token after each of B prompts is drawn from, and what the next ones attend to."""

    logits: jax.Array  # float32 [B, V]
    cache: KVCache
    lengths: jax.Array  # int32 [B], tokens in the cache


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """The samples to draw, [B] each."""

    question_hash: jax.Array  # uint32, `stable_hash` of the question id
    sample_index: jax.Array  # int32
    live: jax.Array  # bool; False fills up the batch, and decoding never waits for it


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Responses:
    """What the rows have drawn so far; R is the longest response."""

    tokens: jax.Array  # int32 [B, R], pad_id after the response
    log_probs: jax.Array  # float32 [B, R], 0 after the response
    lengths: jax.Array  # int32 [B], tokens drawn; a final stop id counts
    stopped: jax.Array  # bool [B]


def prefill(
    config: DecodingConfig, graphdef: nnx.GraphDef, params: Params, tokens_BT: jax.Array, lengths_B: jax.Array
) -> Contexts:
    """Contexts of prompts that are padded on the right."""
    model = nnx.merge(graphdef, params)
    cache = KVCache.zeros(config.model, *tokens_BT.shape)
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    hidden_BTD, cache = model(tokens_BT, positions_BT, cache)
    last_B1D = jnp.take_along_axis(hidden_BTD, (lengths_B - 1)[:, None, None], axis=1)
    return Contexts(model.logits(last_B1D)[:, 0], cache, lengths_B)


def fan_out(config: DecodingConfig, prompts: Contexts, prompt_B: jax.Array) -> Contexts:
    """Contexts of B samples, of which sample b continues prompt prompt_B[b], with room for their responses."""

    def take(x_LPSKh: jax.Array) -> jax.Array:
        # The last token of a response is never attended to.
        room = ((0, 0), (0, 0), (0, config.max_response_length - 1), (0, 0), (0, 0))
        return constrain(jnp.pad(x_LPSKh[:, prompt_B], room), *kv_cache.AXES)

    logits_BV = constrain(prompts.logits[prompt_B], "batch", "vocab")
    return Contexts(logits_BV, jax.tree.map(take, prompts.cache), prompts.lengths[prompt_B])


def decode(
    config: DecodingConfig,
    graphdef: nnx.GraphDef,
    params: Params,
    contexts: Contexts,
    rows: Rows,
    key_data: jax.Array,
    temperature: jax.Array,
) -> tuple[Responses, Contexts]:
    """Draws responses until all live rows have stopped or are full.

    `key_data` (uint32 [2]) is that of a phase key; see `sampling`. The contexts are returned, used up, so that a caller
    who donates them has one cache in memory and not two.
    """
    model = nnx.merge(graphdef, params)
    keys_B = sample_keys(jax.random.wrap_key_data(key_data, impl="threefry2x32"), rows.question_hash, rows.sample_index)

    def draw(position: jax.Array, logits_BV: jax.Array, responses: Responses) -> Responses:
        tokens_B, log_probs_B = sample_tokens(logits_BV, keys_B, position, temperature)
        return _append(config, responses, position, tokens_B, log_probs_B)

    def unfinished(carry: tuple[jax.Array, KVCache, Responses]) -> jax.Array:
        position, _, responses = carry
        return (position < config.max_response_length) & ~jnp.all(responses.stopped)

    def step(carry: tuple[jax.Array, KVCache, Responses]) -> tuple[jax.Array, KVCache, Responses]:
        position, cache, responses = carry
        last_B1 = jax.lax.dynamic_slice_in_dim(responses.tokens, position - 1, 1, axis=1)
        hidden_B1D, cache = model(last_B1, (contexts.lengths + position - 1)[:, None], cache)
        return position + 1, cache, draw(position, model.logits(hidden_B1D)[:, 0], responses)

    first = draw(jnp.int32(0), contexts.logits, _nothing_drawn(config, rows))
    _, cache, responses = jax.lax.while_loop(unfinished, step, (jnp.int32(1), contexts.cache, first))
    return responses, Contexts(contexts.logits, cache, contexts.lengths)


def _nothing_drawn(config: DecodingConfig, rows: Rows) -> Responses:
    shape = (len(rows.live), config.max_response_length)
    return Responses(
        tokens=jnp.full(shape, config.pad_id, jnp.int32),
        log_probs=jnp.zeros(shape, jnp.float32),
        lengths=jnp.zeros(shape[:1], jnp.int32),
        stopped=~rows.live,
    )


def _append(
    config: DecodingConfig, responses: Responses, position: jax.Array, tokens_B: jax.Array, log_probs_B: jax.Array
) -> Responses:
    """Writes the drawn tokens into column `position` of the rows that have not stopped."""
    is_open_B = ~responses.stopped

    def put(array_BR: jax.Array, values_B: jax.Array, filler: float) -> jax.Array:
        column_B1 = jnp.where(is_open_B, values_B, filler).astype(array_BR.dtype)[:, None]
        return jax.lax.dynamic_update_slice_in_dim(array_BR, column_B1, position, axis=1)

    return Responses(
        tokens=put(responses.tokens, tokens_B, config.pad_id),
        log_probs=put(responses.log_probs, log_probs_B, 0.0),
        lengths=responses.lengths + is_open_B,
        stopped=responses.stopped | jnp.isin(tokens_B, jnp.array(config.stop_ids, jnp.int32)),
    )
