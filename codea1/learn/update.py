"""One optimizer step as one compiled program: losses over micro-batches, exact sums, AdamW, or nothing at all.

    shardings = state_shardings(param_shardings, optimizer)
    state = init_state(params, optimizer, shardings)
    update = make_update(graphdef, objective, optimizer, shardings, log_prob_chunk=512)
    state, metrics = update(state, batch, learning_rate)

The state is donated. Equal arguments give the same compiled program, so two players of one shape share it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from codea1.learn.batch import SupervisedBatch, TrainBatch, batch_sharding
from codea1.learn.log_probs import model_log_probs
from codea1.learn.losses import ObjectiveConfig, objective_loss
from codea1.learn.optimizer import AdamWConfig, clip_by_norm, descend, make_optimizer
from codea1.models.qwen2 import Params

Metrics = dict[str, jax.Array]
# A micro-batch's share of the loss, and per-token diagnostics [B, T] that are 0 outside the response.
MicroLoss = Callable[[Params, Any], tuple[jax.Array, Metrics]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """What an update changes. As a pytree of shardings it says where each part lives."""

    step: Any  # int32 scalar: updates that were applied
    params: Any
    opt_state: Any


def state_shardings(param_shardings: Any, optimizer: AdamWConfig) -> TrainState:
    """The layout of a whole TrainState from that of its parameters: the moments lie as the parameters do.

    It has to be said, because XLA would replicate the zeros that moments start from.
    """
    mesh = jax.tree.leaves(param_shardings)[0].mesh
    replicated = NamedSharding(mesh, PartitionSpec())
    transform = make_optimizer(optimizer)
    scalars = jax.tree.map(lambda _: jax.ShapeDtypeStruct((), jnp.float32), param_shardings)
    opt_state = optax.tree_map_params(
        transform,
        lambda _, sharding: sharding,
        jax.eval_shape(transform.init, scalars),
        param_shardings,
        transform_non_params=lambda _: replicated,
    )
    return TrainState(step=replicated, params=param_shardings, opt_state=opt_state)


def init_state(params: Params, optimizer: AdamWConfig, shardings: TrainState) -> TrainState:
    """A fresh state around a copy of `params`, which stay usable when the state is donated.

    The optimizer's moments are float32 whatever the parameters are.
    """

    def create(params: Params) -> TrainState:
        copies = jax.tree.map(jnp.copy, params)
        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return TrainState(jnp.zeros((), jnp.int32), copies, make_optimizer(optimizer).init(zeros))

    return jax.jit(create, out_shardings=shardings)(params)


def make_update(
    graphdef: nnx.GraphDef,
    objective: ObjectiveConfig,
    optimizer: AdamWConfig,
    shardings: TrainState,
    *,
    log_prob_chunk: int,
    temperature: float = 1.0,
) -> Callable[[TrainState, TrainBatch, float], tuple[TrainState, Metrics]]:
    """The policy update `update(state, batch, learning_rate) -> (state, metrics)`; `batch` is [micro, B, T].

    The policy that is trained is softmax(logits / temperature), the one that sampled; `log_prob_chunk` is the number of
    positions whose logits exist at once. Metrics are float32 scalars: means over the response tokens of the mini-batch
    of "policy_loss", "entropy", "approx_kl", "kl_ref" (where the objective has a KL term), "clip_fraction_high",
    "clip_fraction_low" and "dual_clip_fraction"; "ratio_max" over them; "loss" and "tokens", their number; and those of
    `_apply`.
    """
    micro_loss = _PolicyMicroLoss(graphdef, objective, log_prob_chunk, temperature)
    return _compile(micro_loss, optimizer, *_hashable(shardings))


def make_supervised_update(
    graphdef: nnx.GraphDef, optimizer: AdamWConfig, shardings: TrainState, *, log_prob_chunk: int
) -> Callable[[TrainState, SupervisedBatch, float], tuple[TrainState, Metrics]]:
    """The supervised update: weighted cross entropy of the target tokens; otherwise as `make_update`.

    Metrics: "cross_entropy" and "entropy" in nats per target token; "loss" and "tokens", the number of target tokens;
    and those of `_apply`.
    """
    return _compile(_SupervisedMicroLoss(graphdef, log_prob_chunk), optimizer, *_hashable(shardings))


@dataclass(frozen=True)
class _PolicyMicroLoss:
    graphdef: nnx.GraphDef
    objective: ObjectiveConfig
    log_prob_chunk: int
    temperature: float

    def __call__(self, params: Params, batch: TrainBatch) -> tuple[jax.Array, Metrics]:
        # What lies outside the response may be anything, NaN included. It is replaced before any arithmetic, because
        # 0 * NaN would leak through both the sum and the gradient.
        def inside(x: jax.Array | None) -> jax.Array | None:
            return None if x is None else jnp.where(batch.response_mask, x, 0.0)

        log_probs, entropy = model_log_probs(self.graphdef, params, batch.tokens, self.temperature, self.log_prob_chunk)
        loss, diagnostics = objective_loss(
            inside(log_probs),
            inside(entropy),
            inside(batch.old_log_probs),
            inside(batch.ref_log_probs),
            inside(batch.advantages),
            self.objective,
        )
        return jnp.sum(inside(batch.loss_weights) * loss), jax.tree.map(inside, diagnostics)


@dataclass(frozen=True)
class _SupervisedMicroLoss:
    graphdef: nnx.GraphDef
    log_prob_chunk: int

    def __call__(self, params: Params, batch: SupervisedBatch) -> tuple[jax.Array, Metrics]:
        log_probs, entropy = model_log_probs(self.graphdef, params, batch.tokens, 1.0, self.log_prob_chunk)
        cross_entropy = jnp.where(batch.response_mask, -log_probs, 0.0)
        diagnostics = {"cross_entropy": cross_entropy, "entropy": jnp.where(batch.response_mask, entropy, 0.0)}
        return jnp.sum(batch.loss_weights * cross_entropy), jax.lax.stop_gradient(diagnostics)


def _hashable(shardings: TrainState) -> tuple[tuple[NamedSharding, ...], jax.tree_util.PyTreeDef]:
    leaves, structure = jax.tree.flatten(shardings)
    return tuple(leaves), structure


@functools.cache
def _compile(
    micro_loss: MicroLoss,
    optimizer: AdamWConfig,
    sharding_leaves: tuple[NamedSharding, ...],
    structure: jax.tree_util.PyTreeDef,
) -> Callable:
    shardings: TrainState = jax.tree.unflatten(structure, sharding_leaves)
    replicated = shardings.step

    def update(state: TrainState, batch: Any, learning_rate: jax.Array) -> tuple[TrainState, Metrics]:
        gradients, metrics = _accumulate(micro_loss, state.params, batch, shardings.params)
        state, norms = _apply(optimizer, state, gradients, learning_rate)
        return state, metrics | norms

    return jax.jit(
        update,
        donate_argnums=0,
        in_shardings=(shardings, batch_sharding(replicated.mesh, num_dimensions=3), replicated),
        # Left open, XLA's choice for the new state would differ from the old state's layout and the second step
        # would compile again.
        out_shardings=(shardings, replicated),
    )


def _accumulate(micro_loss: MicroLoss, params: Params, batch: Any, shardings: Any) -> tuple[Params, Metrics]:
    """Gradients summed over micro-batches, and means over response tokens of what the micro-batches report."""

    def one(total: Params, micro_batch: Any) -> tuple[Params, Metrics]:
        (loss, diagnostics), gradients = jax.value_and_grad(micro_loss, has_aux=True)(params, micro_batch)
        ratio = diagnostics.pop("ratio", None)
        report = {"loss": loss, "tokens": jnp.sum(micro_batch.response_mask)}
        report |= {name: jnp.sum(value) for name, value in diagnostics.items()}
        if ratio is not None:
            report["ratio_max"] = jnp.max(ratio)
        return jax.tree.map(jnp.add, total, gradients), report

    zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
    gradients, reports = jax.lax.scan(one, jax.lax.with_sharding_constraint(zeros, shardings), batch)
    metrics = {name: jnp.max(values) for name, values in reports.items() if name == "ratio_max"}
    sums = {name: jnp.sum(values).astype(jnp.float32) for name, values in reports.items() if name not in metrics}
    metrics |= {name: sums.pop(name) for name in ("loss", "tokens")}
    return gradients, metrics | {name: value / jnp.maximum(metrics["tokens"], 1.0) for name, value in sums.items()}


def _apply(
    optimizer: AdamWConfig, state: TrainState, gradients: Params, learning_rate: jax.Array
) -> tuple[TrainState, Metrics]:
    """The state after one step of AdamW, or the state as it was when the gradients are not finite.

    Metrics: "grad_norm" before clipping, "update_norm" (0 when skipped), "param_norm" before the step, and "skipped",
    1 when nothing was changed.
    """
    grad_norm = optax.tree.norm(gradients)
    is_finite = jnp.isfinite(grad_norm)
    updates, opt_state, params = descend(
        make_optimizer(optimizer),
        clip_by_norm(gradients, grad_norm, optimizer.max_grad_norm),
        state.opt_state,
        state.params,
        learning_rate,
    )
    stepped = TrainState(state.step + 1, params, opt_state)
    metrics = {
        "grad_norm": grad_norm,
        "update_norm": jnp.where(is_finite, optax.tree.norm(updates), 0.0),
        "param_norm": optax.tree.norm(optax.tree.cast(state.params, jnp.float32)),
        "skipped": 1.0 - is_finite,
    }
    return jax.tree.map(lambda new, old: jnp.where(is_finite, new, old), stepped, state), metrics
