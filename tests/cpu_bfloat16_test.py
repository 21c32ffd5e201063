"""Bfloat16 on a CPU: products against float64, a run against one in float32, what a resume keeps, what auto chooses."""

import json
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from codea1.config_file import validate
from codea1.learn.batch import TrainSample
from codea1.models import at_rest
from codea1.models.weights import KernelForms, dense, dense_of_forms, for_many, has_forms, product, product_of_few
from codea1.players import dtype as dtypes
from codea1.rollout import functions
from codea1.rollout.engine import Request
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.training.guards import run_inputs
from codea1.training.setup import assemble
from tests.train_test import assert_same_run, scripting, train

AXES = ("embed", "mlp")


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def exact(x: np.ndarray, dtype: str) -> np.ndarray:
    """Float64 with the values that a factor of a product has."""
    return np.asarray(jnp.asarray(x).astype(dtype).astype(jnp.float32), np.float64)


def assert_close(ours: jax.Array, theirs: np.ndarray, inner: int) -> None:
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * inner**0.5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("inner", [16, 896])
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 776])
def test_products_and_their_gradients_are_those_of_float64(rows, inner, dtype):
    x, kernel, y_bar = draw(1, rows, inner), draw(inner, 24), draw(1, rows, 24)
    stack = jnp.asarray(kernel)[None].astype(dtype)
    forms = jax.jit(KernelForms.of, static_argnums=1)(stack, 1).for_gradients()
    many = jax.tree.map(lambda leaf: leaf[0], for_many(forms))
    wanted_y = exact(x, dtype) @ exact(kernel, dtype)
    wanted_x_bar = exact(y_bar, dtype) @ exact(kernel, dtype).T
    for of_x in (lambda x: dense_of_forms(x, many, dtype), lambda x: dense(x, jnp.asarray(kernel), AXES, dtype)):
        y, pull = jax.jit(lambda x, of_x=of_x: jax.vjp(of_x, x))(x)
        assert_close(y, wanted_y, inner)
        assert_close(pull(jnp.asarray(y_bar))[0], wanted_x_bar, 24)
    assert_close(jax.jit(dense_of_forms, static_argnums=2)(x, forms[0], dtype), wanted_y, inner)
    _, pull = jax.vjp(lambda kernel: dense(jnp.asarray(x), kernel, AXES, dtype), jnp.asarray(kernel))
    assert_close(pull(jnp.asarray(y_bar))[0], exact(x, dtype)[0].T @ exact(y_bar, dtype)[0], rows)


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_logits_over_a_vocabulary_are_those_of_float64(rows):
    x, some = draw(rows, 896), np.arange(0, 151936, 997)
    head = jnp.tile(jnp.asarray(draw(1187, 896), jnp.bfloat16), (128, 1))
    wanted = exact(x, "bfloat16") @ exact(head[some], "bfloat16").T
    assert_close(jax.jit(product_of_few, static_argnums=2)(x, head, "bfloat16")[:, some], wanted, 896)
    whole = jax.jit(lambda x, head: product(x, head.T, "bfloat16"))(x, head)
    assert_close(whole[:, some], wanted, 896)


