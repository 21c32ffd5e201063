"""Sampled sequences as rectangles: dealing them into mini-batches, and those into micro-batches of few static shapes.

Every per-token array is aligned with the tokens: the value at t concerns tokens[b, t], which is predicted from the
tokens before t. Rows are right-padded. Rows and positions that hold nothing have response_mask False and weight 0.
"""

from collections.abc import Callable, Sequence
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
    advantage: float = 0.0  # of all tokens alike; PPO computes its own, per token
    reward: float = 0.0

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


@dataclass(frozen=True)
class RowShape:
    """The shape of micro-batches that functions are compiled for."""

    rows: int
    length: int  # tokens


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainBatch:
    """One micro-batch for the policy update."""

    tokens_BT: Array  # int32
    response_mask_BT: Array  # bool, True at the tokens of responses
    loss_weights_BT: Array  # float32; the loss is the sum of weight times token loss over the whole mini-batch
    advantages_BT: Array  # float32
    rewards_BT: Array  # float32, the sample's reward at its last token
    sampler_log_probs_BT: Array  # float32
    old_log_probs_BT: Array | None = None  # float32; None: the sampler's; NaN: what the update itself computes
    ref_log_probs_BT: Array | None = None  # float32; None where the objective has no KL term


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SupervisedBatch:
    """One micro-batch for the supervised update, laid out as a TrainBatch; the mask is True at target tokens."""

    tokens_BT: Array  # int32
    response_mask_BT: Array  # bool
    loss_weights_BT: Array  # float32


