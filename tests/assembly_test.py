"""The parts of a run, given the states of its checkpoints."""

import shutil

import jax
import numpy as np
import pytest

from codea1.config_file import validate
from codea1.models.files import ModelFolder
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime.errors import BadInput
from codea1.training.setup import MADE_FOR, assemble, made_for
from codea1.training.stored_config import config_of


def test_memory_is_given_back_before_a_step_is_restored(run, monkeypatch):
    parts = assemble(config_of(run))
    checkpoints = Checkpoints.reader(run.checkpoints)
    starts = {name: policy.params for name, policy in parts.policies.items()}
    held = []
    restore_part = Checkpoints.restore_part
    monkeypatch.setattr(
        Checkpoints,
        "restore_part",
        lambda *arguments: (
            held.extend(policy.states for policy in parts.policies.values()),
            restore_part(*arguments),
        )[1],
    )
    for step, factor in ((3, 1.5), (6, 2.5)):
        parts.restore(checkpoints, step)
        for by, (name, policy) in zip((factor, -factor), parts.policies.items(), strict=True):
            jax.tree.map(
                lambda moved, start, by=by: np.testing.assert_array_equal(moved, start * np.float32(by)),
                policy.params,
                starts[name],
            )
    assert held == [{}] * 4


def test_a_set_that_loses_too_many_questions_is_refused(micro_config):
    micro_config.test.max_prompt_length = 8
    lost = "data.train: 5 of 5 questions have a test prompt longer than config.test.max_prompt_length, 8 tokens"
    with pytest.raises(BadInput, match=lost):
        assemble(validate(micro_config))
    micro_config.method = "self_play"  # whose one policy has the code player's lengths
    assemble(validate(micro_config))
    micro_config.code.max_prompt_length = 8
    with pytest.raises(BadInput, match=r"code prompt longer than config\.code\.max_prompt_length, 8 tokens"):
        assemble(validate(micro_config))


def test_a_warm_start_for_another_world_is_refused(micro_config, model_folder, tmp_path):
    for player in (micro_config.code, micro_config.test):
        player.model = str(shutil.copytree(model_folder, tmp_path / "model", dirs_exist_ok=True))
    ModelFolder(micro_config.code.model).write_json(MADE_FOR, {"world": "blind", "prompts": "tiny"})
    with pytest.raises(BadInput, match=r"model is a warm start for the world blind, not classic: .* world=blind makes"):
        assemble(validate(micro_config))
    ModelFolder(micro_config.code.model).write_json(MADE_FOR, {"world": "classic", "prompts": "default"})
    with pytest.raises(BadInput, match=r"for the prompts default, not tiny: --config\.game\.prompts=default"):
        assemble(validate(micro_config))
    ModelFolder(micro_config.code.model).write_json(MADE_FOR, made_for(validate(micro_config)))
    assemble(validate(micro_config))


def test_a_player_without_a_model_is_named(micro_config):
    micro_config.test.model = ""
    with pytest.raises(BadInput, match=r"config\.test\.model is empty"):
        assemble(validate(micro_config))
