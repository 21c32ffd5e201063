"""Runs of adapters: one base in memory, resumed bit for bit, refused on another base, replayed and exported."""

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bench.micro_run import make_micro_config, make_model_folder
from codea1.config_file import validate
from codea1.lab import model_writer
from codea1.lab.benchmarks.policies import policy_of_run
from codea1.lab.export import export
from codea1.lab.model_writer import merged
from codea1.lab.opened_run import opened_run
from codea1.learn.batch import TrainSample
from codea1.models import huggingface
from codea1.models.peft import Adapters
from codea1.players.base import Start, base_checksums, require_base
from codea1.rollout.engine import Request
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.training.setup import assemble
from tests.model_folders import load
from tests.saved_step import SavedStep
from tests.train_test import Played, assert_all_is_saved, scripting, train


def adapted(config: ConfigDict) -> ConfigDict:
    for player in (config.code, config.test):
        player.lora.rank, player.lora.alpha, player.learning_rate = 4, 8.0, 1e-2
        player.row_lengths = (64,)  # a policy that answers has none
    return config


@pytest.fixture
def config(micro_config: ConfigDict) -> ConfigDict:
    return adapted(micro_config)


@pytest.fixture(scope="module")
def whole(model_folder, data_folder, tmp_path_factory) -> Iterator[Played]:
    """A run of six steps."""
    config = adapted(make_micro_config(model_folder, data_folder))
    folder = tmp_path_factory.mktemp("lora") / "run"
    with scripting():
        yield Played(folder, train(config, folder))


def bytes_of(tree) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(tree))


def test_both_players_learn_and_the_base_does_not(whole, config):
    start = assemble(validate(config)).policies
    for name, player in whole.trainer._policies.items():
        jax.tree.map(np.testing.assert_array_equal, player.base, start[name].base)
        moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), player.state.params, start[name].state.params)
        assert all(jax.tree.leaves(moved))


def test_adapters_and_their_moments_are_saved(whole):
    assert_all_is_saved(whole.trainer, whole.trainer._config, whole.folder)


def test_a_step_is_replayed(whole):
    folder = RunFolder.existing(str(whole.folder))
    pairs = SavedStep(folder, 4).replay()
    assert len(pairs) > 10
    assert all(pair.is_equal for pair in pairs)


def test_another_base_is_refused(whole, config, tmp_path, monkeypatch):
    shutil.copytree(whole.folder, tmp_path / "run")
    other = make_model_folder(tmp_path / "other")
    shape, params = load(other)
    for name in ("model.safetensors", "config.json"):
        (other / name).unlink()
    model_writer.save(other, shape, jax.tree.map(lambda x: 2 * x, params))
    folder = RunFolder.existing(str(tmp_path / "run"))
    changed = folder.config | {"code": folder.config["code"] | {"model": str(other)}}
    with pytest.raises(BadInput, match=r"other is not what the code policy started from"):
        export(RunFolder(folder.path, changed), "code", "last", tmp_path / "out", "float32", Hosts())
    with pytest.raises(BadInput, match="is not what"):
        policy_of_run(RunFolder(folder.path, changed), 6, "code", (0, 0, 0), Hosts())
    monkeypatch.setattr("codea1.players.base._checksum", lambda _: "another")
    with pytest.raises(BadInput, match="is not what"):
        SavedStep(folder, 4).replay()
    with pytest.raises(BadInput, match="is not what"), opened_run(str(folder.path), "last", Hosts()):
        pass
    with pytest.raises(BadInput, match=r"is not what .* its checksum is another, and was "):
        train(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"code.kl_coefficient": 0.0, "test.kl_coefficient": 0.0}, ([], [])),
        ({"code.kl_coefficient": 0.0}, ([], ["test"])),  # to judge its weights, nobody needs its reference
        ({"code.kl_coefficient": 0.0, "frozen": "test"}, (["test"], ["test"])),
        ({"code.kl_coefficient": 0.0, "code.lora.rank": 4, "test.kl_coefficient": 0.0}, (["code"], ["code"])),
    ],
)
def test_what_never_changes_is_known_by_its_bytes(model_folder, data_folder, monkeypatch, changes, kept):
    config = make_micro_config(model_folder, data_folder)
    config.update_from_flattened_dict(changes)
    found = [base_checksums(validate(config), ["code", "test"], references=each) for each in (False, True)]
    assert tuple(map(list, found)) == kept
    saved = SimpleNamespace(state=lambda step: {"bases": found[1]})
    monkeypatch.setattr("codea1.players.base._checksum", lambda _: "another")
    for name, reference in itertools.product(("code", "test"), (False, True)):
        refused = contextlib.nullcontext()
        if name in kept[reference]:
            refused = pytest.raises(
                BadInput, match=f"is not what the {name} policy started from: its checksum is another"
            )
        with refused:
            require_base(validate(config), name, saved, 3, reference=reference)


