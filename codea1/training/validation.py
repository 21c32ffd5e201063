"""Validation and evaluation during a run: how the players do on held-out questions, and which step did best."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from codea1.config import ValidationConfig
from codea1.evaluation.held_out import HeldOut, evaluate
from codea1.evaluation.result_files import PerQuestion, summary
from codea1.evaluation.statistics import bootstrap_interval
from codea1.game.question import Question
from codea1.runtime.hosts import Hosts
from codea1.runtime.phases import doing
from codea1.sandbox.host.grading import Grader
from codea1.training.setup import Components


@dataclass
class Best:
    """The step that did best on the validation questions, the earliest of equals."""

    step: int = -1
    score: float = float("-inf")


class Validation:
    """Asks the players the validation and test questions. All methods are collectives."""

    def __init__(self, config: ValidationConfig, parts: Components, grader: Grader, hosts: Hosts) -> None:
        self.best = Best()
        self._config, self._parts, self._grader, self._hosts = config, parts, grader, hosts

    def validate(self, step: int) -> tuple[dict[str, float], str]:
        """Returns the metrics of a step, and why it has no score; empty where it has one. Updates `best`."""
        measured = self._measure("validation", self._config.samples)
        means = {f"validation/{name}": bootstrap_interval(values).mean for name, values in measured.items()}
        questions = self._parts.held_out["validation"]
        if lost := _lost(questions, measured):
            on = f"{lost} of {len(questions)} questions"
            return means, f"step {step} has no validation score: the sandbox failed on {on}"
        means["validation/score"] = means["validation/code_pass_at_1"] + means.get("validation/test_mul", 0.0)
        if step and means["validation/score"] > self.best.score:  # before the first there is nothing to save
            self.best = Best(step, means["validation/score"])
        return means, ""

    def evaluate(self, step: int) -> dict[str, Any]:
        """Returns the evaluation of a step on the test split; see `codea1.evaluation.result_files`."""
        measured = self._measure("test", self._config.test_samples)
        return summary(measured, step, "test", [question.id for question in self._parts.held_out["test"]])

    def _measure(self, split: str, samples: int) -> PerQuestion:
        parts, shown_mutants = self._parts, self._config.shown_mutants
        asked = HeldOut(parts.held_out[split], parts.rules, samples, shown_mutants, purpose=split)
        with doing("rollout"):
            return evaluate(asked, parts.players, self._grader, self._hosts)


def _lost(questions: Sequence[Question], measured: PerQuestion) -> int:
    """Returns on how many questions the sandbox failed: a mean without them does not compare with other steps'."""
    # NaN also where there is no mutant to show, or a checker fails on what a test expects.
    validity = measured.get("test_validity", [0.0] * len(questions))
    tested = [bool(question.mutants) and not question.checker for question in questions]
    rows = zip(measured["code_pass_at_1"], validity, tested, strict=True)
    return sum(math.isnan(passed) or (is_tested and math.isnan(valid)) for passed, valid, is_tested in rows)
