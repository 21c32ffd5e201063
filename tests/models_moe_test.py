"""A mixture of experts: its formula, routes that are given, its files, and what is refused."""

import dataclasses
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from codea1.lab import model_writer
from codea1.models import flops, moe, qwen2
from codea1.models.config import PUBLISHED, Qwen2Config
from codea1.runtime.errors import BadInput
from tests.model_folders import load
from tests.models_qwen2_test import MOE, write_checkpoint


def layer(seed: int = 0) -> tuple[np.ndarray, ...]:
    """Rows, and the router and kernels of a layer."""
    rng = np.random.default_rng(seed)
    e, D, F = MOE.num_experts, MOE.hidden_size, MOE.intermediate_size
    shapes = (4, 6, D), (D, e), (e, D, F), (e, D, F), (e, F, D)
    return tuple(
        (rng.normal(size=shape) * (shape[-2] ** -0.5 if n else 1)).astype(np.float32) for n, shape in enumerate(shapes)
    )


def every_expert(config: Qwen2Config, x_BTD, router_De, gate_eDF, up_eDF, down_eFD):
    """The formula: every expert on every token, and then those chosen."""
    weight_BTc, chosen_BTc = jax.lax.top_k(jax.nn.softmax(x_BTD @ router_De), config.experts_per_token)
    if config.norm_experts:
        weight_BTc /= weight_BTc.sum(-1, keepdims=True)
    weight_BTe = jnp.einsum("BTc,BTce->BTe", weight_BTc, jax.nn.one_hot(chosen_BTc, config.num_experts))
    hidden = jax.nn.silu(jnp.einsum("BTD,eDF->BTeF", x_BTD, gate_eDF)) * jnp.einsum("BTD,eDF->BTeF", x_BTD, up_eDF)
    return jnp.einsum("BTeF,eFD,BTe->BTD", hidden, down_eFD, weight_BTe)


def chosen(config: Qwen2Config, x_BTD, router_De, *kernels):
    weight_BTc, routing = moe.route(x_BTD, router_De, config)
    return moe.mixed(x_BTD, routing.chosen_BTc, weight_BTc, *kernels, config)


def with_gradients(function, config: Qwen2Config):
    def loss(*arrays):
        y_BTD = function(config, *arrays)
        return jnp.sum(jnp.cos(jnp.arange(y_BTD.size)).reshape(y_BTD.shape) * y_BTD), y_BTD

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3, 4), has_aux=True))


@pytest.mark.parametrize("norm_experts", [True, False])
@pytest.mark.parametrize("platform", ["cpu", "gpu"])  # blocks, and the ragged product, which a CPU has too
def test_values_and_gradients_are_those_of_the_formula(platform: str, norm_experts: bool):
    config = dataclasses.replace(MOE, platform=platform, norm_experts=norm_experts)
    found, expected = (with_gradients(function, config)(*layer()) for function in (chosen, every_expert))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5), found, expected)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_gradients_of_kernels_are_float32_where_products_are_not(platform: str):
    config = dataclasses.replace(MOE, platform=platform, dtype="bfloat16")
    _, (_, _, *gradients) = with_gradients(chosen, config)(*layer())
    _, (_, _, *expected) = with_gradients(every_expert, MOE)(*layer())
    for found, exact in zip(gradients, expected, strict=True):
        assert np.any(found != found.astype(jnp.bfloat16).astype(jnp.float32))
        assert np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)


def test_given_routes_are_taken_and_the_router_weighs_them():
    x_BTD, router_De, *_ = layer()
    all_BT = np.ones(x_BTD.shape[:2], bool)
    weight_BTc, own = moe.route(x_BTD, router_De, MOE, None, all_BT)
    same_BTc, again = moe.route(x_BTD, router_De, MOE, own.chosen_BTc, all_BT)
    assert own.chosen_BTc.dtype == np.uint8
    np.testing.assert_array_equal(again.chosen_BTc, own.chosen_BTc)
    np.testing.assert_array_equal(same_BTc, weight_BTc)
    assert not np.any(own.differs_BT | again.differs_BT)
    given_BTc = np.broadcast_to(np.array([3, 1, 30, 2], np.uint8), own.chosen_BTc.shape)
    weight_BTc, given = moe.route(x_BTD, router_De, MOE, given_BTc, all_BT)
    np.testing.assert_allclose(weight_BTc, jax.nn.softmax((x_BTD @ router_De)[..., [3, 1, 30, 2]]), rtol=1e-4)
    np.testing.assert_array_equal(given.differs_BT, np.any(np.sort(own.chosen_BTc) != [1, 2, 3, 30], axis=-1))


