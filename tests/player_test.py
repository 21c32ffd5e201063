"""Golden training steps: what a player's section of the config says, against an implementation of the paper's formulas.

The reference shares the model's forward pass and nothing else: advantages, losses, metrics, schedule and AdamW are
written out here, in float64 where no gradient has to pass.
"""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from ml_collections import ConfigDict

from bench.micro_run import make_player, mesh_of
from codea1.config_file import default_config, validate
from codea1.lab import model_writer
from codea1.learn.batch import TrainSample
from codea1.models import qwen2
from codea1.models.config import Qwen2Config
from codea1.players.player import Player
from codea1.runtime.hosts import stable_hash
from codea1.sharding import to_host
from tests.model_folders import load

MODEL = Qwen2Config(
    vocab_size=24, hidden_size=16, intermediate_size=24, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=8
)
SEED, STEPS = 5, 9
# Every number is another one than its default, than its neighbours and than the other player's.
SECTIONS = {
    "code": {
        "max_prompt_length": 6,
        "max_response_length": 10,
        "temperature": 0.8,
        "learning_rate": 0.011,
        "warmup_steps": 3,
        "decay": "linear",
        "adam_b1": 0.7,
        "adam_b2": 0.95,
        "adam_eps": 2e-3,
        "weight_decay": 0.31,
        "max_grad_norm": 0.13,
        "mini_batches": 4,
        "micro_batch_size": 2,
        "row_lengths": (12,),
        "old_log_probs": "sampler",  # the ratios are those of noise, and no weight is left
        "clip_low": 0.12,
        "clip_high": 0.36,
        "dual_clip": 1.55,
        "kl_estimator": "k2",
        "kl_coefficient": 0.061,
        "entropy_coefficient": 0.023,
        "aggregation": "dr-grpo",
        "overlong_buffer": 4,
        "learn_truncated": False,
    },
    "test": {
        "max_prompt_length": 7,
        "max_response_length": 11,
        "temperature": 1.25,
        "learning_rate": 0.017,
        "warmup_steps": 5,
        "decay": "constant",
        "adam_b1": 0.6,
        "adam_b2": 0.93,
        "adam_eps": 3e-3,
        "weight_decay": 0.22,
        "max_grad_norm": 0.19,
        "mini_batches": 3,
        "micro_batch_size": 3,
        "row_lengths": (13,),
        "old_log_probs": "trainer",  # the ratios are those of the step's own mini-batches; weights have two sides
        "clip_low": 0.021,
        "clip_high": 0.034,
        "dual_clip": 1.047,
        "kl_estimator": "k1",
        "kl_coefficient": 0.083,
        "entropy_coefficient": 0.037,
        "importance_cap": 1.2,
        "aggregation": "seq-mean-token-mean",
        "overlong_buffer": 5,
        "learn_truncated": True,
    },
}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    rng = np.random.default_rng(0)
    _, shapes = qwen2.abstract(MODEL)
    params = jax.tree.map(lambda x: 0.4 * rng.normal(size=x.shape).astype(np.float32), nnx.to_pure_dict(shapes))
    model_writer.save(folder, MODEL, params)
    c = default_config()
    c.seed, c.steps, c.questions_per_step = SEED, STEPS, 3
    c.model.dtype, c.model.remat, c.model.log_prob_chunk = "float32", "none", 7
    for name, section in SECTIONS.items():
        c[name].update(section)
        c[name].model = str(folder)
    validate(c)
    return c


def player_of(name: str, config: ConfigDict) -> Player:
    config = validate(config)
    return make_player(name, config, mesh_of(config), SimpleNamespace(stop_ids=(1,), pad_id=0))


@pytest.fixture(params=SECTIONS)
def player(request, config) -> Player:
    """A player that has moved away from its reference policy."""
    player = player_of(request.param, config)
    rng = np.random.default_rng(1)
    moved = jax.tree.map(
        lambda p: jax.device_put(p + 0.05 * rng.normal(size=p.shape).astype(np.float32), p.sharding), player.params
    )
    player.restore({player.name: dataclasses.replace(player.state, params=moved)})
    return player


