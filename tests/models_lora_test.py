"""Adapters: their gradients against PEFT's and against those of all weights, and what training and generation hold."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from codea1.lab import model_writer
from codea1.lab.aot import work
from codea1.lab.model_writer import merged
from codea1.learn.batch import RowLayout, TrainSample, abstract_batch, micro_batches, row_shapes, to_mesh
from codea1.learn.log_probs import model_log_probs
from codea1.learn.losses import ObjectiveConfig
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.update import PolicyLoss, Update, abstract_state, init_state
from codea1.models import flops, peft, qwen2
from codea1.models.config import Qwen2Config
from codea1.models.lora import initialise_adapters, join, split
from codea1.rollout.engine import Engine, Request
from codea1.runtime.hosts import stable_hash
from codea1.sharding import TRAIN_RULES, laid_out, make_mesh, param_shardings, to_host
from tests.model_folders import transformers_model
from tests.tiny_policy import CONFIG as TINY

CONFIG = dataclasses.replace(TINY, lora_rank=4, lora_alpha=6.0)
SCALE = 6.0 / 4
QWEN3 = dataclasses.replace(CONFIG, head_dim=32, qkv_bias=False, qk_norm=True)
MOE = dataclasses.replace(QWEN3, intermediate_size=16, num_experts=32, experts_per_token=4)
MANY = dataclasses.replace(MOE, num_experts=128, experts_per_token=8, tie_word_embeddings=False)
TOKENS = np.random.default_rng(1).integers(0, TINY.vocab_size, (2, 11)).astype(np.int32)
WEIGHTS = np.random.default_rng(2).normal(size=TOKENS.shape).astype(np.float32)  # of the log-probs in a loss
MESHES = {"one": (1, 1, 1), "eight": (1, 4, 2), "replicas": (2, 2, 2)}


def uneven_params(config: Qwen2Config) -> qwen2.Params:
    """Parameters of which each matters; B is not zero."""

    def one(path: tuple, x: jax.Array) -> jax.Array:
        return 0.1 * jax.random.normal(jax.random.key(stable_hash(jax.tree_util.keystr(path))), x.shape)

    params = jax.tree.map(lambda p: p * 4 if p.ndim > 1 else p, qwen2.initialise(config, jax.random.key(1)))
    adapters, base = split(params)
    return join(jax.tree_util.tree_map_with_path(one, adapters), base)


def loss_of(config: Qwen2Config, params: qwen2.Params) -> jax.Array:
    (log_probs, _), _ = model_log_probs(qwen2.abstract(config)[0], 4, params, jnp.array(TOKENS), 1.0)
    return jnp.sum(WEIGHTS * log_probs)


def test_adapters_begin_as_those_of_peft_do_and_leave_the_base_as_it_is():
    key, here = jax.random.key(1), jax.sharding.SingleDeviceSharding(jax.devices()[0])
    adapters, base = split(qwen2.initialise(CONFIG, key))
    jax.tree.map(np.testing.assert_array_equal, base, qwen2.initialise(TINY, key))
    alone = initialise_adapters(CONFIG, key, jax.tree.map(lambda _: here, adapters))
    jax.tree.map(np.testing.assert_array_equal, alone, adapters)
    down = adapters["layers"]["mlp"]["down_lora_a"]  # of 64 inputs
    assert 0.9 / 8 < np.abs(down).max() <= 1 / 8
    assert not np.any(adapters["layers"]["attention"]["o_lora_b"])
    assert {*split(TINY_PARAMS := qwen2.initialise(TINY, key))[0]} == {*TINY_PARAMS}  # all train where there are none


def test_gradients_are_those_of_all_weights_by_the_chain_rule():
    adapters, base = split(uneven_params(CONFIG))
    whole = merged(base, adapters, SCALE)
    of_adapters = jax.jit(jax.value_and_grad(lambda adapters: loss_of(CONFIG, join(adapters, base))))
    loss, found = of_adapters(adapters)
    expected_loss, of_kernels = jax.jit(jax.value_and_grad(partial(loss_of, TINY)))(whole)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    for part, kernels in of_kernels["layers"].items():
        for name in (name.removesuffix("_kernel") for name in kernels if name.endswith("_kernel")):
            a, b = (adapters["layers"][part][f"{name}_lora_{half}"] for half in "ab")
            for layer in range(TINY.num_layers):
                bar = kernels[f"{name}_kernel"][layer].reshape(a[layer].size // 4, -1)
                a_IR, b_RO = a[layer].reshape(-1, 4), b[layer].reshape(4, -1)
                for half, expected in (("a", SCALE * bar @ b_RO.T), ("b", SCALE * a_IR.T @ bar)):
                    mine = found["layers"][part][f"{name}_lora_{half}"][layer].reshape(expected.shape)
                    # Roundings of sums in another order are of the size of the largest; they differ between processors.
                    np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=2e-5 * np.abs(expected).max())


def test_nothing_is_computed_for_the_gradients_of_the_base():
    adapters, base = split(uneven_params(CONFIG))
    gradient = jax.jit(jax.grad(lambda adapters, base: loss_of(CONFIG, join(adapters, base))))
    products = re.findall(r"= f32\[([\d,]+)\]\S* dot\(", gradient.lower(adapters, base).compile().as_text())
    D, F, V = TINY.hidden_size, TINY.intermediate_size, TINY.vocab_size
    assert f"{D},4" in products
    assert not {f"{D},{F}", f"{F},{D}", f"{D},{D}", f"{V},{D}"} & {*products}


@pytest.mark.parametrize("config", [CONFIG, MOE, MANY], ids=["mlp", "32 experts", "128 experts"])
def test_loss_log_probs_and_gradients_are_those_of_peft(config, tmp_path):
    torch, theirs = pytest.importorskip("torch"), pytest.importorskip("peft")
    params = uneven_params(config)
    adapters, base = split(params)
    model_writer.save(tmp_path / "base", dataclasses.replace(config, lora_rank=0), base)
    model_writer.save_adapters(tmp_path / "adapters", adapters, alpha=6.0, base=peft.Base(str(tmp_path / "base"), None))
    model = theirs.PeftModel.from_pretrained(
        transformers_model(tmp_path / "base"), tmp_path / "adapters", is_trainable=True
    )
    tokens = torch.tensor(TOKENS, dtype=torch.long)
    every = torch.log_softmax(model(tokens).logits[:, :-1], -1)
    expected = torch.gather(every, 2, tokens[:, 1:, None])[..., 0]
    (torch.tensor(WEIGHTS[:, 1:]) * expected).sum().backward()
    (log_probs, _), _ = model_log_probs(qwen2.abstract(config)[0], 4, params, jnp.array(TOKENS), 1.0)
    np.testing.assert_allclose(log_probs[:, 1:], expected.detach().numpy(), atol=1e-5, rtol=1e-5)
    found = jax.grad(lambda adapters: loss_of(config, join(adapters, base)))(adapters)
    compared = 0
    for name, weight in model.named_parameters():
        if match := re.search(r"layers\.(\d+)\.(self_attn|mlp)\.(\w+)_proj\.lora_([AB])", name):
            layer, part, kernel, half = int(match[1]), match[2].replace("self_attn", "attention"), match[3], match[4]
            mine = np.asarray(found["layers"][part][f"{kernel}_lora_{half.lower()}"][layer])
            mine = (mine.reshape(-1, 4) if half == "A" else mine.reshape(4, -1)).T
            np.testing.assert_allclose(mine, weight.grad.numpy(), atol=2e-5 * weight.grad.abs().max().item(), rtol=1e-4)
            compared += 1
    assert compared == 2 * (4 if config.num_experts else 7) * TINY.num_layers


def test_the_update_of_adapters_counts_no_gradient_of_the_base():
    whole, adapted = (flops.model_flops(config, 8, 128) for config in (TINY, CONFIG))
    base = 8 * 128 * (TINY.num_layers * flops.layer_weights(TINY) + flops.head_weights(TINY))
    assert whole - adapted == 2 * base - 6 * 8 * 128 * work.trained_weights(CONFIG)
    adapters, _ = split(nnx.to_pure_dict(qwen2.abstract(CONFIG)[1]))
    assert work.trained_weights(CONFIG) == sum(x.size for x in jax.tree.leaves(adapters))


def drawn_routes(config: Qwen2Config, rng: np.random.Generator) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Experts of three and five tokens, where the model has some."""
    if not config.routes:
        return None, None
    layers, chosen = config.routes.shape
    order = rng.permuted(np.tile(np.arange(config.num_experts, dtype=np.uint8), (8, layers, 1)), axis=-1)
    return order[:3, ..., :chosen], order[3:, ..., :chosen]


