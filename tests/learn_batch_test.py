"""Packing samples into rows and dealing rows into mini-batches."""

import dataclasses

import jax
import numpy as np
import pytest

from codea1.learn.batch import TrainBatch, TrainSample, mini_batches, pack_samples, to_mesh
from codea1.learn.losses import AGGREGATIONS
from codea1.sharding import make_mesh

PAD = 9


def sample(prompt: list[int], response: list[int], advantage: float = 1.0) -> TrainSample:
    return TrainSample(prompt, response, [-0.25 * (t + 1) for t in range(len(response))], advantage)


def packed_rows(num: int, num_rows: int):
    samples = [sample([1] * (1 + row % 3), [row] * (1 + row % 4), float(row)) for row in range(num)]
    return pack_samples(samples, length=8, num_rows=num_rows, pad_id=PAD)


def cut(packed, count: int = 2, micro_rows: int = 2, aggregation: str = "token-mean", seed: int = 0):
    return mini_batches(
        packed,
        count=count,
        micro_rows=micro_rows,
        aggregation=aggregation,
        max_response_length=4,
        generator=np.random.default_rng(seed),
    )


def test_rows_hold_prompt_response_padding():
    packed = pack_samples([sample([5, 6], [7, 8, 4], 0.5), sample([5], [7])], length=6, num_rows=3, pad_id=PAD)
    np.testing.assert_array_equal(packed.tokens, [[5, 6, 7, 8, 4, PAD], [5, 7] + [PAD] * 4, [PAD] * 6])
    np.testing.assert_array_equal(packed.response_mask, [[0, 0, 1, 1, 1, 0], [0, 1, 0, 0, 0, 0], [0] * 6])
    np.testing.assert_allclose(packed.advantages, [[0, 0, 0.5, 0.5, 0.5, 0], [0, 1, 0, 0, 0, 0], [0] * 6])
    np.testing.assert_allclose(packed.old_log_probs[0], [0, 0, -0.25, -0.5, -0.75, 0])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([sample([1], [2])] * 4, "4 sequences do not fit into 3 rows"),
        ([sample([1] * 4, [2] * 3)], "7 tokens"),
        ([sample([], [2])], "no prompt"),
        ([sample([1], [2], float("nan"))], "advantage nan"),
        ([dataclasses.replace(sample([1], [2]), log_probs=[-1.0, -1.0])], "1 tokens but 2 log_probs"),
    ],
)
def test_what_cannot_be_packed_is_refused(bad: list[TrainSample], message: str):
    with pytest.raises(ValueError, match=message):
        pack_samples(bad, length=6, num_rows=3, pad_id=PAD)


@pytest.mark.parametrize(("num", "num_rows", "count", "micro_rows"), [(10, 12, 2, 2), (3, 12, 2, 4), (1, 8, 2, 4)])
def test_every_real_row_is_dealt_once_and_shapes_do_not_depend_on_their_number(num, num_rows, count, micro_rows):
    batches = cut(packed_rows(num, num_rows), count, micro_rows)
    full = cut(packed_rows(num_rows, num_rows), count, micro_rows)
    assert [batch.tokens.shape for batch in batches] == [batch.tokens.shape for batch in full]
    dealt = np.concatenate([batch.advantages.max(axis=-1).ravel() for batch in batches])
    assert sorted(dealt[dealt > 0]) == list(range(1, num))
    sizes = [batch.response_mask.any(axis=-1).sum() for batch in batches]
    assert sum(sizes) == num
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_loss_of_a_mini_batch_does_not_depend_on_the_cut(aggregation: str):
    packed = packed_rows(11, 12)

    def losses(micro_rows: int) -> list[float]:
        return [
            float(np.sum(batch.loss_weights.astype(np.float64) * batch.advantages * batch.old_log_probs))
            for batch in cut(packed, count=2, micro_rows=micro_rows, aggregation=aggregation)
        ]

    np.testing.assert_allclose(losses(1), losses(6), rtol=1e-12)
    np.testing.assert_allclose(losses(4), losses(6), rtol=1e-12)


def test_order_is_a_function_of_the_generator():
    packed = packed_rows(10, 10)
    first, second, other = (cut(packed, seed=seed)[0].tokens for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_reference_log_probs_travel_with_their_rows():
    packed = packed_rows(6, 8)
    assert cut(packed)[0].ref_log_probs is None
    for batch in cut(dataclasses.replace(packed, ref_log_probs=2 * packed.old_log_probs)):
        np.testing.assert_array_equal(batch.ref_log_probs, 2 * batch.old_log_probs)


def test_batches_are_pytrees_that_reach_the_mesh_unchanged():
    batch = cut(packed_rows(4, 4))[0]
    placed = to_mesh(batch, make_mesh(1, 1, 1, jax.devices()[:1]))
    assert isinstance(placed, TrainBatch)
    jax.tree.map(np.testing.assert_array_equal, batch, placed)
