"""A player: a policy with roles and a training state, which learns."""

import dataclasses
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

import jax
import numpy as np

from codea1.data.tokenizer import ChatTokenizer
from codea1.learn.advantages import ADVANTAGES, GDPO, gdpo_advantages, overlong_penalty
from codea1.learn.batch import (
    OldLogProbs,
    TrainBatch,
    TrainSample,
    mini_batches,
    padding_waste,
    to_mesh,
)
from codea1.learn.optimizer import ScheduleConfig, learning_rate
from codea1.learn.update import TrainState, init_state
from codea1.models.flops import utilisation
from codea1.models.lora import initialise_adapters, join
from codea1.models.qwen2 import Params
from codea1.players.base import Start
from codea1.players.functions import PlayerFunctions, has_reference
from codea1.players.policy import Policy
from codea1.rollout.decoding import stream_key
from codea1.runtime.hosts import stable_hash
from codea1.sharding import to_host

Metrics = dict[str, float]


class Player(Policy):
    """The Code LLM, the Test LLM or both in one. Starts from a folder; `states` is all that training changes.

    A frozen player answers and does not learn: there is no optimizer, no reference and no state.
    """

    def __init__(
        self,
        functions: PlayerFunctions,
        start: Start,
        tokenizer: ChatTokenizer,
        *,
        roles: Collection[str],
        steps: int,
        seed: int,
        others: Iterable["Player"] = (),
        max_asserts: int = 0,
    ) -> None:
        """Loads the weights.

        Args:
          functions: what it calls, with its section of the config.
          start: the folders of that section.
          tokenizer: the one in its folder.
          roles: that it plays, "code" and "test".
          steps: training steps of the run, by which its learning rate decays.
          seed: of what it draws.
          others: players of the run; with those that start from the same base it shares what never changes.
          max_asserts: as Policy takes it.

        Raises:
          BadInput: the weights cannot be read, or are not those that the folder's configuration describes.
        """
        c = functions.config
        self.roles = roles
        self._mesh = functions.mesh
        self._temperature = np.float32(c.temperature)
        self._schedule = ScheduleConfig(c.learning_rate, c.warmup_steps, steps, c.decay)
        self._base_place = start.base.place
        self.learns = functions.learns
        params: Params = {}  # those that are its own, not of a base that players share
        if functions.model.lora_rank:
            key = stream_key(seed, f"{functions.name}/adapters", 0)
            drawn = initialise_adapters(functions.model, key, functions.shardings) if self.learns else None
            params = functions.place_adapters(start, absent=drawn)
        elif self.learns:
            params = start.checkpoint().place(functions.shardings, functions.model.param_dtype)
        # The base of adapters, and all weights of a frozen player without: neither ever changes.
        shared = [other.base for other in others if other.base and other._base_place == self._base_place]
        base = shared[0] if shared and functions.abstract_base else None
        self.base: Params = functions.place_base(start, base)
        super().__init__(functions, tokenizer, {} if self.learns else params, seed, max_asserts)
        # All that training changes, by name: the policy's state and, with PPO, the critic's; of a frozen player none.
        self.states: dict[str, TrainState] = {}
        self._reference: Params = {}
        if self.learns:
            self.states[self.name] = init_state(params, functions.optimizer)
            if has_reference(self._config):
                self._reference = join(params, self.base)
        if functions.critic:
            self.states[functions.critic.name] = functions.critic.initial(start.checkpoint())

    @property
    def params(self) -> Params:
        """The weights that it answers with."""
        return join(self.state.params if self.learns else self._params, self.base)

    @property
    def state(self) -> TrainState:
        """The policy's state, of a player that learns."""
        return self.states[self.name]

    def restore(self, states: Mapping[str, TrainState]) -> None:
        """Takes up the states of this player among `states`. Clear its own before they are read: both may not fit."""
        self.states = {name: states[name] for name in self.functions.abstract_states}

    def shaped_reward(self, reward: float, response_length: int) -> float:
        """Returns what the player learns from: the reward minus what the length of its response costs."""
        c = self._config
        return reward - overlong_penalty(response_length, c.max_response_length, c.overlong_buffer)

    def learns_from(self, finish_reason: str) -> bool:
        """Returns whether a sample that ended so trains the player, or is there to be compared with alone."""
        return self._config.learn_truncated or finish_reason != "length"

    def advantages(
        self,
        rewards: Sequence[float | None],
        groups: Sequence[Hashable],
        tokens: Sequence[int],
        terms: Sequence[Sequence[float | None]] = (),
        weights: Sequence[float] = (),
    ) -> np.ndarray:
        """Returns the samples' advantages [B], by the configured scheme; see `codea1.learn.advantages`.

        `terms` [B, K] with `weights` [K] are what the rewards are made of; decoupled advantages alone read them.
        """
        if self._config.advantage == "gae":
            return np.zeros(len(rewards))  # estimated per token, when it learns
        if self._config.advantage == GDPO:
            terms = np.array(terms, np.float64).reshape(len(rewards), len(weights))
            return gdpo_advantages(rewards, terms, weights, groups, tokens)
        options = {}
        if self._config.advantage == "grpo":
            options = {"norm_by_std": self._config.normalize_by_std}
        return ADVANTAGES[self._config.advantage](rewards, groups, tokens, **options)

    def learn(self, samples: Sequence[TrainSample], step: int) -> Metrics:
        """Makes the optimizer steps of one training step and returns their metrics, averaged over mini-batches.

        "sampler_log_prob_difference_*" compare the trainer's log-probs with the sampler's under the same weights, and
        "sampler_kl" estimates by "k3" the KL divergence per token from the sampler's policy to the trainer's;
        "unreplayed_*" are the same of one micro-batch without the sampler's routes. "update_*" are those of
        `codea1.models.flops`, for the optimizer steps of the policy alone.
        """
        rate = learning_rate(step, self._schedule)
        metrics = {"learning_rate": rate, "train_sequences": float(len(samples))}
        generator = np.random.default_rng([self._seed, stable_hash(self.name), step])
        parts = mini_batches(samples, self._config.mini_batches, generator, self.functions.layout)
        if not parts:
            return metrics
        batched = [part.batches for part in parts]
        metrics["padding_waste"] = padding_waste(parts)
        if critic := self.functions.critic:
            peak = self._config.critic.learning_rate
            critic_rate = learning_rate(step, dataclasses.replace(self._schedule, peak=peak))
            self.states[critic.name], batched, of_critic = critic.learn(self.states[critic.name], batched, critic_rate)
            metrics |= of_critic
            if step <= self._config.critic.warmup_steps:
                return metrics
        # Mini-batches are scored before the first changes the policy; the log-probs of that one its update computes.
        scored = [
            [self._with_scores(batch, is_first=batches is batched[0]) for batch in batches] for batches in batched
        ]
        # What the routers of the trainer choose by themselves, of one micro-batch: to be compared with the sampler.
        chosen = self._score(self.params, scored[0][0], replays=False) if self.functions.routes is not None else None
        jax.block_until_ready((scored, chosen))
        started = time.monotonic()
        reports = []
        for batches in scored:
            self.states[self.name], report = self.functions.update(self.state, batches, rate, self.base)
            reports.append(report)
        rows = [report.metrics() for report in reports]
        metrics |= {name: float(_OVER_MINI_BATCHES.get(name, np.mean)([row[name] for row in rows])) for name in rows[0]}
        seconds = time.monotonic() - started
        lengths = [sample.length for part in parts for sample in part.samples]
        repeated = [length for part in parts for length in part.repeated_prompts]
        metrics |= utilisation(self.functions.model, lengths, repeated, seconds, self._mesh)
        metrics |= _sampler_differences(batched[0], to_host(reports[0].log_probs))
        return metrics | (
            _sampler_differences(batched[0][:1], [to_host(chosen)], "unreplayed_") if chosen is not None else {}
        )

    def _with_scores(self, batch: TrainBatch, is_first: bool) -> TrainBatch:
        """Returns the batch on the mesh, with the log-probs of policy and reference that its update needs."""
        source = OldLogProbs.SAMPLER
        if self._config.old_log_probs == "trainer":
            source = OldLogProbs.UPDATE if is_first else OldLogProbs.TRAINER
        batch = dataclasses.replace(batch, old_source_B1=np.full_like(batch.old_source_B1, source))
        batch = to_mesh(batch, self._mesh)
        if source is OldLogProbs.TRAINER:
            batch = dataclasses.replace(batch, old_log_probs_BT=self._score(self.params, batch, replays=True))
        if has_reference(self._config):
            # By the routers of the reference: it is another policy, and so it would answer.
            batch = dataclasses.replace(batch, ref_log_probs_BT=self._score(self._reference, batch, replays=False))
        return batch

    def _score(self, params: Params, batch: TrainBatch, *, replays: bool) -> jax.Array:
        """Returns the log-probs of a micro-batch's tokens, with the routes that it has or by the routers."""
        routes = batch.routes_BTLc if replays else None
        score = self.functions.scores[routes is not None, batch.tokens_BT.shape]
        log_probs_BT, _ = score(params, batch.tokens_BT, self._temperature, batch.packing, routes)
        return log_probs_BT


# The others are averaged.
_OVER_MINI_BATCHES: dict[str, Callable] = {"ratio_max": np.max, "skipped": np.sum, "tokens": np.sum}


def _sampler_differences(batches: Sequence[TrainBatch], log_probs: Sequence[np.ndarray], prefix: str = "") -> Metrics:
    pairs = zip(batches, log_probs, strict=True)
    ratios = np.concatenate(
        [(now_BT - b.sampler_log_probs_BT)[b.response_mask_BT] for b, now_BT in pairs], dtype=np.float64
    )
    differences = np.abs(ratios)
    metrics = {
        "sampler_kl": float(np.mean(np.expm1(ratios) - ratios)),
        "sampler_log_prob_difference_mean": float(differences.mean()),
        "sampler_log_prob_difference_p95": float(np.quantile(differences, 0.95)),
        "sampler_log_prob_difference_max": float(differences.max()),
    }
    return {f"{prefix}{name}": value for name, value in metrics.items()}
