"""Checkpoints: what is saved is what is loaded, transformers agrees, and a wrong folder is refused by name."""

import dataclasses
import json

import jax
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from codea1.data.tokenizer import load_tokenizer
from codea1.lab import model_writer
from codea1.models import config_json, huggingface, qwen2
from codea1.models.config import Qwen2Config
from codea1.models.files import ModelFolder
from codea1.players.base import Start
from codea1.runtime.errors import BadInput, StorageFailed
from tests.model_folders import load, params_of

CONFIG = Qwen2Config(
    vocab_size=32,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    tie_word_embeddings=False,
    dtype="bfloat16",
    param_dtype="bfloat16",
)


def random_params(config: Qwen2Config) -> qwen2.Params:
    rng = np.random.default_rng(0)
    _, params = qwen2.abstract(config)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), nnx.to_pure_dict(params))


@pytest.fixture
def folder(tmp_path):
    model_writer.save(tmp_path, CONFIG, random_params(CONFIG))
    return tmp_path


def edit_config(folder, **changes):
    path = folder / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in raw.items() if value != "absent"}))


def edit_tensors(folder, edit):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


QWEN3 = {"qkv_bias": False, "qk_norm": True, "head_dim": 16}


@pytest.mark.parametrize(
    "changes", [{}, {"tie_word_embeddings": True}, {"param_dtype": "float32"}, {"head_dim": 16}, QWEN3]
)
def test_a_saved_checkpoint_loads_bit_exact(changes, tmp_path):
    config = dataclasses.replace(CONFIG, **changes)
    params = random_params(config)
    model_writer.save(tmp_path, config, jax.device_put(params))
    loaded_config, loaded = load(tmp_path)
    assert loaded_config == dataclasses.replace(config, dtype=config.param_dtype)
    jax.tree.map(np.testing.assert_array_equal, loaded, params)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("changes", [{}, QWEN3])