def compute(config: Qwen2Config, replica: int, fsdp: int, tensor: int) -> dict:
    """Two updates and some samples on a mesh, and what the update sends between its devices."""
    mesh = make_mesh(replica, fsdp, tensor, devices=jax.devices()[: replica * fsdp * tensor])
    graphdef, declared = qwen2.abstract(config)
    shardings = param_shardings(declared, mesh, TRAIN_RULES)
    adapters, base = split(jax.jit(lambda params: params, out_shardings=shardings)(uneven_params(config)))
    optimizer = AdamWConfig()
    state = init_state(adapters, optimizer)
    rng, shapes = np.random.default_rng(0), row_shapes((), 12, 4, multiple=4)
    rows = rng.integers(1, TINY.vocab_size, (8, 9)).tolist()
    samples = [
        TrainSample(row[:4], row[4:], rng.normal(-3, 1, 5), n - 3.0, 0.0, *drawn_routes(config, rng))
        for n, row in enumerate(rows)
    ]
    batches = to_mesh(micro_batches(samples, RowLayout(shapes, "token-mean", 8, pad_id=0)), mesh)
    loss = PolicyLoss(graphdef, ObjectiveConfig(kl_coefficient=0.0), 512)
    abstract = [abstract_batch(shape, mesh, routes=config.routes) for shape in shapes]
    frozen = laid_out(base, split(shardings)[1])
    update = Update(loss, optimizer, abstract_state(adapters, optimizer), abstract, frozen=frozen)
    reports = []
    for _ in range(2):
        state, report = update(state, batches, 1e-2, base)
        reports.append(report.metrics())
    lengths = {"max_prompt_length": 6, "max_response_length": 6}
    engine = Engine(graphdef, config, mesh, slots=8, stop_ids=(3,), pad_id=0, **lengths)
    requests = [Request(f"q{row}", tuple(range(4, 5 + row)), 0, 2) for row in range(4)]
    params = join(state.params, base)
    drawn = list(engine.generate(params, requests, seed=0, stream="code", step=1, temperature=1.0))
    (accumulate,) = (each for each in update.functions if each.kind == "accumulate")
    sent = re.findall(r"= f32\[([\d,]+)\]\S* (all-reduce|reduce-scatter)\(", accumulate.compiled.as_text())
    return {
        "reports": reports,
        "adapters": {jax.tree_util.keystr(p): x.tolist() for p, x in jax.tree.leaves_with_path(to_host(state.params))},
        "sampled": [[*sample.token_ids] for sample in drawn],
        "sent": [shape for shape, _ in sent],
    }


