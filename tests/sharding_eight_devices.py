"""What tests/sharding_test.py runs in a process with eight virtual devices: the model over fsdp 4 x tensor 2."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.traverse_util import flatten_dict
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from codea1 import sharding
from codea1.models import attention, kv_cache, qwen2
from codea1.models.config import tiny_model
from codea1.models.kv_cache import Cache
from tests.models_moe_test import chosen, layer, with_gradients
from tests.models_qwen2_test import MOE
from tests.pages import decoding, prefilling

CONFIG = dataclasses.replace(tiny_model(vocab_size=64), num_layers=2, tie_word_embeddings=False, remat="full")
TOKENS = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (8, 6)).astype(np.int32)
POSITIONS = np.broadcast_to(np.arange(6, dtype=np.int32), TOKENS.shape)

SPECS = {  # parameter: (training, rollout)
    "embedding": (P("tensor", "fsdp"), P("tensor", None)),
    "lm_head": (P("tensor", "fsdp"), P("tensor", None)),
    "norm.scale": (P(None), P(None)),
    "layers.attention_norm.scale": (P(None, None), P(None, None)),
    "layers.mlp_norm.scale": (P(None, None), P(None, None)),
    "layers.attention.q_kernel": (P(None, "fsdp", "tensor", None), P(None, None, "tensor", None)),
    "layers.attention.k_kernel": (P(None, "fsdp", "tensor", None), P(None, None, "tensor", None)),
    "layers.attention.v_kernel": (P(None, "fsdp", "tensor", None), P(None, None, "tensor", None)),
    "layers.attention.o_kernel": (P(None, "tensor", None, "fsdp"), P(None, "tensor", None, None)),
    "layers.attention.q_bias": (P(None, "tensor", None), P(None, "tensor", None)),
    "layers.attention.k_bias": (P(None, "tensor", None), P(None, "tensor", None)),
    "layers.attention.v_bias": (P(None, "tensor", None), P(None, "tensor", None)),
    "layers.mlp.gate_kernel": (P(None, "fsdp", "tensor"), P(None, None, "tensor")),
    "layers.mlp.up_kernel": (P(None, "fsdp", "tensor"), P(None, None, "tensor")),
    "layers.mlp.down_kernel": (P(None, "tensor", "fsdp"), P(None, "tensor", None)),
}
RULES = {"train": sharding.TRAIN_RULES, "rollout": sharding.ACTIVATION_RULES}

mesh = sharding.make_mesh(1, 4, 2)
graphdef, abstract = qwen2.abstract(CONFIG)
param_shardings = {name: sharding.param_shardings(abstract, mesh, rules) for name, rules in RULES.items()}
batch = NamedSharding(mesh, sharding.partition_spec(("batch", None), sharding.ACTIVATION_RULES))


@jax.jit
def forward(params, tokens_BT, positions_BT, cache=None):
    model = nnx.merge(graphdef, params)
    hidden_BTD, cache, _ = model(tokens_BT, positions_BT, cache)
    return model.logits(hidden_BTD), cache


def loss(params, tokens_BT, positions_BT):
    return jnp.mean(jnp.square(forward(params, tokens_BT, positions_BT)[0]))


def collectives(compiled) -> set[str]:
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    return set(re.findall(rf" ({kinds})(?:-start)?\(", compiled.as_text()))


@pytest.fixture(scope="module")
def params():
    return qwen2.initialise(CONFIG, jax.random.key(0))


@pytest.fixture(scope="module")
def logits(params):
    return np.asarray(forward(params, TOKENS, POSITIONS)[0])


def on_mesh(params, rules: str, steps: slice):
    """Parameters under the rules, tokens and positions of some time steps, each where it belongs."""
    inputs = jax.device_put((TOKENS[:, steps], POSITIONS[:, steps]), batch)
    return jax.device_put(params, param_shardings[rules]), *inputs


def empty_cache() -> Cache:
    with jax.set_mesh(mesh):
        return prefilling(Cache.zeros(CONFIG, pages=8), rows=8, shards=4)


def test_partition_specs():
    trees = (flatten_dict(param_shardings[name], sep=".") for name in ("train", "rollout"))
    train, rollout = trees
    assert {path: (train[path].spec, rollout[path].spec) for path in train} == SPECS


def test_initial_parameters_do_not_depend_on_the_mesh(params):
    cut = qwen2.initialise(CONFIG, jax.random.key(0), param_shardings["train"])
    jax.tree.map(np.testing.assert_array_equal, cut, params)
    assert cut["embedding"].addressable_shards[0].data.shape == (32, 32)


def test_forward_with_training_weights_equals_one_device(params, logits):
    found, _ = forward(*on_mesh(params, "train", slice(6)))
    np.testing.assert_allclose(found, logits, atol=2e-6)
    assert found.sharding.is_equivalent_to(NamedSharding(mesh, P("fsdp", None, "tensor")), ndim=3)


def test_prefill_and_decode_with_rollout_weights_equal_one_device(params, logits):
    found, cache = forward(*on_mesh(params, "rollout", slice(5)), empty_cache())
    np.testing.assert_allclose(found, logits[:, :5], atol=2e-6)
    found, cache = forward(*on_mesh(params, "rollout", slice(5, 6)), decoding(cache))
    np.testing.assert_allclose(found[:, 0], logits[:, 5], atol=2e-6)
    spec = sharding.partition_spec(kv_cache.KEY_AXES, sharding.ACTIVATION_RULES)
    assert cache.arrays[0].sharding.is_equivalent_to(NamedSharding(mesh, spec), ndim=5)


def test_decoding_with_rollout_weights_moves_no_weights_and_no_cache(params):
    step = forward.lower(*on_mesh(params, "rollout", slice(5, 6)), decoding(empty_cache())).compile()
    assert collectives(step) == {"all-reduce"}


def test_gradients_equal_one_device_and_stay_cut(params):
    expected = jax.jit(jax.grad(loss))(params, TOKENS, POSITIONS)
    gradient = jax.jit(jax.grad(loss), out_shardings=param_shardings["train"])
    found = gradient(*on_mesh(params, "train", slice(6)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)


def test_constrain_acts_under_a_mesh():
    def pinned(x):
        return sharding.constrain(x, "batch", "heads")

    expected = NamedSharding(mesh, P("fsdp", "tensor"))
    on_mesh = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P()))
    assert jax.jit(pinned)(on_mesh).sharding.is_equivalent_to(expected, ndim=2)
    with jax.set_mesh(mesh):
        assert jax.jit(pinned)(np.ones((8, 4))).sharding.is_equivalent_to(expected, ndim=2)
        assert pinned(jnp.ones((8, 4))).sharding.is_equivalent_to(expected, ndim=2)


def test_constrain_refuses_names_it_cannot_place():
    with jax.set_mesh(mesh):
        with pytest.raises(ValueError, match="1 axis names for an array of 2 dimensions"):
            sharding.constrain(jnp.ones((8, 4)), "batch")
        with pytest.raises(KeyError, match="time"):
            sharding.constrain(jnp.ones((8, 4)), "batch", "time")


@pytest.mark.parametrize("platform", ["cpu", "gpu"])  # blocks, and the ragged product
@pytest.mark.parametrize("places", [1 << 16, 72])
@pytest.mark.parametrize("skewed", [False, True])  # to the experts of one or two devices
@pytest.mark.parametrize("sizes", [(1, 4, 2), (1, 8, 1), (2, 2, 2), (1, 1, 8)])
def test_rows_move_to_experts_that_stay(sizes, skewed, places, platform, monkeypatch):
    """Gradients too: with its default check `jax.shard_map` would give wrong ones (JAX 0.10.2)."""
    monkeypatch.setattr("codea1.models.moe.PLACES", places)  # 72: one part of the rows after another
    x_BTD, router_De, *kernels = np.repeat(layer()[0], 2, axis=0), *layer()[1:]
    if skewed:
        x_BTD, router_De = np.abs(x_BTD), router_De + 2 * (np.arange(MOE.num_experts) < 4).astype(np.float32)
    arrays = x_BTD, router_De, *kernels
    config = dataclasses.replace(MOE, platform=platform)
    expected = with_gradients(chosen, config)(*arrays)
    experts = sharding.make_mesh(*sizes)
    with jax.set_mesh(experts):
        found = with_gradients(chosen, config)(*arrays)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5), found, expected)


def test_splash_attention_stays_on_its_device_and_equals_dense():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(4, 128, heads, 32)).astype(np.float32) for heads in (4, 2, 2)]
    cut = NamedSharding(mesh, P("fsdp", None, "tensor", None))
    splash = jax.jit(lambda q, k, v: attention.splash_attend(q, k, v, interpret=True))
    found = splash(*jax.device_put(arrays, cut))
    np.testing.assert_allclose(found, attention.attend_causally(*map(jnp.array, arrays), "cpu"), atol=1e-5)
    assert found.sharding.is_equivalent_to(cut, ndim=4)
    assert not collectives(splash.lower(*jax.device_put(arrays, cut)).compile())

    places, ids = np.arange(128), np.zeros((4, 128), np.int32)
    ids[:, 100:] = np.arange(4)[:, None] - 1  # in the first row nothing lies there
    responses = np.where(places < attention.responses_from(47, 128), 0, places // 20) + ids * 0
    packing = attention.Packing(ids, ids, np.array(responses, np.int32))
    packed = jax.jit(lambda q, k, v, packing: attention.splash_attend(q, k, v, packing.for_kernel(), interpret=True))
    rows = jax.device_put(packing, NamedSharding(mesh, P("fsdp")))
    found = packed(*jax.device_put(arrays, cut), rows)
    dense = attention.attend_causally(*map(jnp.array, arrays), "cpu", packing)
    np.testing.assert_allclose(found, dense, atol=1e-5)
    assert not collectives(packed.lower(*jax.device_put(arrays, cut), rows).compile())