def test_transformers_loads_what_is_saved_and_writes_the_same(changes, tmp_path):
    pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    original, theirs = dataclasses.replace(CONFIG, **changes), tmp_path / "theirs"
    model_writer.save(tmp_path / "ours", original, random_params(original))
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype="auto", output_loading_info=True)
    assert not any(report[problem] for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    model.save_pretrained(theirs, max_shard_size="20KB")
    ours, written = (json.loads((f / "config.json").read_text()) for f in (tmp_path / "ours", theirs))
    of_version_4 = {"rope_theta": CONFIG.rope_theta, "torch_dtype": "bfloat16"}
    assert ours == written | of_version_4
    assert not of_version_4.keys() & written.keys()
    assert (theirs / "model.safetensors.index.json").exists()
    config, params = load(theirs)
    assert config == original
    jax.tree.map(np.testing.assert_array_equal, params, random_params(original))


@pytest.mark.parametrize("tied", [True, False])
def test_large_checkpoints_are_cut_into_numbered_files(tied, tmp_path):
    config = dataclasses.replace(CONFIG, tie_word_embeddings=tied, num_layers=12)
    model_writer.save(tmp_path, config, random_params(config), max_shard_bytes=20_000)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert len(files) > 3
    assert files == [f"model-{n:05d}-of-{len(files):05d}.safetensors" for n in range(1, len(files) + 1)]
    assert all(path.stat().st_size < 22_000 for path in tmp_path.glob("*.safetensors"))
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(x.nbytes for x in jax.tree.leaves(random_params(config)))
    for name, file in index["weight_map"].items():
        assert name in load_file(tmp_path / file)
    loaded_config, loaded = load(tmp_path)
    assert loaded_config == config
    jax.tree.map(np.testing.assert_array_equal, loaded, random_params(config))


def test_the_older_config_json_is_understood(folder):
    older = {"rope_parameters": "absent", "dtype": "absent", "rope_theta": 5e5, "torch_dtype": "float32"}
    edit_config(folder, **older, head_dim=None, max_position_embeddings=40960)
    config, _ = load(folder)
    assert config == dataclasses.replace(CONFIG, rope_theta=5e5, dtype="float32", max_positions=40960)
    assert model_writer.config_content(config, "float32")["max_position_embeddings"] == 40960


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"num_key_value_heads": None}, {"num_kv_heads": 4}),
        ({"rope_parameters": "absent", "rope_theta": "absent"}, {"rope_theta": 1e4}),
        ({"rope_parameters": {"rope_type": "default"}, "rope_theta": 5e5}, {"rope_theta": 5e5}),
        ({"rope_scaling": {"type": "default"}, "rope_theta": 1e6}, {}),  # the same by rope_parameters
        ({"rms_norm_eps": "absent"}, {"rms_norm_eps": 1e-6}),
        ({"max_position_embeddings": "absent"}, {"max_positions": 32768}),
        ({"head_dim": "absent"}, {"head_dim": 8}),
        ({"model_type": "qwen3", "head_dim": "absent"}, QWEN3 | {"head_dim": 128}),
        ({"dtype": "torch.float32"}, {"dtype": "float32", "param_dtype": "float32"}),
        ({"quantization_config": None, "layer_types": None, "rope_scaling": None}, {}),
    ],
)
def test_what_a_config_leaves_out_is_what_transformers_takes(changes, fields, folder):
    edit_config(folder, **changes)
    assert config_json.read(ModelFolder(folder)) == dataclasses.replace(CONFIG, **fields)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"model_type": "qwen3"}, "tensor model.layers.0.self_attn.k_norm.weight is missing"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"is_causal": False}, "is_causal is False, only True is supported"),  # transformers shows it later tokens
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "'yarn'"),
        ({"max_position_embeddings": "many"}, "max_position_embeddings must be an integer"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is .*only 'full_attention' is"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantization_config is \{.*gptq.*only None is"),
        (
            {"rope_scaling": {"type": "default"}, "rope_theta": 1e4},
            "10000 by rope_scaling and 1e.06 by rope_parameters",
        ),
        ({"rope_scaling": {"rope_theta": 5e5}}, "rope_theta is 500000 by rope_scaling and 1e.06 by rope_parameters"),
        ({"rope_parameters": "yarn"}, "rotary embeddings yarn are not supported"),
        ({"rms_norm_eps": None}, "rms_norm_eps must be a number, got None"),
        ({"vocab_size": "absent"}, "key vocab_size is missing"),
        ({"num_attention_heads": 0}, "num_heads must be at least 1"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"num_hidden_layers": 3}, "tensor model.layers.2.input_layernorm.weight is missing"),
        ({"tie_word_embeddings": True}, "lm_head.weight is not model.embed_tokens.weight, .*_embeddings must be false"),
        ({"vocab_size": 33}, r"tensor (lm_head|model.embed_tokens).weight has shape \(32, 32\).* \(33, 32\)"),
    ],
)
def test_a_wrong_config_is_refused(changes, complaint, folder):
    edit_config(folder, **changes)
    with pytest.raises(BadInput, match=complaint):
        load(folder)


BIAS = "model.layers.1.self_attn.k_proj.bias"
HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


def cast(dtype, part):
    return lambda t: t.update({name: x.astype(dtype) for name, x in t.items() if part in name})


