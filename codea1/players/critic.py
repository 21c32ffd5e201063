"""A critic: the value model of one policy, for PPO."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from flax import nnx
from jax.sharding import Mesh

from codea1.learn.batch import TrainBatch, rows_of, to_mesh
from codea1.learn.gae import explained_variance, gae, whiten
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.update import TrainState, Update, abstract_state, init_state
from codea1.learn.values import (
    ValueBatch,
    ValueLoss,
    abstract_value_params,
    make_values,
    value_params,
)
from codea1.models import qwen2
from codea1.models.config import Qwen2Config
from codea1.models.huggingface import Checkpoint
from codea1.runtime.compilations import Function
from codea1.sharding import TRAIN_RULES, laid_out, param_shardings, to_host

Metrics = dict[str, float]
MicroBatches = list[TrainBatch]  # of one mini-batch
# Of one micro-batch, on the host, [B, T] each: values, float32; returns and advantages, float64. The advantages are
# whitened over the mini-batch.
Estimate = tuple[np.ndarray, np.ndarray, np.ndarray]


class Critic:
    """Estimates the reward to come from the tokens so far. Its state, all that training changes, is its player's."""

    def __init__(
        self,
        name: str,
        policy: Qwen2Config,
        mesh: Mesh,
        optimizer: AdamWConfig,
        batches: list[TrainBatch],
        gae_lambda: float,
    ) -> None:
        """Declares the functions.

        Args:
          name: "code_critic" or "test_critic".
          policy: the model that the critic starts from.
          mesh: of the devices that it computes on.
          optimizer: the policy's, and the critic's too.
          batches: the policy's micro-batches, as shapes.
          gae_lambda: of generalised advantage estimation.
        """
        self.name = name
        self._policy, self._mesh, self._optimizer, self._gae_lambda = policy, mesh, optimizer, gae_lambda
        trunk = dataclasses.replace(policy, tie_word_embeddings=True)  # no head over the vocabulary
        graphdef, declared = qwen2.abstract(trunk)
        self._trunk_shardings = param_shardings(declared, mesh, TRAIN_RULES)
        shapes = laid_out(nnx.to_pure_dict(declared), self._trunk_shardings)
        params = abstract_value_params(shapes, trunk.hidden_size, mesh)
        self.abstract_state = abstract_state(params, optimizer)
        jitted = make_values(graphdef, mesh)
        self._values = {
            batch.tokens_BT.shape: Function(
                "values", f"values {rows_of(batch.tokens_BT)}", jitted, (params, batch.tokens_BT)
            )
            for batch in batches
        }
        of_values = [
            ValueBatch(b.tokens_BT, b.response_mask_BT, b.loss_weights_BT, b.rewards_BT, b.rewards_BT) for b in batches
        ]
        self._update = Update(ValueLoss(graphdef), optimizer, self.abstract_state, of_values, prefix="critic ")

    @property
    def functions(self) -> list[Function]:
        """All that the critic calls."""
        return [*self._values.values(), *self._update.functions]

    def initial(self, start: Checkpoint) -> TrainState:
        """Returns the state of a critic that starts from its policy's checkpoint with a value head of zeros."""
        trunk = start.place(self._trunk_shardings, self._policy.param_dtype)
        params = value_params(trunk, self._policy.hidden_size, self._mesh)
        return init_state(params, self._optimizer)

    def learn(
        self, state: TrainState, mini_batches: Sequence[MicroBatches], rate: float
    ) -> tuple[TrainState, list[MicroBatches], Metrics]:
        """Estimates every micro-batch, then takes one optimizer step per mini-batch, with this learning rate.

        Returns the new state, the mini-batches with the estimated advantages, and metrics named "critic_...".
        """
        estimates = [self._estimates(state, batches) for batches in mini_batches]
        reports, with_advantages = [], []
        values, returns = [], []  # of the responses' tokens
        for batches, estimated in zip(mini_batches, estimates, strict=True):
            of_values, of_policy = [], []
            for batch, (values_BT, returns_BT, advantages_BT) in zip(batches, estimated, strict=True):
                inside_BT = batch.response_mask_BT
                columns = inside_BT, batch.loss_weights_BT, values_BT, returns_BT.astype(np.float32)
                of_values.append(to_mesh(ValueBatch(batch.tokens_BT, *columns), self._mesh))
                of_policy.append(dataclasses.replace(batch, advantages_BT=advantages_BT.astype(np.float32)))
                values.append(values_BT[inside_BT])
                returns.append(returns_BT[inside_BT])
            state, report = self._update(state, of_values, rate)
            reports.append(report)
            with_advantages.append(of_policy)
        names = ("value_loss", "grad_norm", "skipped")
        all_metrics = [report.metrics() for report in reports]
        metrics = {f"critic_{name}": float(np.mean([row[name] for row in all_metrics])) for name in names}
        inside = np.concatenate(values)
        metrics["critic_explained_variance"] = explained_variance(inside, np.concatenate(returns))
        metrics["critic_value_mean"] = float(inside.mean())
        return state, with_advantages, metrics

    def _estimates(self, state: TrainState, batches: MicroBatches) -> list[Estimate]:
        masks = [np.asarray(batch.response_mask_BT) for batch in batches]
        placed = [to_mesh(batch.tokens_BT, self._mesh) for batch in batches]
        values = to_host([self._values[tokens.shape](state.params, tokens) for tokens in placed])
        pairs = [
            gae(np.asarray(batch.rewards_BT), values_BT, mask_BT, lam=self._gae_lambda)
            for batch, values_BT, mask_BT in zip(batches, values, masks, strict=True)
        ]
        advantages, returns = zip(*pairs, strict=True)
        return list(zip(values, returns, whiten(advantages, masks), strict=True))
