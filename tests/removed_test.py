"""What was removed is refused in one sentence that names the last commit with it, and the docs list it."""

import subprocess
import sys

import pytest
from ml_collections import ConfigDict

from codea1.config_file import default_config, read_config, use_method, validate
from codea1.data.loader import load_questions
from codea1.data.sources import source_of
from codea1.lab.worlds.worlds import WORLDS, world_named
from codea1.runs.folder import RunFolder
from codea1.runtime import removed
from codea1.runtime.errors import BadInput
from tests.conftest import ROOT

SENTENCE = rf"was removed: commit {removed.STUDY_COMMIT} is the last that has it"


@pytest.mark.parametrize("name", removed.FIELDS)
def test_a_field_is_refused_in_a_config_and_in_a_run(tmp_path, name):
    field = name if "." in name else f"{name}.anything"
    section, _, key = field.partition(".")
    config = default_config()
    config.update({section: {key: 1}})
    with pytest.raises(BadInput, match=rf"^config\.{field} {SENTENCE}"):
        validate(config)
    (tmp_path / "config.json").write_text(config.to_json())
    for opened in (RunFolder.existing, lambda path: RunFolder.check(path, default_config().to_dict())):
        with pytest.raises(BadInput, match=rf"config\.json: config\.{field} {SENTENCE}"):
            opened(str(tmp_path))


def test_a_field_of_a_section_that_is_gone_is_refused_as_a_flag():
    with pytest.raises(BadInput, match=rf"config\.noise\.wrong_answers {SENTENCE}"):
        read_config(["--config=tiny", "--config.noise.wrong_answers=0.1"])


def test_a_method_or_reward_is_refused():
    for name in removed.METHODS:
        for use in (use_method, lambda config, name: validate(ConfigDict(config.to_dict() | {"method": name}))):
            with pytest.raises(BadInput, match=f"the method {name} {SENTENCE}; use"):
                use(default_config(), name)
    for name in removed.REWARDS:
        config = default_config()
        config.game.reward = name
        with pytest.raises(BadInput, match=f"the reward {name} {SENTENCE}; use"):
            validate(config)


@pytest.mark.parametrize("name", removed.WORLDS)
def test_a_world_is_refused_as_a_source_and_where_it_would_be_prepared(monkeypatch, name):
    with pytest.raises(BadInput, match=f"the world {name} {SENTENCE}; use"):
        load_questions(source_of(name), "train")
    monkeypatch.delitem(WORLDS, name, raising=False)
    with pytest.raises(BadInput, match=f"the world {name} {SENTENCE}; use"):
        world_named(name)


@pytest.mark.parametrize("name", ["league"])
def test_a_command_is_refused(name):
    assert name in removed.COMMANDS
    done = subprocess.run([sys.executable, "-m", "codea1.lab", name], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"error: codea1 lab {name} was removed: commit {removed.STUDY_COMMIT}" in done.stderr


def test_the_docs_list_all_of_it():
    section = (ROOT / "docs" / "commands.md").read_text().partition("## What was removed\n")[2]
    assert removed.STUDY_COMMIT in section
    names = [*removed.FIELDS, *removed.METHODS, *removed.REWARDS, *removed.WORLDS, *removed.COMMANDS]
    assert [name for name in names if name not in section] == []