class Reference:
    """What a player should be after the training steps that it is told of."""

    def __init__(self, name: str, start, reference):
        self.name, self.c = name, SimpleNamespace(**{"importance_cap": 0.0, **SECTIONS[name]})
        self.params, self.reference = (jax.tree.map(lambda x: np.array(x, np.float64), p) for p in (start, reference))
        self.m, self.v = (jax.tree.map(np.zeros_like, self.params) for _ in range(2))
        self.num_updates = 0
        graphdef, _ = qwen2.abstract(MODEL)

        def log_probs_and_entropy(params, tokens):
            model = nnx.merge(graphdef, params)
            hidden, *_ = model(tokens, jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape))
            log_softmax = jax.nn.log_softmax(model.logits(hidden)[:, :-1] / self.c.temperature)
            own = jnp.take_along_axis(log_softmax, tokens[:, 1:, None], axis=-1)[..., 0]
            entropy = -jnp.sum(jnp.exp(log_softmax) * log_softmax, axis=-1)
            return tuple(jnp.pad(x, ((0, 0), (1, 0))) for x in (own, entropy))

        def loss(params, tokens, weights, *rest):
            own, entropy = log_probs_and_entropy(params, tokens)
            policy_loss, kl = self.token_losses(jnp, own, *rest)
            per_token = policy_loss + self.c.kl_coefficient * kl - self.c.entropy_coefficient * entropy
            return jnp.sum(weights * jnp.where(weights > 0, per_token, 0.0))

        self._score, self._gradient = jax.jit(log_probs_and_entropy), jax.jit(jax.value_and_grad(loss))

    def token_losses(self, xp, own, old, sampler, reference, advantages):
        """min(pi_old / pi_sampler, cap) * (dual-clip PPO, reference implementation's core_algos.py), and the KL."""
        c = self.c
        ratio = xp.exp(own - old)
        loss = xp.maximum(-advantages * ratio, -advantages * xp.clip(ratio, 1 - c.clip_low, 1 + c.clip_high))
        loss = xp.where(advantages < 0, xp.minimum(loss, -advantages * c.dual_clip), loss)
        weights = xp.minimum(xp.exp(old - sampler), c.importance_cap) if c.importance_cap else 1.0
        return weights * loss, {"k1": own - reference, "k2": (own - reference) ** 2 / 2}[c.kl_estimator]

    def score(self, params, tokens):
        as_float32 = jax.tree.map(lambda x: x.astype(np.float32), params)
        return tuple(np.array(x, np.float64) for x in self._score(as_float32, tokens))

    def rate(self, step: int) -> float:
        done, c = step - 1, self.c
        if done < c.warmup_steps:
            return c.learning_rate * done / c.warmup_steps
        left = {"linear": (STEPS - done) / (STEPS - c.warmup_steps), "constant": 1.0}[c.decay]
        return c.learning_rate * left

    def advantages(self, rewards, lengths, group_size):
        """A_i = (r_i - mean_g) / (std_g + eps) of rewards less the overlong penalty; 0 where there is no reward."""
        c = self.c
        too_long = np.clip((np.array(lengths) - (c.max_response_length - c.overlong_buffer)) / c.overlong_buffer, 0, 1)
        paid = np.array([np.nan if r is None else r for r in rewards]) - too_long
        groups = paid.reshape(-1, group_size)
        spread = np.nanstd(groups, axis=1, ddof=1, keepdims=True) + 1e-6
        return np.nan_to_num((groups - np.nanmean(groups, axis=1, keepdims=True)) / spread).ravel()

    def learn(self, samples: list[TrainSample], step: int) -> dict[str, float]:
        """The metrics of one training step."""
        c = self.c
        kept = [sample for sample in samples if sample.token_ids]
        order = np.random.default_rng([SEED, stable_hash(self.name), step]).permutation(len(kept))
        longest = c.max_prompt_length + c.max_response_length
        tokens, mask = np.zeros((len(kept), longest), np.int32), np.zeros((len(kept), longest), bool)
        sampler, advantages = np.zeros(mask.shape), np.zeros(mask.shape)
        for row, s in enumerate(kept):
            start, end = len(s.prompt_ids), s.length
            tokens[row, :end] = [*s.prompt_ids, *s.token_ids]
            mask[row, start:end] = True
            sampler[row, start:end], advantages[row, start:end] = s.log_probs, s.advantage
        first_own, _ = self.score(self.params, tokens)
        reference, _ = self.score(self.reference, tokens)
        old = sampler if c.old_log_probs == "sampler" else first_own
        found, positions = [], 0
        for part in np.array_split(order, c.mini_batches):
            inside = mask & np.isin(np.arange(len(kept)), part)[:, None]
            lengths = mask.sum(axis=1, keepdims=True)
            per_sequence = c.max_response_length if c.aggregation == "dr-grpo" else lengths
            weights = np.where(inside, 1 / (len(part) * per_sequence), 0.0)
            found.append(self._update(tokens, inside, weights, old, sampler, reference, advantages, self.rate(step)))
            positions += self._positions([kept[i].length for i in part])
        first = np.array_split(order, c.mini_batches)[0]
        log_ratios = np.concatenate([(first_own - sampler)[i][mask[i]] for i in first])
        differences = np.abs(log_ratios)
        over = {"ratio_max": np.max, "tokens": np.sum, "skipped": np.sum}
        return {name: over.get(name, np.mean)([each[name] for each in found]) for name in found[0]} | {
            "learning_rate": self.rate(step),
            "train_sequences": len(samples),
            "padding_waste": 1 - sum(s.length for s in kept) / positions,
            "sampler_kl": np.mean(np.exp(log_ratios) - 1 - log_ratios),
            "sampler_log_prob_difference_mean": differences.mean(),
            "sampler_log_prob_difference_p95": np.quantile(differences, 0.95),
            "sampler_log_prob_difference_max": differences.max(),
        }

    def _update(self, tokens, inside, weights, old, sampler, reference, advantages, rate) -> dict[str, float]:
        c = self.c
        as_float32 = jax.tree.map(lambda x: x.astype(np.float32), self.params)
        _, gradients = self._gradient(as_float32, tokens, weights, old, sampler, reference, advantages)
        gradients = jax.tree.map(lambda g: np.array(g, np.float64), gradients)
        own, entropy = (x[inside] for x in self.score(self.params, tokens))
        old, sampler, reference, advantages, weights = (
            x[inside] for x in (old, sampler, reference, advantages, weights)
        )
        policy_loss, kl = self.token_losses(np, own, old, sampler, reference, advantages)
        ratio = np.exp(own - old)
        metrics = {
            "policy_loss": policy_loss.mean(),
            "entropy": entropy.mean(),
            "kl_ref": kl.mean(),
            "approx_kl": np.mean(ratio - 1 - np.log(ratio)),
            "clip_fraction_high": np.mean((advantages > 0) & (ratio > 1 + c.clip_high)),
            "clip_fraction_low": np.mean((advantages < 0) & (ratio < 1 - c.clip_low)),
            "dual_clip_fraction": np.mean((advantages < 0) & (ratio > c.dual_clip)),
            "ratio_max": ratio.max(),
            "tokens": inside.sum(),
            "loss": np.sum(weights * (policy_loss + c.kl_coefficient * kl - c.entropy_coefficient * entropy)),
            "skipped": 0.0,
            "grad_norm": norm(gradients),
            "param_norm": norm(self.params),
        }
        if c.importance_cap:
            metrics["importance_weight"] = np.mean(np.minimum(np.exp(old - sampler), c.importance_cap))
        scale = min(1.0, c.max_grad_norm / norm(gradients))
        self.num_updates += 1
        self.m = jax.tree.map(lambda m, g: c.adam_b1 * m + (1 - c.adam_b1) * scale * g, self.m, gradients)
        self.v = jax.tree.map(lambda v, g: c.adam_b2 * v + (1 - c.adam_b2) * (scale * g) ** 2, self.v, gradients)
        m_scale, v_scale = 1 - c.adam_b1**self.num_updates, 1 - c.adam_b2**self.num_updates
        updates = jax.tree.map(
            lambda p, m, v: rate * (m / m_scale / (np.sqrt(v / v_scale) + c.adam_eps) + c.weight_decay * p),
            self.params,
            self.m,
            self.v,
        )
        self.params = jax.tree.map(np.subtract, self.params, updates)
        return metrics | {"update_norm": norm(updates)}

    def _positions(self, lengths: list[int]) -> int:
        """Positions of the micro-batches: longest first, rows of one of two lengths, about as many tokens in each."""
        longest = self.c.max_prompt_length + self.c.max_response_length
        (shorter,), rows, positions = self.c.row_lengths, self.c.micro_batch_size, 0
        lengths = sorted(lengths, reverse=True)
        while lengths:
            length = shorter if lengths[0] <= shorter else longest
            height = rows * longest // length
            positions, lengths = positions + height * length, lengths[height:]
        return positions


