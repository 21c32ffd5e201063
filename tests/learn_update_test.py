"""The compiled update: exact sums over any cut, skipped steps, and that it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1.learn.batch import PackedSamples, SupervisedBatch, TrainBatch, TrainSample, mini_batches, pack_samples
from codea1.learn.log_probs import make_score, model_log_probs, score_rows
from codea1.learn.losses import ObjectiveConfig, objective_loss
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.update import TrainState, init_state, make_supervised_update, make_update
from codea1.learn.update import state_shardings as make_shardings
from tests.tiny_policy import make_policy

LENGTH, ROWS, MICRO = 16, 8, 3  # three micro-batches, the last with an empty row
OBJECTIVE = ObjectiveConfig(kl_coefficient=0.1, entropy_coefficient=0.01)
OPTIMIZER = AdamWConfig(weight_decay=0.01)


@pytest.fixture(scope="module")
def policy():
    policy = make_policy()
    policy.state_shardings = make_shardings(policy.shardings, OPTIMIZER)
    policy.update = make_update(
        policy.graphdef, OBJECTIVE, OPTIMIZER, policy.state_shardings, log_prob_chunk=512, temperature=0.9
    )
    policy.score = make_score(policy.graphdef, 512)
    return policy


@pytest.fixture
def state(policy) -> TrainState:
    return init_state(policy.params, OPTIMIZER, policy.state_shardings)


@pytest.fixture(scope="module")
def packed(policy) -> PackedSamples:
    """Seven samples in eight rows, with log-probs a little off the policy's."""
    rng = np.random.default_rng(0)
    samples = []
    for row in range(ROWS - 1):
        prompt, response = (rng.integers(0, policy.config.vocab_size, n) for n in (1 + row % 5, 3 + row % 7))
        samples.append(TrainSample(prompt, response, np.zeros(len(response)), rng.normal()))
    packed = pack_samples(samples, length=LENGTH, num_rows=ROWS, pad_id=0)
    log_probs, _ = score_rows(
        policy.score, policy.params, packed.tokens, micro_rows=MICRO, temperature=0.9, mesh=policy.mesh
    )
    old, reference = (log_probs + rng.normal(0, 0.3, log_probs.shape).astype(np.float32) for _ in range(2))
    return dataclasses.replace(packed, old_log_probs=old, ref_log_probs=reference)


def as_batch(packed: PackedSamples, micro_rows: int = MICRO, seed: int = 0) -> TrainBatch:
    return mini_batches(
        packed,
        count=1,
        micro_rows=micro_rows,
        aggregation="seq-mean-token-mean",
        max_response_length=LENGTH,
        generator=np.random.default_rng(seed),
    )[0]


def copy(tree):
    return jax.tree.map(np.array, tree)


def norm_of(tree) -> float:
    return sum(float(np.sum(np.square(x, dtype=np.float64))) for x in jax.tree.leaves(copy(tree))) ** 0.5


def assert_close(tree, expected, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), tree, expected)


@pytest.fixture(scope="module")
def whole(policy, packed):
    """Loss, per-token diagnostics and gradient of the whole mini-batch at once, as functions of the parameters."""
    batch = jax.tree.map(lambda x: jnp.array(x[0]), as_batch(packed, micro_rows=ROWS))

    def loss_of(params):
        log_probs, entropy = model_log_probs(policy.graphdef, params, batch.tokens, 0.9, 512)
        loss, diagnostics = objective_loss(
            log_probs, entropy, batch.old_log_probs, batch.ref_log_probs, batch.advantages, OBJECTIVE
        )
        return jnp.sum(batch.loss_weights * loss), diagnostics

    return jax.jit(jax.value_and_grad(loss_of, has_aux=True)), np.array(batch.response_mask)


