"""A run whose saved players answer once more: its steps, what cannot be opened, and the programs that do so."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.training.opened_run import evaluate_run, opened_run
from tests.conftest import ROOT


def test_players_are_those_of_the_step_that_is_taken(run):
    with opened_run(str(run.path), ["6", "best", "6"], Hosts()) as opened:
        assert opened.steps == [3, 6]
        scales = []
        for step in opened.steps:
            opened.restore(step)
            leaves = jax.tree.leaves(opened.parts.players["code"].state)
            scales.append(np.concatenate([np.asarray(leaf).ravel() for leaf in leaves if leaf.ndim]))
    np.testing.assert_allclose(scales[1] * 1.5, scales[0] * 2.5, rtol=1e-5, atol=1e-7)


def test_what_cannot_be_opened_is_one_sentence(run, tmp_path):
    with pytest.raises(BadInput, match="has no step 4"), opened_run(str(run.path), ["4"], Hosts()):
        pass
    with pytest.raises(BadInput, match="is not a run folder"), opened_run(str(tmp_path / "none"), [], Hosts()):
        pass
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text((run.path / "config.json").read_text())
    with pytest.raises(BadInput, match="has no complete step"), opened_run(str(tmp_path / "empty"), [], Hosts()):
        pass


def test_a_checkpoint_is_measured_in_the_runs_folder(run, capsys):
    evaluate_run(str(run.path), "best", "validation", Hosts())
    evaluation = json.loads((run.path / "evaluations" / "validation_step_000003.json").read_text())
    assert (evaluation["step"], evaluation["split"], evaluation["questions"]) == (3, "validation", 3)
    assert "step 3, 3 questions of the validation split" in capsys.readouterr().out


def test_every_code_llm_plays_every_test_llm(run):
    command = [sys.executable, "-m", "codea1.tools.cross_play"]
    done = subprocess.run([*command, str(run.path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((run.path / "evaluations" / "cross_play_validation.json").read_text())["metrics"]
    pairs = [f"{kind}_code_{code}_test_{test}" for code in (3, 6) for test in (3, 6) for kind in ("kill", "validity")]
    assert sorted(metrics) == sorted([*pairs, "code_pass_at_1_step_3", "code_pass_at_1_step_6"])
    assert "Test LLM of 6" in done.stdout
    (run.path / "config.json").write_text(json.dumps(dict(run.config, method="golden")))
    done = subprocess.run([*command, str(run.path)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"error: {run.path} has no Test LLM: its method is golden.\n")
