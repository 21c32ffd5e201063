"""A critic: the value model of one policy, for PPO."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from codea1.config import PolicyConfig
from codea1.learn.batch import TrainBatch, to_mesh
from codea1.learn.gae import explained_variance, gae, whiten
from codea1.learn.optimizer import ScheduleConfig, learning_rate
from codea1.learn.update import TrainState, init_state
from codea1.learn.values import ValueBatch, value_params
from codea1.models.config import Qwen2Config
from codea1.models.huggingface import Checkpoint
from codea1.players.functions import CriticFunctions
from codea1.sharding import to_host

Metrics = dict[str, float]
MicroBatches = list[TrainBatch]  # of one mini-batch


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a critic computes for one micro-batch, on the host."""

    values_BT: np.ndarray  # float32
    returns_BT: np.ndarray  # float64
    advantages_BT: np.ndarray  # float64, whitened over the mini-batch


class Critic:
    """Estimates the reward to come from the tokens so far. `state` is all that training changes."""

    def __init__(
        self, config: PolicyConfig, total_steps: int, functions: CriticFunctions, shape: Qwen2Config, start: Checkpoint
    ):
        """Starts from the policy's own checkpoint with a value head of zeros.

        Args:
          config: the player's section.
          total_steps: of the run.
          functions: what the critic calls.
          shape: the policy's model.
          start: its checkpoint.
        """
        self._config = config
        self._functions, self._mesh = functions, functions.mesh
        self._schedule = ScheduleConfig(
            config.critic.learning_rate, config.warmup_steps, total_steps, decay=config.decay
        )
        trunk = start.place(functions.trunk_shardings, shape.param_dtype)
        params = value_params(trunk, shape.hidden_size, self._mesh)
        self.state: TrainState = init_state(params, functions.optimizer, functions.shardings)

    def estimate(self, mini_batches: Sequence[MicroBatches]) -> list[list[Estimate]]:
        """Returns values, returns and advantages of every micro-batch of every mini-batch."""
        estimates = []
        for batches in mini_batches:
            masks = [np.asarray(batch.response_mask_BT) for batch in batches]
            placed = [to_mesh(batch.tokens_BT, self._mesh) for batch in batches]
            values = to_host([self._functions.values[tokens.shape](self.state.params, tokens) for tokens in placed])
            pairs = [
                gae(np.asarray(batch.rewards_BT), values_BT, mask_BT, lam=self._config.critic.gae_lambda)
                for batch, values_BT, mask_BT in zip(batches, values, masks, strict=True)
            ]
            advantages, returns = zip(*pairs, strict=True)
            columns = zip(values, returns, whiten(advantages, masks), strict=True)
            estimates.append([Estimate(*column) for column in columns])
        return estimates

    def learn(self, mini_batches: Sequence[MicroBatches], estimates: Sequence[list[Estimate]], step: int) -> Metrics:
        """Takes one optimizer step per mini-batch; returns metrics named "critic_..."."""
        reports = []
        for batches, estimated in zip(mini_batches, estimates, strict=True):
            placed = []
            for batch, estimate in zip(batches, estimated, strict=True):
                old_values_BT, returns_BT = (x.astype(np.float32) for x in (estimate.values_BT, estimate.returns_BT))
                of_values = ValueBatch(
                    batch.tokens_BT, batch.response_mask_BT, batch.loss_weights_BT, old_values_BT, returns_BT
                )
                placed.append(to_mesh(of_values, self._mesh))
            self.state, report = self._functions.update(self.state, placed, learning_rate(step, self._schedule))
            reports.append(report)
        masks = [batch.response_mask_BT for batches in mini_batches for batch in batches]
        flat = [estimate for estimated in estimates for estimate in estimated]
        values, returns = (
            np.concatenate([getattr(estimate, name)[mask] for estimate, mask in zip(flat, masks, strict=True)])
            for name in ("values_BT", "returns_BT")
        )
        names = ("value_loss", "grad_norm", "skipped")
        all_metrics = [report.metrics() for report in reports]
        metrics = {f"critic_{name}": float(np.mean([row[name] for row in all_metrics])) for name in names}
        return metrics | {
            "critic_explained_variance": explained_variance(values, returns),
            "critic_value_mean": float(values.mean()),
        }
