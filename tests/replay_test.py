"""A step made again from what its run saved has the run's metrics."""

import contextlib
from collections.abc import Iterator

import pytest

from bench.micro_run import make_micro_config
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from tests.saved_step import ROUNDING, MetricPair, SavedStep, Tolerance
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
    return SavedStep(folder, step).replay()


@contextlib.contextmanager
def written_again(folder: RunFolder, rows: list[dict]) -> Iterator[None]:
    """Gives step 3 other rows for a while."""
    samples = Samples(folder)
    whole = list(samples.read(3))
    samples.write(3, rows)
    yield
    samples.write(3, whole)


@pytest.mark.parametrize("step", [1, 3])
def test_the_metrics_are_equal_to_the_last_bit(folder, step):
    pairs = replay(folder, step)
    assert [pair for pair in pairs if not pair.is_equal] == []
    found = {pair.name: pair.again for pair in pairs}
    assert {f"{player}/{name}" for player in ("code", "test") for name in ("loss", "grad_norm", "kl_ref")} <= set(found)
    assert found["code/grad_norm"] > 0
    assert found["code/train_sequences"] == 4


def test_other_samples_have_other_metrics(folder, tmp_path):
    rows = list(Samples(folder).read(3))
    changed = next(row for row in rows if row["player"] == "test" and row["selected"] and row["reward"] is not None)
    changed["advantage"] += 1.0
    with written_again(folder, rows):
        different = {pair.name for pair in replay(folder, 3) if not pair.is_close(ROUNDING["float32"])}
    assert "test/grad_norm" in different
    assert not any(name.startswith("code/") for name in different)


def test_what_is_equal_and_what_is_close():
    nan = float("nan")
    assert MetricPair("", nan, nan).is_equal
    assert not MetricPair("", nan, 1.0).is_close(Tolerance(1, 1))
    assert not MetricPair("", 1.0, nan).is_close(Tolerance(1, 1))
    assert MetricPair("", 100.0, 100.9).is_close(Tolerance(relative=0.01, absolute=0.0))
    assert not MetricPair("", 100.0, 101.1).is_close(Tolerance(relative=0.01, absolute=0.0))
    assert MetricPair("", 0.0, 0.05).is_close(Tolerance(relative=0.0, absolute=0.1))