@pytest.mark.parametrize("kind", ["two players", "self-play", "frozen"])
def test_one_base_is_on_the_devices(config, kind):
    config.method = "self_play" if kind == "self-play" else config.method
    config.frozen = "test" if kind == "frozen" else ""
    before = jax.live_arrays()
    policies = assemble(validate(config)).policies
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
        samples = list(player.generate([Request("q", (5, 6, 7), 0, 4)], stream="code", step=1))
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
    placed = adapters.place(base.config, base.checksum(), player.functions.shardings, "float32")
    jax.tree.map(np.testing.assert_array_equal, placed, player.state.params)
    policy = policy_of_run(folder, 6, "test", (0, 0, 0), Hosts())
    (again,) = policy.generate([Request("q", (5, 6, 7), 0, 1)], stream="again", temperature=0.0)
    (sample,) = player.generate([Request("q", (5, 6, 7), 0, 1)], stream="again", temperature=0.0)
    assert again.token_ids == sample.token_ids


@pytest.fixture(scope="module")
def exported(whole, tmp_path_factory) -> Path:
    """Folders of both players' adapters, by name."""
    folder = tmp_path_factory.mktemp("exported")
    for name in ("code", "test"):
        export(RunFolder.existing(str(whole.folder)), name, "last", folder / name, "float32", Hosts())
    return folder


def from_adapters(config: ConfigDict, exported: Path) -> ConfigDict:
    config.code.model, config.test.model = str(exported / "code"), str(exported / "test")
    return config


def equal(a, b) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_players_start_from_folders_of_adapters(whole, config, exported):
    policies = assemble(validate(from_adapters(config, exported))).policies
    for name, player in policies.items():
        there = whole.trainer._policies[name]
        equal(player.state.params, there.state.params)
        equal(player.base, there.base)
        assert not any(np.any(x) for x in jax.tree.leaves(player.state.opt_state))
        samples = [
            list(each.generate([Request("q", (5, 6, 7), 0, 4)], stream="code", step=1)) for each in (player, there)
        ]
        for sample, of_there in zip(*samples, strict=True):
            np.testing.assert_array_equal(sample.log_probs, of_there.log_probs)
        # The reference is where it started.
        trained = [TrainSample(x.prompt_ids, x.token_ids, x.log_probs, 1.0) for x in samples[0]]
        player._config = player._config.with_changes({"mini_batches": 1})
        assert abs(player.learn(trained, 2)["kl_ref"]) < 1e-6
        assert player.learn(trained, 3)["kl_ref"] > 1e-6


@pytest.mark.parametrize("frozen", ["", "code", "test"])
def test_adapters_lie_on_the_base_that_another_player_names(whole, config, exported, tmp_path, frozen):
    (tmp_path / "link").symlink_to(config.test.model)
    config.code.model, config.test.model, config.frozen = str(exported / "code"), str(tmp_path / "link"), frozen
    policies = assemble(validate(config)).policies
    in_base = [jax.tree.leaves(player.base) for player in policies.values()]
    assert all(one is other for one, other in zip(*in_base, strict=True))
    (again,) = policies["code"].generate([Request("q", (5, 6, 7), 0, 1)], stream="again", temperature=0.0)
    (sample,) = whole.trainer._policies["code"].generate(
        [Request("q", (5, 6, 7), 0, 1)], stream="again", temperature=0.0
    )
    np.testing.assert_array_equal(again.log_probs, sample.log_probs)
    assert policies["code"].learns == (frozen != "code")


