"""What becomes of a run whose policy turns NaN or explodes: it stops, says so, and keeps what was sound."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from codea1.learn.batch import TrainSample
from codea1.players import player
from codea1.players.player import Player
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.training import run, soundness
from tests.train_test import scripted_answers, train

__all__ = ["scripted_answers"]


@pytest.fixture
def config(micro_config: ConfigDict) -> ConfigDict:
    micro_config.checkpoint.every = micro_config.checkpoint.keep_last = 1
    micro_config.checkpoint.keep_best = 0
    micro_config.validation.every = 3
    micro_config.data.validation.limit = micro_config.data.test.limit = 1
    return micro_config


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, float], None]:
    """Multiplies the Code LLM's parameters after its update of a step."""

    def apply(bad_step: int, factor: float) -> None:
        learn = Player.learn

        def spoilt(self: Player, samples: list[TrainSample], step: int) -> dict[str, float]:
            metrics = learn(self, samples, step)
            if (self.name, step) == ("code", bad_step):
                params = jax.tree.map(lambda x: x * np.float32(factor), self.state.params)
                self.states[self.name] = dataclasses.replace(self.state, params=params)
            return metrics

        monkeypatch.setattr(Player, "learn", spoilt)

    return apply


def kept(workdir: Path) -> list[int]:
    """The complete steps in the run's folder."""
    return Checkpoints.reader(RunFolder.existing(str(workdir)).checkpoints).steps()


def rows(workdir: Path) -> dict[int, dict]:
    return {row["step"]: row for row in read_metrics(RunFolder.existing(str(workdir)).metrics)}


def test_a_policy_that_explodes_ends_the_run_and_its_last_sound_step_stays(
    config, scripted_answers, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(soundness, "SKIPPED_STEPS", 4)
    config.code.learning_rate, config.code.warmup_steps = 1e30, 1  # the first step has learning rate 0
    what = r"the Code LLM skipped every optimizer step of steps 2, 3, 4, 5, because"
    says = what + r".*: look at .*metrics\.jsonl.* after step 4; the last sound step is 1\.$"
    for _ in range(2):  # started again, it ends again with its next step
        with pytest.raises(BadInput, match=says):
            train(config, tmp_path)
        assert kept(tmp_path) == [1, 3, 4]
        told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
        assert re.match(r"warning, step [25]: Code LLM: its update was skipped in [14] of [25] steps", told[0])
    written = rows(tmp_path)
    assert [written[step].get("health/warnings") for step in range(6)] == [0, None, 1, 1, 1, 1]
    assert [written[step]["code/skipped"] for step in range(1, 6)] == [0, 2, 2, 2, 2]
    assert all(np.isfinite(written[step]["code/grad_norm"]) for step in range(1, 6))
    assert written[3]["test/grad_norm"] > 0


@pytest.mark.parametrize("factor", [np.nan, 1e30])
def test_no_checkpoint_is_made_of_parameters_that_went_bad(config, scripted_answers, spoil, tmp_path, factor):
    spoil(2, factor)
    says = r"the Code LLM is not finite after step 2: .* goes on after step 1; the last sound step is 1\."
    with pytest.raises(BadInput, match=says):
        train(config, tmp_path)
    assert kept(tmp_path) == [1]


def test_a_run_that_ends_between_two_checkpoints_does_not_save_what_went_bad(config, scripted_answers, spoil, tmp_path):
    config.checkpoint.every = config.validation.every = 100  # the best step would be saved
    spoil(1, np.nan)
    with pytest.raises(
        BadInput, match=r"the Code LLM .* steps 2, 3, 4, because .* from the start; no sound step was saved"
    ):
        train(config, tmp_path)
    assert kept(tmp_path) == []


def test_a_checkpoint_that_is_not_finite_is_not_taken_up(config, scripted_answers, spoil, tmp_path, monkeypatch):
    config.steps = 1
    with monkeypatch.context() as patch:
        patch.setattr(run, "_not_finite", lambda _: [])
        spoil(1, np.nan)
        train(config, tmp_path)
    with pytest.raises(BadInput, match=r"the Code LLM in .*checkpoints/1 is not finite: move that folder away"):
        train(config, tmp_path)


@pytest.mark.parametrize("bad_steps", [(2, 3, 4), (1, 3, 4)])
def test_a_run_whose_samples_are_of_another_policy_ends(config, scripted_answers, tmp_path, monkeypatch, bad_steps):
    config.steps, config.max_sampler_kl, learn = 4, 0.3, Player.learn

    def of_another(self: Player, samples: list[TrainSample], step: int) -> dict[str, float]:
        by = (self.name == "test") * (step in bad_steps)
        return learn(self, [dataclasses.replace(each, log_probs=np.add(each.log_probs, by)) for each in samples], step)

    monkeypatch.setattr(Player, "learn", of_another)
    if bad_steps == (1, 3, 4):
        train(config, tmp_path)
    else:
        says = r"^the Test LLM learned from samples of another policy in steps 2, 3, 4, because sampler_kl was above "
        says += r"config.max_sampler_kl, 0.3 nats per token: look at .* after step 3; the last sound step is 1\.$"
        for _ in range(2):  # started again, it ends again with its next step
            with pytest.raises(BadInput, match=says):
                train(config, tmp_path)
        assert kept(tmp_path) == [1, 2, 3]
    gaps = [rows(tmp_path)[step]["test/sampler_kl"] for step in range(1, 5)]
    # All log-ratios are -1: exp(-1) - 1 + 1.
    np.testing.assert_allclose(gaps, [0.3679 * (step in bad_steps) for step in range(1, 5)], atol=1e-4)
    assert all(abs(rows(tmp_path)[step]["code/sampler_kl"]) < 1e-9 for step in range(1, 5))


def test_log_probs_that_are_no_numbers_are_of_another_policy(config, scripted_answers, tmp_path, monkeypatch):
    config.steps, config.max_sampler_kl, learn = 3, 0.3, Player.learn

    def of_nothing(self: Player, samples: list[TrainSample], step: int) -> dict[str, float]:
        return learn(
            self, [dataclasses.replace(each, log_probs=np.multiply(each.log_probs, np.nan)) for each in samples], step
        )

    monkeypatch.setattr(Player, "learn", of_nothing)
    with pytest.raises(BadInput, match=r"learned from samples of another policy in steps 1, 2, 3, because sampler_kl"):
        train(config, tmp_path)


def test_one_bad_update_is_told_of_and_passes(config, scripted_answers, tmp_path, capsys, monkeypatch):
    config.steps = 4
    monkeypatch.setattr(player, "learning_rate", lambda step, _: np.inf if step == 2 else 1e-3)
    train(config, tmp_path)
    assert [rows(tmp_path)[step]["code/skipped"] for step in range(1, 5)] == [0, 2, 0, 0]
    assert "warning, step 2: Code LLM: its update was skipped in 1 of 2 steps" in capsys.readouterr().out
    assert kept(tmp_path) == [4]
