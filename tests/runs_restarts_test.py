"""How often a run is started again without a new step."""

import re
from pathlib import Path

import pytest

from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter
from codea1.runs.restarts import MOST_RESTARTS, count_restart, forget_restarts
from codea1.runtime.errors import BadInput


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.open(str(tmp_path / "run"), {})


def train(folder: RunFolder, *steps: int) -> None:
    """Writes rows as a run does that goes on after the row before these."""
    with MetricsWriter(folder, steps[0] - 1) as metrics:
        for step in steps:
            metrics.write(step, {})


def test_what_ends_at_one_step_for_ever_is_given_up_and_may_be_started_by_a_person(folder):
    assert count_restart(folder) == ""
    train(folder, 0, 1, 2)
    for _ in range(MOST_RESTARTS):
        assert count_restart(folder) == ""
        train(folder, 1, 2)  # again, from the checkpoint of step 0
    assert re.search(r"run: 3 restarts brought no step after step 2; see why", count_restart(folder))
    assert count_restart(folder) == ""


def test_what_never_begins_is_given_up(folder):
    told = [count_restart(folder) for _ in range(MOST_RESTARTS + 2)]
    assert told[:-1] == [""] * (MOST_RESTARTS + 1)
    assert "after the start" in told[-1]


def test_a_new_step_counts_anew(folder):
    for step in range(10):
        assert count_restart(folder) == ""
        train(folder, step)


def test_ends_that_were_asked_for_do_not_count(folder):
    for _ in range(10):
        assert count_restart(folder) == ""
        forget_restarts(folder)


def test_a_damaged_count_is_told(folder):
    (folder.path / "restarts.json").write_text("[]")
    with pytest.raises(BadInput, match=r"restarts\.json is damaged; remove it"):
        count_restart(folder)
