"""Warming up compiles all that learning needs, and changes nothing."""

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from codea1.aot.jobs import plan
from codea1.aot.models import models
from codea1.data.tokenizer import load_tokenizer
from codea1.learn.batch import RowShape, TrainSample, micro_batches
from codea1.learn.losses import ObjectiveConfig
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.update import init_state, make_update, state_shardings
from codea1.learn.warm_up import call_every_program
from codea1.players.player import Player
from codea1.sharding import device_mesh
from tests.tiny_policy import make_policy


def arranged(config: ConfigDict, kind: str) -> ConfigDict:
    """The micro config with a Code LLM alone, which learns in one of the ways that have other programs."""
    c = config.code
    config.method = "golden"
    c.advantage = "gae" if kind in ("gae", "kl in reward") else "grpo"
    c.kl_in_reward = kind == "kl in reward"
    if kind == "sampler":
        c.old_log_probs, c.kl_coefficient = "sampler", 0.0
    return config


def player_of(config: ConfigDict) -> Player:
    return Player("code", config, device_mesh(config, jax.devices()[:1]), load_tokenizer(config.code.model))


def samples() -> list[TrainSample]:
    rng = np.random.default_rng(0)
    return [
        TrainSample(rng.integers(5, 200, length).tolist(), [7, 8], [-1.0, -2.0], 0.5, 1.0)
        for length in (10, 12, 40, 50)
    ]


@pytest.mark.parametrize("kind", ["grpo", "kl in reward", "sampler"])
def test_warm_up_compiles_what_is_planned_and_learning_nothing_more(micro_config, kind):
    config = arranged(micro_config, kind)
    player = player_of(config)
    planned = {job.program.name for job in plan(config, player.mesh, models(config)).jobs if job.phase == "learn"}
    if kind == "sampler":  # nobody is asked for log-probs then
        planned = {name for name in planned if not name.startswith("score")}
    jax.clear_caches()
    compiled = player.warm_up_learning()
    assert sorted(each.name for each in compiled) == sorted(planned)
    assert all(each.seconds > 0 for each in compiled)
    assert player.warm_up_learning() == []
    for step in (2, 3):
        assert player.learn(samples(), step)["learn_late_compilations"] == 0


def test_a_late_compilation_is_counted_after_a_warm_up_and_not_without_one(micro_config):
    player = player_of(arranged(micro_config, "sampler"))
    assert "learn_late_compilations" not in player.learn(samples(), step=1)
    player.warm_up_learning()
    jax.clear_caches()
    assert player.learn(samples(), step=2)["learn_late_compilations"] > 0


@pytest.mark.parametrize("kind", ["grpo", "gae"])
def test_warm_up_changes_nothing_to_the_bit(micro_config, kind):
    player = player_of(arranged(micro_config, kind))
    player.learn(samples(), step=2)  # so that moments and counts are not those of the start
    before = jax.tree.map(np.array, player.states)
    player.warm_up_learning()
    jax.tree.map(np.testing.assert_array_equal, player.states, before)


def test_moments_wait_on_the_host_after_warm_up_too(micro_config):
    micro_config.model.offload_moments = True
    player = player_of(arranged(micro_config, "grpo"))
    player.warm_up_learning()
    assert {x.sharding.memory_kind for x in jax.tree.leaves(player.state.opt_state)} == {"pinned_host"}


def test_a_micro_batch_that_has_a_loss_is_no_warm_up():
    policy, optimizer = make_policy(), AdamWConfig()
    shardings = state_shardings(policy.shardings, optimizer)
    update = make_update(policy.graphdef, ObjectiveConfig(kl_coefficient=0), optimizer, shardings, log_prob_chunk=512)
    batches = micro_batches(
        [TrainSample([1, 2], [3, 4], [-1.0, -2.0], 0.5)],
        [RowShape(1, 8)],
        aggregation="token-mean",
        max_response_length=4,
        pad_id=0,
    )
    with pytest.raises(RuntimeError, match="changed"):
        call_every_program(update, init_state(policy.params, optimizer, shardings), batches, [])
