"""Runs of adapters: one base in memory, resumed bit for bit, refused on another base, replayed and exported."""

import shutil
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bench.micro_run import make_micro_config, make_model_folder
from codea1.config import validate
from codea1.learn.batch import TrainSample
from codea1.models import huggingface
from codea1.models.peft import Adapters, merged
from codea1.players.export import export
from codea1.players.policy import policy_of_run
from codea1.rollout.engine import Request
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.training.opened_run import opened_run
from codea1.training.saved_step import SavedStep
from codea1.training.setup import assemble
from tests.model_folders import load
from tests.train_test import Played, assert_same_run, scripting, train


def adapted(config: ConfigDict) -> ConfigDict:
    for player in (config.code, config.test):
        player.lora.rank, player.lora.alpha, player.learning_rate = 4, 8.0, 1e-2
    return config


@pytest.fixture
def config(micro_config: ConfigDict) -> ConfigDict:
    return adapted(micro_config)


@pytest.fixture(scope="module")
def whole(model_folder, data_folder, tmp_path_factory) -> Iterator[Played]:
    """A run of six steps. The test player learns against past ones of the code player."""
    config = adapted(make_micro_config(model_folder, data_folder))
    config.opponents.side, config.opponents.every = "code", 3
    folder = tmp_path_factory.mktemp("lora") / "run"
    with scripting():
        yield Played(folder, train(config, folder))


def bytes_of(tree) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(tree))


def test_both_players_learn_and_the_base_does_not(whole, config):
    start = assemble(config).policies
    for name, player in whole.trainer._policies.items():
        jax.tree.map(np.testing.assert_array_equal, player.base, start[name].base)
        moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), player.state.params, start[name].state.params)
        assert all(jax.tree.leaves(moved))


def test_a_run_is_resumed_bit_for_bit(whole, config, tmp_path):
    config.opponents.side, config.opponents.every = "code", 3
    with scripting():
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "cut", stop_after=4)
        resumed = train(config, tmp_path / "cut")
    assert_same_run(whole.folder, tmp_path / "cut", whole.trainer, resumed)


def test_a_step_is_replayed(whole):
    folder = RunFolder.existing(str(whole.folder))
    pairs = SavedStep(folder, ConfigDict(folder.config), 4).replay()
    assert len(pairs) > 10
    assert all(pair.is_equal for pair in pairs)


def test_another_base_is_refused(whole, config, tmp_path, monkeypatch):
    shutil.copytree(whole.folder, tmp_path / "run")
    other = make_model_folder(tmp_path / "other")
    shape, params = load(other)
    for name in ("model.safetensors", "config.json"):
        (other / name).unlink()
    huggingface.save(other, shape, jax.tree.map(lambda x: 2 * x, params))
    folder = RunFolder.existing(str(tmp_path / "run"))
    changed = folder.config | {"code": folder.config["code"] | {"model": str(other)}}
    with pytest.raises(BadInput, match=r"other is not the base that the adapters of the code policy learned on"):
        export(RunFolder(folder.path, changed), "code", "last", tmp_path / "out", "float32", Hosts())
    with pytest.raises(BadInput, match="is not the base"):
        policy_of_run(RunFolder(folder.path, changed), 6, "code", (0, 0, 0), Hosts())
    config.opponents.side, config.opponents.every = "code", 3
    monkeypatch.setattr(huggingface.Checkpoint, "checksum", lambda _: "another")
    with pytest.raises(BadInput, match="is not the base"):
        SavedStep(folder, ConfigDict(folder.config), 4).replay()
    with pytest.raises(BadInput, match="is not the base"), opened_run(str(folder.path), ["last"], Hosts()):
        pass
    with pytest.raises(BadInput, match=r"is not the base .* its checksum is another, and was "):
        train(config, tmp_path / "run")


@pytest.mark.parametrize("kind", ["two players", "self-play", "frozen"])
def test_one_base_is_on_the_devices(config, kind):
    config.method = "self_play" if kind == "self-play" else config.method
    config.frozen = "test" if kind == "frozen" else ""
    before = jax.live_arrays()
    policies = assemble(config).policies
    bases = [[x for x in jax.tree.leaves(player.base) if x.ndim > 1] for player in policies.values()]
    shapes = {x.shape for x in bases[0]}
    assert all({x.shape for x in base} == shapes for base in bases)

    def look() -> None:
        known = {id(x) for x in before}
        found = [x for x in jax.live_arrays() if id(x) not in known and x.shape in shapes]
        assert bytes_of(found) == bytes_of(bases[0])
        looked.append(True)

    for player in policies.values():
        looked: list[bool] = []
        player.call_between_chunks(look)
        samples = list(player.generate([Request("q", (5, 6, 7), 0, 4)], step=1))
        if player.learns:
            update = player.functions.update
            player.functions.update = lambda *arguments, update=update: (update(*arguments), look())[0]
            trained = [TrainSample(x.prompt_ids, x.token_ids, x.log_probs, 1.0) for x in samples]
            assert player.learn(trained, 2)["grad_norm"] > 0
        assert len(looked) >= 2 + 2 * player.learns


def test_exports_and_policies_of_a_run_are_its_players(whole, tmp_path):
    folder, player = RunFolder.existing(str(whole.folder)), whole.trainer._policies["test"]
    export(folder, "test", "last", tmp_path / "whole", "float32", Hosts(), merge=True)
    export(folder, "test", "last", tmp_path / "adapters", "float32", Hosts())
    _, stored = load(tmp_path / "whole")
    expected = merged(player.base, player.state.params, 2.0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), stored, expected)
    adapters = Adapters(tmp_path / "adapters")
    assert (adapters.rank, adapters.alpha) == (4, 8.0)
    base = huggingface.Checkpoint(folder.config["test"]["model"])
    placed = adapters.place(base.config, base.checksum(), player.functions.shardings.params, "float32")
    jax.tree.map(np.testing.assert_array_equal, placed, player.state.params)
    policy = policy_of_run(folder, 6, "test", (0, 0, 0), Hosts())
    (again,) = policy.generate([Request("q", (5, 6, 7), 0, 1)], seed=0, purpose="again", temperature=0.0, top_p=1.0)
    (sample,) = player.generate([Request("q", (5, 6, 7), 0, 1)], step=0, temperature=0.0)
    assert again.token_ids == sample.token_ids


def test_what_adapters_cannot_do_is_told(config, micro_config, run, tmp_path):
    with pytest.raises(BadInput, match=r"--merge is for adapters: all weights of the code policy .* have learned"):
        export(run, "code", "last", tmp_path / "out", "float32", Hosts(), merge=True)
    config.code.lora.rank = 0
    with pytest.raises(BadInput, match=r"config.code.lora.alpha is 8.0; it must be 32.0: it is read only where lora"):
        validate(config)
    config.code.lora.rank, config.code.advantage = 4, "gae"
    with pytest.raises(BadInput, match=r"config.code.lora.rank is 4; it must be 0: config.code.advantage is gae"):
        validate(config)