def test_metrics_equal_those_of_the_whole_mini_batch_at_once(policy, state, packed, whole):
    value_and_grad, mask = whole
    (loss, diagnostics), gradient = value_and_grad(policy.params)
    new_state, metrics = policy.update(state, as_batch(packed), 1e-3)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=2e-5)
    np.testing.assert_allclose(metrics["grad_norm"], norm_of(gradient), rtol=2e-5)
    first_moment = jax.tree.map(lambda g: 0.1 * g / norm_of(gradient), gradient)
    assert_close(new_state.opt_state[0].mu, first_moment, rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(metrics["param_norm"], norm_of(policy.params), rtol=2e-5)
    np.testing.assert_allclose(metrics["ratio_max"], np.max(diagnostics.pop("ratio")[mask]), rtol=2e-5)
    assert {"clip_fraction_low", "clip_fraction_high", "approx_kl", "kl_ref", "entropy"} <= diagnostics.keys()
    for name, values in diagnostics.items():
        np.testing.assert_allclose(metrics[name], np.mean(values[mask]), rtol=1e-4, err_msg=name)
    assert metrics["tokens"] == mask.sum()
    assert metrics["skipped"] == 0


def test_gradient_equals_a_difference_of_losses_along_it(policy, whole):
    value_and_grad, _ = whole
    _, gradient = value_and_grad(policy.params)
    norm, step = norm_of(gradient), 1e-5  # the clips bend the loss within a few steps of this size

    def loss_at(distance: float) -> float:
        moved = jax.tree.map(lambda p, g: p + distance * g / norm, policy.params, gradient)
        return float(value_and_grad(moved)[0][0])

    np.testing.assert_allclose((loss_at(step) - loss_at(-step)) / (2 * step), norm, rtol=3e-3)


def test_the_step_does_not_depend_on_the_order_of_rows(policy, state, packed):
    expected, expected_metrics = copy(policy.update(state, as_batch(packed), 1e-3))
    again = init_state(policy.params, OPTIMIZER, policy.state_shardings)
    new_state, metrics = policy.update(again, as_batch(packed, seed=1), 1e-3)
    assert_close(metrics, expected_metrics, rtol=2e-4, atol=1e-6)
    assert_close(new_state.opt_state[0].mu, expected.opt_state[0].mu, rtol=1e-3, atol=1e-7)


def test_what_lies_outside_the_response_is_never_read(policy, state, packed):
    new_state, _ = policy.update(state, as_batch(packed), 1e-3)
    expected = copy(new_state)
    batch = as_batch(packed)

    def poison(x: np.ndarray) -> np.ndarray:
        return np.where(batch.response_mask, x, np.nan)

    poisoned = dataclasses.replace(
        batch,
        advantages=poison(batch.advantages),
        old_log_probs=poison(batch.old_log_probs),
        ref_log_probs=poison(batch.ref_log_probs),
        loss_weights=poison(batch.loss_weights),
    )
    new_state, metrics = policy.update(init_state(policy.params, OPTIMIZER, policy.state_shardings), poisoned, 1e-3)
    assert metrics["skipped"] == 0
    jax.tree.map(np.testing.assert_array_equal, copy(new_state), expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing(value: float, policy, state, packed):
    state, _ = policy.update(state, as_batch(packed), 1e-3)
    before = copy(state)
    batch = as_batch(packed)
    advantages = batch.advantages.copy()
    advantages[1, 2] = value
    state, metrics = policy.update(state, dataclasses.replace(batch, advantages=advantages), 1e-3)
    jax.tree.map(np.testing.assert_array_equal, copy(state), before)
    assert metrics["skipped"] == 1
    assert metrics["update_norm"] == 0
    state, metrics = policy.update(state, batch, 1e-3)
    assert metrics["skipped"] == 0
    assert state.step == before.step + 1


def test_learning_rate_zero_moves_only_the_moments(policy, state, packed):
    new_state, metrics = policy.update(state, as_batch(packed), 0.0)
    jax.tree.map(np.testing.assert_array_equal, copy(new_state.params), copy(policy.params))
    assert metrics["update_norm"] == 0
    assert any(np.abs(x).max() > 0 for x in jax.tree.leaves(copy(new_state.opt_state)))


def test_the_reference_survives_and_nothing_compiles_twice(policy, packed):
    reference = copy(policy.params)
    first, second = (init_state(policy.params, OPTIMIZER, policy.state_shardings) for _ in range(2))
    first, _ = policy.update(first, as_batch(packed), 1e-3)
    num_programs = policy.update._cache_size()
    first, _ = policy.update(first, as_batch(packed), 2e-3)
    second, _ = policy.update(second, as_batch(packed), 1e-2)
    assert policy.update._cache_size() == num_programs
    jax.tree.map(np.testing.assert_array_equal, copy(policy.params), reference)


def test_equal_arguments_share_a_program(policy):
    def again(temperature: float):
        shardings = make_shardings(make_policy().shardings, AdamWConfig(weight_decay=0.01))
        return make_update(
            make_policy().graphdef, OBJECTIVE, OPTIMIZER, shardings, log_prob_chunk=512, temperature=temperature
        )

    assert again(0.9) is policy.update
    assert again(1.0) is not policy.update


def test_on_policy_ratios_are_one_and_rewarded_tokens_become_likelier(policy, state, packed):
    log_probs, _ = score_rows(
        policy.score, policy.params, packed.tokens, micro_rows=MICRO, temperature=0.9, mesh=policy.mesh
    )
    on_policy = dataclasses.replace(packed, old_log_probs=log_probs, ref_log_probs=log_probs)
    state, metrics = policy.update(state, as_batch(on_policy), 1e-3)
    np.testing.assert_allclose(metrics["ratio_max"], 1.0, atol=1e-5)
    np.testing.assert_allclose(metrics["approx_kl"], 0.0, atol=1e-6)
    assert metrics["clip_fraction_high"] == metrics["clip_fraction_low"] == 0
    after, _ = policy.score(state.params, packed.tokens, 0.9)
    gain = (np.array(after) - log_probs)[packed.response_mask]
    assert np.corrcoef(gain, packed.advantages[packed.response_mask])[0, 1] > 0.5


def test_supervised_update_learns_its_targets(policy, packed):
    shardings = make_shardings(policy.shardings, OPTIMIZER)
    update = make_supervised_update(policy.graphdef, OPTIMIZER, shardings, log_prob_chunk=512)
    state = init_state(policy.params, OPTIMIZER, shardings)
    batch = as_batch(packed)
    batch = SupervisedBatch(batch.tokens, batch.response_mask, batch.loss_weights)
    log_probs, entropy = policy.score(policy.params, packed.tokens, 1.0)
    losses = []
    for _ in range(20):
        state, metrics = update(state, batch, 1e-2)
        losses.append(copy(metrics))
    mask = packed.response_mask
    np.testing.assert_allclose(losses[0]["cross_entropy"], -np.mean(log_probs[mask]), rtol=2e-5)
    np.testing.assert_allclose(losses[0]["entropy"], np.mean(entropy[mask]), rtol=2e-5)
    lengths = mask.sum(axis=1)
    by_row = -np.where(mask, log_probs, 0).sum(axis=1)[lengths > 0] / lengths[lengths > 0]
    np.testing.assert_allclose(losses[0]["loss"], by_row.mean(), rtol=2e-5)
    assert losses[-1]["cross_entropy"] < losses[0]["cross_entropy"] / 4
