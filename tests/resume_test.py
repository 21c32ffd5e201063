"""A run that is cut off, wherever that is, and taken up again is the run that was never cut off."""

from collections.abc import Callable
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from codea1.config_file import validate
from codea1.lab.report.run_report import show_report
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.hosts import Hosts
from codea1.runtime.signals import Stopped, StopRequest
from codea1.train import train
from codea1.training.run import Run
from codea1.training.setup import assemble, sandbox_pool
from tests.train_test import (
    assert_same_run,
    assert_something_happened,
    promised,
    rows,
    scripted_answers,
    without_figure,
)

__all__ = ["scripted_answers"]


class _Crash(Exception):
    pass


class _Life(StopRequest):
    """One life of a run: at its safe points `end` is asked what becomes of it."""

    def __init__(
        self, config: ConfigDict, workdir: Path, end: Callable[[Run, "_Life"], None], ask_in_batch: int = 0
    ) -> None:
        super().__init__()
        self.batches = 0  # of questions, asked in this life
        config = validate(config)
        parts = assemble(config)
        ask = parts.feed.batch

        def batch(number: int) -> list:
            self.batches += 1
            if self.batches == ask_in_batch:
                self.ask()
            return ask(number)

        parts.feed.batch = batch
        folder = RunFolder.open(str(workdir), config.to_dict())
        with sandbox_pool(config.sandbox) as sandbox, without_figure():
            self.trainer = Run(config, parts, sandbox, folder, Hosts(), self)
            self._end = end
            with self.trainer:
                train(self.trainer)
                self.trainer.report(show_report)

    def safe_point(self, hosts: Hosts) -> None:
        self._end(self.trainer, self)
        super().safe_point(hosts)


def never(trainer: Run, life: _Life) -> None:
    pass


def in_step(step: int) -> Callable[[Run, _Life], None]:
    """Asks to stop while the step is sampled."""

    def end(trainer: Run, life: _Life) -> None:
        if max(trainer._position.step, 0) == step - 1 and trainer._position.row is None and life.batches:
            life.ask()

    return end


def while_validating(step: int) -> Callable[[Run, _Life], None]:
    def end(trainer: Run, life: _Life) -> None:
        if trainer._position.step == step and trainer._position.row is not None:
            life.ask()

    return end


def crash_in_step(step: int) -> Callable[[Run, _Life], None]:
    def end(trainer: Run, life: _Life) -> None:
        if max(trainer._position.step, 0) == step - 1 and life.batches:
            raise _Crash

    return end


LIVES = (  # what ends one, how, and the step that the next goes on from
    (in_step(1), Stopped, None),
    (in_step(2), Stopped, 1),
    (while_validating(2), Stopped, 2),
    (while_validating(2), Stopped, 2),
    (crash_in_step(3), _Crash, 2),  # with the validation made up for, and nothing saved since
    (in_step(3), Stopped, 2),  # the end of the first epoch
    (in_step(4), Stopped, 3),
    (while_validating(4), Stopped, 4),
)


def test_a_run_stopped_in_every_step_and_in_every_validation(micro_config, scripted_answers, tmp_path):
    micro_config.steps = 4
    micro_config.validation.every = 2
    micro_config.checkpoint.every = 100  # but for the best and the last, a step is saved where the run was stopped
    whole = _Life(micro_config, tmp_path / "whole", never).trainer
    scores = {row["step"]: row.get("validation/score", -1) for row in read_metrics(whole._folder.metrics)}
    assert max(scores, key=scores.__getitem__) == 0 < whole._validation.best.step  # never the start, which is not saved
    for end, how, saved in LIVES:
        with pytest.raises(how):
            _Life(micro_config, tmp_path / "cut", end)
        assert max(steps(tmp_path / "cut"), default=None) == saved
    resumed = _Life(micro_config, tmp_path / "cut", never).trainer
    assert_same_run(tmp_path / "whole", tmp_path / "cut", whole, resumed)
    assert_something_happened(whole, tmp_path / "whole")
    assert best(tmp_path / "cut") == best(tmp_path / "whole") == whole._validation.best.step


def test_rounds_are_played_until_enough_questions_teach(micro_config, scripted_answers, tmp_path):
    """A step of which the book has learned is not left, and one that was left is played again from its first round."""
    config, folder = micro_config, tmp_path / "whole"
    config.seed = 1  # one whose first step asks twice
    config.steps, config.game.max_rounds = 3, 3
    config.validation.every = config.checkpoint.every = 100
    whole = _Life(config, folder, never).trainer
    of_step = promised(folder)[1:]
    assert any(step["code/questions"] > 2 for step in of_step)
    for step in of_step:
        solutions = [row for row in rows(folder) if (row["step"], row["player"]) == (step["step"], "code")]
        rewards = {row["question_id"]: set() for row in solutions}
        for row in solutions:
            rewards[row["question_id"]].add(row["reward"])
        teaching = [question for question, found in rewards.items() if len(found) > 1]
        assert (len(rewards), len(teaching)) == (step["code/questions"], step["code/questions_that_teach"])
        assert [row["question_id"] for row in solutions if row["selected"]] == [
            row["question_id"] for row in solutions if row["question_id"] in teaching[:2]
        ]
    assert of_step[0]["code/questions"] > 2
    with pytest.raises(Stopped):
        _Life(config, tmp_path / "cut", never, ask_in_batch=2)
    assert steps(tmp_path / "cut") == [1]
    with pytest.raises(_Crash):
        _Life(config, tmp_path / "cut", crash_in_step(3))
    assert steps(tmp_path / "cut") == [1]
    resumed = _Life(config, tmp_path / "cut", never).trainer
    assert_same_run(folder, tmp_path / "cut", whole, resumed)


def reader(workdir: Path) -> Checkpoints:
    return Checkpoints(RunFolder.existing(str(workdir)).checkpoints, 2, 1, read_only=True)


def steps(workdir: Path) -> list[int]:
    return reader(workdir).steps() if (workdir / "checkpoints").exists() else []


def best(workdir: Path) -> int | None:
    return reader(workdir).best_step()
