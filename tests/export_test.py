"""Exported folders against the run they come from, and transformers."""

import json

import jax
import numpy as np
import pytest

from codea1.assembly import device_mesh
from codea1.data.tokenizer import load_tokenizer
from codea1.errors import BadInput
from codea1.export import export
from codea1.models import huggingface
from codea1.player import Player
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder


@pytest.fixture
def run(micro_config, tmp_path) -> RunFolder:
    """A run whose two policies have moved away from where they started, each its own way."""
    folder = RunFolder.open(str(tmp_path / "run"), micro_config.to_dict())
    tokenizer = load_tokenizer(micro_config.code.model)
    mesh = device_mesh(micro_config)
    states = {name: Player(name, micro_config, mesh, tokenizer).state for name in ("code", "test")}
    checkpoints = Checkpoints(folder.checkpoints, keep_last=2, keep_best=1)
    for step, factor in ((3, 1.5), (6, 2.5)):
        moved = {
            name: jax.tree.map(lambda x, by=by: x * by if x.ndim else x, state)
            for (name, state), by in zip(states.items(), (factor, -factor), strict=True)
        }
        checkpoints.save(step, moved, {}, score=-float(step))
    checkpoints.close()
    return folder


def test_each_policy_of_each_step_leaves_with_its_own_weights(run, micro_config, tmp_path):
    _, start = huggingface.load(micro_config.code.model)
    wanted = {("code", "last"): 2.5, ("test", "last"): -2.5, ("code", "best"): 1.5, ("test", "3"): -1.5}
    for (player, step), factor in wanted.items():
        output = tmp_path / f"{player}_{step}"
        export(run, player, step, output, "float32")
        config, params = huggingface.load(output)
        assert config.dtype == config.param_dtype == np.float32
        jax.tree.map(lambda x, y, by=factor: np.testing.assert_array_equal(x, y * np.float32(by)), params, start)


def test_transformers_loads_an_export_and_says_the_same(run, micro_config, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    export(run, "code", "last", tmp_path / "out", "bfloat16")
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
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
        export(run, "code", "4", tmp_path / "out", "bfloat16")
    golden = RunFolder(run.path, run.config | {"method": "golden"})
    with pytest.raises(BadInput, match="no test policy"):
        export(golden, "test", "last", tmp_path / "out", "bfloat16")
    assert not (tmp_path / "out").exists()
