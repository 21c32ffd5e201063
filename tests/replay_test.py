"""A step made again from what its run saved has the run's metrics."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.micro_run import make_micro_config
from codea1.config import config_of
from codea1.lab.runs.saved_step import ROUNDING, MetricPair, SavedStep, Tolerance
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from tests.train_test import scripting, train


@pytest.fixture(scope="module")
def folder(model_folder, data_folder, tmp_path_factory) -> RunFolder:
    """Of a run of five steps with checkpoints of steps 2, 4 and 5, or of the best step too."""
    config = make_micro_config(model_folder, data_folder)
    config.steps = 5
    config.validation.every = 5
    config.checkpoint.every = 2
    config.checkpoint.keep_last = 3
    config.code.overlong_buffer = 8  # so that what a sample is paid is not what it learns from
    workdir = tmp_path_factory.mktemp("replay") / "run"
    with scripting():
        train(config, workdir)
    return RunFolder.existing(str(workdir))


def replay(folder: RunFolder, step: int) -> list[MetricPair]:
    return SavedStep(folder, config_of(folder), step).replay()


def files(folder: RunFolder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder.path).rglob("*") if path.is_file()}


@contextlib.contextmanager
def written_again(folder: RunFolder, rows: list[dict]) -> Iterator[None]:
    """Gives step 3 other rows for a while."""
    samples = Samples(folder)
    whole = list(samples.read(3))
    samples.write(3, rows)
    yield
    samples.write(3, whole)


@pytest.mark.parametrize("step", [1, 3])
def test_the_metrics_are_equal_to_the_last_bit_and_nothing_is_changed_in_the_folder(folder, step):
    before = files(folder)
    pairs = replay(folder, step)
    assert files(folder) == before
    assert [pair for pair in pairs if not pair.is_equal] == []
    found = {pair.name: pair.again for pair in pairs}
    assert {f"{player}/{name}" for player in ("code", "test") for name in ("loss", "grad_norm", "kl_ref")} <= set(found)
    assert found["code/grad_norm"] > 0
    assert found["code/train_sequences"] == 4


def test_samples_of_an_older_version_are_replayed_to_the_last_bit(folder):
    """They hold the decimal forms of the same numbers, in lists."""
    rows = list(Samples(folder).read(3))
    path = Path(folder.samples) / "step_000003.jsonl.zst"
    old, packed = path.with_suffix(""), path.read_bytes()
    path.unlink()
    old.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert isinstance(json.loads(old.read_text().splitlines()[0])["log_probs"], list)
    assert [pair for pair in replay(folder, 3) if not pair.is_equal] == []
    old.unlink()
    path.write_bytes(packed)


@pytest.mark.parametrize("step", [2, 4])
def test_a_step_without_a_checkpoint_before_it_is_refused_with_those_that_have_one(folder, step):
    with pytest.raises(BadInput, match=rf"no checkpoint of step {step - 1}; it can for 1, 3, 5\."):
        SavedStep(folder, config_of(folder), step)


def test_a_step_that_never_was_is_refused(folder):
    with pytest.raises(BadInput, match=r"no samples or metrics of it; it can for 1, 3, 5\."):
        SavedStep(folder, config_of(folder), 9)


def test_other_samples_have_other_metrics(folder, tmp_path):
    rows = list(Samples(folder).read(3))
    changed = next(row for row in rows if row["player"] == "test" and row["selected"] and row["reward"] is not None)
    changed["advantage"] += 1.0
    with written_again(folder, rows):
        different = {pair.name for pair in replay(folder, 3) if not pair.is_close(ROUNDING["float32"])}
    assert "test/grad_norm" in different
    assert not any(name.startswith("code/") for name in different)


def test_a_row_without_what_is_needed_is_named(folder):
    rows = list(Samples(folder).read(3))
    del rows[0]["log_probs"]
    with written_again(folder, rows), pytest.raises(BadInput, match=r"row 1 .*log_probs"):
        replay(folder, 3)


def test_a_mesh_that_the_devices_here_do_not_make_is_replaced(folder):
    config = config_of(folder)
    config.mesh.fsdp, config.mesh.tensor = 4, 2
    assert SavedStep(folder, config, 1).mesh().size == 1


def test_what_is_equal_and_what_is_close():
    nan = float("nan")
    assert MetricPair("", nan, nan).is_equal
    assert not MetricPair("", nan, 1.0).is_close(Tolerance(1, 1))
    assert not MetricPair("", 1.0, nan).is_close(Tolerance(1, 1))
    assert MetricPair("", 100.0, 100.9).is_close(Tolerance(relative=0.01, absolute=0.0))
    assert not MetricPair("", 100.0, 101.1).is_close(Tolerance(relative=0.01, absolute=0.0))
    assert MetricPair("", 0.0, 0.05).is_close(Tolerance(relative=0.0, absolute=0.1))
