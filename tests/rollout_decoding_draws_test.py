"""Keys of draws and the distribution that tokens are drawn from."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1.rollout import decoding
from codea1.rollout.decoding import restrict, seed_key, stream_key
from codea1.runtime.hosts import stable_hash

sample_keys, sample_tokens = jax.jit(decoding.sample_keys), jax.jit(decoding.sample_tokens)
LOGITS = jnp.array([2.0, 0.5, -1.0, 0.0, 1.0])


def row_keys(num: int, seed: int = 0) -> jax.Array:
    return sample_keys(stream_key(seed, "code", 1), jnp.zeros(num, jnp.uint32), jnp.arange(num))


def draw(logits_V, num: int, temperature: float, top_p: float | None = None):
    """`num` tokens after one context, each with a key of its own, and their log-probabilities."""
    return sample_tokens(jnp.tile(logits_V, (num, 1)), row_keys(num), jnp.zeros(num, int), temperature, top_p)


def chi_square(tokens, probabilities) -> float:
    expected = len(tokens) * np.asarray(probabilities)
    counts = np.bincount(tokens, minlength=len(expected))
    return float(np.sum((counts - expected) ** 2 / expected))


def key_of(seed: int, stream: str, step: int, question: str, sample: int) -> tuple[int, ...]:
    keys = sample_keys(
        stream_key(seed, stream, step), jnp.array([stable_hash(question)], jnp.uint32), jnp.array([sample])
    )
    return tuple(np.array(jax.random.key_data(keys))[0].tolist())


def test_hash_is_the_same_in_every_process():
    command = [sys.executable, "-c", "from codea1.runtime.hosts import stable_hash; print(stable_hash('mbpp/é'))"]
    env = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parents[1])}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert int(result.stdout) == stable_hash("mbpp/é")
    assert 0 <= stable_hash("mbpp/é") < 2**32


def test_every_part_of_a_key_counts():
    base = (0, "code", 1, "q", 0)
    others = [(1, *base[1:]), (0, "test", *base[2:]), (0, "code", 2, "q", 0), (*base[:3], "r", 0), (*base[:4], 1)]
    assert key_of(*base) == key_of(*base)
    assert len({key_of(*key) for key in [base, *others]}) == 6


def test_all_64_bits_of_a_seed_count_and_those_of_32_draw_what_they_drew():
    for seed in (0, 1, 2**31 + 5, 2**32 - 1):
        key = jax.random.key(seed, impl="threefry2x32")
        np.testing.assert_array_equal(*map(jax.random.key_data, (seed_key(seed), key)))
    assert jax.random.key_data(seed_key(2**32 + 1)).tolist() == [1948878966, 4237131848]
    seeds = (1, 2**32 + 1, 2**33 + 1, 2**63 + 1, 2**64 - 1, 2**32 - 1)
    assert len({key_of(seed, "code", 1, "q", 0) for seed in seeds}) == 6


def test_rows_are_drawn_as_if_alone():
    keys, logits = row_keys(6), jnp.tile(LOGITS, (6, 1)) * jnp.arange(6)[:, None]
    together = sample_tokens(logits, keys, jnp.full(6, 3), 0.7)
    order = np.array([4, 0, 5, 2, 1, 3])
    shuffled = sample_tokens(logits[order], keys[order], jnp.full(6, 3), 0.7)
    for whole, part in zip(together, shuffled, strict=True):
        np.testing.assert_array_equal(whole[order], part)
    alone = [sample_tokens(logits[row : row + 1], keys[row : row + 1], jnp.full(1, 3), 0.7)[0][0] for row in range(6)]
    np.testing.assert_array_equal(together[0], alone)


def test_positions_draw_independently():
    keys = row_keys(2000)
    first, second = (sample_tokens(jnp.zeros((2000, 2)), keys, jnp.full(2000, position), 1.0)[0] for position in (0, 1))
    # 2000 pairs of fair coins: agreement is 1000 with deviation 22.
    assert abs(int(jnp.sum(first == second)) - 1000) < 90


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_follow_the_tempered_softmax(temperature: float):
    num = 20_000
    tokens, log_probs = draw(LOGITS, num, temperature)
    expected = jax.nn.log_softmax(LOGITS / temperature)
    assert chi_square(tokens, np.exp(expected)) < 18.5  # 4 degrees of freedom: exceeded once in 1000 seeds
    np.testing.assert_allclose(log_probs, expected[tokens], atol=1e-6)


def test_temperature_zero_takes_the_likeliest_under_temperature_one():
    tokens, log_probs = sample_tokens(jnp.stack([LOGITS, -LOGITS]), row_keys(2), jnp.zeros(2, int), 0.0)
    np.testing.assert_array_equal(tokens, [0, 2])
    np.testing.assert_allclose(log_probs, [jax.nn.log_softmax(LOGITS)[0], jax.nn.log_softmax(-LOGITS)[2]], atol=1e-6)


def test_tokens_follow_the_softmax_over_many_blocks():
    logits = 2 * np.random.default_rng(0).normal(size=24)  # drawn as four blocks of six
    tokens, log_probs = draw(logits, 40_000, 1.0)
    expected = jax.nn.log_softmax(jnp.array(logits, jnp.float32))
    assert chi_square(tokens, np.exp(expected)) < 49.8  # 23 degrees of freedom: exceeded once in 1000 seeds
    np.testing.assert_allclose(log_probs, expected[tokens], atol=1e-6)


def kept_by(logits, top_p: float) -> set[int]:
    """The tokens that the definition of top-p keeps, one after another in order of probability."""
    probabilities = np.exp(logits - np.max(logits)) / np.sum(np.exp(logits - np.max(logits)))
    kept, before = set(), 0.0
    for token in np.argsort(-probabilities):
        if before >= top_p:
            break
        kept.add(int(token))
        before += probabilities[token]
    return kept


@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.9])
def test_top_p_keeps_what_its_definition_says(top_p: float):
    logits_BV = np.random.default_rng(1).normal(size=(20, 30)).astype(np.float32) * 2
    restricted_BV = np.asarray(restrict(jnp.array(logits_BV), top_p))
    for logits, restricted in zip(logits_BV, restricted_BV, strict=True):
        assert set(np.flatnonzero(np.isfinite(restricted)).tolist()) == kept_by(logits.astype(np.float64), top_p)
        np.testing.assert_array_equal(restricted[np.isfinite(restricted)], logits[np.isfinite(restricted)])


def test_restricted_draws_follow_what_is_kept_with_log_probs_of_the_whole():
    tokens, log_probs = draw(LOGITS, 20_000, 0.5, 0.97)
    whole = jax.nn.log_softmax(LOGITS / 0.5)
    kept = np.array([0, 1, 4])
    assert set(np.unique(tokens)) == set(kept.tolist())
    renormalised = np.exp(whole[kept]) / np.exp(whole[kept]).sum()
    assert chi_square(np.searchsorted(kept, tokens), renormalised) < 13.8  # 2 degrees of freedom
    np.testing.assert_allclose(log_probs, whole[tokens], atol=1e-6)
