"""Policy-gradient surrogates: what stands for -A log pi in the loss, per token. Adding one is adding one function.

All return the loss to be minimised, per token, and per-token diagnostics, and take:

  log_probs_BT      of the sampled tokens under the policy that is trained
  old_log_probs_BT  under the policy of the start of the training step
  advantages_BT     per token
  responses_BT      at response tokens a number > 0 that no other response of the row has; elsewhere all are 0

The diagnostics show where a clip is active and give the ratio and (ratio - 1) - log ratio, whose mean estimates
KL(old policy || policy).
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Shaped

from codea1.sharding import Array

LOG_RATIO_BOUND = 20.0  # exp(20) is far from overflow in float32

Diagnostics = dict[str, Float[Array, "B T"] | Bool[Array, "B T"]]


@dataclass(frozen=True)
class Clip:
    """Where surrogates stop following a ratio. The defaults are the hyper-parameters of the Code-A1 paper."""

    low: float = 0.2  # ratios below 1 - low stop being pushed down
    high: float = 0.28  # ratios above 1 + high stop being pushed up
    dual: float = 10.0  # c, of ppo alone: with a negative advantage a token's loss is at most -c * advantage


Surrogate = Callable[[Array, Array, Array, Array, Clip], tuple[Array, Diagnostics]]


def ppo(
    log_probs_BT: Float[Array, "B T"],
    old_log_probs_BT: Float[Array, "B T"],
    advantages_BT: Float[Array, "B T"],
    responses_BT: Int[Array, "B T"],
    clip: Clip,
) -> tuple[Float[Array, "B T"], Diagnostics]:
    """Returns the loss of dual-clip PPO and its diagnostics.

    ratio = exp(clip(log_probs - old_log_probs, -20, 20)); loss = max(-A ratio, -A clip(ratio, 1 - low, 1 + high)),
    and for A < 0 at most -A c (Schulman et al. 2017; dual clip: Ye et al. 2020; clip-higher: Yu et al. 2025).
    """
    log_ratio_BT = bounded_log_ratio(log_probs_BT, old_log_probs_BT)
    pessimistic_BT, diagnostics = _pessimistic(log_ratio_BT, advantages_BT, clip)
    ceiling_BT = -advantages_BT * clip.dual
    diagnostics["dual_clip_fraction"] = (pessimistic_BT > ceiling_BT) & (advantages_BT < 0)
    return jnp.where(advantages_BT < 0, jnp.minimum(pessimistic_BT, ceiling_BT), pessimistic_BT), diagnostics


def gspo(
    log_probs_BT: Float[Array, "B T"],
    old_log_probs_BT: Float[Array, "B T"],
    advantages_BT: Float[Array, "B T"],
    responses_BT: Int[Array, "B T"],
    clip: Clip,
) -> tuple[Float[Array, "B T"], Diagnostics]:
    """Returns the loss of GSPO-token and its diagnostics (Zheng et al. 2025, equation 14).

    One ratio per response, of which a row may hold several, the geometric mean of its tokens' ratios:
    s = exp(mean over the response of log_probs - old_log_probs), the gradient of each token its own:
    sg[s] pi / sg[pi]; clipped as PPO, without its dual clip. log s is kept within -20 and 20. Published
    with low 3e-4, high 4e-4 and seq-mean-token-mean aggregation, which verl's mode of this name imposes.
    """
    differences_BT = jax.lax.stop_gradient(jnp.where(responses_BT > 0, log_probs_BT - old_log_probs_BT, 0.0))
    lengths_BT = _response_sums((responses_BT > 0).astype(differences_BT.dtype), responses_BT)
    mean_BT = _response_sums(differences_BT, responses_BT) / jnp.maximum(lengths_BT, 1)
    own_BT = log_probs_BT - jax.lax.stop_gradient(log_probs_BT)  # 0, with the token's gradient
    log_ratio_BT = jnp.clip(mean_BT, -LOG_RATIO_BOUND, LOG_RATIO_BOUND) + own_BT
    return _pessimistic(log_ratio_BT, advantages_BT, clip)


def cispo(
    log_probs_BT: Float[Array, "B T"],
    old_log_probs_BT: Float[Array, "B T"],
    advantages_BT: Float[Array, "B T"],
    responses_BT: Int[Array, "B T"],
    clip: Clip,
) -> tuple[Float[Array, "B T"], Diagnostics]:
    """Returns the loss of CISPO and its diagnostics (MiniMax-M1, 2025, equation 4).

    The clipped ratio is a weight, and no token's gradient is dropped:
    loss = -sg[clip(ratio, 1 - low, 1 + high)] A log_probs. The published one has no lower bound: low = 1.
    """
    log_ratio_BT = bounded_log_ratio(log_probs_BT, old_log_probs_BT)
    ratio_BT = jnp.exp(log_ratio_BT)
    weight_BT = jax.lax.stop_gradient(jnp.clip(ratio_BT, 1.0 - clip.low, 1.0 + clip.high))
    diagnostics = {
        "clip_fraction_high": ratio_BT > 1.0 + clip.high,
        "clip_fraction_low": ratio_BT < 1.0 - clip.low,
        **_ratio_diagnostics(log_ratio_BT),
    }
    return -weight_BT * advantages_BT * log_probs_BT, diagnostics


SURROGATES: dict[str, Surrogate] = {"ppo": ppo, "gspo": gspo, "cispo": cispo}


def bounded_log_ratio(
    log_probs_BT: Float[Array, "B T"], other_log_probs_BT: Float[Array, "B T"]
) -> Float[Array, "B T"]:
    """Returns clip(log_probs - other_log_probs, -20, 20), whose exponential is finite."""
    return jnp.clip(log_probs_BT - other_log_probs_BT, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def _response_sums(values_BT: Float[Array, "B T"], responses_BT: Int[Array, "B T"]) -> Float[Array, "B T"]:
    """Returns at each token the sum over its response, the same at all of them.

    In log T passes each token first adds up what lies before it in its response, in reach 1, 2, 4 and so on, then takes
    over what the last one has. Differences of sums over the row would round by what its other responses add up to.
    """

    def shifted(x_BT: Shaped[Array, "B T"], by: int) -> Shaped[Array, "B T"]:
        return jax.lax.pad(x_BT, jnp.zeros((), x_BT.dtype), [(0, 0, 0), (by, -by, 0)])

    reaches = [1 << power for power in range((values_BT.shape[1] - 1).bit_length())]
    for reach in reaches:
        values_BT += jnp.where(responses_BT == shifted(responses_BT, reach), shifted(values_BT, reach), 0.0)
    for reach in reaches:
        values_BT = jnp.where(responses_BT == shifted(responses_BT, -reach), shifted(values_BT, -reach), values_BT)
    return values_BT


def _pessimistic(
    log_ratio_BT: Float[Array, "B T"], advantages_BT: Float[Array, "B T"], clip: Clip
) -> tuple[Float[Array, "B T"], Diagnostics]:
    """Returns max(-A ratio, -A clip(ratio, 1 - low, 1 + high)) and its diagnostics (Schulman et al. 2017, 7)."""
    ratio_BT = jnp.exp(log_ratio_BT)
    unclipped_BT = -advantages_BT * ratio_BT
    clipped_BT = -advantages_BT * jnp.clip(ratio_BT, 1.0 - clip.low, 1.0 + clip.high)
    diagnostics = {
        "clip_fraction_high": (clipped_BT > unclipped_BT) & (advantages_BT > 0),
        "clip_fraction_low": (clipped_BT > unclipped_BT) & (advantages_BT < 0),
        **_ratio_diagnostics(log_ratio_BT),
    }
    return jnp.maximum(unclipped_BT, clipped_BT), diagnostics


def _ratio_diagnostics(log_ratio_BT: Float[Array, "B T"]) -> Diagnostics:
    return {"approx_kl": jnp.expm1(log_ratio_BT) - log_ratio_BT, "ratio": jnp.exp(log_ratio_BT)}
