"""A critic: the value model beside one policy, for PPO."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict

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
    """What a critic says of one micro-batch, [B, T] each on the host."""

    values: np.ndarray
    returns: np.ndarray
    advantages: np.ndarray


class Critic:
    """Estimates the reward to come from the tokens so far. `state` is all that training changes."""

    def __init__(
        self, config: ConfigDict, total_steps: int, functions: CriticFunctions, shape: Qwen2Config, start: Checkpoint
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
        """Values, returns and advantages of every micro-batch; advantages are whitened over each mini-batch."""
        return [self._estimate(batches) for batches in mini_batches]

    def learn(self, mini_batches: Sequence[MicroBatches], estimates: Sequence[list[Estimate]], step: int) -> Metrics:
        """One optimizer step per mini-batch; metrics named "critic_..."."""
        reports = []
        for batches, estimated in zip(mini_batches, estimates, strict=True):
            placed = [
                to_mesh(_value_batch(batch, each), self._mesh) for batch, each in zip(batches, estimated, strict=True)
            ]
            self.state, report = self._functions.update(self.state, placed, learning_rate(step, self._schedule))
            reports.append(report)
        masks = [batch.response_mask for batches in mini_batches for batch in batches]
        flat = [each for estimated in estimates for each in estimated]
        values, returns = (
            np.concatenate([getattr(each, name)[mask] for each, mask in zip(flat, masks, strict=True)])
            for name in ("values", "returns")
        )
        names = ("value_loss", "grad_norm", "skipped")
        found = [report.metrics() for report in reports]
        metrics = {f"critic_{name}": float(np.mean([each[name] for each in found])) for name in names}
        return metrics | {
            "critic_explained_variance": explained_variance(values, returns),
            "critic_value_mean": float(values.mean()),
        }

    def _estimate(self, batches: MicroBatches) -> list[Estimate]:
        critic = self._config.critic
        placed = [to_mesh(batch.tokens, self._mesh) for batch in batches]
        values = to_host([self._functions.values[tokens.shape](self.state.params, tokens) for tokens in placed])
        pairs = [
            gae(batch.rewards, value, batch.response_mask, gamma=critic.gamma, lam=critic.gae_lambda)
            for batch, value in zip(batches, values, strict=True)
        ]
        advantages = whiten([advantage for advantage, _ in pairs], [batch.response_mask for batch in batches])
        return [
            Estimate(value, returns, advantage)
            for value, (_, returns), advantage in zip(values, pairs, advantages, strict=True)
        ]


def _value_batch(batch: TrainBatch, estimate: Estimate) -> ValueBatch:
    return ValueBatch(
        batch.tokens,
        batch.response_mask,
        batch.loss_weights,
        estimate.values.astype(np.float32),
        estimate.returns.astype(np.float32),
    )
