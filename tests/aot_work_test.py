"""Hand-counted work against what XLA counts of one unscanned layer, and against the parameters there are."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from codea1.lab.aot import work
from codea1.lab.aot.work import Cut
from codea1.learn.log_probs import model_log_probs
from codea1.models import flops, qwen2
from codea1.models.config import PUBLISHED, tiny_model

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
        return model_log_probs(graphdef, params, tokens, 1.0, ROWS * LENGTH)[0]

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


@pytest.mark.parametrize("name", ["0.5b", "7b"])
def test_weights_are_those_of_the_model(name: str):
    model = PUBLISHED[f"qwen2.5-coder-{name}"]
    flat = jax.tree_util.tree_leaves_with_path(nnx.to_pure_dict(qwen2.abstract(model)[1]))
    paths = ((jax.tree_util.keystr(path), leaf.size) for path, leaf in flat)
    kinds = ("kernel", "embedding", "lm_head")
    assert work.num_weights(model) == sum(size for path, size in paths if any(kind in path for kind in kinds))


def test_decoding_reads_all_weights_on_every_copy_and_all_of_the_cache():
    model = PUBLISHED["qwen2.5-coder-7b"]
    one, four = (work.decode_step(model, 64, 1000, Cut(data, data, 1)) for data in (1, 4))
    weights = 2 * (work.num_weights(model) - flops.head_weights(model))  # the embedding is looked up
    assert one.hbm_bytes == weights + 64 * 1000 * 57344  # 56 KiB of keys and values per token
    assert four.hbm_bytes - one.hbm_bytes == 3 * weights
    assert one.flops == four.flops


def test_publishing_gathers_what_a_chip_lacks():
    cut = Cut(data=8, fsdp=8, tensor=2)
    per_chip = work.publish(MODEL, cut).ici_bytes / 16
    assert per_chip == 2 * work.num_weights(MODEL) / 2 * 7 / 8
