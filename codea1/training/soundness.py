"""Whether the players still learn: skipped optimizer steps, and samples of another policy than the learner's."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from codea1.learn.update import SKIPPED_STEPS
from codea1.runtime.hosts import AgreedBadInput

_LOOK = "look at its learning_rate, grad_norm, update_norm, param_norm and loss"


class Diverged(AgreedBadInput):
    """The learning of a policy or critic broke down: the run ends, and the players are not saved as they are."""


@dataclass
class Soundness:
    """Steps in a row, until now, in which a learner did not learn as it should."""

    skipped: dict[str, list[int]] = field(default_factory=dict)  # by learner: all its optimizer steps were skipped
    # By policy: its samples were of another policy than the one that learned from them.
    astray: dict[str, list[int]] = field(default_factory=dict)
    sound: int = -1  # the last saved step that was in no such row

    @property
    def learns_well(self) -> bool:
        """Whether the last step was in no such row."""
        return not any((*self.skipped.values(), *self.astray.values()))

    def after(
        self, step: int, skips_all: Mapping[str, bool], sampler_kls: Mapping[str, float | None], max_kl: float
    ) -> "Soundness":
        """Returns the rows with one more step.

        Args:
          skips_all: by learner that made optimizer steps, whether none of them was applied.
          sampler_kls: by policy, its `sampler_kl` in nats per token; None where it did not learn.
          max_kl: `config.max_sampler_kl`; 0 for no bound.
        """
        is_astray = {name: max_kl > 0 and not kl <= max_kl for name, kl in sampler_kls.items() if kl is not None}
        return Soundness(_extended(self.skipped, skips_all, step), _extended(self.astray, is_astray, step), self.sound)

    def breakdown(self, max_kl: float) -> str:
        """Returns what happened to a learner in SKIPPED_STEPS steps in a row, and which metrics say more; or ""."""

        def sentence(rows: Mapping[str, list[int]], what: str) -> str:
            long = {name: steps for name, steps in rows.items() if len(steps) >= SKIPPED_STEPS}
            return " and ".join(f"{title(name)} {what} {', '.join(map(str, steps))}" for name, steps in long.items())

        if what := sentence(self.skipped, "skipped every optimizer step of steps"):
            return f"{what}, because gradients or new parameters were not finite: {_LOOK}"
        if what := sentence(self.astray, "learned from samples of another policy in steps"):
            bound = f"sampler_kl was above config.max_sampler_kl, {max_kl:g} nats per token"
            return f"{what}, because {bound}: look at its sampler_log_prob_difference_max"
        return ""


def not_finite_after(step: int, learners: list[str]) -> str:
    """Returns that the parameters or moments of learners are not finite after a step, and which metrics say more."""
    return f"{' and '.join(map(title, learners))} is not finite after step {step}: {_LOOK}"


def title(learner: str) -> str:
    """Returns what a message calls a policy, or its critic: "the critic of the Code LLM" for "code_critic"."""
    player, _, critic = learner.partition("_")
    return ("the critic of " if critic else "") + {"code": "the Code LLM", "test": "the Test LLM"}[player]


def _extended(rows: Mapping[str, list[int]], now: Mapping[str, bool], step: int) -> dict[str, list[int]]:
    """Returns the rows of steps by name: longer by this step where it belongs to the row, empty where it does not."""
    return {**rows, **{name: [*rows.get(name, ()), step] * is_like for name, is_like in now.items()}}
