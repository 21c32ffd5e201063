"""Sampled sequences as rectangles: dealing them into mini-batches, and those into micro-batches of few static shapes.

Every per-token array is aligned with the tokens: the value at t concerns tokens[b, t], which is predicted from the
tokens before t. Rows are right-padded. Rows and positions that hold nothing have response_mask False and weight 0.

A row holds one sequence, or, where prompts are shared, prompts without their last tokens and after all of these their
responses, each behind the last token of its prompt, which predicts it: so a prompt is computed once for its group.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Bool, Float32, Int, Int32, Integer

from codea1.learn.losses import token_weights
from codea1.models.attention import RESPONSE_BITS, Packing, responses_from
from codea1.sharding import TRAIN_RULES, Array, partition_spec


@dataclass(frozen=True)
class TrainSample:
    """One response with its advantage, as it goes into the update."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    log_probs: Sequence[float] | np.ndarray  # of token_ids, under the policy that sampled them
    advantage: float = 0.0  # of all tokens alike; PPO computes its own, per token
    reward: float = 0.0
    # The experts that the sampler chose, as `Sample` has them; None where the update chooses.
    prompt_routes: np.ndarray | None = None
    routes: np.ndarray | None = None

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


@dataclass(frozen=True)
class RowShape:
    """The shape of micro-batches that functions are compiled for."""

    rows: int
    length: int  # tokens


@dataclass(frozen=True)
class RowLayout:
    """How a player's samples lie in micro-batches."""

    shapes: Sequence[RowShape]  # shortest rows first
    aggregation: str  # of `codea1.learn.losses.token_weights`
    max_response_length: int
    pad_id: int
    share_prompts: bool = False


class OldLogProbs(IntEnum):
    """Where the log-probs in the denominator of the ratio come from."""

    SAMPLER = 0  # the sampler's, as they were drawn
    TRAINER = 1  # the trainer scored the samples again, with the policy of the start of the training step
    UPDATE = 2  # the update computes them: of the first mini-batch, whose policy is still that one


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainBatch:
    """One micro-batch for the policy update."""

    tokens_BT: Int32[Array, "B T"]
    response_mask_BT: Bool[Array, "B T"]  # True at the tokens of responses
    loss_weights_BT: Float32[Array, "B T"]  # the loss is the sum of weight times token loss over the whole mini-batch
    advantages_BT: Float32[Array, "B T"]
    rewards_BT: Float32[Array, "B T"]  # the sample's reward at its last token
    sampler_log_probs_BT: Float32[Array, "B T"]
    old_log_probs_BT: Float32[Array, "B T"]  # from `old_source_B1`; anything where that is UPDATE
    old_source_B1: Int32[Array, "B 1"]  # an `OldLogProbs`, the same in all rows
    ref_log_probs_BT: Float32[Array, "B T"] | None = None  # None where the objective has no KL term
    packing: Packing | None = None  # None: every row holds one sequence
    routes_BTLc: Integer[Array, "B T L c"] | None = None  # experts of each token; None: the routers choose

    @property
    def row_responses_BT(self) -> Int32[Array, "B T"]:
        """Which response of its row each token is of: a number > 0 that no other has, not in order; else 0."""
        if self.packing is None:
            return self.response_mask_BT.astype(np.int32)
        numbers_BT = self.packing.prompts_BT * self.tokens_BT.shape[1] + self.packing.responses_BT + 1
        return numbers_BT * self.response_mask_BT


