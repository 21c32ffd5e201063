"""Whole runs in which past players play too: what is written and kept, and that they can be resumed and replayed."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from bench.micro_run import make_micro_config
from codea1.lab.runs.story import explain
from codea1.rollout.engine import Request
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.signals import Stopped
from tests.resume_test import _Crash, _Life, crash_in_step, in_step, never, steps
from tests.saved_step import SavedStep
from tests.train_test import Played, assert_same_run, cut_back, promised, rows, scripted_answers, scripting, train

__all__ = ["scripted_answers"]


def with_opponents(config: ConfigDict) -> ConfigDict:
    """On one of four questions on either side; in steps 5 and 6 both checkpoints that there are by then are met."""
    config.questions_per_step = 4
    config.validation.every = 6
    config.checkpoint.every, config.checkpoint.keep_last, config.checkpoint.keep_best = 2, 1, 0
    config.opponents.side, config.opponents.share, config.opponents.every = "both", 0.25, 2
    config.opponents.draw = "prioritised"
    return config


@pytest.fixture
def config(micro_config) -> ConfigDict:
    return with_opponents(micro_config)


@pytest.fixture(scope="module")
def whole(model_folder, data_folder, tmp_path_factory) -> Played:
    """A run of six steps, of which the second, fourth and sixth are saved."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with scripting():
        return Played(folder, train(with_opponents(make_micro_config(model_folder, data_folder)), folder))


def of_step(workdir: Path, step: int) -> tuple[list[dict], list[dict]]:
    """The rows of current players, and those of past ones."""
    own = [row for row in rows(workdir) if row["step"] == step]
    return [row for row in own if row["checkpoint"] is None], [row for row in own if row["checkpoint"] is not None]


def test_a_share_of_the_questions_is_played_by_kept_checkpoints(whole):
    assert steps(whole.folder) == [2, 4, 6]
    met = set()
    for step, metrics in enumerate(promised(whole.folder)[1:], start=1):
        current, past = of_step(whole.folder, step)
        played = {(row["player"], row["question_id"], row["checkpoint"]) for row in past}
        assert sorted(role for role, _, _ in played) == (["code", "test"] if step > 2 else [])
        assert len({id for _, id, _ in played}) == len(played)
        told = {(name, value) for name, value in metrics.items() if name.endswith("_member")}
        assert told == {(f"opponents/{role}_member", member) for role, _, member in played}
        assert len([name for name in metrics if name.startswith("opponents/")]) == 2 * len(played)
        assert not any(row["selected"] for row in past)
        for role in ("code", "test"):
            trained = [row for row in current if row["player"] == role and row["selected"] and not row["masked"]]
            assert metrics[f"{role}/train_sequences"] == len(trained) > 0
        met |= {member for _, _, member in played}
    assert met == {2, 4}


def test_past_players_answer_with_their_weights_and_the_keys_of_the_step(whole):
    checkpoints = Checkpoints.reader(RunFolder.existing(str(whole.folder)).checkpoints)
    _, past = of_step(whole.folder, 6)
    assert {row["player"] for row in past} == {"code", "test"}
    for row in past:
        index = row["solution"] * 2 + row["suite"] if row["player"] == "test" else row["solution"]
        request = Request(row["question_id"], tuple(row["prompt_ids"]), index, num_samples=1)
        player = whole.trainer._parts.players[row["player"]]
        params = player.params_at(checkpoints, row["checkpoint"])
        (again,) = player.generate([request], stream=f"{row['player']}/train", step=6, params=params)
        np.testing.assert_array_equal(again.token_ids, row["token_ids"])
        np.testing.assert_allclose(again.log_probs, row["log_probs"], rtol=1e-5)
        (other,) = player.generate([request], stream=f"{row['player']}/train", step=6)
        assert other.log_probs[0] != pytest.approx(row["log_probs"][0], rel=1e-5)


def test_a_resumed_run_is_the_run_that_was_never_cut_off(config, scripted_answers, whole, tmp_path):
    cut = cut_back(whole.folder, tmp_path / "cut", step=2)
    for end, how, saved in (
        (in_step(3), Stopped, [2]),
        (crash_in_step(4), _Crash, [2]),  # step 3 is played again
        (in_step(6), Stopped, [2, 4, 5]),
    ):
        with pytest.raises(how):
            _Life(config, cut, end)
        assert steps(cut) == saved
    resumed = _Life(config, cut, never).trainer
    assert steps(cut) == [2, 4, 6]
    assert_same_run(whole.folder, cut, whole.trainer, resumed)
    assert resumed._opponents.state() == whole.trainer._opponents.state()
    assert {(role, member) for role, member, *_ in resumed._opponents.state()} > {("code", 2), ("test", 2)}


@pytest.mark.parametrize("step", [3, 5])
def test_the_update_is_made_again_without_the_samples_of_past_players(config, whole, step):
    pairs = SavedStep(RunFolder.existing(str(whole.folder)), config, step).replay()
    assert [pair for pair in pairs if not pair.is_equal] == []
    assert any(pair.name.endswith("/grad_norm") and pair.again > 0 for pair in pairs)


def test_a_member_that_is_gone_is_named(config, scripted_answers, whole, tmp_path):
    cut = cut_back(whole.folder, tmp_path / "cut", step=4)
    shutil.rmtree(cut / "checkpoints" / "2")
    with pytest.raises(BadInput, match="no step 2; it has 4"):
        train(config, cut)


def test_a_question_s_story_tells_who_of_the_past_played(whole, capsys):
    _, (row, *_) = of_step(whole.folder, 6)
    explain(str(whole.folder), row["question_id"], step=6)
    assert f"by the past player of step {row['checkpoint']}, which does not train" in capsys.readouterr().out
