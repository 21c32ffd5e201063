"""The objective as pure functions of values per token: surrogate, KL to the reference policy, entropy bonus.

A loss is always `sum(weights * token_loss)` with weights computed once for the whole mini-batch (`token_weights`), so
its value and gradient do not depend on how the mini-batch is cut into micro-batches or spread over devices.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32, Int

from codea1.learn.surrogates import LOG_RATIO_BOUND, SURROGATES, Clip, Diagnostics, bounded_log_ratio
from codea1.sharding import Array

K3_BOUND = 10.0


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised, per token: surrogate + kl_coefficient * KL - entropy_coefficient * entropy.

    The defaults are the hyper-parameters of the Code-A1 paper.
    """

    surrogate: str = "ppo"  # one of SURROGATES
    clip: Clip = field(default_factory=Clip)
    kl_estimator: str = "k3"  # of KL(policy || reference), one of KL_ESTIMATORS
    kl_coefficient: float = 0.001  # 0: the reference policy is not needed
    entropy_coefficient: float = 0.0
    importance_cap: float = 0.0  # C of truncated importance sampling; 0: none


def token_weights(lengths_B: Sequence[int], aggregation: str, *, max_response_length: int) -> Float32[np.ndarray, " B"]:
    """Returns the weight of every response token of each sequence of a whole mini-batch.

    The loss of the mini-batch is the sum of weight times token loss, with N sequences that have response tokens:

      token-mean           1 / all response tokens of the mini-batch (DAPO: Yu et al. 2025, equation 12, per group)
      seq-mean-token-mean  1 / (N * response tokens of the sequence) (GRPO: Shao et al. 2024, equation 3)
      seq-mean-token-sum   1 / N (Dr. GRPO's objective as it is written: Liu et al. 2025, section 3.2)
      dr-grpo              1 / (N * max_response_length), a constant (Dr. GRPO as it is trained, by its Listing 1)

    The last is TRL's "dr_grpo". verl's "seq-mean-token-sum-norm", meant for it, divides by the length and not by N. A
    sequence without response tokens has weight 0 and does not count.

    Args:
      lengths_B: response lengths in tokens.
      aggregation: one of AGGREGATIONS.
      max_response_length: tokens that a response may have.
    """
    lengths_B = np.asarray(lengths_B, np.float64)
    num_sequences = max(int((lengths_B > 0).sum()), 1)
    weights_B = AGGREGATIONS[aggregation](lengths_B, num_sequences, max_response_length)
    return np.where(lengths_B > 0, weights_B, 0.0).astype(np.float32)


AGGREGATIONS: dict[str, Callable[[np.ndarray, int, int], np.ndarray | float]] = {
    "token-mean": lambda lengths_B, num_sequences, longest: 1 / max(lengths_B.sum(), 1.0),
    "seq-mean-token-mean": lambda lengths_B, num_sequences, longest: 1 / np.maximum(lengths_B, 1.0) / num_sequences,
    "seq-mean-token-sum": lambda lengths_B, num_sequences, longest: 1 / num_sequences,
    "dr-grpo": lambda lengths_B, num_sequences, longest: 1 / (num_sequences * longest),
}


def kl_divergence(
    log_probs_BT: Float[Array, "B T"], ref_log_probs_BT: Float[Array, "B T"], estimator: str
) -> Float[Array, "B T"]:
    """Returns per-token estimates of KL(policy || reference) (Schulman, "Approximating KL Divergence", 2020).

    With d = log_probs - ref_log_probs: k1 = d, k2 = d^2 / 2, k3 = e^-d - 1 + d. k3 alone is bounded, which Schulman's
    is not: d to -20 and 20, then k3 to 10, and the gradient is 0 beyond. So is verl's "k3", alias "low_var_kl", the
    Code-A1 paper's choice; OpenRLHF bounds all three to -10 and 10. As a loss, k1 has expected gradient 0, k2 that of
    the true KL and k3 a biased one.
    """
    return KL_ESTIMATORS[estimator](log_probs_BT - ref_log_probs_BT)


def _k3(d_BT: Float[Array, "B T"]) -> Float[Array, "B T"]:
    d_BT = jnp.clip(d_BT, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return jnp.clip(jnp.expm1(-d_BT) + d_BT, -K3_BOUND, K3_BOUND)


KL_ESTIMATORS: dict[str, Callable[[Array], Array]] = {
    "k1": lambda d_BT: d_BT,
    "k2": lambda d_BT: 0.5 * jnp.square(d_BT),
    "k3": _k3,
}


def importance_weights(
    old_log_probs_BT: Float[Array, "B T"], sampler_log_probs_BT: Float[Array, "B T"], cap: float
) -> Float[Array, "B T"]:
    """Returns min(pi_old / pi_sampler, cap) per token, a constant: for a sampler whose numbers are not the trainer's.

    Truncated importance sampling (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training").
    """
    return jax.lax.stop_gradient(jnp.minimum(jnp.exp(bounded_log_ratio(old_log_probs_BT, sampler_log_probs_BT)), cap))


def objective_loss(
    log_probs_BT: Float[Array, "B T"],
    entropy_BT: Float[Array, "B T"],
    old_log_probs_BT: Float[Array, "B T"],
    sampler_log_probs_BT: Float[Array, "B T"],
    ref_log_probs_BT: Float[Array, "B T"] | None,
    advantages_BT: Float[Array, "B T"],
    responses_BT: Int[Array, "B T"],
    objective: ObjectiveConfig,
) -> tuple[Float[Array, "B T"], Diagnostics]:
    """Returns the whole objective per token and its per-token diagnostics; see `surrogates`.

    `ref_log_probs_BT` may be None where kl_coefficient is 0; raises ValueError otherwise.
    """
    loss_BT, diagnostics = SURROGATES[objective.surrogate](
        log_probs_BT, old_log_probs_BT, advantages_BT, responses_BT, objective.clip
    )
    if objective.importance_cap:
        weights_BT = importance_weights(old_log_probs_BT, sampler_log_probs_BT, objective.importance_cap)
        diagnostics["importance_weight"] = weights_BT
        loss_BT = weights_BT * loss_BT
    diagnostics["policy_loss"] = loss_BT
    diagnostics["entropy"] = entropy_BT
    if objective.kl_coefficient:
        if ref_log_probs_BT is None:
            raise ValueError("kl_coefficient is not 0, but the reference policy has not scored the batch")
        diagnostics["kl_ref"] = kl_divergence(log_probs_BT, ref_log_probs_BT, objective.kl_estimator)
        loss_BT = loss_BT + objective.kl_coefficient * diagnostics["kl_ref"]
    if objective.entropy_coefficient:
        loss_BT = loss_BT - objective.entropy_coefficient * entropy_BT
    return loss_BT, jax.lax.stop_gradient(diagnostics)
