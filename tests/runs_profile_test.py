"""A trace of the steps that were asked for and of no other, read back as the profiler's own reader reads it."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from codea1.runs.folder import RunFolder
from codea1.training.profile import STEP, ProfilerWindow


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.open(str(tmp_path / "run"), {})


def run(window: ProfilerWindow, steps: range) -> None:
    for step in steps:
        with window.step(step):
            jax.block_until_ready(jax.jit(lambda x: x @ x)(jnp.ones((8, 8))))


def files(folder: RunFolder) -> list[str]:
    return sorted(str(path.relative_to(folder.path)) for path in Path(folder.path).rglob("*") if path.is_file())


def traced(folder: RunFolder) -> list[int]:
    (file,) = Path(folder.profile).rglob("*.xplane.pb")
    events = [
        event
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes
        for line in plane.lines
        for event in line.events
    ]
    return sorted(dict(event.stats)["step_num"] for event in events if event.name == STEP)


def test_the_steps_of_the_window_are_traced_and_no_other(folder: RunFolder):
    run(ProfilerWindow(folder, first=3, count=2, last=6, host=0), range(1, 7))
    place = "profile/plugins/profile/steps_3_to_4/host_0"
    assert files(folder) == ["config.json", f"{place}.trace.json.gz", f"{place}.xplane.pb"]
    assert traced(folder) == [3, 4]


def test_the_window_ends_with_the_run(folder: RunFolder):
    run(ProfilerWindow(folder, first=5, count=9, last=6, host=1), range(1, 7))
    assert "profile/plugins/profile/steps_5_to_6/host_1.xplane.pb" in files(folder)
    assert traced(folder) == [5, 6]


def test_a_run_that_goes_on_inside_the_window_traces_the_rest(folder: RunFolder):
    run(ProfilerWindow(folder, first=3, count=3, last=9, host=0), range(4, 8))
    assert traced(folder) == [4, 5]


def test_a_trace_that_is_cut_off_is_thrown_away_and_another_can_be_made(folder: RunFolder):
    window = ProfilerWindow(folder, first=1, count=3, last=6, host=0)
    run(window, range(1, 2))
    with pytest.raises(KeyboardInterrupt), window.step(2):
        raise KeyboardInterrupt
    assert files(folder) == ["config.json"]
    run(ProfilerWindow(folder, first=2, count=1, last=6, host=0), range(1, 7))
    assert traced(folder) == [2]
