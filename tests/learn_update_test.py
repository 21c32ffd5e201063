"""The compiled update: exact sums over any cut, skipped steps, and that it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codea1.lab.sft.loss import SupervisedBatch, SupervisedLoss, abstract_supervised_batch
from codea1.learn.batch import OldLogProbs, RowLayout, RowShape, TrainBatch, TrainSample, abstract_batch, micro_batches
from codea1.learn.log_probs import make_score, model_log_probs
from codea1.learn.losses import ObjectiveConfig, objective_loss
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.update import PolicyLoss, TrainState, Update, abstract_state, init_state
from codea1.runtime.compilations import compiled_functions
from tests.tiny_policy import make_policy

LENGTH, ROWS = 16, 8
WHOLE = (RowShape(ROWS, LENGTH),)
CUT = (RowShape(3, 11), RowShape(3, LENGTH))  # three micro-batches of two lengths, the last with empty rows
OBJECTIVE = ObjectiveConfig(kl_coefficient=0.1, entropy_coefficient=0.01)
OPTIMIZER = AdamWConfig(weight_decay=0.01)


@pytest.fixture(scope="module")
def policy():
    policy = make_policy()
    policy.update = update_of(policy)
    policy.score = make_score(policy.graphdef, 512, policy.mesh)
    return policy


def update_of(policy, shapes=(*CUT, *WHOLE), temperature: float = 0.9) -> Update:
    state = abstract_state(policy.params, OPTIMIZER)
    batches = [abstract_batch(shape, policy.mesh, ref=True) for shape in shapes]
    return Update(PolicyLoss(policy.graphdef, OBJECTIVE, 512, temperature), OPTIMIZER, state, batches)


@pytest.fixture
def state(policy) -> TrainState:
    return init_state(policy.params, OPTIMIZER)


@pytest.fixture(scope="module")
def samples(policy) -> list[TrainSample]:
    """Seven samples, with log-probs a little off the policy's."""
    rng = np.random.default_rng(0)
    samples = []
    for row in range(ROWS - 1):
        sizes = (1 + row % 5, 3 + row % 7)
        prompt, response = (rng.integers(0, policy.config.vocab_size, size).tolist() for size in sizes)
        samples.append(TrainSample(prompt, response, np.zeros(len(response)), rng.normal()))
    (batch,) = lay_out(samples, WHOLE)
    log_probs = np.array(policy.score(policy.params, batch.tokens_BT, 0.9)[0])
    log_probs += rng.normal(0, 0.3, log_probs.shape)
    scored = []
    for row in range(ROWS - 1):
        sample = next(s for s in samples if s.token_ids == batch.tokens_BT[row, batch.response_mask_BT[row]].tolist())
        scored.append(dataclasses.replace(sample, log_probs=log_probs[row, batch.response_mask_BT[row]]))
    return scored


def lay_out(samples: list[TrainSample], shapes: tuple[RowShape, ...]) -> list[TrainBatch]:
    batches = micro_batches(samples, RowLayout(shapes, "seq-mean-token-mean", max_response_length=LENGTH, pad_id=0))
    return [dataclasses.replace(batch, ref_log_probs_BT=0.9 * batch.sampler_log_probs_BT) for batch in batches]


def take(update, state: TrainState, batches: list, rate: float) -> tuple[TrainState, dict[str, float]]:
    state, report = update(state, batches, rate)
    return state, report.metrics()


def copy(tree):
    return jax.tree.map(np.array, tree)


def norm_of(tree) -> float:
    return sum(float(np.sum(np.square(x, dtype=np.float64))) for x in jax.tree.leaves(copy(tree))) ** 0.5


def assert_close(tree, expected, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), tree, expected)


@pytest.fixture(scope="module")
def whole(policy, samples):
    """Loss, per-token diagnostics and gradient of the whole mini-batch at once, as functions of the parameters."""
    (batch,) = lay_out(samples, WHOLE)

    def loss_of(params):
        (log_probs, entropy), _ = model_log_probs(policy.graphdef, 512, params, batch.tokens_BT, 0.9)
        loss, diagnostics = objective_loss(
            log_probs,
            entropy,
            batch.sampler_log_probs_BT,
            batch.sampler_log_probs_BT,
            batch.ref_log_probs_BT,
            batch.advantages_BT,
            batch.row_responses_BT,
            OBJECTIVE,
        )
        return jnp.sum(batch.loss_weights_BT * loss), diagnostics

    return jax.jit(jax.value_and_grad(loss_of, has_aux=True)), np.array(batch.response_mask_BT)


