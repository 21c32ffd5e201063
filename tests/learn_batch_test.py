"""Dealing samples into mini-batches and laying those out as micro-batches."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.lab.sft.loss import supervised_batches
from codea1.learn.batch import (
    MiniBatch,
    RowLayout,
    RowShape,
    TrainBatch,
    TrainSample,
    micro_batches,
    mini_batches,
    padding_waste,
    row_shapes,
    to_mesh,
)
from codea1.learn.losses import AGGREGATIONS
from codea1.models.attention import responses_from
from codea1.sharding import make_mesh

PAD = 9
LAYOUT = RowLayout((RowShape(3, 8),), "token-mean", max_response_length=4, pad_id=PAD)


def sample(prompt: list[int], response: list[int], advantage: float = 1.0) -> TrainSample:
    return TrainSample(prompt, response, [-0.25 * (t + 1) for t in range(len(response))], advantage)


def many(num: int) -> list[TrainSample]:
    return [sample([1] * (1 + row % 3), [row] * (1 + row % 4), float(row + 1)) for row in range(num)]


def lay_out(samples: list[TrainSample], *shapes: RowShape, aggregation: str = "token-mean") -> list[TrainBatch]:
    return micro_batches(samples, RowLayout(shapes or LAYOUT.shapes, aggregation, max_response_length=4, pad_id=PAD))


def test_rows_hold_prompt_response_padding():
    (batch,) = lay_out([sample([5], [7]), sample([5, 6], [7, 8, 4], 0.5)], RowShape(3, 6))
    np.testing.assert_array_equal(batch.tokens_BT, [[5, 6, 7, 8, 4, PAD], [5, 7] + [PAD] * 4, [PAD] * 6])
    np.testing.assert_array_equal(batch.response_mask_BT, [[0, 0, 1, 1, 1, 0], [0, 1, 0, 0, 0, 0], [0] * 6])
    np.testing.assert_allclose(batch.advantages_BT, [[0, 0, 0.5, 0.5, 0.5, 0], [0, 1, 0, 0, 0, 0], [0] * 6])
    np.testing.assert_allclose(batch.loss_weights_BT, batch.response_mask_BT / 4)
    np.testing.assert_allclose(batch.sampler_log_probs_BT[0], [0, 0, -0.25, -0.5, -0.75, 0])


def test_the_reward_is_that_of_the_last_token_of_the_response():
    paid = dataclasses.replace(sample([5, 6], [7, 8, 4]), reward=0.25)
    (batch,) = lay_out([paid], RowShape(2, 6))
    np.testing.assert_array_equal(batch.rewards_BT, [[0, 0, 0, 0, 0.25, 0], [0] * 6])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (sample([1] * 4, [2] * 5), "9 tokens"),
        (sample([], [2]), "no prompt"),
        (sample([1], [2], float("nan")), "advantage nan"),
        (dataclasses.replace(sample([1], [2]), log_probs=[-1.0, -1.0]), "1 tokens but 2 log_probs"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(bad: TrainSample, message: str):
    with pytest.raises(ValueError, match=message):
        lay_out([sample([1], [2]), bad])


@pytest.mark.parametrize(("num", "count"), [(10, 2), (3, 2), (1, 2), (0, 3), (11, 4)])
def test_every_sample_with_a_response_is_dealt_once(num: int, count: int):
    empty = sample([1], [])
    dealt = mini_batches([*many(num), empty], count, np.random.default_rng(0), LAYOUT)
    assert sorted(s.advantage for part in dealt for s in part.samples) == [s.advantage for s in many(num)]
    sizes = [len(part.samples) for part in dealt]
    assert len(sizes) == min(num, count)
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_order_is_a_function_of_the_generator():
    dealt = (mini_batches(many(10), 2, np.random.default_rng(seed), LAYOUT) for seed in (0, 0, 1))
    first, second, other = ([part.samples for part in parts] for parts in dealt)
    assert first == second
    assert first != other


def test_shapes_hold_about_the_same_number_of_tokens():
    assert row_shapes((50, 25, 100, 200), 100, 8) == (RowShape(32, 25), RowShape(16, 50), RowShape(8, 100))
    assert row_shapes((), 48, 8) == (RowShape(8, 48),)
    for shape in row_shapes((7, 30), 64, 8, multiple=4):
        assert shape.rows % 4 == 0


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=30),
    st.sets(st.integers(2, 7)),
    st.integers(1, 5),
)
def test_every_sample_has_a_row_in_a_known_shape(sizes: list, lengths: set[int], max_rows: int):
    samples = [sample([1] * p, [2] * r, float(i + 1)) for i, (p, r) in enumerate(sizes)]
    shapes = row_shapes(sorted(lengths), 8, max_rows)
    batches = lay_out(samples, *shapes)
    assert all(RowShape(*batch.tokens_BT.shape) in shapes for batch in batches)
    rows = [row for batch in batches for row in batch.advantages_BT.max(axis=1, initial=0.0) if row > 0]
    assert sorted(rows) == [s.advantage for s in samples]
    positions = sum(batch.tokens_BT.size for batch in batches)
    tokens = sum(p + r for p, r in sizes)
    assert padding_waste([MiniBatch([samples], batches)]) == pytest.approx(1 - tokens / positions if positions else 1.0)


def share(samples: list[TrainSample], *shapes: RowShape) -> list[TrainBatch]:
    return micro_batches(samples, dataclasses.replace(LAYOUT, shapes=shapes, share_prompts=True))


def test_shared_prompts_lie_once_before_all_responses():
    samples = [sample([5, 6, 7], [1, 2]), sample([8, 9], [4], -1.0), sample([5, 6, 7], [3], 0.5)]
    (batch,) = share(samples, RowShape(2, 12))
    # Prompts are without their last token. Each response begins with that: what it is predicted from.
    np.testing.assert_array_equal(batch.tokens_BT, [[5, 6, 8, 7, 1, 2, 7, 3, 9, 4, PAD, PAD], [PAD] * 12])
    np.testing.assert_array_equal(batch.packing.positions_BT[0], [0, 1, 0, 2, 3, 4, 2, 3, 1, 2, 0, 0])
    np.testing.assert_array_equal(batch.packing.prompts_BT, [[0, 0, 1] + [0] * 5 + [1] * 2 + [-1] * 2, [-1] * 12])
    np.testing.assert_array_equal(batch.packing.responses_BT[0], [0, 0, 0, 1, 1, 1, 2, 2, 1, 1, 0, 0])
    np.testing.assert_array_equal(batch.response_mask_BT[0], [0, 0, 0, 0, 1, 1, 0, 1, 0, 1, 0, 0])
    np.testing.assert_allclose(batch.advantages_BT[0], [0, 0, 0, 0, 1, 1, 0, 0.5, 0, -1, 0, 0])
    np.testing.assert_allclose(batch.sampler_log_probs_BT[0], [0, 0, 0, 0, -0.25, -0.5, 0, -0.25, 0, -0.25, 0, 0])
    np.testing.assert_allclose(batch.loss_weights_BT, batch.response_mask_BT / 4)
    assert padding_waste([MiniBatch([samples], [batch])]) == pytest.approx(14 / 24)


def test_responses_begin_where_the_kernel_can_tell_and_a_sequence_alone_is_of_one_piece():
    samples = [sample([1] * 40, [2] * 5), sample([1] * 40, [3] * 5)]
    (batch,) = share(samples, RowShape(2, 62))
    assert np.flatnonzero(batch.packing.prompts_BT[0]).tolist() == [39, *range(52, 62)]  # a 31st of the row is 2
    samples = [sample([1] * 57, [2] * 5), sample([1] * 56, [3] * 6), sample([1], [4])]
    (batch,) = share(samples, RowShape(3, 62))
    assert not batch.packing.prompts_BT[:2].any()
    assert not batch.packing.responses_BT.any()
    assert batch.response_mask_BT.sum(axis=1).tolist() == [5, 6, 1]
    with pytest.raises(ValueError, match="a response of 8192 tokens is too long to lie in a row with others"):
        share([sample([1], [2] * 8192)], RowShape(1, 16384))


def test_a_row_fits_into_the_longer_ones_that_it_may_come_among():
    # In rows of 124 responses begin at multiples of 4, in rows of 125 of 5: there, behind 96 tokens, at 100.
    samples = [sample([1] * 97, [2] * 13), sample([1] * 97, [3] * 13), sample([4] * 100, [5] * 25)]
    batches = share(samples, RowShape(2, 124), RowShape(2, 125))
    assert sum(batch.response_mask_BT.sum() for batch in batches) == 13 + 13 + 25


def test_a_group_too_long_for_a_row_is_cut_and_its_prompt_repeated():
    samples = [sample([5, 6, 7], [row] * 3) for row in (1, 2, 3)]
    (batch,) = share(samples, RowShape(3, 12))
    assert batch.tokens_BT.tolist() == [
        [5, 6, 7, 1, 1, 1, 7, 2, 2, 2, PAD, PAD],
        [5, 6, 7, 3, 3, 3] + [PAD] * 6,
        [PAD] * 12,
    ]
    with pytest.raises(ValueError, match="6 tokens, more than the row length 5"):
        share(samples[:1], RowShape(3, 5))


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), max_size=40),
    st.sets(st.integers(60, 180)),  # and 100: responses begin at multiples of 2 to 6
)
def test_shared_rows_hold_every_sequence_once(drawn: list, lengths: set[int]):
    samples = [sample([p] * p, [i] * r, i + 1.0) for i, (p, r) in enumerate(drawn)]
    shapes = row_shapes(sorted(lengths), 100, 2, share_prompts=True)
    found = []
    for batch in share(samples, *shapes):
        assert RowShape(*batch.tokens_BT.shape) in shapes
        packing = batch.packing
        for prompts, responses in zip(packing.prompts_BT, packing.responses_BT, strict=True):
            first = np.flatnonzero(responses)[:1]
            assert first.tolist() in (
                [],
                [responses_from(int(np.sum((prompts >= 0) & (responses == 0))), len(prompts))],
            )
        for row, (tokens, mask) in enumerate(zip(batch.tokens_BT, batch.response_mask_BT, strict=True)):
            own = np.array(packing.visible()[row])
            for last in np.flatnonzero(mask & ~np.append(mask[1:], False)):
                # What the last token of a response sees, in order of its places, is the whole sequence.
                seen = np.flatnonzero(own[last])
                assert packing.positions_BT[row, seen].tolist() == list(range(len(seen)))
                response = seen[mask[seen]]
                np.testing.assert_array_equal(batch.advantages_BT[row, response], batch.advantages_BT[row, last])
                found.append((tokens[seen].tolist(), float(batch.advantages_BT[row, last])))
    assert sorted(found) == sorted(([*s.prompt_ids, *s.token_ids], s.advantage) for s in samples)


def test_mini_batches_that_share_prompts_hold_whole_groups():
    samples = [sample([p, p], [row + 1]) for row in range(3) for p in range(6)]
    layout = dataclasses.replace(LAYOUT, share_prompts=True)
    dealt = mini_batches(samples, 2, np.random.default_rng(0), layout)
    prompts = [sorted(tuple(s.prompt_ids) for s in part.samples) for part in dealt]
    assert [len(set(part)) for part in prompts] == [3, 3]
    assert all(part.count(prompt) == 3 for part in prompts for prompt in part)
    assert sorted(s.token_ids[0] for part in dealt for s in part.samples) == sorted(s.token_ids[0] for s in samples)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_loss_of_a_mini_batch_does_not_depend_on_the_cut(aggregation: str):
    def loss(*shapes: RowShape) -> float:
        return sum(
            float(np.sum(batch.loss_weights_BT.astype(np.float64) * batch.advantages_BT * batch.sampler_log_probs_BT))
            for batch in lay_out(many(11), *shapes, aggregation=aggregation)
        )

    whole = loss(RowShape(11, 8))
    assert loss(RowShape(1, 8)) == pytest.approx(whole, rel=1e-12)
    assert loss(RowShape(2, 4), RowShape(3, 6), RowShape(4, 8)) == pytest.approx(whole, rel=1e-12)


def test_documents_weigh_each_target_alike():
    documents = [([5, 6, 7], [0, 1, 1]), ([5, 6, 7, 8, 9], [0, 0, 0, 1, 1]), ([4], [0])]
    batches = supervised_batches(documents, (RowShape(2, 3), RowShape(1, 5)), PAD)
    assert [batch.tokens_BT.tolist() for batch in batches] == [[[5, 6, 7, 8, 9]], [[5, 6, 7], [4, PAD, PAD]]]
    assert math.isclose(sum(batch.loss_weights_BT.sum() for batch in batches), 1.0)
    for batch in batches:
        np.testing.assert_array_equal(batch.loss_weights_BT > 0, batch.response_mask_BT)


def test_batches_are_pytrees_that_reach_the_mesh_unchanged():
    batch = dataclasses.replace(lay_out(many(3))[0], ref_log_probs_BT=np.ones((3, 8), np.float32))
    placed = to_mesh(batch, make_mesh(1, 1, 1, jax.devices()[:1]))
    assert isinstance(placed, TrainBatch)
    assert placed.packing is None
    jax.tree.map(np.testing.assert_array_equal, batch, placed)
