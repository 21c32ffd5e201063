"""Generalised advantage estimation over the tokens of responses, on the host in float64."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Float64


def gae(
    rewards_BT: Float[np.ndarray, "B T"],
    values_BT: Float[np.ndarray, "B T"],
    mask_BT: Bool[np.ndarray, "B T"],
    *,
    lam: float,
) -> tuple[Float64[np.ndarray, "B T"], Float64[np.ndarray, "B T"]]:
    """Returns advantages and returns, 0 outside the mask (Schulman et al. 2016, equation 16).

    delta_t = r_t + V_{t+1} - V_t; A_t = delta_t + lam A_{t+1}; the return is A_t + V_t. After a response's last token
    both the value and the advantage are 0. Nothing is discounted: a right answer is worth as much where it is long.

    Args:
      rewards_BT: the reward of each token.
      values_BT: of the state in which token t is chosen: what the critic estimates from the tokens before t.
      mask_BT: True at response tokens.
      lam: 1 gives Monte-Carlo returns, 0 one-step ones.
    """
    rewards_BT, values_BT = (np.where(mask_BT, x, 0.0).astype(np.float64) for x in (rewards_BT, values_BT))
    advantages_BT = np.zeros(rewards_BT.shape)
    next_value_B = next_advantage_B = np.zeros(len(rewards_BT))
    for t in reversed(range(rewards_BT.shape[1])):
        delta_B = rewards_BT[:, t] + next_value_B - values_BT[:, t]
        advantage_B = delta_B + lam * next_advantage_B
        inside_B = mask_BT[:, t]
        advantages_BT[:, t] = np.where(inside_B, advantage_B, 0.0)
        next_value_B = np.where(inside_B, values_BT[:, t], next_value_B)
        next_advantage_B = np.where(inside_B, advantage_B, next_advantage_B)
    return advantages_BT, np.where(mask_BT, advantages_BT + values_BT, 0.0)


def whiten(values: Sequence[np.ndarray], masks: Sequence[np.ndarray], eps: float = 1e-8) -> list[np.ndarray]:
    """Returns arrays shifted and scaled to mean 0 and unbiased variance 1 over all masked values, and 0 elsewhere."""
    inside = np.concatenate([x[mask] for x, mask in zip(values, masks, strict=True)])
    if len(inside) < 2:
        return [np.zeros(x.shape) for x in values]
    scale = 1 / np.sqrt(inside.var(ddof=1) + eps)
    return [np.where(mask, (x - inside.mean()) * scale, 0.0) for x, mask in zip(values, masks, strict=True)]


def explained_variance(values: np.ndarray, returns: np.ndarray) -> float:
    """Returns 1 - Var(returns - values) / Var(returns); 0 where the returns do not vary."""
    variance = float(np.var(returns))
    return 1 - float(np.var(returns - values)) / variance if variance else 0.0