def norm(tree) -> float:
    return float(np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(tree))))


def made_samples(player: Player, reference: Reference, step: int) -> list[TrainSample]:
    """The samples of three groups of five but one, whose reward is masked; one has no tokens."""
    c, rng = reference.c, np.random.default_rng([step, stable_hash(player.name)])
    lengths = rng.integers(2, c.max_response_length + 1, 15)
    lengths[3], lengths[7] = 0, c.max_response_length
    rewards = [float(reward) for reward in rng.uniform(0, 1, 15)]
    rewards[11] = None
    shaped = [r if r is None else player.shaped_reward(r, n) for r, n in zip(rewards, lengths, strict=True)]
    advantages = player.advantages(shaped, [index // 5 for index in range(15)], lengths.tolist())
    np.testing.assert_allclose(advantages, reference.advantages(rewards, lengths, 5), rtol=1e-9, atol=1e-12)
    samples = []
    for length, advantage, reward in zip(lengths, advantages, rewards, strict=True):
        prompt = rng.integers(2, MODEL.vocab_size, rng.integers(1, c.max_prompt_length + 1)).tolist()
        response = rng.integers(2, MODEL.vocab_size, length).tolist()
        row = np.zeros((1, c.max_prompt_length + c.max_response_length), np.int32)
        row[0, : len(prompt) + length] = prompt + response
        own = reference.score(reference.params, row)[0][0, len(prompt) : len(prompt) + length]
        if reward is not None:
            samples.append(TrainSample(prompt, response, own + rng.normal(0, 0.3, length), advantage))
    return samples


def test_two_training_steps_equal_the_papers_formulas_with_the_numbers_of_the_players_section(player, config):
    reference = Reference(player.name, player.params, load(config[player.name].model)[1])
    seen = dict.fromkeys(("clip_fraction_high", "clip_fraction_low", "dual_clip_fraction"), 0.0)
    for step in (2, 6):  # one of the warm-up, one of the decay
        samples = made_samples(player, reference, step)
        expected = reference.learn(samples, step)
        metrics = {name: x for name, x in player.learn(samples, step).items() if not name.startswith("update_t")}
        assert metrics.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(metrics[name], value, rtol=5e-4, atol=1e-6, err_msg=f"{name} of step {step}")
        assert expected["grad_norm"] > reference.c.max_grad_norm
        seen = {name: value + expected[name] for name, value in seen.items()}
    assert all(seen.values())  # ratios left the bounds on every side
    moved = jax.tree.map(lambda new, old: new - old, reference.params, reference.reference)
    assert norm(moved) > 0.1
    mu, nu = player.state.opt_state[0].mu, player.state.opt_state[0].nu
    for found, wanted in ((player.params, reference.params), (mu, reference.m), (nu, reference.v)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5), found, wanted)
    assert player.state.step == reference.num_updates == 2 * reference.c.mini_batches


def test_whether_a_truncated_response_teaches_is_its_players_choice(player):
    assert player.learns_from("stop")
    assert player.learns_from("length") == SECTIONS[player.name]["learn_truncated"]


@pytest.mark.parametrize(
    ("changes", "advantages"),
    [
        ({"normalize_by_std": False}, [-0.5, 0.5, 0.0, -1.0, 1.0]),
        ({"advantage": "rloo"}, [-1.0, 1.0, 0.0, -1.5, 1.5]),
        ({"advantage": "batch"}, np.array([-0.5, 0.5, 0.0, -1.0, 1.0]) / np.sqrt(0.5)),
    ],
)
def test_advantages_are_of_the_scheme_that_the_section_names(changes, advantages, config):
    config = config.copy_and_resolve_references()
    config.test.update(changes)
    found = player_of("test", config).advantages([0.0, 1.0, 0.5, -0.5, 1.5], [0, 0, 1, 1, 1], [1, 1, 1, 1, 1])
    np.testing.assert_allclose(found, advantages, rtol=1e-6)


def test_sharing_prompts_changes_no_update(config):
    config = config.copy_and_resolve_references()
    config.test.update(mini_batches=1, row_lengths=(), micro_batch_size=6)
    found = []
    for share in (False, True):
        config.test.share_prompts = share
        player = player_of("test", config)
        reference = Reference("test", player.params, player.params)
        samples = made_samples(player, reference, 2)
        samples = [dataclasses.replace(s, prompt_ids=samples[row % 3].prompt_ids) for row, s in enumerate(samples)]
        found.append((player.learn(samples, 7), to_host(player.state.params)))
    (alone, expected), (shared, params) = found
    assert shared.pop("padding_waste") != alone.pop("padding_waste")
    assert alone.keys() == shared.keys()
    for name in alone.keys() - {"update_tflops_per_second"}:
        np.testing.assert_allclose(shared[name], alone[name], rtol=2e-3, atol=1e-5, err_msg=name)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-5), params, expected)


def test_the_surrogate_is_the_one_that_the_section_names(config):
    config = config.copy_and_resolve_references()
    config.code.update(surrogate="cispo", dual_clip=10.0, mini_batches=1, row_lengths=(), micro_batch_size=16)
    player = player_of("code", config)
    reference = Reference("code", player.params, player.params)
    (sample,) = made_samples(player, reference, 2)[:1]
    row = np.zeros((1, 16), np.int32)
    row[0, : sample.length] = [*sample.prompt_ids, *sample.token_ids]
    own = reference.score(reference.params, row)[0][0, len(sample.prompt_ids) : sample.length]
    weights = np.clip(np.exp(own - sample.log_probs), 1 - 0.12, 1 + 0.36)
    metrics = player.learn([sample], 2)
    np.testing.assert_allclose(metrics["policy_loss"], np.mean(-weights * sample.advantage * own), rtol=1e-4)
    assert "dual_clip_fraction" not in metrics