def test_metrics_equal_those_of_the_whole_mini_batch_at_once(policy, state, samples, whole):
    value_and_grad, mask = whole
    (loss, diagnostics), gradient = value_and_grad(policy.params)
    new_state, metrics = take(policy.update, state, lay_out(samples, CUT), 1e-3)
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


def test_the_step_does_not_depend_on_the_order_of_rows(policy, state, samples):
    expected, expected_metrics = take(policy.update, state, lay_out(samples, CUT), 1e-3)
    expected = copy(expected)
    again = init_state(policy.params, OPTIMIZER)
    new_state, metrics = take(policy.update, again, lay_out(samples[::-1], CUT), 1e-3)
    assert_close(metrics, expected_metrics, rtol=2e-4, atol=1e-6)
    assert_close(new_state.opt_state[0].mu, expected.opt_state[0].mu, rtol=1e-3, atol=1e-7)


def test_what_lies_outside_the_response_is_never_read(policy, state, samples):
    new_state, _ = take(policy.update, state, lay_out(samples, CUT), 1e-3)
    expected = copy(new_state)

    def poisoned(batch: TrainBatch) -> TrainBatch:
        names = ("advantages_BT", "sampler_log_probs_BT", "ref_log_probs_BT", "loss_weights_BT")
        return dataclasses.replace(
            batch, **{name: np.where(batch.response_mask_BT, getattr(batch, name), np.nan) for name in names}
        )

    again = init_state(policy.params, OPTIMIZER)
    new_state, metrics = take(policy.update, again, [poisoned(batch) for batch in lay_out(samples, CUT)], 1e-3)
    assert metrics["skipped"] == 0
    jax.tree.map(np.testing.assert_array_equal, copy(new_state), expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing(value: float, policy, state, samples):
    state, _ = take(policy.update, state, lay_out(samples, CUT), 1e-3)
    before = copy(state)
    batches = lay_out(samples, CUT)
    bad = np.where(batches[1].response_mask_BT, value, 0.0).astype(np.float32)
    spoilt = [batches[0], dataclasses.replace(batches[1], advantages_BT=bad), *batches[2:]]
    state, metrics = take(policy.update, state, spoilt, 1e-3)
    jax.tree.map(np.testing.assert_array_equal, copy(state), before)
    assert metrics["skipped"] == 1
    assert metrics["update_norm"] == 0
    state, metrics = take(policy.update, state, batches, 1e-3)
    assert metrics["skipped"] == 0
    assert state.step == before.step + 1


@pytest.mark.parametrize("rate", [1e30, np.inf])
def test_a_step_to_parameters_that_explode_changes_nothing(rate: float, policy, state, samples):
    """The square of 1e30 is more than float32 holds, and so is the norm of such parameters."""
    batches = lay_out(samples, CUT)
    state, _ = take(policy.update, state, batches, 1e-3)
    before = copy(state)
    state, metrics = take(policy.update, state, batches, rate)
    jax.tree.map(np.testing.assert_array_equal, copy(state), before)
    assert (metrics["skipped"], metrics["update_norm"]) == (1, 0)
    assert np.isfinite([metrics["grad_norm"], metrics["param_norm"]]).all()
    assert take(policy.update, state, batches, 1e-3)[1]["skipped"] == 0


def test_learning_rate_zero_moves_only_the_moments(policy, state, samples):
    new_state, metrics = take(policy.update, state, lay_out(samples, CUT), 0.0)
    jax.tree.map(np.testing.assert_array_equal, copy(new_state.params), copy(policy.params))
    assert metrics["update_norm"] == 0
    assert any(np.abs(x).max() > 0 for x in jax.tree.leaves(copy(new_state.opt_state)))


def test_the_reference_survives_and_nothing_is_compiled_twice(policy, samples):
    reference = copy(policy.params)
    first, second = (init_state(policy.params, OPTIMIZER) for _ in range(2))
    first, _ = take(policy.update, first, lay_out(samples, CUT), 1e-3)
    known = set(compiled_functions)
    first, _ = take(policy.update, first, lay_out(samples, CUT), 2e-3)
    second, _ = take(policy.update, second, lay_out(samples, CUT), 1e-2)
    assert set(compiled_functions) == known
    jax.tree.map(np.testing.assert_array_equal, copy(policy.params), reference)


def test_equal_arguments_share_what_is_compiled(policy):
    def compiled(update: Update) -> dict:
        return {function.name: function.compiled for function in update.functions}

    first, again, other = (compiled(update_of(make_policy(), CUT, each)) for each in (0.9, 0.9, 1.0))
    assert first == again
    assert set(first) == {"zeros", "accumulate 3 x 11", "accumulate 3 x 16", "apply"}
    assert {name for name in first if first[name] == other[name]} == set()


def test_a_micro_batch_of_another_shape_or_other_columns_is_refused(policy, state, samples):
    with pytest.raises(KeyError):
        policy.update(state, lay_out(samples, (RowShape(2, LENGTH),)), 1e-3)
    (batch,) = lay_out(samples, WHOLE)
    with pytest.raises(TypeError):
        policy.update(state, [dataclasses.replace(batch, ref_log_probs_BT=None)], 1e-3)


def test_on_policy_ratios_are_one_and_rewarded_tokens_become_likelier(policy, state, samples):
    (batch,) = lay_out(samples, WHOLE)
    log_probs, _ = policy.score(policy.params, batch.tokens_BT, 0.9)
    log_probs = np.array(log_probs)
    update = update_of(policy, WHOLE)
    scored = dataclasses.replace(batch, old_log_probs_BT=log_probs, ref_log_probs_BT=log_probs)
    state, metrics = take(update, state, [scored], 1e-3)
    np.testing.assert_allclose(metrics["ratio_max"], 1.0, atol=1e-5)
    np.testing.assert_allclose(metrics["approx_kl"], 0.0, atol=1e-6)
    assert metrics["clip_fraction_high"] == metrics["clip_fraction_low"] == 0
    after, _ = policy.score(state.params, batch.tokens_BT, 0.9)
    gain = (np.array(after) - log_probs)[batch.response_mask_BT]
    assert np.corrcoef(gain, batch.advantages_BT[batch.response_mask_BT])[0, 1] > 0.5


def test_the_update_computes_old_log_probs_itself_where_the_batch_says_so(policy, samples):
    (batch,) = lay_out(samples, WHOLE)
    log_probs = np.array(policy.score(policy.params, batch.tokens_BT, 0.9)[0])
    update = update_of(policy, WHOLE)
    steps = {}
    for source, old in ((OldLogProbs.TRAINER, log_probs), (OldLogProbs.UPDATE, np.full_like(log_probs, np.nan))):
        state = init_state(policy.params, OPTIMIZER)
        scored = dataclasses.replace(
            batch,
            old_log_probs_BT=old,
            old_source_B1=np.full_like(batch.old_source_B1, source),
            ref_log_probs_BT=log_probs,
        )
        steps[source] = take(update, state, [scored], 1e-3)
    (given, metrics), (computed, metrics_computed) = steps[OldLogProbs.TRAINER], steps[OldLogProbs.UPDATE]
    assert metrics_computed["ratio_max"] == 1.0
    assert metrics_computed == pytest.approx(metrics, abs=1e-5)
    assert_close(computed.params, given.params, atol=1e-5)


def test_a_report_holds_the_log_probs_before_the_step(policy, state, samples):
    batches = lay_out(samples, CUT)
    expected = [policy.score(policy.params, batch.tokens_BT, 0.9)[0] for batch in batches]
    _, report = policy.update(state, batches, 1e-3)
    for own, scored in zip(report.log_probs, expected, strict=True):
        np.testing.assert_allclose(own, scored, atol=1e-5)


def test_supervised_update_learns_its_targets(policy, samples):
    state, layout = init_state(policy.params, OPTIMIZER), abstract_state(policy.params, OPTIMIZER)
    abstract = [abstract_supervised_batch(shape, policy.mesh) for shape in CUT]
    update = Update(SupervisedLoss(policy.graphdef, 512), OPTIMIZER, layout, abstract)
    whole, cut = (
        [SupervisedBatch(b.tokens_BT, b.response_mask_BT, b.loss_weights_BT) for b in lay_out(samples, shapes)]
        for shapes in (WHOLE, CUT)
    )
    log_probs, entropy = policy.score(policy.params, whole[0].tokens_BT, 1.0)
    losses = []
    for _ in range(20):
        state, metrics = take(update, state, cut, 1e-2)
        losses.append(metrics)
    mask = whole[0].response_mask_BT
    np.testing.assert_allclose(losses[0]["cross_entropy"], -np.mean(log_probs[mask]), rtol=2e-5)
    np.testing.assert_allclose(losses[0]["entropy"], np.mean(entropy[mask]), rtol=2e-5)
    lengths = mask.sum(axis=1)
    by_row = -np.where(mask, log_probs, 0).sum(axis=1)[lengths > 0] / lengths[lengths > 0]
    np.testing.assert_allclose(losses[0]["loss"], by_row.mean(), rtol=2e-5)
    assert losses[-1]["cross_entropy"] < losses[0]["cross_entropy"] / 4
