"""One optimizer step: gradients summed over micro-batches of any shapes, then AdamW, or nothing at all.

    state = init_state(params, optimizer)
    loss = PolicyLoss(graphdef, objective, log_prob_chunk=512, temperature=1.0)
    update = Update(loss, optimizer, abstract_state(params, optimizer), shapes)
    state, report = update(state, micro_batches, learning_rate)

The state is donated. One compiled function per shape of a micro-batch and one that applies the sum; equal arguments
give the same compiled functions, so two players of one shape share them. Of adapters `params` are theirs alone, and the
frozen base is one more argument, which has no gradient.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Float32, Shaped

from codea1.learn.batch import OldLogProbs, TrainBatch, batch_sharding, rows_of
from codea1.learn.log_probs import model_log_probs
from codea1.learn.losses import ObjectiveConfig, objective_loss
from codea1.learn.optimizer import AdamWConfig, make_optimizer
from codea1.models.lora import join
from codea1.models.qwen2 import Params
from codea1.runtime.compilations import Function
from codea1.sharding import Array, laid_out, to_host

DeviceMetrics = dict[str, Array]
# Training steps in a row in which a policy or critic skips all its optimizer steps, or learns from another's samples,
# after which a run stops: one may be an accident, and every further one is time that is lost.
SKIPPED_STEPS = 3
_EXPERT_ROWS = "expert_rows"  # int32 [L, e], of the tokens that predict a response
# A micro-batch's share of the loss, its log-probs and per-token diagnostics that are 0 outside the response.
MicroLoss = Callable[[Params, Any], tuple[Array, tuple[Array, DeviceMetrics]]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """What an update changes; with shardings instead of arrays, its layout."""

    step: Any  # int32 scalar: updates that were applied
    params: Any
    opt_state: Any


def init_state(params: Params, optimizer: AdamWConfig) -> TrainState:
    """Returns a fresh state around a copy of `params`, which stay usable when the state is donated.

    The optimizer's moments are float32 whatever the parameters are.
    """
    shardings = jax.tree.map(lambda x: x.sharding, abstract_state(params, optimizer))
    return jax.jit(functools.partial(_initial, optimizer), out_shardings=shardings)(params)


def abstract_state(params: Params, optimizer: AdamWConfig) -> TrainState:
    """Returns what `init_state` would make of such parameters, as shapes in their layout: moments lie as parameters do.

    It is stated, because XLA would replicate the zeros that moments start from.
    """
    shapes = jax.eval_shape(functools.partial(_initial, optimizer), params)
    param_shardings = jax.tree.map(lambda p: p.sharding, params)
    replicated = NamedSharding(jax.tree.leaves(param_shardings)[0].mesh, PartitionSpec())
    opt_state = optax.tree_map_params(
        make_optimizer(optimizer),
        lambda _, sharding: sharding,
        shapes.opt_state,
        param_shardings,
        transform_non_params=lambda _: replicated,
    )
    return laid_out(shapes, TrainState(step=replicated, params=param_shardings, opt_state=opt_state))


def abstract_gradients(params: Params) -> Params:
    """Returns the sums of such parameters' gradients, as shapes in their layout.

    Of several replicas each has its own, [R, ...]: they lie in different slices, whose network is slow, and are added
    once a step instead of once a micro-batch.
    """
    mesh = jax.tree.leaves(params)[0].sharding.mesh
    replicas = mesh.shape["replica"]

    def layout(sharding: NamedSharding) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec("replica", *sharding.spec)) if replicas > 1 else sharding

    shapes = jax.eval_shape(functools.partial(_zeros, replicas=replicas), params)
    return laid_out(shapes, jax.tree.map(lambda p: layout(p.sharding), params))


class Update:
    """The optimizer step that descends a micro-loss: `functions` are what it calls."""

    def __init__(
        self,
        micro_loss: MicroLoss,
        optimizer: AdamWConfig,
        state: TrainState,
        batches: Sequence[Any],
        *,
        frozen: Params | None = None,
        prefix: str = "",
    ) -> None:
        """Lists the functions; nothing is compiled before the first use.

        Args:
          micro_loss: hashable; equal micro-losses, optimizers and shapes share what is compiled.
          optimizer: what follows the gradients.
          state: as shapes in their layout.
          batches: one of each shape of a micro-batch, as shapes in their layout.
          frozen: the parameters that the state lacks, as shapes in their layout; see `codea1.models.lora`.
          prefix: of the functions' names.
        """
        frozen = frozen or {}
        gradients = abstract_gradients(state.params)
        leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: x.sharding, (state, frozen, gradients)))
        zeros, accumulate, apply = _jitted(micro_loss, optimizer, tuple(leaves), structure)
        rate = jax.ShapeDtypeStruct((), jnp.float32)

        def function(kind: str, sizes: str, jitted: Callable, *arguments: Any) -> Function:
            return Function(f"{prefix}{kind}", f"{prefix}{kind}{sizes}", jitted, arguments)

        # The zeros are made from shapes alone: the parameters are no argument of the compiled function.
        self._zeros = function("zeros", "", zeros, state.params)
        self._accumulate = {
            batch.tokens_BT.shape: function(
                "accumulate", f" {rows_of(batch.tokens_BT)}", accumulate, state.params, frozen, gradients, batch
            )
            for batch in batches
        }
        self._apply = function("apply", "", apply, state, gradients, rate)
        self.functions = [self._zeros, *self._accumulate.values(), self._apply]

    def __call__(
        self, state: TrainState, batches: Sequence[Any], learning_rate: float, frozen: Params | None = None
    ) -> tuple[TrainState, "UpdateReport"]:
        """Takes one step down the sum of the micro-batches' losses.

        Args:
          state: donated.
          batches: of one mini-batch, on the mesh; none at all makes a step of weight decay and old moments.
          learning_rate: of this step.
          frozen: the frozen parameters that the update was made for.

        Raises KeyError: a micro-batch is of another shape than those that the update was made for.
        """
        gradients = self._zeros(state.params)
        reports, log_probs = [], []
        for batch in batches:
            accumulate = self._accumulate[batch.tokens_BT.shape]
            gradients, report, log_probs_BT = accumulate(state.params, frozen or {}, gradients, batch)
            reports.append(report)
            log_probs.append(log_probs_BT)
        state, applied = self._apply(state, gradients, np.float32(learning_rate))
        return state, UpdateReport(reports, applied, log_probs)


@dataclass(frozen=True)
class UpdateReport:
    """What an update found, still on the devices, so that the next one need not wait for it."""

    sums: list[DeviceMetrics]  # of each micro-batch, over its tokens
    applied: DeviceMetrics
    log_probs: list[Float[Array, "B T"]]  # of each micro-batch, before the step

    def metrics(self) -> dict[str, float]:
        """Returns the metrics that the micro-loss describes; waits for the update."""
        sums, applied = to_host((self.sums, self.applied))
        rows_Le = sum(row.pop(_EXPERT_ROWS) for row in sums) if sums and _EXPERT_ROWS in sums[0] else ()
        totals = {name: float(np.sum([row[name] for row in sums])) for name in (sums[0] if sums else ())}
        if "ratio_max" in totals:
            totals["ratio_max"] = float(np.max([row["ratio_max"] for row in sums]))
        tokens = max(totals.get("tokens", 0.0), 1.0)
        whole = {"loss", "tokens", "ratio_max"}
        metrics = {name: value if name in whole else value / tokens for name, value in totals.items()}
        loads = {f"expert_load_{layer}": rows_e.max() / max(rows_e.mean(), 1.0) for layer, rows_e in enumerate(rows_Le)}
        return metrics | {name: float(value) for name, value in (applied | loads).items()}


@dataclass(frozen=True)
class PolicyLoss:
    """The policy's micro-loss, of TrainBatches.

    Metrics of its update: means over the response tokens of the mini-batch of "policy_loss", "entropy", "approx_kl",
    "kl_ref" (where the objective has a KL term), "clip_fraction_high", "clip_fraction_low" and "dual_clip_fraction" (of
    ppo); "ratio_max" over them; "loss" and "tokens", their number; and those of `_apply`. Of a mixture of experts also
    "expert_balance" (see `Routing`; of a micro-batch's rows in one replica, over layers); "other_experts", the share of
    tokens whose given routes are not those that the routers would choose now; and "expert_load_LAYER", rows of the
    busiest expert over the mean of all.
    """

    graphdef: nnx.GraphDef
    objective: ObjectiveConfig
    log_prob_chunk: int  # tokens of each device whose logits exist at once
    temperature: float = 1.0  # the policy that is trained is softmax(logits / temperature), the one that sampled
    balance_coefficient: float = 0.0  # of the experts' balance in the loss

    def __call__(
        self, params: Params, batch: TrainBatch
    ) -> tuple[Float[Array, ""], tuple[Float[Array, "B T"], DeviceMetrics]]:
        # What lies outside the response may be anything, NaN included. It is replaced before any arithmetic, because
        # 0 * NaN would leak through both the sum and the gradient.
        def inside(x_BT: Shaped[Array, "B T"]) -> Float[Array, "B T"]:
            return jnp.where(batch.response_mask_BT, x_BT, 0.0)

        counted_BT = jnp.pad(batch.response_mask_BT[:, 1:], ((0, 0), (0, 1)))  # what predicts a response
        how = self.temperature, batch.packing, batch.routes_BTLc, counted_BT
        scores, routing = model_log_probs(self.graphdef, self.log_prob_chunk, params, batch.tokens_BT, *how)
        log_probs_BT, entropy_BT = scores
        old_log_probs_BT = jnp.where(
            batch.old_source_B1 == OldLogProbs.UPDATE, jax.lax.stop_gradient(log_probs_BT), batch.old_log_probs_BT
        )
        compared = old_log_probs_BT, batch.sampler_log_probs_BT, batch.ref_log_probs_BT
        values = jax.tree.map(inside, (log_probs_BT, entropy_BT, *compared, batch.advantages_BT))
        arguments = (*values, batch.row_responses_BT, self.objective)
        loss_BT, diagnostics = objective_loss(*arguments)
        diagnostics = jax.tree.map(inside, diagnostics)
        if routing is not None:
            assert routing.balance is not None
            assert routing.differs_BT is not None
            balance_BT = inside(jnp.full_like(loss_BT, jnp.mean(routing.balance)))
            loss_BT += self.balance_coefficient * balance_BT
            diagnostics["expert_balance"] = jax.lax.stop_gradient(balance_BT)
            diagnostics["other_experts"] = jnp.any(routing.differs_BT, axis=0)
            diagnostics[_EXPERT_ROWS] = routing.rows_e
        return jnp.sum(inside(batch.loss_weights_BT) * loss_BT), (log_probs_BT, diagnostics)


@functools.cache
def _jitted(
    micro_loss: MicroLoss,
    optimizer: AdamWConfig,
    sharding_leaves: tuple[NamedSharding, ...],
    structure: jax.tree_util.PyTreeDef,
) -> tuple[Callable, Callable, Callable]:
    """Returns the jitted `_zeros`, `_accumulate` and `_apply`, the same ones for equal arguments."""
    shardings, frozen, of_gradients = jax.tree.unflatten(structure, sharding_leaves)
    replicated = shardings.step
    by_rows, replicas = batch_sharding(replicated.mesh), replicated.mesh.shape["replica"]
    on_device = functools.partial(_accumulate, micro_loss)
    accumulate = jax.jit(
        _on_each_replica(on_device, replicated.mesh) if replicas > 1 else on_device,
        donate_argnums=2,
        in_shardings=(shardings.params, frozen, of_gradients, by_rows),
        out_shardings=(of_gradients, replicated, by_rows),
    )
    # Left open, XLA's choice for the new state would differ from the old state's layout, and the second step would be
    # refused.
    apply = jax.jit(
        functools.partial(_apply, optimizer, replicas),
        donate_argnums=0,
        in_shardings=(shardings, of_gradients, replicated),
        out_shardings=(shardings, replicated),
    )
    return jax.jit(functools.partial(_zeros, replicas=replicas), out_shardings=of_gradients), accumulate, apply


def _initial(optimizer: AdamWConfig, params: Params) -> TrainState:
    copies = jax.tree.map(jnp.copy, params)
    return TrainState(jnp.zeros((), jnp.int32), copies, make_optimizer(optimizer).init(_zeros(params)))


def _zeros(params: Params, replicas: int = 1) -> Params:
    return jax.tree.map(lambda p: jnp.zeros((replicas, *p.shape) if replicas > 1 else p.shape, jnp.float32), params)


def _accumulate(
    micro_loss: MicroLoss, params: Params, frozen: Params, gradients: Params, batch: Any
) -> tuple[Params, DeviceMetrics, Float[Array, "B T"]]:
    """Adds a micro-batch's gradients; sums over its response tokens of what it reports; its log-probs."""

    def loss_of(params: Params) -> tuple[Array, tuple[Array, DeviceMetrics]]:
        return micro_loss(join(params, frozen), batch)

    (loss, (log_probs_BT, diagnostics)), new = jax.value_and_grad(loss_of, has_aux=True)(params)
    sums = {"loss": loss, "tokens": jnp.sum(batch.response_mask_BT).astype(jnp.float32)}
    if "ratio" in diagnostics:
        sums["ratio_max"] = jnp.max(diagnostics.pop("ratio"))
    whole = {_EXPERT_ROWS: diagnostics.pop(_EXPERT_ROWS)} if _EXPERT_ROWS in diagnostics else {}
    sums |= whole | {name: jnp.sum(value).astype(jnp.float32) for name, value in diagnostics.items()}
    return jax.tree.map(jnp.add, gradients, new), sums, log_probs_BT


def _on_each_replica(accumulate: Callable, mesh: Mesh) -> Callable:
    """Returns `_accumulate` by which each replica adds to its own gradients, [1, ...] there, those of its own rows."""

    def add(
        params: Params, frozen: Params, gradients: Params, batch: Any
    ) -> tuple[Params, DeviceMetrics, Float[Array, "B T"]]:
        gradients, sums, log_probs_BT = accumulate(params, frozen, jax.tree.map(lambda g: g[0], gradients), batch)
        largest = {name: jax.lax.pmax(sums.pop(name), "replica") for name in ("ratio_max",) if name in sums}
        return jax.tree.map(lambda g: g[None], gradients), jax.lax.psum(sums, "replica") | largest, log_probs_BT

    same, own_part = PartitionSpec(), PartitionSpec("replica")
    specs = (same, same, own_part, own_part), (own_part, same, own_part)
    # What else cuts rows and weights is left to the partitioner, as without replicas.
    return jax.shard_map(add, mesh=mesh, in_specs=specs[0], out_specs=specs[1], axis_names={"replica"}, check_vma=False)


def _apply(
    optimizer: AdamWConfig, replicas: int, state: TrainState, gradients: Params, learning_rate: Float32[Array, ""]
) -> tuple[TrainState, DeviceMetrics]:
    """Returns the state after one step of AdamW, or the state as it was when that step cannot be taken.

    The gradients are scaled so that their global norm is at most `max_grad_norm`.

    It cannot where the norm of the gradients or of the new parameters, in float32, is not finite. That holds of NaN,
    and of parameters that explode: from about 1e19 on their squares overflow.

    Metrics: "grad_norm" before clipping, "update_norm" (0 when skipped), "param_norm" before the step, and "skipped",
    1 when nothing was changed.
    """
    if replicas > 1:
        gradients = jax.tree.map(lambda g: jnp.sum(g, axis=0), gradients)
    grad_norm = optax.tree.norm(gradients)

    def step(state: TrainState, gradients: Params) -> tuple[Params, TrainState]:
        scale = jnp.minimum(1.0, optimizer.max_grad_norm / jnp.maximum(grad_norm, 1e-16))
        clipped = jax.tree.map(lambda g: g * scale, gradients)
        directions, opt_state = make_optimizer(optimizer).update(clipped, state.opt_state, state.params)
        updates = jax.tree.map(lambda d: -learning_rate * d, directions)
        return updates, TrainState(state.step + 1, optax.apply_updates(state.params, updates), opt_state)

    is_finite = jnp.isfinite(grad_norm) & jnp.isfinite(float32_norm(step(state, gradients)[1].params))
    # Computed once, old and new state would both wait in memory for the norm: the barrier keeps XLA from merging them.
    is_finite, state, gradients = jax.lax.optimization_barrier((is_finite, state, gradients))
    updates, stepped = step(state, gradients)
    metrics = {
        "grad_norm": grad_norm,
        "update_norm": jnp.where(is_finite, optax.tree.norm(updates), 0.0),
        "param_norm": float32_norm(state.params),
        "skipped": 1.0 - is_finite,
    }
    return jax.tree.map(lambda new, old: jnp.where(is_finite, new, old), stepped, state), metrics


def float32_norm(tree: Any) -> Float32[Array, ""]:
    """Returns the norm of all floating-point arrays together; not finite where one of their elements is not."""
    arrays = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return optax.tree.norm(optax.tree.cast(arrays, jnp.float32))
