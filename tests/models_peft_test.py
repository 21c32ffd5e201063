"""Adapters in PEFT's folders: what is saved is what is loaded, PEFT agrees, and a wrong folder is refused by name."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import load_file, save_file

from codea1.lab import model_writer
from codea1.models import huggingface, peft
from codea1.runtime.errors import BadInput
from tests.model_folders import load, transformers_model
from tests.models_qwen2_test import MOE, QWEN3, SMALL, TOKENS, make_forward, positions, write_checkpoint

RANK, ALPHA = 3, 12.0
BASE = peft.Base("base", "fits")
MODULES = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
PRODUCTS = {  # of the halves, and of which letters
    "attention.q": "LDr,LrHh->LDHh",
    "attention.k": "LDr,LrKh->LDKh",
    "attention.v": "LDr,LrKh->LDKh",
    "attention.o": "LHhr,LrD->LHhD",
    "mlp.gate": "LDr,LrF->LDF",
    "mlp.up": "LDr,LrF->LDF",
    "mlp.down": "LFr,LrD->LFD",
}


def draw(config, layers=PRODUCTS):
    """Adapters for the linear layers named, all of them by default, as numpy arrays."""
    rng = np.random.default_rng(3)
    sizes = {
        **{"L": config.num_layers, "D": config.hidden_size, "H": config.num_heads, "K": config.num_kv_heads},
        **{"h": config.head_dim, "F": config.intermediate_size, "r": RANK},
    }
    drawn = {}
    for layer in layers:
        for half, letters in zip("ab", PRODUCTS[layer].split("->")[0].split(","), strict=True):
            shape = [sizes[letter] for letter in letters]
            drawn[f"layers.{layer}_lora_{half}"] = rng.normal(0, 0.2, shape).astype(np.float32)
    return unflatten_dict(drawn, sep=".")


def added(params, adapters, scale):
    """The parameters with the adapters in them, by a hand that shares nothing with the code."""
    params, halves = flatten_dict(params, sep="."), flatten_dict(adapters, sep=".")
    for layer, product in PRODUCTS.items():
        if f"layers.{layer}_lora_a" in halves:
            a, b = (halves[f"layers.{layer}_lora_{half}"] for half in "ab")
            kernel = params[f"layers.{layer}_kernel"]
            params[f"layers.{layer}_kernel"] = kernel + scale * np.einsum(product, a, b)
    return unflatten_dict(params, sep=".")


def placed(folder, config, checksum=BASE.checksum, dtype="float32", **kwargs):
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    shardings = jax.tree.map(lambda _: here, draw(config))
    return jax.device_get(peft.Adapters(folder).place(config, checksum, shardings, dtype, **kwargs))


def logits(config, params):
    return make_forward(config)(params, TOKENS, positions(TOKENS))[0]


def equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture
def base(tmp_path):
    write_checkpoint(tmp_path / "base", SMALL)
    return tmp_path / "base"


@pytest.fixture
def folder(tmp_path):
    model_writer.save_adapters(tmp_path / "adapters", draw(SMALL), alpha=ALPHA, base=BASE)
    return tmp_path / "adapters"


@pytest.mark.parametrize("config", [SMALL, QWEN3])
def test_saved_adapters_load_bit_exact(config, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("{}")  # may be there before
    model_writer.save_adapters(tmp_path, jax.device_put(draw(config)), alpha=ALPHA, base=BASE)
    found = peft.Adapters(tmp_path)
    assert (found.rank, found.alpha, found.base) == (RANK, ALPHA, BASE)
    equal(placed(tmp_path, config), draw(config))
    names = [path.name for path in tmp_path.iterdir()]
    assert {*names} == {"adapter_config.json", "adapter_model.safetensors", "base.json", "tokenizer_config.json"}
    with pytest.raises(BadInput, match=r"the folder holds adapter_config\.json"):
        model_writer.save_adapters(tmp_path, draw(config), alpha=ALPHA, base=BASE)
    with pytest.raises(BadInput, match=r"the folder holds adapter_config\.json"):
        model_writer.save(tmp_path, config, {})


def test_adapters_are_stored_in_float32_and_placed_in_any_dtype(tmp_path):
    halves = jax.tree.map(lambda x: jnp.asarray(x, "bfloat16"), draw(SMALL))
    model_writer.save_adapters(tmp_path, halves, alpha=ALPHA, base=BASE)
    assert {x.dtype.name for x in load_file(tmp_path / "adapter_model.safetensors").values()} == {"float32"}
    equal(placed(tmp_path, SMALL, dtype="bfloat16"), halves)


def test_linear_layers_without_adapters_get_zeros_or_what_stands_in(tmp_path):
    model_writer.save_adapters(tmp_path, draw(SMALL, ["attention.q", "attention.v"]), alpha=ALPHA, base=BASE)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"] == ["q_proj", "v_proj"]
    ones = jax.tree.map(np.ones_like, draw(SMALL))
    for absent, value in (None, 0), (ones, 1):
        found = flatten_dict(placed(tmp_path, SMALL, absent=absent), sep=".")
        for path, there in flatten_dict(draw(SMALL, ["attention.q", "attention.v"]), sep=".").items():
            np.testing.assert_array_equal(found.pop(path), there)
        assert len(found) == 10
        assert all(np.all(x == value) for x in found.values())


@pytest.mark.parametrize(
    ("changes", "factors"),  # of the second halves, layer by layer; 1 where none is named
    [
        ({"use_rslora": True}, {}),
        ({"alpha_pattern": {"q_proj": 48, "_proj": 1}}, {"attention.q": [4, 4]}),  # a whole name, not its end
        (
            {"alpha_pattern": {"model.layers.1.mlp.up_proj": 6, "[ud].*_proj": 24}},
            {"mlp.up": [2, 0.5], "mlp.down": [2, 2]},
        ),
        ({"alpha_pattern": {"o_proj": 36}, "use_rslora": True}, {"attention.o": [3 * RANK**0.5] * 2}),
        ({"alpha_pattern": {}, "use_rslora": False}, {}),
    ],
)
def test_what_peft_scales_in_another_way_adds_the_same(changes, factors, folder):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    ones = [RANK**0.5] * 2 if changes.get("use_rslora") else [1, 1]
    expected = flatten_dict(draw(SMALL), sep=".")
    for layer in PRODUCTS:
        half = expected[f"layers.{layer}_lora_b"]
        half *= np.reshape(factors.get(layer, ones), (-1, *[1] * (half.ndim - 1))).astype(np.float32)
    found = flatten_dict(placed(folder, SMALL), sep=".")
    for name, half in expected.items():
        np.testing.assert_allclose(found[name], half, rtol=1e-6)


def test_what_a_configuration_leaves_out_is_what_peft_takes(folder):
    path = folder / "adapter_config.json"
    needed = ("peft_type", "target_modules", "base_model_name_or_path")
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key in needed}))
    assert (peft.Adapters(folder).rank, peft.Adapters(folder).alpha) == (8, 8.0)


@pytest.mark.parametrize("max_shard_bytes", [8000, 1 << 30])
def test_a_checksum_tells_one_base_from_another(max_shard_bytes, base, bucket):
    _, params = load(base)
    found = []
    for name, change in ("a", 0), ("b", 0), ("c", 1e-3):
        changed = params | {"embedding": params["embedding"] + np.float32(change)}
        folders = base.parent / name, f"{bucket}/{name}", f"memory:/{base.parent}/{max_shard_bytes}/{name}"
        for folder in folders:
            model_writer.save(folder, SMALL, changed, max_shard_bytes=max_shard_bytes)
        found.append({huggingface.Checkpoint(folder).checksum() for folder in folders})
    assert [len(each) for each in found] == [1, 1, 1]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_merging_adds_the_scaled_product_and_rounds_once(dtype, base):
    _, params = load(base)
    params, adapters = jax.tree.map(lambda x: x.astype(dtype), params), draw(SMALL)
    exact = flatten_dict(added(jax.tree.map(lambda x: x.astype(np.float64), params), adapters, 4.0), sep=".")
    error = 2.0**-8 if dtype == "bfloat16" else 1e-6
    for merge in model_writer.merged, jax.jit(model_writer.merged):
        found = jax.device_get(flatten_dict(merge(params, adapters, 4.0), sep="."))
        assert {x.dtype.name for x in found.values()} == {dtype}
        for path, there in flatten_dict(params, sep=".").items():
            np.testing.assert_allclose(found[path].astype(np.float64), exact[path], error, 1e-6)
            assert np.array_equal(found[path], there) == ("kernel" not in path)


@pytest.mark.parametrize("config", [SMALL, QWEN3])
@pytest.mark.filterwarnings("error:Unexpected keyword arguments")
def test_peft_loads_what_is_saved(config, tmp_path):
    torch, library = pytest.importorskip("torch"), pytest.importorskip("peft")
    write_checkpoint(tmp_path / "base", config)
    checksum = huggingface.Checkpoint(tmp_path / "base").checksum()
    model_writer.save_adapters(
        tmp_path / "ours", draw(config), alpha=ALPHA, base=peft.Base(str(tmp_path / "base"), checksum)
    )
    model = library.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float32).eval()
    with torch.no_grad():
        theirs = model(torch.tensor(TOKENS)).logits.numpy()
    _, params = load(tmp_path / "base")
    merged = added(params, draw(config), ALPHA / RANK)
    np.testing.assert_allclose(logits(config, merged), theirs, rtol=1e-5, atol=1e-5)
    assert np.abs(logits(config, params) - theirs).max() > 0.1
    # Their merged weights are ours, but for the order of a sum.
    model.merge_and_unload().save_pretrained(tmp_path / "merged")
    ours = model_writer.merged(params, draw(config), ALPHA / RANK)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), ours, load(tmp_path / "merged")[1])


@pytest.mark.parametrize(
    ("modules", "more"),
    [
        *((modules, {}) for modules in (sorted(MODULES), "all-linear", None)),
        ("all-linear", {"use_rslora": True}),
        ("all-linear", {"alpha_pattern": {"layers.1.mlp.up_proj": 2, "up_proj": 3, "q_proj": 1.5}}),
    ],
)
def test_what_peft_saves_is_loaded(modules, more, base, tmp_path):
    torch, library = pytest.importorskip("torch"), pytest.importorskip("peft")
    torch.manual_seed(0)
    names = {"target_modules": modules, "task_type": "CAUSAL_LM"}
    options = library.LoraConfig(r=4, lora_alpha=6, lora_dropout=0.1, **names, **more)
    model = library.get_peft_model(transformers_model(base), options).eval()
    for name, half in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(half, std=0.2)
    with torch.no_grad():
        theirs = model(torch.tensor(TOKENS)).logits.numpy()
    model.save_pretrained(tmp_path / "theirs")
    found = peft.Adapters(tmp_path / "theirs")
    assert (found.rank, found.alpha, found.base) == (4, 6.0, peft.Base(str(base), None))
    ours = placed(tmp_path / "theirs", SMALL, checksum="any")
    assert np.any(ours["layers"]["mlp"]["gate_lora_b"]) == (modules is not None)
    _, params = load(base)
    merged = model_writer.merged(params, ours, found.alpha / found.rank)
    np.testing.assert_allclose(logits(SMALL, merged), theirs, rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3', only 'LORA' is supported"),
        ({"task_type": "SEQ_CLS"}, "task_type is 'SEQ_CLS', only 'CAUSAL_LM'"),
        ({"use_dora": True}, "use_dora is True, which is not supported"),
        ({"alpha_pattern": {"q_proj": "8"}}, "q_proj must be a number, got '8'"),
        ({"alpha_pattern": {"(": 8}}, r"alpha_pattern is \{'\(': 8\}, no numbers by names of modules"),
        ({"alpha_pattern": {"q_proj": 8}, "lora_alpha": 0}, "lora_alpha must not be 0 where there is an alpha_pattern"),
        ({"rank_pattern": {"q_proj": 4}}, r"rank_pattern is \{'q_proj': 4\}, which is not"),
        ({"bias": "lora_only"}, "bias is 'lora_only', only 'none' is supported"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa', only True or 'gaussian' or 'orthogonal' is"),
        ({"of_a_later_version": "on"}, "of_a_later_version is 'on', which is not supported"),
        ({"r": 0}, "r must be at least 1, got 0"),
        ({"target_modules": ".*_proj"}, r"target_modules is '\.\*_proj', it must list"),
        ({"target_modules": ["q_proj", "lm_head"]}, r"target_modules is \['q_proj', 'lm_head'\], it must list"),
    ],
)
def test_a_configuration_that_means_something_else_is_refused(changes, complaint, folder):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(BadInput, match=rf"^{path}: {complaint}"):
        peft.Adapters(folder)


A = "base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda t: t.pop(A), f"tensor {A} is missing"),
        (lambda t: [t.pop(name) for name in [*t] if ".layers.1." in name], r"tensor \S+ is missing \(14 such in all\)"),
        (lambda t: t.update({A: t[A][:2]}), rf"tensor {A} has shape \(2, 32\), it must have \(3, 32\)"),
        (lambda t: t.update({A: t[A].astype(np.int8)}), f"tensor {A} has dtype I8"),
        (lambda t: t.update({A.replace(".1.", ".2."): t[A]}), r"tensor \S+\.layers\.2\.\S+ is not part of the model"),
        (lambda t: t.clear(), "there are no tensors"),
    ],
)
def test_wrong_tensors_are_refused(edit, complaint, folder):
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)
    with pytest.raises(BadInput, match=rf"^{path}: {complaint}"):
        placed(folder, SMALL)


def test_adapters_of_experts_are_refused(folder):
    with pytest.raises(BadInput, match="target_modules lists down_proj, gate_proj, up_proj, but a mixture of experts"):
        placed(folder, MOE)


def test_adapters_of_another_base_are_refused(folder):
    said = r"adapters/base\.json: .* belong to a base with checksum fits, and base has other\.$"
    with pytest.raises(BadInput, match=said):
        placed(folder, SMALL, checksum="other")
    deeper = dataclasses.replace(SMALL, num_layers=3)
    with pytest.raises(BadInput, match=r"tensor \S+\.layers\.2\.\S+ is missing"):
        placed(folder, deeper)
    (folder / "base.json").unlink()
    equal(placed(folder, SMALL, checksum="other"), draw(SMALL))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("adapter_config.json", None, "there is no such file"),
        ("adapter_config.json", "{", "is not JSON"),
        ("base.json", "[]", "is not a JSON object"),
        ("adapter_model.safetensors", "short", "is not a whole safetensors file"),
    ],
)
def test_broken_files_are_refused(name, content, complaint, folder):
    path = folder / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match=f"^{path}: {complaint}"):
        placed(folder, SMALL)