def test_no_expert_adds_nothing():
    x_BTD, router_De, *kernels = map(jnp.asarray, layer())
    none_BTc = np.full((*x_BTD.shape[:2], MOE.experts_per_token), 255, np.uint8)
    own_BTc = np.array(moe.route(x_BTD, router_De, MOE)[1].chosen_BTc)
    given_BTc = np.where(np.arange(x_BTD.shape[1])[:, None] < 3, own_BTc, none_BTc)
    weight_BTc, routing = moe.route(x_BTD, router_De, MOE, given_BTc)
    y_BTD = moe.mixed(x_BTD, routing.chosen_BTc, weight_BTc, *kernels, MOE)
    assert not np.any(y_BTD[:, 3:])
    np.testing.assert_array_equal(y_BTD[:, :3], chosen(MOE, x_BTD, router_De, *kernels)[:, :3])


def test_unlikely_experts_and_padding_have_gradients():
    x_BTD, router_De, *_ = layer()
    given_BTc = np.broadcast_to(np.where(np.arange(6) < 3, 7, 255)[:, None], (4, 6, 4)).astype(np.uint8)
    gradient = jax.grad(lambda router_De: moe.route(x_BTD, router_De, MOE, given_BTc)[0][..., 0].sum())
    assert np.all(np.isfinite(gradient(router_De * 100)))


def test_balance_counts_rows_and_probabilities_of_the_tokens_that_count():
    x_BTD, router_De, *_ = layer()
    counted_BT = np.arange(x_BTD.shape[1]) % 2 == np.zeros((len(x_BTD), 1))
    _, routing = moe.route(x_BTD, router_De, MOE, None, counted_BT)
    prob_Xe = np.asarray(jax.nn.softmax(x_BTD[counted_BT] @ router_De))
    times_Xe = np.argsort(np.argsort(-prob_Xe)) < MOE.experts_per_token
    np.testing.assert_array_equal(routing.rows_e, times_Xe.sum(0))
    balance = MOE.num_experts * np.sum(times_Xe.mean(0) * prob_Xe.mean(0))
    np.testing.assert_allclose(routing.balance, balance, rtol=1e-5)


def stack_experts(folder: Path) -> None:
    """Writes the experts of each layer into one tensor, as transformers has them in memory."""
    tensors = load_file(folder / "model.safetensors")
    for number in range(MOE.num_layers):
        name = f"model.layers.{number}.mlp.experts"
        gate, up, down = (
            np.stack([tensors.pop(f"{name}.{expert}.{kind}_proj.weight") for expert in range(MOE.num_experts)])
            for kind in ("gate", "up", "down")
        )
        tensors |= {f"{name}.gate_up_proj": np.concatenate([gate, up], axis=1), f"{name}.down_proj": down}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_both_layouts_of_a_folder_are_read_and_the_published_one_is_written(tmp_path):
    for name in ("apart", "stacked"):
        write_checkpoint(tmp_path / name, MOE)
    stack_experts(tmp_path / "stacked")
    config, params = load(tmp_path / "apart")
    assert config == MOE
    jax.tree.map(np.testing.assert_array_equal, load(tmp_path / "stacked")[1], params)
    model_writer.save(tmp_path / "ours", config, jax.tree.map(jnp.asarray, params))
    first, ours = (load_file(tmp_path / name / "model.safetensors") for name in ("apart", "ours"))
    jax.tree.map(np.testing.assert_array_equal, ours, first)
    assert load(tmp_path / "ours")[0] == config


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mlp_only_layers": [1]}, r"mlp_only_layers is \[1\], only \[\] is supported"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step is 2, only 1 is supported"),
        ({"num_experts": 33, "num_local_experts": 33}, "experts.32.down_proj.weight is missing"),
        ({"num_experts_per_tok": 64}, "experts_per_token 64 is not of 32 experts"),
    ],
)
def test_another_mixture_is_refused(changes, said, tmp_path):
    write_checkpoint(tmp_path, MOE)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(BadInput, match=said):
        load(tmp_path)


def test_gradients_of_a_scan_route_in_full_precision():
    """A TPU would round the factors: its trainer would choose other experts than its sampler."""
    x_BTD, router_De, *_ = layer()

    def loss(router_De):
        return jax.lax.scan(lambda sum, x: (sum + moe.route(x, router_De, MOE)[0].sum(), None), 0.0, x_BTD[None])[0]

    traced = str(jax.make_jaxpr(jax.grad(loss))(router_De))
    assert traced.count("dot_general[") == len(re.findall(r"precision=\(\S*HIGHEST, *\S*HIGHEST\)", traced)) > 1


def test_the_published_mixture_has_its_counts():
    """Qwen3-Coder-30B-A3B: 30.5 billion parameters, 3.3 of them active."""
    config = PUBLISHED["qwen3-coder-30b-a3b"]
    _, params = qwen2.abstract(config)
    assert sum(x.size for x in jax.tree.leaves(params)) == pytest.approx(30.53e9, abs=0.01e9)
    active = config.num_layers * flops.active_weights(config) + 2 * flops.head_weights(config)
    assert active == pytest.approx(3.35e9, abs=0.01e9)
    assert config.num_layers * flops.adapter_weights(dataclasses.replace(config, lora_rank=16)) / 1e6 == pytest.approx(
        13.4, abs=0.1
    )