def row_shapes(lengths: Sequence[int], max_length: int, max_rows: int, multiple: int = 1) -> tuple[RowShape, ...]:
    """Returns the shapes of micro-batches, shortest first: all hold about `max_rows` rows of `max_length` tokens.

    Args:
      lengths: further row lengths; those that are not shorter than `max_length` are left out.
      max_length: tokens in the longest row there may be.
      max_rows: rows of that length in a micro-batch; a multiple of `multiple`.
      multiple: parts into which the mesh cuts the rows.
    """
    all_lengths = sorted({max_length, *(length for length in lengths if length < max_length)})
    return tuple(RowShape(max_rows * max_length // length // multiple * multiple, length) for length in all_lengths)


def mini_batches(samples: Sequence[TrainSample], count: int, generator: np.random.Generator) -> list[list[TrainSample]]:
    """Deals the samples that have response tokens, in random order, into `count` mini-batches, or as many as there are.

    Their sizes differ by at most one. The order is a function of the generator's state and the number of samples.
    """
    samples = [sample for sample in samples if sample.token_ids]
    order = generator.permutation(len(samples))
    return [[samples[index] for index in part] for part in np.array_split(order, count) if part.size]


def micro_batches(
    samples: Sequence[TrainSample],
    shapes: Sequence[RowShape],
    *,
    aggregation: str,
    max_response_length: int,
    pad_id: int,
) -> list[TrainBatch]:
    """Lays a mini-batch out as micro-batches, longest samples first, each in the shortest shape that holds its own.

    Raises ValueError when a sample is longer than every shape or has no prompt, its log_probs do not match its tokens,
    or its advantage is not finite.
    """
    for sample in samples:
        if not sample.prompt_ids:
            raise ValueError("a sequence has no prompt, so its first token cannot be predicted")
        if len(sample.log_probs) != len(sample.token_ids):
            raise ValueError(f"a sequence has {len(sample.token_ids)} tokens but {len(sample.log_probs)} log_probs")
        if not np.isfinite(sample.advantage):
            raise ValueError(f"a sequence has advantage {sample.advantage}")
    weights = token_weights([len(s.token_ids) for s in samples], aggregation, max_response_length=max_response_length)
    pairs = list(zip(samples, weights.tolist(), strict=True))
    return [_train_batch(pairs, shape, pad_id) for pairs, shape in _cut(pairs, shapes, lambda pair: pair[0].length)]


def abstract_batch(shape: RowShape, mesh: Mesh, *, old: bool = False, ref: bool = False) -> TrainBatch:
    """Returns a micro-batch on the mesh as shapes; `old` and `ref` say whether it has the log-probs of these names."""
    x = {dtype: _abstract(shape, mesh, dtype) for dtype in (np.int32, bool, np.float32)}
    numbers = x[np.float32]
    others = (numbers if old else None, numbers if ref else None)
    return TrainBatch(x[np.int32], x[bool], numbers, numbers, numbers, numbers, *others)


def abstract_supervised_batch(shape: RowShape, mesh: Mesh) -> SupervisedBatch:
    """Returns a micro-batch for the supervised update on the mesh as shapes."""
    return SupervisedBatch(*(_abstract(shape, mesh, dtype) for dtype in (np.int32, bool, np.float32)))


def rows_of(tokens_BT: Array | jax.ShapeDtypeStruct) -> str:
    """Returns the shape of a micro-batch as it stands in the name of a compiled function, "8 x 512"."""
    return "{} x {}".format(*tokens_BT.shape)


def supervised_batches(
    documents: Sequence[tuple[Sequence[int], Sequence[int]]], shapes: Sequence[RowShape], pad_id: int
) -> list[SupervisedBatch]:
    """Lays out documents, token ids and 1 for each that is a target, for a loss that is the mean over targets."""
    weight = np.float32(1 / max(sum(sum(targets) for _, targets in documents), 1))
    batches = []
    for part, shape in _cut(documents, shapes, lambda document: len(document[0])):
        tokens_BT = np.full((shape.rows, shape.length), pad_id, np.int32)
        mask_BT = np.zeros((shape.rows, shape.length), bool)
        for row, (token_ids, targets) in enumerate(part):
            tokens_BT[row, : len(token_ids)] = token_ids
            mask_BT[row, : len(token_ids)] = targets
        batches.append(SupervisedBatch(tokens_BT, mask_BT, weight * mask_BT))
    return batches


def padding_waste(batches: Sequence[TrainBatch], samples: Sequence[TrainSample]) -> float:
    """Returns the share of the positions in the micro-batches that hold no token of the samples."""
    positions = sum(batch.tokens_BT.size for batch in batches)
    return 1 - sum(sample.length for sample in samples) / max(positions, 1)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the layout of arrays [B, T]: rows cut over the data-parallel axes of the mesh."""
    return NamedSharding(mesh, partition_spec(("batch", None), TRAIN_RULES))


def to_mesh(batch: Any, mesh: Mesh) -> Any:
    """Places a pytree of arrays [B, T], held whole by every process, on the mesh; each device gets its rows alone."""
    sharding = batch_sharding(mesh)
    return jax.tree.map(lambda x: jax.make_array_from_callback(x.shape, sharding, lambda index: x[index]), batch)


def _abstract(shape: RowShape, mesh: Mesh, dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((shape.rows, shape.length), dtype, sharding=batch_sharding(mesh))


def _cut(
    items: Sequence[Any], shapes: Sequence[RowShape], length_of: Callable[[Any], int]
) -> list[tuple[list[Any], RowShape]]:
    """Returns the items, longest first, in groups with the shape of each. Raises ValueError: an item is too long."""
    items = sorted(items, key=length_of, reverse=True)
    if items and length_of(items[0]) > shapes[-1].length:
        raise ValueError(f"a sequence has {length_of(items[0])} tokens, more than the row length {shapes[-1].length}")
    groups, start = [], 0
    while start < len(items):
        shape = next(shape for shape in shapes if shape.length >= length_of(items[start]))
        groups.append((items[start : start + shape.rows], shape))
        start += shape.rows
    return groups


def _train_batch(pairs: Sequence[tuple[TrainSample, float]], shape: RowShape, pad_id: int) -> TrainBatch:
    """Lays out one micro-batch of samples, each with the weight of its tokens."""
    size = (shape.rows, shape.length)
    tokens_BT, mask_BT = np.full(size, pad_id, np.int32), np.zeros(size, bool)
    weights_BT, advantages_BT, rewards_BT, log_probs_BT = (np.zeros(size, np.float32) for _ in range(4))
    for row, (sample, weight) in enumerate(pairs):
        start, end = len(sample.prompt_ids), sample.length
        tokens_BT[row, :start] = sample.prompt_ids
        tokens_BT[row, start:end] = sample.token_ids
        mask_BT[row, start:end] = True
        weights_BT[row, start:end] = weight
        advantages_BT[row, start:end] = sample.advantage
        rewards_BT[row, end - 1] = sample.reward
        log_probs_BT[row, start:end] = sample.log_probs
    return TrainBatch(tokens_BT, mask_BT, weights_BT, advantages_BT, rewards_BT, log_probs_BT)
