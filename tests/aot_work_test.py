"""Hand-counted work against what XLA counts of one unscanned layer, the parameters there are and the chips' peaks."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from codea1.lab.aot import work
from codea1.lab.aot.topology import topology
from codea1.lab.aot.work import CHIPS, Cut
from codea1.learn.log_probs import model_log_probs
from codea1.models import flops, qwen2
from codea1.models.config import PUBLISHED, tiny_model
from codea1.models.flops import PEAK_FLOPS, utilisation
from codea1.runtime.extras import is_installed

# One layer, so that the body of the scan, which XLA counts once, runs once; wide, so that matrix products are nearly
# all there is to count.
MODEL = dataclasses.replace(tiny_model(vocab_size=2048), num_layers=1, hidden_size=512, intermediate_size=1024)
MODEL = dataclasses.replace(MODEL, head_dim=128)
ROWS, LENGTH = 2, 64
ONE = Cut(data=1, fsdp=1, tensor=1)


def counted(function, *arguments) -> float:
    return jax.jit(function).lower(*arguments).compile().cost_analysis()["flops"]


@pytest.fixture(scope="module")
def policy():
    graphdef, abstract = qwen2.abstract(MODEL)
    tokens = jax.ShapeDtypeStruct((ROWS, LENGTH), jnp.int32)

    def log_probs(params, tokens):
        return model_log_probs(graphdef, ROWS * LENGTH, params, tokens, 1.0)[0][0]

    return log_probs, nnx.to_pure_dict(abstract), tokens


def test_forward_is_what_xla_counts(policy):
    log_probs, params, tokens = policy
    # Dense attention on a CPU computes the masked half of all pairs, too.
    expected = work.score(MODEL, ROWS, LENGTH, ONE).flops + flops.attention_flops(MODEL, ROWS, LENGTH)
    assert counted(log_probs, params, tokens) == pytest.approx(expected, rel=0.02)


def test_the_update_is_what_xla_counts(policy):
    log_probs, params, tokens = policy
    found = counted(jax.grad(lambda params, tokens: jnp.sum(log_probs(params, tokens))), params, tokens)
    # Dense attention goes back in twice the products of forward, the kernel for TPUs in three and a half times.
    attention = flops.attention_flops(MODEL, ROWS, LENGTH)
    # Where there is one chunk, XLA keeps its logits and does not compute them again.
    again = flops.head_flops(MODEL, ROWS * LENGTH)
    expected = work.update(MODEL, ROWS, LENGTH, ONE).flops + (6 - 4.5) * attention - again
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5b", "qwen2.5-coder-7b", "qwen3-coder-30b-a3b"])
def test_weights_are_those_of_the_model(name: str):
    model = PUBLISHED[name]
    flat = jax.tree_util.tree_leaves_with_path(nnx.to_pure_dict(qwen2.abstract(model)[1]))
    paths = ((jax.tree_util.keystr(path), leaf.size) for path, leaf in flat)
    kinds = ("kernel", "embedding", "lm_head", "router", "experts")
    assert work.num_weights(model) == sum(size for path, size in paths if any(kind in path for kind in kinds))


def test_decoding_reads_all_weights_on_every_copy_and_all_of_the_cache():
    model = PUBLISHED["qwen2.5-coder-7b"]
    one, four = (work.decode_step(model, 64, 1000, Cut(data, data, 1)) for data in (1, 4))
    weights = 2 * (work.num_weights(model) - flops.head_weights(model))  # the embedding is looked up
    assert one.hbm_bytes == weights + 64 * 1000 * 57344  # 56 KiB of keys and values per token
    assert four.hbm_bytes - one.hbm_bytes == 3 * weights
    assert one.flops == four.flops


def test_experts_are_read_where_they_lie():
    model = PUBLISHED["qwen3-coder-30b-a3b"]
    one, four = (work.decode_step(model, 64, 1000, Cut(data, data, 1)) for data in (1, 4))
    attention_and_head = 2 * (model.num_layers * (2 * 2048 * 4096 + 2 * 2048 * 512 + 2048 * 128) + 151936 * 2048)
    assert four.hbm_bytes - one.hbm_bytes == 3 * attention_and_head
    assert four.ici_bytes == 64 * 2048 * 48 * 3 * (2 + 4)  # rows in bfloat16, sums in float32, to three others


def test_publishing_gathers_what_a_chip_lacks():
    cut = Cut(data=8, fsdp=8, tensor=2)
    per_chip = work.publish(MODEL, cut).ici_bytes / 16
    assert per_chip == 2 * work.num_weights(MODEL) / 2 * 7 / 8


LARGE = PUBLISHED["qwen2.5-coder-1.5b"]
LENGTHS = [100, 300, 50]


def mesh_of(kind: str, count: int) -> SimpleNamespace:
    devices = np.array([SimpleNamespace(device_kind=kind)] * count, object).reshape(1, count, 1)
    return SimpleNamespace(devices=devices, size=count)


def test_the_speed_is_six_operations_per_weight_and_token_and_attention():
    found = utilisation(LARGE, LENGTHS, [], 0.5, mesh_of("cpu", 1))
    # Kaplan et al. 2020, with the half of all pairs that a causal mask leaves: 12 * layers * width * length / 2.
    attention = sum(6 * LARGE.num_layers * LARGE.num_heads * LARGE.head_dim * length**2 for length in LENGTHS)
    expected = 6 * work.num_weights(LARGE) * sum(LENGTHS) + attention
    assert found == {"update_tflops_per_second": pytest.approx(expected / 0.5 / 1e12, rel=1e-6)}


def test_a_prompt_that_was_computed_once_counts_once():
    once = utilisation(LARGE, [100, 300, 50], [40, 40], 1.0, mesh_of("cpu", 1))["update_tflops_per_second"]
    responses = [
        utilisation(LARGE, [length], [40], 1.0, mesh_of("cpu", 1))["update_tflops_per_second"]
        for length in (100, 300, 50)
    ]
    prompt = utilisation(LARGE, [40], [], 1.0, mesh_of("cpu", 1))["update_tflops_per_second"]
    assert once == pytest.approx(prompt + sum(responses))


def test_mfu_is_a_share_of_the_peak_of_all_devices():
    found = utilisation(LARGE, LENGTHS, [], 0.5, mesh_of("TPU v5 lite", 4))
    assert found["update_mfu"] == pytest.approx(found["update_tflops_per_second"] / (4 * 197))


@pytest.mark.skipif(not is_installed("libtpu"), reason="libtpu is not installed")
@pytest.mark.parametrize("name", ["v5e-4", "v6e-4", "v5p-8"])
def test_the_chips_that_are_compiled_for_have_their_peak(name):
    kinds = {device.device_kind for device in topology(name).devices}
    assert {PEAK_FLOPS[kind] for kind in kinds} == {CHIPS[name.partition("-")[0]].flops}