def row_shapes(
    lengths: Sequence[int], max_length: int, max_rows: int, multiple: int = 1, *, share_prompts: bool = False
) -> tuple[RowShape, ...]:
    """Returns the shapes of micro-batches, shortest first: all hold about `max_rows` rows of `max_length` tokens.

    Those of longer rows hold more, where `multiple` of them are more.

    Args:
      lengths: further row lengths; without shared prompts those that are not shorter than `max_length` are left out.
      max_length: tokens in the longest sequence there may be.
      max_rows: rows of that length in a micro-batch; a multiple of `multiple`.
      multiple: parts into which the mesh cuts the rows, the fewest that there are of any length.
      share_prompts: whether a row holds groups, which may be longer than a sequence.
    """
    all_lengths = sorted({max_length, *(length for length in lengths if share_prompts or length < max_length)})
    positions = max_rows * max_length
    return tuple(RowShape(max(positions // length // multiple, 1) * multiple, length) for length in all_lengths)


@dataclass(frozen=True)
class MiniBatch:
    """What one optimizer step learns from."""

    groups: list[list[TrainSample]]  # by prompt where prompts are shared, else of one sample each
    batches: list[TrainBatch]  # the same, laid out

    @property
    def samples(self) -> list[TrainSample]:
        return list(itertools.chain(*self.groups))

    @property
    def repeated_prompts(self) -> list[int]:
        """The tokens of each prompt that came before, where prompts are shared."""
        return [len(sample.prompt_ids) for group in self.groups for sample in group[1:]]


def mini_batches(
    samples: Sequence[TrainSample], count: int, generator: np.random.Generator, layout: RowLayout
) -> list[MiniBatch]:
    """Deals the samples that have response tokens, in random order, into `count` mini-batches, or as many as there are.

    Their sizes differ by at most one sample, or, where prompts are shared, one prompt with all its samples. The order
    is a function of the generator's state and the number of what is dealt. Raises ValueError as `micro_batches` does.
    """
    groups = _by_prompt([sample for sample in samples if sample.token_ids], layout.share_prompts)
    order = generator.permutation(len(groups))
    parts = [[groups[index] for index in part] for part in np.array_split(order, count) if part.size]
    return [MiniBatch(part, micro_batches(list(itertools.chain(*part)), layout)) for part in parts]


def micro_batches(samples: Sequence[TrainSample], layout: RowLayout) -> list[TrainBatch]:
    """Lays a mini-batch out as micro-batches, longest rows first, each in the shortest shape that holds its own.

    Where prompts are shared, a row takes as many of them with their responses as it holds, the largest group first
    (first-fit decreasing). A group that is longer than every shape is cut, and its prompt repeated.

    Raises ValueError when a sample is longer than every shape or has no prompt, its log_probs do not match its tokens,
    its advantage is not finite, or it has routes and another has none.
    """
    groups, shapes = _by_prompt(samples, layout.share_prompts), layout.shapes
    for sample in samples:
        if not sample.prompt_ids:
            raise ValueError("a sequence has no prompt, so its first token cannot be predicted")
        if len(sample.log_probs) != len(sample.token_ids):
            raise ValueError(f"a sequence has {len(sample.token_ids)} tokens but {len(sample.log_probs)} log_probs")
        if (sample.routes is None) != (samples[0].routes is None):
            raise ValueError("some sequences have the experts of their tokens, and others have not")
        if not np.isfinite(sample.advantage):
            raise ValueError(f"a sequence has advantage {sample.advantage}")
        if layout.share_prompts and len(sample.token_ids) >= 1 << RESPONSE_BITS:  # and the prompt's last token
            raise ValueError(f"a response of {len(sample.token_ids)} tokens is too long to lie in a row with others")
    lengths = [len(sample.token_ids) for sample in samples]
    weights = token_weights(lengths, layout.aggregation, max_response_length=layout.max_response_length)
    weight_of = dict(zip(lengths, weights.tolist(), strict=True))
    rows = _rows(groups, shapes, layout.share_prompts)
    return [
        _train_batch([groups for groups, _ in part], shape, layout.pad_id, weight_of, layout.share_prompts)
        for part, shape in cut_by_shape(rows, shapes, lambda row: row[1])
    ]


def abstract_batch(
    shape: RowShape,
    mesh: Mesh,
    *,
    ref: bool = False,
    share_prompts: bool = False,
    routes: jax.ShapeDtypeStruct | None = None,
) -> TrainBatch:
    """Returns a micro-batch on the mesh as shapes.

    `ref` says whether it has the log-probs of a reference policy; `routes` are those of a token, where it has them.
    """
    ids, mask, numbers = (abstract_rows(shape, mesh, dtype) for dtype in (np.int32, bool, np.float32))
    source = abstract_rows(RowShape(shape.rows, 1), mesh, np.int32)
    return TrainBatch(
        *(ids, mask, numbers, numbers, numbers, numbers, numbers, source),
        ref_log_probs_BT=numbers if ref else None,
        packing=Packing(ids, ids, ids) if share_prompts else None,
        routes_BTLc=None if routes is None else abstract_rows(shape, mesh, routes.dtype, *routes.shape),
    )


def rows_of(tokens_BT: Int[Array, "B T"]) -> str:
    """Returns the shape of a micro-batch as it stands in the name of a compiled function, "8 x 512"."""
    return "{} x {}".format(*tokens_BT.shape)


def padding_waste(parts: Sequence[MiniBatch]) -> float:
    """Returns the share of the positions in the micro-batches that hold no token."""
    batches = [batch for part in parts for batch in part.batches]
    positions = sum(batch.tokens_BT.size for batch in batches)
    packings = [batch.packing for batch in batches if batch.packing is not None]
    taken = sum(np.count_nonzero(packing.prompts_BT >= 0) for packing in packings)
    if not packings:
        taken = sum(sample.length for part in parts for sample in part.samples)
    return 1 - taken / max(positions, 1)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the layout of arrays [B, T]: rows cut over the data-parallel axes of the mesh."""
    return NamedSharding(mesh, partition_spec(("batch", None), TRAIN_RULES))


def to_mesh(batch: Any, mesh: Mesh) -> Any:
    """Places arrays [B, T] and [B, 1], held whole by every process, on the mesh; each device gets its rows alone."""
    sharding = batch_sharding(mesh)
    return jax.tree.map(lambda x: jax.make_array_from_callback(x.shape, sharding, lambda index: x[index]), batch)


def abstract_rows(shape: RowShape, mesh: Mesh, dtype: Any, *of_token: int) -> jax.ShapeDtypeStruct:
    """Returns an array of a micro-batch on the mesh as a shape."""
    return jax.ShapeDtypeStruct((shape.rows, shape.length, *of_token), dtype, sharding=batch_sharding(mesh))


def cut_by_shape(
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


def _by_prompt(samples: Sequence[TrainSample], share_prompts: bool) -> list[list[TrainSample]]:
    """Returns the samples in groups of one prompt, in the order of their first ones; each alone if none is shared."""
    if not share_prompts:
        return [[sample] for sample in samples]
    groups: dict[tuple[int, ...], list[TrainSample]] = {}
    for sample in samples:
        groups.setdefault(tuple(sample.prompt_ids), []).append(sample)
    return list(groups.values())


def _parts(group: Sequence[TrainSample]) -> np.ndarray:
    """Returns the positions that the samples of one prompt take in a row, of the prompt and of the responses."""
    return np.array([len(group[0].prompt_ids) - 1, sum(1 + len(sample.token_ids) for sample in group)])


def _fits(parts: np.ndarray, shapes: Sequence[RowShape]) -> bool:
    """Returns whether prompts and responses of several sequences that take so many positions fit into each shape.

    A row may come into a micro-batch of longer ones, and where its responses begin depends on its length.
    """
    prompts, responses = parts.tolist()
    return bool(shapes) and all(responses_from(prompts, shape.length) + responses <= shape.length for shape in shapes)


def _is_alone(groups: Sequence[Sequence[TrainSample]]) -> bool:
    """Returns whether a row holds one sequence, which then lies there in one piece."""
    return len(groups) == len(groups[0]) == 1


def _rows(
    groups: Sequence[list[TrainSample]], shapes: Sequence[RowShape], share_prompts: bool
) -> list[tuple[list[list[TrainSample]], int]]:
    """Returns the groups of each row, and how long it must be; see `micro_batches`."""
    if not share_prompts:
        return [([group], group[0].length) for group in groups]
    pieces: list[list[TrainSample]] = []
    for group in groups:
        pieces.append([])
        for sample in group:
            if pieces[-1] and not _fits(_parts([*pieces[-1], sample]), shapes[-1:]):
                pieces.append([])
            pieces[-1].append(sample)
    # What each row holds, the parts that this takes, and the shapes that the row must fit into.
    rows: list[tuple[list[list[TrainSample]], np.ndarray, Sequence[RowShape]]] = []
    for parts, piece in sorted(((_parts(piece), piece) for piece in pieces), key=lambda item: -sum(item[0])):
        row = next((row for row in rows if _fits(row[1] + parts, row[2])), None)
        if row is None:
            longer = (shapes[kind:] for kind in range(len(shapes)))
            row = [], np.zeros(2, int), next((some for some in longer if _fits(parts, some)), ())
            rows.append(row)
        held, taken, _ = row
        held.append(piece)
        taken += parts  # in place
    return [(held, held[0][0].length if _is_alone(held) else fitting[0].length) for held, _, fitting in rows]


def _train_batch(
    rows: Sequence[Sequence[Sequence[TrainSample]]],
    shape: RowShape,
    pad_id: int,
    weight_of: Mapping[int, float],
    share_prompts: bool,
) -> TrainBatch:
    """Lays out one micro-batch of the groups of each row, given the weight of a token by its response's length."""
    size = (shape.rows, shape.length)
    tokens_BT, mask_BT = np.full(size, pad_id, np.int32), np.zeros(size, bool)
    weights_BT, advantages_BT, rewards_BT, log_probs_BT = (np.zeros(size, np.float32) for _ in range(4))
    positions_BT, responses_BT = np.zeros(size, np.int32), np.zeros(size, np.int32)
    prompts_BT = np.full(size, -1, np.int32)
    routes = rows[0][0][0].routes
    routes_BTLc = None
    if routes is not None:  # of no expert where nothing lies
        routes_BTLc = np.full((*size, *routes.shape[1:]), np.iinfo(routes.dtype).max, routes.dtype)
    for row, groups in enumerate(rows):
        end = 0
        for number, group in enumerate(groups):
            prompt = group[0].prompt_ids[:-1]
            begin, end = end, end + len(prompt)
            tokens_BT[row, begin:end] = prompt
            positions_BT[row, begin:end] = np.arange(len(prompt))
            prompts_BT[row, begin:end] = number
            if routes_BTLc is not None:
                routes_BTLc[row, begin:end] = group[0].prompt_routes
        if not _is_alone(groups):
            end = responses_from(end, shape.length)
        for number, group in enumerate(groups):
            for response, sample in enumerate(group, 1):
                start, stop = end + 1, end + 1 + len(sample.token_ids)
                tokens_BT[row, end] = sample.prompt_ids[-1]
                tokens_BT[row, start:stop] = sample.token_ids
                positions_BT[row, end:stop] = len(sample.prompt_ids) - 1 + np.arange(stop - end)
                prompts_BT[row, end:stop] = number
                responses_BT[row, end:stop] = 0 if _is_alone(groups) else response
                mask_BT[row, start:stop] = True
                weights_BT[row, start:stop] = weight_of[len(sample.token_ids)]
                advantages_BT[row, start:stop] = sample.advantage
                rewards_BT[row, stop - 1] = sample.reward
                log_probs_BT[row, start:stop] = sample.log_probs
                if routes_BTLc is not None:
                    routes_BTLc[row, end : stop - 1] = sample.routes
                end = stop
    packing = Packing(positions_BT, prompts_BT, responses_BT) if share_prompts else None
    source_B1 = np.full((shape.rows, 1), OldLogProbs.SAMPLER, np.int32)
    return TrainBatch(
        tokens_BT,
        mask_BT,
        weights_BT,
        advantages_BT,
        rewards_BT,
        sampler_log_probs_BT=log_probs_BT,
        old_log_probs_BT=log_probs_BT,
        old_source_B1=source_B1,
        packing=packing,
        routes_BTLc=routes_BTLc,
    )
