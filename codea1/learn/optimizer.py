"""AdamW and the learning-rate schedule.

The learning rate is an argument of every update, not a part of the optimizer state: the schedule advances once per
training step while a training step makes several updates, and one compiled update can serve two players whose
learning rates differ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import optax

DECAYS: dict[str, Callable[[float], float]] = {  # factors of the peak, by what of the decay has passed, from 0 to 1
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
    "linear": lambda progress: 1.0 - progress,
    "constant": lambda _: 1.0,
}


@dataclass(frozen=True)
class AdamWConfig:
    """AdamW (Loshchilov and Hutter 2019) on all parameters. The defaults are those of the Code-A1 paper."""

    beta1: float = 0.9  # decay of the mean of gradients
    beta2: float = 0.999  # decay of the mean of squared gradients
    epsilon: float = 1e-8
    weight_decay: float = 0.1  # multiplied by the learning rate; no parameter is excluded
    max_grad_norm: float = 1.0  # gradients are scaled down to this global norm


@dataclass(frozen=True)
class ScheduleConfig:
    """Linear warm-up, then decay. The defaults are those of the Code-A1 paper."""

    peak: float = 1e-6
    warmup_steps: int = 10  # training steps
    total_steps: int = 111  # training steps; the decay would reach 0 at step total_steps + 1
    decay: str = "cosine"  # one of DECAYS


def learning_rate(step: int, schedule: ScheduleConfig) -> float:
    """Returns the learning rate of training step `step`, counted from 1, computed on the host in float64.

    During warm-up it is peak * (step - 1) / warmup_steps, so the first step has learning rate 0 whenever there is a
    warm-up: the reference implementation advances its scheduler after a step. Afterwards it follows half a cosine
    (or a line) that starts at the peak.
    """
    done = step - 1
    if done < schedule.warmup_steps:
        return schedule.peak * done / schedule.warmup_steps
    progress = min((done - schedule.warmup_steps) / max(schedule.total_steps - schedule.warmup_steps, 1), 1.0)
    return schedule.peak * DECAYS[schedule.decay](progress)


def make_optimizer(config: AdamWConfig) -> optax.GradientTransformation:
    """Returns AdamW without its learning rate: it gives the direction that an update scales."""
    return optax.chain(
        optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.epsilon),
        optax.add_decayed_weights(config.weight_decay),
    )
