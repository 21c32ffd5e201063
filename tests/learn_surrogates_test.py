"""Surrogates against their equations written out in Python floats, gradients included."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1.learn.batch import RowLayout, RowShape, TrainSample, micro_batches
from codea1.learn.surrogates import SURROGATES, Clip, cispo, gspo, ppo

PAPER = Clip()
WIDE = Clip(low=1.0, high=1.0)
MASK = np.array([[False, True, True, True, True], [True, True, False, False, False], [False] * 5])


def random_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probs, old log-probs and advantages [3, 5], 0 outside the mask; ratios beyond every bound."""
    rng = np.random.default_rng(0)
    log_probs = np.where(MASK, -rng.exponential(2.0, MASK.shape), 0.0)
    old = np.where(MASK, log_probs - rng.normal(0, 1, MASK.shape) * rng.choice([0.05, 1], MASK.shape), 0.0)
    return log_probs, old, np.where(MASK, rng.choice([-1.5, 0.0, 0.7], MASK.shape[:1])[:, None], 0.0)


def pessimistic(ratio: float, advantage: float, clip: Clip) -> float:
    clipped_ratio = min(max(ratio, 1 - clip.low), 1 + clip.high)
    return max(-advantage * ratio, -advantage * clipped_ratio)


def expected_ppo(log_prob: float, old: float, advantage: float, clip: Clip = PAPER) -> float:
    loss = pessimistic(math.exp(min(max(log_prob - old, -20.0), 20.0)), advantage, clip)
    return min(loss, -advantage * clip.dual) if advantage < 0 else loss


def value_and_gradient(surrogate, log_probs, old, advantages, clip: Clip, mask=MASK):
    responses = mask.astype(int)
    with jax.enable_x64(True):
        loss, diagnostics = surrogate(jnp.array(log_probs), jnp.array(old), jnp.array(advantages), responses, clip)
        gradient = jax.grad(lambda x: jnp.sum(surrogate(x, jnp.array(old), jnp.array(advantages), responses, clip)[0]))(
            jnp.array(log_probs)
        )
    return np.array(loss), np.array(gradient), diagnostics


def test_the_default_clip_is_the_papers():
    assert (PAPER.low, PAPER.high, PAPER.dual) == (0.2, 0.28, 10.0)


def test_ppo_equals_the_equation():
    rng = np.random.default_rng(0)
    log_probs = -rng.exponential(2.0, 400)
    old = log_probs - rng.normal(0, 1, 400) * rng.choice([0.05, 1, 15], 400)
    advantages = rng.choice([-1.5, -0.2, 0.0, 0.2, 1.5], 400)
    rows = (x[None] for x in (log_probs, old, advantages))
    (loss,), (gradient,), _ = value_and_gradient(ppo, *rows, PAPER, np.ones((1, 400), int))
    expected = [expected_ppo(*token) for token in zip(log_probs, old, advantages, strict=True)]
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    step = 1e-6
    differences = [
        (expected_ppo(x + step, o, a) - expected_ppo(x - step, o, a)) / (2 * step)
        for x, o, a in zip(log_probs, old, advantages, strict=True)
    ]
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "active"),
    [
        (1.2, 1.0, -1.2, None),
        (1.5, 1.0, -1.28, "clip_fraction_high"),
        (1.5, 0.5, -0.64, "clip_fraction_high"),
        (0.5, 1.0, -0.5, None),
        (0.5, -1.0, 0.8, "clip_fraction_low"),
        (0.5, -0.5, 0.4, "clip_fraction_low"),
        (1.5, -1.0, 1.5, None),
        (25.0, -2.0, 20.0, "dual_clip_fraction"),
        (math.exp(30), 1.0, -1.28, "clip_fraction_high"),
        (math.exp(30), -1.0, 10.0, "dual_clip_fraction"),
    ],
)
def test_ppo_by_hand(ratio: float, advantage: float, loss: float, active: str | None):
    log_ratio, zero = jnp.array([[math.log(ratio)]]), jnp.zeros((1, 1))
    value, diagnostics = ppo(log_ratio, zero, zero + advantage, np.ones((1, 1), int), PAPER)
    np.testing.assert_allclose(value, [[loss]], rtol=1e-6)
    clips = {"clip_fraction_high", "clip_fraction_low", "dual_clip_fraction"}
    assert {name for name in clips if diagnostics[name]} == ({active} if active else set())