@pytest.fixture(scope="module")
def on_meshes() -> dict:
    root = Path(__file__).parents[1]
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("mesh", ["eight", "replicas"])
@pytest.mark.parametrize("model", ["mlp", "moe"])
def test_eight_devices_are_one(on_meshes, model: str, mesh: str):
    found, one = on_meshes[f"{model} {mesh}"], on_meshes[f"{model} one"]
    for mine, expected in zip(found["reports"], one["reports"], strict=True):
        for name in expected.keys() - ({"expert_balance"} if mesh == "replicas" else {}):  # is each replica's own
            np.testing.assert_allclose(mine[name], expected[name], rtol=1e-3, atol=2e-5, err_msg=name)
    for name, expected in one["adapters"].items():
        np.testing.assert_allclose(found["adapters"][name], expected, atol=1e-3, err_msg=name)
    assert sum(mine == other for mine, other in zip(found["sampled"], one["sampled"], strict=True)) >= 7


def test_no_gradient_of_the_base_is_sent(on_meshes):
    ranks = {str(CONFIG.lora_rank)}
    for shape in on_meshes["mlp eight"]["sent"]:
        sizes = shape.split(",")
        assert len(sizes) < 2 or ranks & {*sizes} or np.prod([*map(int, sizes)]) <= TOKENS.size * 64, shape


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/codea1/jax-tests"))
    models = {"mlp": CONFIG, "moe": MOE}.items()
    print(json.dumps({f"{m} {name}": compute(model, *sizes) for m, model in models for name, sizes in MESHES.items()}))
