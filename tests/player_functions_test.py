"""A player's list of functions: all that it calls, compiled once, and refusing what it was not compiled for."""

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bench.micro_run import make_player, mesh_of
from codea1.config_file import validate
from codea1.data.tokenizer import load_tokenizer
from codea1.lab.aot.jobs import Plan, models, plan
from codea1.learn.batch import TrainSample
from codea1.players.player import Player
from codea1.rollout.engine import Request
from codea1.runtime.compilations import compile_all, compiled_functions


def arranged(config: ConfigDict, kind: str) -> ConfigDict:
    """The micro config with a Code LLM alone, which learns in one of the ways that have other functions."""
    c = config.code
    config.method = "golden"
    c.advantage = "gae" if kind == "gae" else "grpo"
    if kind == "sampler":
        c.old_log_probs, c.kl_coefficient = "sampler", 0.0
    return config


def player_of(config: ConfigDict, name: str = "code") -> Player:
    config = validate(config)
    return make_player(name, config, mesh_of(config, jax.devices()[:1]), load_tokenizer(config.code.model))


def planned_of(config: ConfigDict) -> Plan:
    checked = validate(config)
    return plan(checked, mesh_of(checked, jax.devices()[:1]), models(checked))


def samples() -> list[TrainSample]:
    rng = np.random.default_rng(0)
    return [
        TrainSample(rng.integers(5, 200, length).tolist(), [7, 8], [-1.0, -2.0], 0.5, 1.0)
        for length in (10, 12, 40, 50)
    ]


@pytest.fixture
def backend_compilations():
    """What XLA compiles while a test runs, whoever asks for it."""
    found = []

    def listen(event: str, seconds: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("kind", ["grpo", "gae", "sampler"])
def test_warm_up_compiles_what_is_planned_and_learning_nothing_more(micro_config, kind, backend_compilations):
    config = arranged(micro_config, kind)
    player = player_of(config)
    planned = [job.function for job in planned_of(config).jobs if job.phase == "learn"]
    compiled_functions.clear()
    compiled = compile_all(player.functions.learning)
    assert [each.name for each in compiled] == [function.name for function in planned]
    assert any(function.kind == "score" for function in planned) == (kind != "sampler")
    assert all(each.seconds > 0 for each in compiled)
    assert compile_all(player.functions.learning) == []
    backend_compilations.clear()
    for step in (2, 3):
        player.learn(samples(), step)
    assert backend_compilations == []


def test_generation_compiles_nothing_more(micro_config, backend_compilations):
    player = player_of(arranged(micro_config, "grpo"))
    compile_all(player.functions.generation)
    asked = [Request("a", (5, 6, 7), 0, 3), Request("b", (5, 6), 0, 9)]
    list(player.generate(asked, stream="code/train", step=1))  # a phase's key is made of small functions of JAX's own
    backend_compilations.clear()
    assert len(list(player.generate(asked, stream="code/train", step=2))) == 12
    assert backend_compilations == []


def test_players_of_one_model_and_shapes_compile_once(micro_config):
    micro_config.test = micro_config.code
    compiled_functions.clear()
    first, second = (player_of(micro_config, name) for name in ("code", "test"))
    assert compile_all(first.functions.generation)
    assert compile_all(first.functions.learning)
    assert compile_all(second.functions.generation) == compile_all(second.functions.learning) == []


def test_what_is_not_used_is_not_compiled(micro_config):
    compiled_functions.clear()
    player = player_of(arranged(micro_config, "gae"))
    assert not compiled_functions
    list(player.generate([Request("a", (5, 6, 7), 0, 1)], stream="code/train", step=1))
    learning = {each.name for each in player.functions.learning}
    assert {each.name for each in compile_all(player.functions.learning)} == learning


@pytest.mark.parametrize("kind", ["grpo", "gae"])
def test_warm_up_changes_nothing_to_the_bit(micro_config, kind):
    player = player_of(arranged(micro_config, kind))
    player.learn(samples(), step=2)  # so that moments and counts are not those of the start
    before = jax.tree.map(np.array, player.states)
    compile_all(player.functions.learning)
    jax.tree.map(np.testing.assert_array_equal, player.states, before)


def test_another_shape_or_type_is_refused(micro_config):
    player = player_of(arranged(micro_config, "grpo"))
    score = next(iter(player.functions.scores.values()))
    params, tokens, temperature = player.params, np.zeros(score.arguments[1].shape, np.int32), np.float32(1)
    score(params, tokens, temperature, None, None)
    for changed in (tokens[:1], tokens[:, :-1], tokens.astype(np.float32)):
        with pytest.raises(TypeError, match="compiled with"):
            score(params, changed, temperature, None, None)
    with pytest.raises(KeyError):
        player.functions.update(player.state, [_of_shape(player, (1, 3))], 1e-3)


def _of_shape(player: Player, shape: tuple[int, int]):
    batch = player.functions.abstract_batches[0]
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((shape[0], min(x.shape[1], shape[1])), x.dtype), batch)
