"""Exported folders against the run they come from, and transformers."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from codea1.data.tokenizer import load_tokenizer
from codea1.lab.export import export
from codea1.models.files import ModelFolder
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.training.setup import assemble
from codea1.training.stored_config import config_of
from tests.model_folders import load


def test_each_policy_of_each_step_leaves_with_its_own_weights(run, micro_config, tmp_path):
    _, start = load(micro_config.code.model)
    wanted = {("code", "last"): 2.5, ("test", "last"): -2.5, ("code", "best"): 1.5, ("test", "3"): -1.5}
    for (player, step), factor in wanted.items():
        output = tmp_path / f"{player}_{step}"
        export(run, player, step, output, "float32", Hosts())
        config, params = load(output)
        assert config.dtype == config.param_dtype == np.float32
        jax.tree.map(lambda x, y, by=factor: np.testing.assert_array_equal(x, y * np.float32(by)), params, start)


def test_one_policy_of_both_roles_is_either_and_a_frozen_one_is_where_it_was(run, tmp_path):
    alone = RunFolder(run.path, run.config | {"method": "self_play"})
    for role in ("code", "test"):
        export(alone, role, "last", tmp_path / role, "float32", Hosts())
    jax.tree.map(np.testing.assert_array_equal, *(load(tmp_path / role)[1] for role in ("code", "test")))
    frozen = RunFolder(run.path, run.config | {"frozen": "test"})
    with pytest.raises(BadInput, match=f"the test policy of .* is frozen: it still is {run.config['test']['model']}"):
        export(frozen, "test", "last", tmp_path / "frozen", "float32", Hosts())


def test_an_export_holds_what_loaders_read_and_nothing_else(run, micro_config, tmp_path):
    source, output = Path(micro_config.code.model), tmp_path / "out"
    export(run, "code", "last", output, "bfloat16", Hosts())
    tokenizer = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    model = {"config.json", "generation_config.json", "model.safetensors"}
    assert {path.name for path in output.iterdir()} == tokenizer | model
    assert all((output / name).read_bytes() == (source / name).read_bytes() for name in tokenizer)
    sampling = json.loads((output / "generation_config.json").read_text())
    # By default transformers would sample among 50 tokens.
    assert [sampling[name] for name in ("do_sample", "temperature", "top_k", "top_p")] == [True, 1.0, 0, 1.0]


def test_a_tokenizer_of_the_older_format_leaves_whole(run, micro_config, tmp_path):
    pytest.importorskip("torch")
    from transformers import AutoTokenizer

    older, output = tmp_path / "older", tmp_path / "out"
    shutil.copytree(micro_config.code.model, older)
    settings = json.loads((older / "tokenizer_config.json").read_text())
    settings["chat_template"] = (older / "chat_template.jinja").read_text()  # as on the hub in Qwen2.5's folders
    (older / "tokenizer_config.json").write_text(json.dumps(settings))
    (older / "chat_template.jinja").unlink()
    for name, content in (("vocab.json", "{}"), ("merges.txt", ""), ("README.md", ""), ("LICENSE", "")):
        (older / name).write_text(content)
    moved = run.config | {"code": run.config["code"] | {"model": str(older)}}
    export(RunFolder(run.path, moved), "code", "last", output, "bfloat16", Hosts())
    names = {path.name for path in output.iterdir()}
    assert names >= {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"}
    assert not names & {"README.md", "LICENSE"}
    chat = [{"role": "user", "content": "int: if nonzero, doubled"}]
    theirs = AutoTokenizer.from_pretrained(output).apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    assert theirs == load_tokenizer(micro_config.code.model).encode_chat(chat)


def test_an_export_to_a_bucket_is_that_to_a_disk(run, bucket, tmp_path):
    for output in (tmp_path / "out", f"{bucket}/exported/out"):
        export(run, "code", "last", output, "bfloat16", Hosts())
    here, there = ModelFolder(tmp_path / "out"), ModelFolder(f"{bucket}/exported/out")
    assert {name: there.read(name) for name in there.names()} == {name: here.read(name) for name in here.names()}


def test_an_export_that_fails_leaves_nothing(run, bucket, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(ModelFolder, "write_json", fail)
    for output in (tmp_path / "out", f"{bucket}/out"):
        with pytest.raises(OSError, match="the disk is full"):
            export(run, "code", "last", output, "bfloat16", Hosts())
        assert ModelFolder(output).names() == []


def test_transformers_loads_an_export_and_says_the_same(run, micro_config, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    export(run, "code", "last", tmp_path / "out", "bfloat16", Hosts())
    ours = load_tokenizer(str(tmp_path / "out"))
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    chat = [{"role": "user", "content": "int: if nonzero, doubled"}]
    prompt = ours.encode_chat(chat)
    assert theirs.apply_chat_template(chat, add_generation_prompt=True)["input_ids"] == prompt
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert model.dtype == torch.bfloat16
    assert model.generation_config.eos_token_id == list(ours.stop_ids)
    assert model.generate(torch.tensor([prompt]), max_new_tokens=2).shape[1] <= len(prompt) + 2
    stored = json.loads((tmp_path / "out" / "config.json").read_text())
    assert stored["eos_token_id"] == ours.end_id


def test_what_cannot_be_exported_is_told(run, tmp_path):
    with pytest.raises(BadInput, match="no step 4; it has 3, 6"):
        export(run, "code", "4", tmp_path / "out", "bfloat16", Hosts())
    golden = RunFolder(run.path, run.config | {"method": "golden"})
    with pytest.raises(BadInput, match="no test policy"):
        export(golden, "test", "last", tmp_path / "out", "bfloat16", Hosts())
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput, match="--output /proc/out cannot be written: "):
        export(run, "code", "last", "/proc/out", "bfloat16", Hosts())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.safetensors").write_bytes(b"half")
    with pytest.raises(BadInput, match=r"holds model\.safetensors but no model"):
        export(run, "code", "last", tmp_path / "out", "bfloat16", Hosts())


def test_a_run_paid_by_a_reward_of_its_own_is_exported_and_played_without_it(run, tmp_path):
    own = RunFolder(run.path, run.config | {"game": run.config["game"] | {"reward": "squared"}})
    export(own, "code", "last", tmp_path / "out", "bfloat16", Hosts())
    rules = assemble(config_of(own)).rules
    with pytest.raises(BadInput, match=r"the reward squared is not known here: nothing but training runs"):
        _ = rules.reward.others
