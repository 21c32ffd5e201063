"""The critic as functions of a pytree: a Qwen trunk with a linear value head, its values and its update."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Float, Float32, Int, Int32

from codea1.learn.batch import batch_sharding
from codea1.learn.update import DeviceMetrics
from codea1.models.qwen2 import Params
from codea1.sharding import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ValueBatch:
    """One micro-batch for the critic, laid out as a TrainBatch."""

    tokens_BT: Int32[Array, "B T"]
    response_mask_BT: Bool[Array, "B T"]
    loss_weights_BT: Float32[Array, "B T"]
    old_values_BT: Float32[Array, "B T"]  # before the training step
    returns_BT: Float32[Array, "B T"]


def value_params(trunk: Params, hidden_size: int, mesh: Mesh) -> Params:
    """Returns a critic whose values are all 0: the trunk of a policy and a head of zeros."""
    head = jax.device_put(jnp.zeros((hidden_size,), jnp.float32), NamedSharding(mesh, PartitionSpec()))
    return {"trunk": trunk, "head": head}


def abstract_value_params(trunk: Params, hidden_size: int, mesh: Mesh) -> Params:
    """Returns `value_params` as shapes in their layout, from those of a trunk."""
    layout = NamedSharding(mesh, PartitionSpec())
    return {"trunk": trunk, "head": jax.ShapeDtypeStruct((hidden_size,), jnp.float32, sharding=layout)}


def token_values(graphdef: nnx.GraphDef, params: Params, tokens_BT: Int[Array, "B T"]) -> Float32[Array, "B T"]:
    """Returns values of right-padded rows: at t, of the state in which token t is chosen; 0 at t = 0."""
    positions_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1]), tokens_BT.shape)
    hidden_BTD, *_ = nnx.merge(graphdef, params["trunk"])(tokens_BT, positions_BT)
    values_BT = jnp.einsum("BTD,D->BT", hidden_BTD.astype(jnp.float32), params["head"], precision="highest")
    return jnp.pad(values_BT[:, :-1], ((0, 0), (1, 0)))


def value_loss(
    values_BT: Float[Array, "B T"], old_values_BT: Float[Array, "B T"], returns_BT: Float[Array, "B T"], clip: float
) -> Float[Array, "B T"]:
    """Returns max((V - R)^2, (V_clipped - R)^2) / 2 per token (Schulman et al. 2017).

    V_clipped is within `clip` of the old value.
    """
    clipped_BT = old_values_BT + jnp.clip(values_BT - old_values_BT, -clip, clip)
    return 0.5 * jnp.maximum(jnp.square(values_BT - returns_BT), jnp.square(clipped_BT - returns_BT))


@functools.cache
def make_values(graphdef: nnx.GraphDef, mesh: Mesh) -> Callable[[Params, Array], Array]:
    """Returns the compiled `values(params, tokens_BT) -> values_BT`; see `token_values`."""
    return jax.jit(functools.partial(token_values, graphdef), out_shardings=batch_sharding(mesh))


@dataclass(frozen=True)
class ValueLoss:
    """The critic's micro-loss, of ValueBatches. Metrics of its update: "value_loss" and those of every update."""

    graphdef: nnx.GraphDef
    value_clip: float = 0.5  # see `value_loss`; half of what rewards between 0 and 1 differ at most, as in verl

    def __call__(
        self, params: Params, batch: ValueBatch
    ) -> tuple[Float[Array, ""], tuple[Float[Array, "B T"], DeviceMetrics]]:
        values_BT = token_values(self.graphdef, params, batch.tokens_BT)
        loss_BT = value_loss(values_BT, batch.old_values_BT, batch.returns_BT, self.value_clip)
        loss_BT = jnp.where(batch.response_mask_BT, loss_BT, 0.0)
        weighted = jnp.sum(jnp.where(batch.response_mask_BT, batch.loss_weights_BT, 0.0) * loss_BT)
        return weighted, jax.lax.stop_gradient((values_BT, {"value_loss": loss_BT}))