@pytest.fixture
def large() -> Iterator[None]:
    """Has kernels lie as those of a model that a processor's cache does not hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at_rest, "MOST_CACHED", 0)
        functions._publishing.cache_clear()
        yield
    functions._publishing.cache_clear()


def adapted(config: ConfigDict, dtype: str) -> ConfigDict:
    config = ConfigDict(config.to_dict())
    config.model.dtype = dtype
    for player in (config.code, config.test):
        player.lora.rank, player.lora.alpha, player.learning_rate, player.warmup_steps = 4, 8.0, 1e-3, 0
    return config


def test_two_steps_of_adapters_are_about_those_in_float32(micro_config, large):
    configs = {name: validate(adapted(micro_config, name)) for name in ("float32", "bfloat16")}
    players = {name: assemble(config).policies["code"] for name, config in configs.items()}
    drawn = list(players["float32"].generate([Request("q", (5, 6, 7), 0, 4)], stream="code", step=1))
    samples = [TrainSample(x.prompt_ids, x.token_ids, x.log_probs, (-1.0) ** i) for i, x in enumerate(drawn)]
    before = {name: jax.device_get(player.state.params) for name, player in players.items()}
    found = {name: [player.learn(samples, step) for step in (1, 2)] for name, player in players.items()}
    for exact_, rounded in zip(*found.values(), strict=True):
        assert rounded["grad_norm"] == pytest.approx(exact_["grad_norm"], rel=0.02)
        assert rounded["sampler_log_prob_difference_max"] < 0.02  # they were drawn in float32
        assert rounded["sampler_log_prob_difference_max"] > 0
    moves = {
        name: np.concatenate([x.ravel() for x in jax.tree.leaves(jax.tree.map(np.subtract, player.state.params, was))])
        for (name, player), was in zip(players.items(), before.values(), strict=True)
    }
    assert np.linalg.norm(moves["bfloat16"] - moves["float32"]) < 0.1 * np.linalg.norm(moves["float32"])
    kernel = flatten_dict(players["bfloat16"].base, sep=".")["layers.mlp.up_kernel"]
    assert has_forms(kernel)
    assert kernel.stack.dtype == kernel.turned.dtype == jnp.uint16


@pytest.mark.parametrize("frozen", ["code", "test"])
def test_a_frozen_player_has_the_arrays_of_a_learner_on_its_base(micro_config, large, frozen):
    config = adapted(micro_config, "bfloat16")
    config.frozen = frozen
    policies = assemble(validate(config)).policies
    for player in policies.values():
        (drawn,) = player.generate([Request("q", (5, 6, 7), 0, 1)], stream="code", step=1)
        if player.learns:
            player.learn([TrainSample(drawn.prompt_ids, drawn.token_ids, drawn.log_probs, 1.0)], 1)
    kernels = {name: flatten_dict(player.base, sep=".")["layers.mlp.up_kernel"] for name, player in policies.items()}
    its, learners = kernels.pop(frozen), kernels.popitem()[1]
    assert its.turned is None is not learners.turned
    assert its.stack is learners.stack
    assert all(one is other for one, other in zip(its.layers, learners.layers, strict=True))


def test_a_run_in_bfloat16_resumes_bit_for_bit(micro_config, large, tmp_path):
    config = adapted(micro_config, "bfloat16")
    config.steps, config.checkpoint.every, config.validation.every = 3, 1, 100
    with scripting():
        whole = train(config, tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "cut", stop_after=2)
        assert_same_run(tmp_path / "whole", tmp_path / "cut", whole, train(config, tmp_path / "cut"))


@pytest.mark.parametrize(
    ("flags", "seconds", "chosen", "why"),
    [
        ("avx512f amx_bf16 amx_tile", {}, "bfloat16", "this CPU has AMX"),
        ("avx512_bf16", {"bfloat16": 3.0, "float32": 2.0}, "float32", "takes 1.50 times as long as in float32"),
        ("avx512_bf16", {"bfloat16": 1.0, "float32": 2.0}, "bfloat16", "takes 0.50 times as long as in float32"),
    ],
)
def test_auto_is_what_the_machine_multiplies_faster(
    flags, seconds, chosen, why, micro_config, tmp_path, monkeypatch, capsys
):
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: fpu {flags} sse\n")
    monkeypatch.setattr(dtypes, "_CPU", tmp_path / "cpuinfo")
    monkeypatch.setattr(dtypes, "_seconds", seconds.__getitem__)
    dtypes.fastest_dtype.cache_clear()
    micro_config.model.dtype = "auto"
    validate(micro_config)
    run = tmp_path / "run"
    for there in ({}, {"float32": "bfloat16", "bfloat16": "float32"}):  # then of a run that another CPU began
        if there:
            run.mkdir()
            stored = micro_config.to_dict() | {"model": micro_config.model.to_dict() | {"dtype": there[chosen]}}
            (run / "config.json").write_text(json.dumps(stored))
        with run_inputs(lambda: validate(micro_config), str(run), Hosts()) as inputs:
            assert inputs.config.model.dtype == there.get(chosen, chosen)
        told = capsys.readouterr().out
        assert f"config.model.dtype is auto, here {there.get(chosen, chosen)}: " in told
        assert (why in told) == (not there)
        assert ("as when the run began" in told) == bool(there)
    micro_config.model.dtype = chosen
    with pytest.raises(BadInput, match="dtype"), run_inputs(lambda: validate(micro_config), str(run), Hosts()):
        pass
    dtypes.fastest_dtype.cache_clear()
