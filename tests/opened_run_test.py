"""A run whose saved players answer once more: its steps, what cannot be opened, and the programs that do so."""

import json

import jax
import numpy as np
import pytest

from codea1.lab.opened_run import evaluate_run, opened_run
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts


def test_players_are_those_of_the_step_that_is_taken(run):
    scales = []
    for name, step in (("0", 0), ("best", 3), ("6", 6)):
        with opened_run(str(run.path), name, Hosts()) as opened:
            assert opened.step == step
            leaves = jax.tree.leaves(opened.parts.players["code"].state)
            scales.append(np.concatenate([np.asarray(leaf).ravel() for leaf in leaves if leaf.ndim]))
    np.testing.assert_allclose(scales[0] * 1.5, scales[1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(scales[2] * 1.5, scales[1] * 2.5, rtol=1e-5, atol=1e-7)


def test_what_cannot_be_opened_is_one_sentence(run, tmp_path):
    with pytest.raises(BadInput, match="has no step 4"), opened_run(str(run.path), "4", Hosts()):
        pass
    with pytest.raises(BadInput, match="is not a run folder"), opened_run(str(tmp_path / "none"), "last", Hosts()):
        pass
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text((run.path / "config.json").read_text())
    with pytest.raises(BadInput, match="has no step last"), opened_run(str(tmp_path / "empty"), "last", Hosts()):
        pass


def test_a_checkpoint_is_measured_in_the_runs_folder(run, capsys):
    evaluate_run(str(run.path), "best", "validation", Hosts())
    evaluation = json.loads((run.path / "evaluations" / "validation_step_000003.json").read_text())
    assert (evaluation["step"], evaluation["split"], evaluation["questions"]) == (3, "validation", 3)
    assert "step 3, 3 questions of the validation split" in capsys.readouterr().out