@pytest.mark.parametrize(
    ("tied", "edit"),
    [
        (True, lambda t: t.update({HEAD: t[TABLE]})),  # as Qwen3-0.6B
        (True, lambda t: t.update({HEAD: t.pop(TABLE)})),
        (True, cast(np.float32, "norm")),
        (False, cast(np.float32, "layers.1.")),  # one layer of a stack
        (False, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float64)})),
    ],
)
def test_the_same_weights_are_stored_in_several_ways(tied, edit, tmp_path):
    config = dataclasses.replace(CONFIG, tie_word_embeddings=tied)
    model_writer.save(tmp_path, config, random_params(config))
    edit_tensors(tmp_path, edit)
    checkpoint = huggingface.Checkpoint(tmp_path)
    mixed = any(x.dtype == np.float32 for x in load_file(tmp_path / "model.safetensors").values())
    assert checkpoint.config.param_dtype == ("float32" if mixed else "bfloat16")
    jax.tree.map(np.testing.assert_array_equal, params_of(checkpoint), random_params(config))


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda t: t.pop(BIAS), f"tensor {BIAS} is missing"),
        (lambda t: t.update({BIAS: np.zeros(17, ml_dtypes.bfloat16)}), rf"tensor {BIAS} has shape \(17,\).* \(16,\)"),
        (lambda t: t.update({BIAS: np.zeros(16, np.int8)}), f"tensor {BIAS} has dtype I8"),
        (lambda t: t.update(surplus=np.zeros(1, ml_dtypes.bfloat16)), "tensor surplus is not part"),
        (lambda t: t.clear(), "no tensors"),
    ],
)
def test_wrong_tensors_are_refused(edit, complaint, folder):
    edit_tensors(folder, edit)
    with pytest.raises(BadInput, match=complaint):
        load(folder)


ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:26804dd49341d0\nsize 1503300328\n"
OF_A_MISSING_FILE = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
OF_TWO_FILES = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("config.json", None, r"config\.json: there is no such file"),
        ("config.json", "{", r"config\.json: is not JSON"),
        (ONE, None, r"model\.safetensors: there is no such file"),
        (ONE, POINTER, r"model\.safetensors: is a Git LFS pointer: `git lfs pull` gets"),
        (INDEX, POINTER, r"index\.json: is a Git LFS pointer"),
        (ONE, "short", r"model\.safetensors: is not a whole safetensors file"),
        (INDEX, json.dumps(OF_A_MISSING_FILE), r"model-00001-of-00002\.safetensors: there is no"),
        (INDEX, "{}", "is not an index of tensors"),
        (INDEX, '{"weight_map": {}}', "is not an index of tensors"),
        (
            INDEX,
            '{"weight_map": {"a": "../other/x.safetensors"}}',
            r"names the file '\.\./other.*not one of this folder",
        ),
        (INDEX, '{"weight_map": {"a": "/x.safetensors"}}', "names the file '/x.safetensors', which is not one"),
        (INDEX, json.dumps(OF_TWO_FILES), r"is both in one\.safetensors and in two\.safetensors"),
    ],
)
def test_broken_files_are_refused(name, content, complaint, folder):
    whole = (folder / ONE).read_bytes()
    (folder / (ONE if name == INDEX else name)).unlink()
    for other in ("one", "two"):
        (folder / f"{other}.safetensors").write_bytes(whole)
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(BadInput, match=complaint):
        load(folder)


@pytest.mark.parametrize("place", ["{tmp_path}", "memory://{tmp_path}"])
@pytest.mark.parametrize(
    ("files", "named"),
    [
        (
            ["checkpoint-500/config.json", "checkpoint-1000/config.json", "state.json"],
            "checkpoint-500, checkpoint-1000",
        ),
        (["a/config.json", "b/adapter_config.json", "c/config.json", "d/config.json"], "b, c, d"),  # the last three
        (["models--Qwen--Q/refs/main", "models--Qwen--Q/snapshots/ab1/config.json"], "models--Qwen--Q/snapshots/ab1"),
        (["refs/main", "snapshots/ab1/config.json"], "snapshots/ab1"),
        (["config.json", "checkpoint-500/config.json"], ""),
        (["adapter_config.json", "checkpoint-500/adapter_config.json"], ""),
        (["a/other.json"], ""),
    ],
)
def test_of_a_folder_of_models_the_models_are_named(place, files, named, tmp_path):
    url = place.format(tmp_path=tmp_path)
    for file in files:
        folder, _, name = f"{url}/{file}".rpartition("/")
        ModelFolder(folder).write(name, [b"{}"])
    if not named:
        ModelFolder(url).require_model_here()
        return
    for use in Start, load_tokenizer:
        with pytest.raises(
            BadInput, match=f"^{url} holds no model itself; name a folder below it that does: {named}\\.$"
        ):
            use(url)


def test_a_checkpoint_is_never_written_over_another(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(BadInput, match=r"the folder holds config\.json"):
        model_writer.save(folder, CONFIG, random_params(CONFIG))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/model"):
        with pytest.raises(BadInput, match=rf"^{tmp_path}/{place}: is not a folder\.$"):
            ModelFolder(tmp_path / place).write("config.json", [b"{}"])
    with pytest.raises(StorageFailed, match=r"^writing /dev/full failed: there is no space left \(.*\)\.$"):
        ModelFolder("/dev").write("full", [b"{}"])