@pytest.mark.parametrize("clip", [PAPER, WIDE, Clip(3e-4, 4e-4)])
def test_gspo_equals_the_equation(clip: Clip):
    log_probs, old, advantages = random_rows()
    loss, gradient, _ = value_and_gradient(gspo, log_probs, old, advantages, clip)
    for row, advantage in enumerate(advantages.max(axis=1) + advantages.min(axis=1)):
        inside = MASK[row]
        ratio = math.exp(np.mean(log_probs[row, inside] - old[row, inside])) if inside.any() else 1.0
        np.testing.assert_allclose(loss[row, inside], pessimistic(ratio, advantage, clip), rtol=1e-12)
        # Each token pushes the sequence's ratio by itself: d loss / d log_prob is -A s where no clip is active.
        is_clipped = pessimistic(ratio, advantage, clip) != pytest.approx(-advantage * ratio, rel=1e-12)
        expected = 0.0 if is_clipped else -advantage * ratio
        np.testing.assert_allclose(gradient[row, inside], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("share_prompts", [False, True])
def test_gspo_has_one_ratio_for_each_response_of_a_row(share_prompts: bool):
    # Three prompts, responses of 1 to 9 tokens, and one that fills a row alone; token ids tell all responses apart.
    rng = np.random.default_rng(0)
    sizes = [(0, 4), (1, 1), (0, 9), (2, 26), (1, 6), (0, 2)]
    firsts = np.cumsum([100] + [size for _, size in sizes])
    log_probs, old = -rng.exponential(2.0, 200), -rng.exponential(2.0, 200)
    samples, expected = [], {}
    for first, (prompt, size), advantage in zip(firsts, sizes, rng.choice([-1.5, 0.7], len(sizes)), strict=False):
        ids = range(first, first + size)
        samples.append(TrainSample([prompt + 1] * 3, ids, old[ids.start : ids.stop], advantage))
        ratio = math.exp(np.mean(log_probs[ids.start : ids.stop] - old[ids.start : ids.stop]))
        loss = pessimistic(ratio, advantage, PAPER)
        gradient = -advantage * ratio if loss == pytest.approx(-advantage * ratio, rel=1e-9) else 0.0
        expected |= dict.fromkeys(ids, (ratio, loss, gradient))
    found, several = {}, 0
    layout = RowLayout((RowShape(2, 29), RowShape(2, 31)), "token-mean", 32, pad_id=0, share_prompts=share_prompts)
    for batch in micro_batches(samples, layout):
        mask, responses = batch.response_mask_BT, batch.row_responses_BT
        several += sum(len(set(row)) > 3 for row in responses)
        assert ((responses > 0) == mask).all()
        inputs = [np.where(mask, x, 0.0).astype(np.float64) for x in (log_probs[batch.tokens_BT], old[batch.tokens_BT])]
        loss, gradient, diagnostics = value_and_gradient(gspo, *inputs, batch.advantages_BT, PAPER, responses)
        values = np.stack([diagnostics["ratio"], loss, gradient], axis=-1)[mask]
        found |= dict(zip(batch.tokens_BT[mask].tolist(), values.tolist(), strict=True))
    assert several == share_prompts
    assert found.keys() == expected.keys()
    for token, values in expected.items():
        np.testing.assert_allclose(found[token], values, rtol=1e-6, atol=1e-12)  # advantages are float32


def test_the_ratio_of_a_response_does_not_round_by_those_beside_it():
    log_ratios = np.array([[3e4] * 400 + [1e-4, 3e-4] + [-7e4] * 400], np.float32)
    responses = np.repeat([5, 1, 3], [400, 2, 400])[None].astype(np.int32)
    _, diagnostics = jax.jit(gspo, static_argnums=4)(log_ratios, 0 * log_ratios, 0 * log_ratios, responses, PAPER)
    np.testing.assert_allclose(diagnostics["ratio"][0, 400:402] - 1, [2e-4, 2e-4], rtol=1e-3)


def test_gspo_has_no_dual_clip():
    # Ratios 25 and 100, whose geometric mean is 50; ppo's losses end at dual * |advantage| = 20.
    log_ratios, mask = jnp.log(jnp.array([[25.0, 100.0]])), np.ones((1, 2), bool)
    advantages = jnp.full((1, 2), -2.0)
    loss, gradient, diagnostics = value_and_gradient(gspo, log_ratios, jnp.zeros((1, 2)), advantages, PAPER, mask)
    np.testing.assert_allclose(loss, [[100.0, 100.0]], rtol=1e-6)
    np.testing.assert_allclose(gradient, [[100.0, 100.0]], rtol=1e-6)
    assert "dual_clip_fraction" not in diagnostics
    of_ppo, _ = ppo(log_ratios, jnp.zeros((1, 2)), advantages, mask.astype(int), PAPER)
    np.testing.assert_allclose(of_ppo, [[20.0, 20.0]])


def test_each_token_of_gspo_has_a_gradient_of_its_own_advantage():
    # Ratios 0.5, 2 and 1.331 with geometric mean 1.1, and 0.9 twice: d loss / d log_prob of token t is -A_t s. Through
    # the mean of the sequence it would be -s times the mean of A.
    mask = np.array([[False, True, True, True], [True, True, False, False]])
    log_ratios = np.log([[1.0, 0.5, 2.0, 1.331], [0.9, 0.9, 1.0, 1.0]])
    advantages = np.array([[0.0, 1.0, -2.0, 0.5], [-1.0, 3.0, 0.0, 0.0]])
    old = np.where(mask, -1.0, 0.0)
    loss, gradient, diagnostics = value_and_gradient(gspo, old + log_ratios, old, advantages, WIDE, mask)
    expected = [[0.0, -1.1, 2.2, -0.55], [0.9, -2.7, 0.0, 0.0]]
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(loss, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(diagnostics["ratio"][mask], [1.1, 1.1, 1.1, 0.9, 0.9], rtol=1e-12)


@pytest.mark.parametrize("name", SURROGATES)
def test_approx_kl_estimates_the_divergence_of_the_old_policy(name: str):
    # k3 at samples of the old policy is (ratio - 1) - log ratio: 1 - log 2 at 2. The other direction has 0.193.
    log_probs, ones = jnp.log(jnp.array([[2.0], [0.5]])), jnp.ones((2, 1))
    _, diagnostics = SURROGATES[name](log_probs, jnp.zeros((2, 1)), ones, np.ones((2, 1), int), PAPER)
    np.testing.assert_allclose(diagnostics["approx_kl"][:, 0], [0.306853, 0.193147], rtol=1e-5)


def test_gspo_of_a_single_token_is_ppo_of_it():
    log_probs, responses = jnp.array([[0.0, math.log(1.1)]]), np.array([[0, 1]])
    loss, _ = gspo(log_probs, jnp.zeros((1, 2)), jnp.array([[0.0, 2.0]]), responses, PAPER)
    np.testing.assert_allclose(loss, [[0.0, -2.2]], rtol=1e-6)


def test_cispo_equals_the_equation_and_drops_no_gradient():
    log_probs, old, advantages = random_rows()
    loss, gradient, diagnostics = value_and_gradient(cispo, log_probs, old, advantages, PAPER)
    weights = np.clip(np.exp(log_probs - old), 1 - PAPER.low, 1 + PAPER.high)
    np.testing.assert_allclose(loss, -weights * advantages * log_probs, rtol=1e-12)
    np.testing.assert_allclose(gradient, -weights * advantages, rtol=1e-12)
    ratios = np.exp(log_probs - old)
    np.testing.assert_array_equal(diagnostics["clip_fraction_high"], ratios > 1 + PAPER.high)
    np.testing.assert_array_equal(diagnostics["clip_fraction_low"], ratios < 1 - PAPER.low)


@pytest.mark.parametrize(("ratio", "active"), [(1.5, "clip_fraction_high"), (1.2, None), (0.5, "clip_fraction_low")])
def test_cispo_tells_whose_weight_is_clipped(ratio: float, active: str | None):
    zero, one = jnp.zeros((1, 1)), jnp.ones((1, 1))
    _, diagnostics = cispo(zero + math.log(ratio), zero, one, np.ones((1, 1), int), PAPER)
    clips = {"clip_fraction_high", "clip_fraction_low"}
    assert {name for name in clips if diagnostics[name]} == ({active} if active else set())


@pytest.mark.parametrize("name", SURROGATES)
def test_a_ratio_on_a_bound_is_not_beyond_it(name: str):
    on_policy, advantages = jnp.zeros((1, 3)), jnp.array([[1.0, -1.0, 0.0]])
    _, diagnostics = SURROGATES[name](on_policy, on_policy, advantages, np.ones((1, 3), int), Clip(0.0, 0.0, 1.0))
    assert not any(values.any() for name, values in diagnostics.items() if "fraction" in name)


@pytest.mark.parametrize("name", SURROGATES)
def test_on_policy_every_surrogate_has_the_gradient_of_reinforce(name: str):
    log_probs, _, advantages = random_rows()
    _, gradient, diagnostics = value_and_gradient(SURROGATES[name], log_probs, log_probs, advantages, PAPER)
    np.testing.assert_allclose(gradient, -advantages, rtol=1e-12)
    np.testing.assert_array_equal(diagnostics["ratio"], 1.0)
    np.testing.assert_array_equal(diagnostics["approx_kl"], 0.0)
    assert not any(values.any() for name, values in diagnostics.items() if "fraction" in name)


@pytest.mark.parametrize("name", SURROGATES)
def test_a_ratio_beyond_float_range_stays_finite(name: str):
    log_probs = jnp.array([[0.0, -300.0]])
    advantages, responses = jnp.array([[1.0, -1.0]]), np.ones((1, 2), int)
    loss, _ = SURROGATES[name](log_probs, log_probs[:, ::-1], advantages, responses, PAPER)
    assert np.isfinite(loss).all()
