"""Sampled sequences as rectangles: packing into rows, cutting into mini-batches and micro-batches.

Every per-token array is aligned with the tokens: the value at t concerns tokens[b, t], which is predicted from the
tokens before t. Rows are right-padded. Rows and positions that hold nothing have response_mask False and weight 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from codea1.learn.losses import token_weights
from codea1.sharding import TRAIN_RULES, partition_spec

Array = np.ndarray | jax.Array


@dataclass(frozen=True)
class TrainSample:
    """One response with its advantage, as it goes into the update."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    log_probs: Sequence[float]  # of token_ids, under the policy that sampled them
    advantage: float


@dataclass(frozen=True)
class PackedSamples:
    """Rows of samples on the host, [N, T] each, in the order of the samples, padding rows last."""

    tokens: np.ndarray  # int32
    response_mask: np.ndarray  # bool, True at the tokens of responses
    advantages: np.ndarray  # float32
    old_log_probs: np.ndarray  # float32
    ref_log_probs: np.ndarray | None = None  # float32; None until a reference policy has scored the rows


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainBatch:
    """One mini-batch for the policy update: [micro, B, T] each, or [B, T] for a single micro-batch."""

    tokens: Array  # int32
    response_mask: Array  # bool
    loss_weights: Array  # float32; the loss is the sum of weight times token loss over the whole mini-batch
    advantages: Array  # float32
    old_log_probs: Array  # float32
    ref_log_probs: Array | None  # float32; None where the objective has no KL term


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SupervisedBatch:
    """One mini-batch for the supervised update, laid out as a TrainBatch; response_mask marks target tokens."""

    tokens: Array
    response_mask: Array
    loss_weights: Array


def pack_samples(samples: Sequence[TrainSample], *, length: int, num_rows: int, pad_id: int) -> PackedSamples:
    """Lays samples out as rows [num_rows, length]; the same number of rows every step keeps shapes static.

    Raises ValueError when there are more samples than rows, a sample is longer than a row, its log_probs do not match
    its tokens, or its advantage is not finite.
    """
    tokens, mask = _pack_tokens([(s.prompt_ids, s.token_ids) for s in samples], length, num_rows, pad_id)
    advantages = np.zeros((num_rows, length), np.float32)
    old_log_probs = np.zeros((num_rows, length), np.float32)
    for row, sample in enumerate(samples):
        if len(sample.log_probs) != len(sample.token_ids):
            raise ValueError(f"sample {row} has {len(sample.token_ids)} tokens but {len(sample.log_probs)} log_probs")
        if not np.isfinite(sample.advantage):
            raise ValueError(f"sample {row} has advantage {sample.advantage}")
        advantages[row, mask[row]] = sample.advantage
        old_log_probs[row, mask[row]] = sample.log_probs
    return PackedSamples(tokens, mask, advantages, old_log_probs)


def mini_batches(
    packed: PackedSamples,
    *,
    count: int,
    micro_rows: int,
    aggregation: str,
    max_response_length: int,
    generator: np.random.Generator,
) -> list[TrainBatch]:
    """Deals the rows that have response tokens, in random order, into `count` mini-batches of [micro, micro_rows, T].

    All mini-batches have the shape that `packed` alone decides, filled up with empty rows; the sizes of their real
    parts differ by at most one row. A mini-batch may be empty when there are fewer rows than mini-batches. The order
    is a function of the generator's state and the number of real rows.
    """
    num_micro = -(-len(packed.tokens) // (count * micro_rows))
    real_rows = generator.permutation(np.flatnonzero(packed.response_mask.any(axis=1)))
    batches = []
    for rows in np.array_split(real_rows, count):
        mask = _take_rows(packed.response_mask, rows, num_micro, micro_rows)
        weights = token_weights(mask.reshape(-1, mask.shape[-1]), aggregation, max_response_length=max_response_length)
        batches.append(
            TrainBatch(
                tokens=_take_rows(packed.tokens, rows, num_micro, micro_rows),
                response_mask=mask,
                loss_weights=weights.reshape(mask.shape),
                advantages=_take_rows(packed.advantages, rows, num_micro, micro_rows),
                old_log_probs=_take_rows(packed.old_log_probs, rows, num_micro, micro_rows),
                ref_log_probs=None
                if packed.ref_log_probs is None
                else _take_rows(packed.ref_log_probs, rows, num_micro, micro_rows),
            )
        )
    return batches


def batch_sharding(mesh: Mesh, num_dimensions: int) -> NamedSharding:
    """The layout of arrays [..., B, T]: rows cut over the data-parallel axes of the mesh."""
    return NamedSharding(mesh, partition_spec((None,) * (num_dimensions - 2) + ("batch", None), TRAIN_RULES))


def to_mesh(batch: Any, mesh: Mesh) -> Any:
    """A pytree of arrays [..., B, T], held whole by every process, on the mesh; each device gets its rows alone."""

    def place(array: np.ndarray) -> jax.Array:
        sharding = batch_sharding(mesh, array.ndim)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(place, batch)


def _pack_tokens(
    sequences: Sequence[tuple[Sequence[int], Sequence[int]]], length: int, num_rows: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
    if len(sequences) > num_rows:
        raise ValueError(f"{len(sequences)} sequences do not fit into {num_rows} rows")
    tokens = np.full((num_rows, length), pad_id, np.int32)
    mask = np.zeros((num_rows, length), bool)
    for row, (prompt_ids, token_ids) in enumerate(sequences):
        start, end = len(prompt_ids), len(prompt_ids) + len(token_ids)
        if end > length:
            raise ValueError(f"sequence {row} has {end} tokens, more than the row length {length}")
        if start == 0:
            raise ValueError(f"sequence {row} has no prompt, so its first token cannot be predicted")
        tokens[row, :start] = prompt_ids
        tokens[row, start:end] = token_ids
        mask[row, start:end] = True
    return tokens, mask


def _take_rows(array: np.ndarray, rows: np.ndarray, num_micro: int, micro_rows: int) -> np.ndarray:
    """The given rows as [num_micro, micro_rows, T], followed by zeros."""
    taken = np.zeros((num_micro * micro_rows, array.shape[1]), array.dtype)
    taken[: len(rows)] = array[rows]
    return taken.reshape(num_micro, micro_rows, -1)
