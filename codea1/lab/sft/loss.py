"""The loss of supervised training, and the micro-batches that it reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Float32, Int32

from codea1.learn.batch import RowShape, abstract_rows, cut_by_shape
from codea1.learn.log_probs import model_log_probs
from codea1.learn.update import DeviceMetrics
from codea1.models.qwen2 import Params
from codea1.sharding import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SupervisedBatch:
    """One micro-batch for the supervised update, laid out as a TrainBatch; the mask is True at target tokens."""

    tokens_BT: Int32[Array, "B T"]
    response_mask_BT: Bool[Array, "B T"]
    loss_weights_BT: Float32[Array, "B T"]


def abstract_supervised_batch(shape: RowShape, mesh: Mesh) -> SupervisedBatch:
    """Returns a micro-batch for the supervised update on the mesh as shapes."""
    return SupervisedBatch(*(abstract_rows(shape, mesh, dtype) for dtype in (np.int32, bool, np.float32)))


def supervised_batches(
    documents: Sequence[tuple[Sequence[int], Sequence[int]]], shapes: Sequence[RowShape], pad_id: int
) -> list[SupervisedBatch]:
    """Lays out documents, token ids and 1 for each that is a target, for a loss that is the mean over targets."""
    weight = np.float32(1 / max(sum(sum(targets) for _, targets in documents), 1))
    batches = []
    for part, shape in cut_by_shape(documents, shapes, lambda document: len(document[0])):
        tokens_BT = np.full((shape.rows, shape.length), pad_id, np.int32)
        mask_BT = np.zeros((shape.rows, shape.length), bool)
        for row, (token_ids, targets) in enumerate(part):
            tokens_BT[row, : len(token_ids)] = token_ids
            mask_BT[row, : len(token_ids)] = targets
        batches.append(SupervisedBatch(tokens_BT, mask_BT, weight * mask_BT))
    return batches


@dataclass(frozen=True)
class SupervisedLoss:
    """The supervised micro-loss, of SupervisedBatches: weighted cross entropy of the target tokens.

    Metrics of its update: "cross_entropy" and "entropy" in nats per target token; "loss" and "tokens", the number of
    target tokens; and those of `codea1.learn.update`.
    """

    graphdef: nnx.GraphDef
    log_prob_chunk: int  # tokens of each device whose logits exist at once

    def __call__(
        self, params: Params, batch: SupervisedBatch
    ) -> tuple[Float[Array, ""], tuple[Float[Array, "B T"], DeviceMetrics]]:
        scores, _ = model_log_probs(self.graphdef, self.log_prob_chunk, params, batch.tokens_BT, 1.0)
        log_probs_BT, entropy_BT = scores
        cross_entropy_BT = jnp.where(batch.response_mask_BT, -log_probs_BT, 0.0)
        diagnostics = {"cross_entropy": cross_entropy_BT, "entropy": jnp.where(batch.response_mask_BT, entropy_BT, 0.0)}
        return jnp.sum(batch.loss_weights_BT * cross_entropy_BT), jax.lax.stop_gradient((log_probs_BT, diagnostics))