def other_vocabulary(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"11"', '"eleven"'))


def test_players_on_one_base_have_one_vocabulary(config, exported, tmp_path):
    config.code.model = str(shutil.copytree(exported / "code", tmp_path / "code"))
    assemble(validate(config))
    other_vocabulary(tmp_path / "code")
    with pytest.raises(BadInput, match=r"have one base, \S+, and two vocabularies: token \d+ is '11' in \S+ alone"):
        assemble(validate(config))


def test_adapters_that_do_not_fit_are_refused(config, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface.StoredTensors, "place", None)  # nothing is loaded before
    from_adapters(config, exported)
    config.test.lora.rank = 8
    with pytest.raises(
        BadInput, match=r"config\.test\.lora has rank 8 and alpha 8, but the adapters in \S+/test have rank 4"
    ):
        assemble(validate(config))
    config.test.lora.rank, config.test.lora.alpha = 0, 32.0
    with pytest.raises(BadInput, match=r"config\.test\.lora has rank 0 and alpha 32, but the adapters in"):
        assemble(validate(config))
    config.test.lora.rank, config.test.lora.alpha = 4, 4.0
    with pytest.raises(BadInput, match=r"rank 4 and alpha 4, but the adapters in \S+ have rank 4 and alpha 8"):
        assemble(validate(config))
    config.test.lora.alpha, config.test.model = 8.0, str(shutil.copytree(exported / "test", tmp_path / "test"))
    there = json.loads((tmp_path / "test" / "adapter_config.json").read_text())
    (tmp_path / "test" / "adapter_config.json").write_text(json.dumps(there | {"base_model_name_or_path": "on/hub"}))
    assert Start(config.test.model).base.place == there["base_model_name_or_path"]  # base.json still has the folder
    (tmp_path / "test" / "base.json").unlink()
    for name, complaint in (
        ("", "'', where no model is; it must be the base's folder or URL"),
        ("Qwen/Qwen2.5-Coder-0.5B", "'Qwen/Qwen2.5-Coder-0.5B', where no model is"),
        (str(exported / "code"), "'.*', where no model is"),
        ("hdfs2://there", "'hdfs2://there': hdfs2://there cannot be opened"),
    ):
        changed = there | {"base_model_name_or_path": name}
        (tmp_path / "test" / "adapter_config.json").write_text(json.dumps(changed))
        with pytest.raises(BadInput, match=rf"test/adapter_config.json: base_model_name_or_path is {complaint}"):
            assemble(validate(config))
    (tmp_path / "test" / "adapter_config.json").write_text(json.dumps(there))
    (tmp_path / "test" / "base.json").write_text(json.dumps({"checksum": "another"}))
    with pytest.raises(BadInput, match=r"base.json: the adapters belong to a base with checksum another, and \S+ has "):
        assemble(validate(config))


def test_what_adapters_cannot_do_is_told(config, micro_config, run, tmp_path):
    with pytest.raises(BadInput, match=r"--merge is for adapters: all weights of the code policy .* have learned"):
        export(run, "code", "last", tmp_path / "out", "float32", Hosts(), merge=True)
    config.code.lora.rank = 0
    with pytest.raises(BadInput, match=r"config.code.lora.alpha is 8.0; it must be 32.0: it is read only where lora"):
        validate(config)
    config.code.lora.rank, config.code.advantage = 4, "gae"
    with pytest.raises(BadInput, match=r"config.code.lora.rank is 4; it must be 0: advantage is gae"):
        validate(config)
