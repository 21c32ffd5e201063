"""What runs on the devices: prompts into pages, and slots decoding in chunks.

The devices hold the pages alone. Everything else about a slot is a few numbers, which the host passes to each chunk and
reads back from its small outputs: which sample is in which slot and pages is decided in one place, `scheduler`.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from codea1.models.config import Qwen2Config
from codea1.models.kv_cache import Cache, PageTable
from codea1.models.qwen2 import Params
from codea1.rollout.sampling import sample_keys, sample_tokens


@dataclass(frozen=True)
class DecodingConfig:
    """What is static in the compiled functions besides array shapes."""

    model: Qwen2Config
    chunk: int  # C, most tokens that a slot draws in one chunk
    stop_ids: tuple[int, ...]  # a response ends when it has drawn one of these
    pad_id: int  # what follows in the row


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """What is in the slots, [B] each. A slot's next query is `token` at `position`: first a prompt's last token."""

    token: np.ndarray  # int32
    position: np.ndarray  # int32
    drawn: np.ndarray  # int32, tokens of the response so far
    limit: np.ndarray  # int32, the response ends when it has this many
    question_hash: np.ndarray  # uint32, `stable_hash` of the question id
    sample_index: np.ndarray  # int32
    live: np.ndarray  # bool; the others draw nothing


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chunk:
    """What the slots drew in one chunk."""

    tokens: jax.Array  # int32 [B, C], pad_id where nothing was drawn
    log_probs: jax.Array  # float32 [B, C], 0 where nothing was drawn
    drawn: jax.Array  # int32 [B], tokens of the response including these
    stopped: jax.Array  # bool [B], whether the last token drawn is a stop id
    steps: jax.Array  # int32, decode steps of the chunk


def prefill(
    config: DecodingConfig,
    graphdef: nnx.GraphDef,
    params: Params,
    cache: Cache,
    tokens_PT: jax.Array,
    pages_PM: jax.Array,
) -> Cache:
    """Returns the cache with prompts int32 [P, T], padded on the right, in pages_PM; see `PageTable`."""
    positions_PT = jnp.broadcast_to(jnp.arange(tokens_PT.shape[1]), tokens_PT.shape)
    _, cache = nnx.merge(graphdef, params)(tokens_PT, positions_PT, cache.of_rows(PageTable(pages_PM)))
    return cache.of_rows(None)


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
    """Draws up to C tokens in every live slot; ends early when only `exit_when_live` slots are live.

    `key_data` (uint32 [2]) is that of `sampling.stream_key`. The table has pages for all positions that live slots come
    to in the chunk.
    """
    model = nnx.merge(graphdef, params)
    keys_B = sample_keys(jax.random.wrap_key_data(key_data, impl="threefry2x32"), rows.question_hash, rows.sample_index)
    stop_ids = jnp.array(config.stop_ids, jnp.int32)
    shape = (len(rows.live), config.chunk)

    def cond(carry: tuple[Cache, Rows, Chunk]) -> jax.Array:
        _, rows, chunk = carry
        return (chunk.steps < config.chunk) & (jnp.sum(rows.live) > exit_when_live)

    def step(carry: tuple[Cache, Rows, Chunk]) -> tuple[Cache, Rows, Chunk]:
        cache, rows, chunk = carry
        position_B1 = jnp.where(rows.live, rows.position, -1)[:, None]  # nowhere
        hidden_B1D, cache = model(rows.token[:, None], position_B1, cache)
        logits_BV = model.logits(hidden_B1D)[:, 0]
        tokens_B, log_probs_B = sample_tokens(logits_BV, keys_B, rows.drawn, temperature, top_p)

        def put(array_BC: jax.Array, values_B: jax.Array, filler: float) -> jax.Array:
            column_B1 = jnp.where(rows.live, values_B, filler).astype(array_BC.dtype)[:, None]
            return jax.lax.dynamic_update_slice_in_dim(array_BC, column_B1, chunk.steps, axis=1)

        is_stop_B = rows.live & jnp.isin(tokens_B, stop_ids)
        drawn_B = rows.drawn + rows.live
        chunk = Chunk(
            tokens=put(chunk.tokens, tokens_B, config.pad_id),
            log_probs=put(chunk.log_probs, log_probs_B, 0.0),
            drawn=drawn_B,
            stopped=chunk.stopped | is_stop_B,
            steps=chunk.steps + 1,
        )
        live_B = rows.live & ~is_stop_B & (drawn_B < rows.limit)
        return cache, replace(rows, token=tokens_B, position=rows.position + 1, drawn=drawn_B, live=live_B), chunk

    nothing = Chunk(
        jnp.full(shape, config.pad_id, jnp.int32),
        jnp.zeros(shape, jnp.float32),
        rows.drawn,
        jnp.zeros(shape[:1], bool),
        jnp.int32(0),
    )
    cache, _, chunk = jax.lax.while_loop(cond, step, (cache.of_rows(table), rows, nothing))
    return cache.of_rows(None), chunk
