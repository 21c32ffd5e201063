"""The rehearsal of a run: all of it happens, and nothing of it is left."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bench.micro_run import scripted_answer, write_config
from codea1 import train
from codea1.config_file import validate
from codea1.data.tokenizer import ChatTokenizer
from codea1.lab.dry_run import DryRun
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox import self_test
from codea1.training.setup import assemble, sandbox_pool
from tests.host_processes import CACHE, run


def rehearse(config: ConfigDict):
    config = validate(config)
    parts = assemble(config)
    with sandbox_pool(config.sandbox) as sandbox:
        train.train(DryRun(config, parts, sandbox, Hosts()))
    return parts


def cells(printed: str) -> list[list[str]]:
    return [re.split(" {2,}", line.strip()) for line in printed.splitlines()]


def values(printed: str, name: str) -> list[str]:
    (found,) = [row[1:] for row in cells(printed) if row[0] == name]
    return found


@pytest.mark.parametrize("advantage", ["grpo", "gae"])
def test_a_step_is_played_and_learned_from(micro_config, monkeypatch, capsys, advantage):
    monkeypatch.setattr(ChatTokenizer, "decode", scripted_answer)
    for player in (micro_config.code, micro_config.test):
        player.advantage = advantage
        player.warmup_steps = 0
        player.critic.warmup_steps = 2 * (advantage == "gae")
    parts = rehearse(micro_config)
    printed = capsys.readouterr().out
    assert values(printed, "samples") == ["4 solutions", "8 suites"]
    assert values(printed, "train_sequences") == ["4", "4"]
    assert all(float(value) > 0 for value in values(printed, "grad_norm"))
    assert all(float(value) > 0 for value in values(printed, "update_tflops_per_second"))
    assert ("critic_value_loss" in printed) == (advantage == "gae")
    assert "update_mfu" not in printed  # nobody knows the peak of a CPU
    assert "judges the doctor's programs as it should" in printed
    assert "do not tell how much memory" in printed
    assert "infra 0" in printed
    for player in parts.players.values():
        assert int(player.state.step) == micro_config[player.name].mini_batches
        assert np.isfinite(jax.tree.leaves(player.state.params)[0]).all()


def test_one_policy_of_both_roles_is_one_column_of_batches(micro_config, monkeypatch, capsys):
    monkeypatch.setattr(ChatTokenizer, "decode", scripted_answer)
    micro_config.method = "self_play"
    parts = rehearse(micro_config)
    printed = capsys.readouterr().out
    assert values(printed, "samples") == ["12 solutions and suites"]
    assert values(printed, "train_sequences") == ["8"]
    assert int(parts.policies["code"].state.step) == micro_config.code.mini_batches


def test_a_sandbox_that_judges_wrongly_is_told(micro_config, monkeypatch):
    wrong = {"a liar": ("pass", "def f(x): return x")}
    monkeypatch.setattr(self_test, "SELF_TEST", wrong)
    with pytest.raises(BadInput, match="a liar: fail, not pass"):
        rehearse(micro_config)


def test_nothing_is_written_and_no_workdir_is_needed(micro_config, tmp_path):
    file = write_config(micro_config, tmp_path / "config.py")
    options = CACHE | {
        "PYTHONDONTWRITEBYTECODE": "1"
    }  # or a config file, which is Python, gets a __pycache__ beside it
    command = [sys.executable, "-m", "codea1.train", f"--config={file}", "--dry_run"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | options, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "dry run done" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["config.py"]


def refused(config: ConfigDict, folder: Path, *flags: str) -> str:
    """What a dry run prints that ends as with bad input."""
    file = write_config(config, folder / "config.py")
    code, _, errors = run("-m", "codea1.train", f"--config={file}", "--dry_run", *flags)
    assert code == 2
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    return errors


def test_a_workdir_of_another_run_is_refused(micro_config, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(micro_config.to_dict() | {"seed": 7}))
    assert "seed is 7 there and 0 here" in refused(micro_config, tmp_path, f"--workdir={other}")
    assert [path.name for path in other.iterdir()] == ["config.json"]


def test_bad_input_is_one_sentence(micro_config, tmp_path):
    micro_config.code.model = str(tmp_path / "nothing")
    assert str(tmp_path / "nothing") in refused(micro_config, tmp_path)
