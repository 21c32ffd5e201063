"""A run's files in a bucket while storage fails: docs/resuming.md says what happens, and here it does."""

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
import jax
import jax.numpy as jnp
import pytest
from etils import epath

from codea1.data.tokenizer import load_tokenizer
from codea1.evaluation.result_files import read_evaluation
from codea1.game.methods import own_file
from codea1.lab.runs.fsck import fsck
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder, read_json
from codea1.runs.metrics import read_metrics
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput, StorageFailed, StorageOutage
from codea1.storage import faults, objects
from codea1.storage.checksums import checksum, checksum_of, checksums
from codea1.training.record import Record
from tests import gcs_emulator
from tests.conftest import config_of_steps
from tests.faulty_gcs import (
    DELETE,
    READ,
    WRITE,
    PlannedFault,
    faulty,
    forbidden,
    no_bucket,
    reset,
    too_many,
    unavailable,
)

SMALL = {"x": jnp.arange(4.0)}
TARGET = {"x": jax.ShapeDtypeStruct((4,), jnp.float32, sharding=SMALL["x"].sharding)}
EVALUATION = {
    "step": 1,
    "split": "test",
    "questions": 1,
    "question_ids": ["a"],
    "metrics": {"x": {"mean": 0.5, "low": 0.0, "high": 1.0, "per_question": [0.5]}},
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def folder(bucket: str) -> RunFolder:
    return RunFolder.open(f"{bucket}/run", {"seed": 0})


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> epath.Path:
    return epath.Path(str(tmp_path) if request.param == "disk" else request.getfixturevalue("bucket")) / "folder"


@contextlib.contextmanager
def refusing(status: HTTPStatus, name: str, times: float) -> Iterator[None]:
    """The emulator itself refuses requests about objects whose name `name` is found in: TensorStore's, too."""
    route = gcs_emulator._Handler._route
    refused = [0]

    def refuse(handler: Any, method: str) -> None:
        head = handler.rfile.getvalue()[:300].decode("latin-1")  # where an upload says its name
        if refused[0] < times and re.search(name, f"{unquote(handler.path)} {head}", re.DOTALL):
            refused[0] += 1
            handler._refuse(status, "backendError")
        else:
            route(handler, method)

    gcs_emulator._Handler._route = refuse
    try:
        yield
    finally:
        gcs_emulator._Handler._route = route
    assert refused[0] >= min(times, 1)


def write_all(folder: RunFolder) -> None:
    """All that a run writes of one step besides its checkpoint."""
    with Record(folder, config_of_steps(1), -1, -1, cursor={}) as record:
        record.write_samples(1, [{"a": 1}, {"a": 2}])
        record.write_metrics(1, {"x": 0.5})
        record.cursor()
        record.write_evaluation("before", EVALUATION)


def write_more(folder: RunFolder) -> None:
    with Record(folder, config_of_steps(2), 1, 1, cursor={}) as record:
        record.write_samples(2, [])
        record.write_metrics(2, {"x": 1.0})
        record.cursor()
        record.write_evaluation("after", EVALUATION)


def assert_all_written_once(folder: RunFolder) -> None:
    assert [(row["step"], row["x"]) for row in read_metrics(folder.metrics)] == [(1, 0.5)]
    assert list(Samples(folder).read(1)) == [{"a": 1}, {"a": 2}]
    assert read_evaluation(folder, "before") == EVALUATION
    assert len(list(folder.tensorboard.iterdir())) == 1


def save(folder: RunFolder, *steps: int) -> None:
    checkpoints = Checkpoints(folder.checkpoints, keep_last=2, keep_best=0)
    for step in steps:
        checkpoints.save(step, {"x": SMALL["x"] * step}, {"step": step}, None)
    checkpoints.close()


def restored(folder: RunFolder) -> list[int]:
    """The steps of a run that is taken up, each of which is whole."""
    checkpoints = Checkpoints(folder.checkpoints, keep_last=2, keep_best=0)
    assert checkpoints.continue_from(checkpoints.latest()[0], folder.set_aside) == []
    for step in checkpoints.steps():
        arrays, state = checkpoints.restore(step, TARGET)
        assert (arrays["x"] == SMALL["x"] * step).all()
        assert state == {"step": step}
    assert checkpoints.latest()[0] == (checkpoints.steps() or [None])[-1]
    checkpoints.close()
    return checkpoints.steps()


def test_files_are_written_read_listed_and_removed(place: epath.Path):
    assert objects.names(place) == objects.files(place) == []
    assert not objects.exists(place / "a")
    for name, content in {"a": "ä", "b/c": b"\0" * 100, "b/d/e": b""}.items():
        objects.write_atomically(place / name, content)
    objects.write_atomically(place / "a", "b")
    assert (objects.read(place / "a"), objects.read(place / "b/c")) == (b"b", b"\0" * 100)
    assert objects.names(place) == ["a", "b"]
    assert objects.files(place) == ["a", "b/c", "b/d/e"]
    assert (objects.is_folder(place / "b"), objects.is_folder(place / "a")) == (True, False)
    assert checksums(place, ["a", "no", "b"]) == {"a": checksum_of(b"b"), "no": None, "b": None}
    assert checksum(place / "b/c") == checksum_of(b"\0" * 100)
    for _ in range(2):
        objects.remove(place / "a")
        objects.remove_folder(place / "b")
    assert objects.names(place) == []
    with pytest.raises(FileNotFoundError):
        objects.read(place / "a")


def test_a_bucket_that_is_not_there_is_refused_and_not_made(gcs: gcs_emulator.Emulator):
    for open_ in (RunFolder.open, RunFolder.check):
        with pytest.raises(BadInput, match=r"gs://no-such-bucket/run cannot be used: .* not there"):
            open_("gs://no-such-bucket/run", {})
    assert not fsspec.filesystem("gs").exists("no-such-bucket")


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("run", lambda place: RunFolder.check(f"{place}/run", {})),
        ("run/config.json", lambda place: RunFolder.open(f"{place}/run", {})),
        ("run/config.json", lambda place: RunFolder.existing(f"{place}/run")),
        ("run/config.json", lambda place: read_json(place / "run" / "config.json")),
        ("reward.py", lambda place: own_file(f"{place}/reward.py", "reward")),
        ("tokenizer_config.json", lambda place: load_tokenizer(f"{place}/model")),
    ],
)
def test_an_outage_when_a_run_begins_is_no_bad_input(
    bucket: str, monkeypatch: pytest.MonkeyPatch, name: str, begin: Callable[[epath.Path], object]
):
    monkeypatch.setattr(faults, "RETRY_SECONDS", 0.0)
    objects.write_atomically(epath.Path(bucket) / "model" / "tokenizer_config.json", "{}")
    fault = PlannedFault(READ, name, reset, times=math.inf)
    with faulty(fault), pytest.raises(StorageOutage, match="does not answer"):
        begin(epath.Path(bucket))
    assert fault.seen


@pytest.mark.parametrize(
    "fault",
    [
        PlannedFault(WRITE, "run/", unavailable, times=3),
        PlannedFault(WRITE, "run/", too_many, times=3),
        PlannedFault(WRITE, "run/", reset, times=3),
        PlannedFault(WRITE, "run/", TimeoutError, times=3),
        PlannedFault(WRITE, "metrics", unavailable, times=2, served=True),
        PlannedFault(WRITE, "tensorboard", reset, times=2, served=True),
        PlannedFault(WRITE, "samples", reset, times=2, short=True),
        PlannedFault(WRITE, "metrics", reset, times=2, short=True),
        PlannedFault(READ, "run/", unavailable, times=3),
    ],
    ids=lambda fault: f"{fault.method}-{fault.name.strip('/')}-{'short' * fault.short}{'lost answer' * fault.served}",
)
def test_what_passes_is_tried_again_till_all_is_there_once(folder: RunFolder, fault: PlannedFault):
    before = faults.retries_so_far()
    with faulty(fault):
        write_all(folder)
    assert fault.seen == fault.times
    assert faults.retries_so_far() - before >= (1 if fault.method == READ else fault.times)  # reads come in pairs
    assert_all_written_once(folder)


def test_retries_are_in_the_metrics_of_their_step(folder: RunFolder):
    with Record(folder, config_of_steps(2), -1, -1, cursor={}) as record:
        record.write_metrics(1, {})
        with faulty(PlannedFault(WRITE, "samples", unavailable, times=3)):
            record.write_samples(2, [])
            record.cursor()
        record.write_metrics(2, {})
        record.write_metrics(3, {})
    assert [row["storage/retries"] for row in read_metrics(folder.metrics)][1:] == [3, 0]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (forbidden, StorageFailed, "access is denied"),
        (no_bucket, StorageFailed, "is not there"),
        (unavailable, StorageOutage, "does not answer"),
    ],
)
@pytest.mark.parametrize("name", ["metrics", "samples", "evaluations", "tensorboard"])
def test_what_stays_is_told_and_what_was_there_stays(
    folder: RunFolder, name: str, error: Any, kind: type, words: str, monkeypatch: pytest.MonkeyPatch
):
    write_all(folder)
    monkeypatch.setattr(faults, "RETRY_SECONDS", 1.0)
    with (
        faulty(PlannedFault(WRITE, name, error, times=1e9)),
        pytest.raises(StorageFailed, match=f"{name}.* failed: .*{words}") as failure,
    ):
        write_more(folder)
    assert type(failure.value) is kind
    assert len(str(failure.value).splitlines()) == 1
    assert read_metrics(folder.metrics)[0]["x"] == 0.5
    assert list(Samples(folder).read(1)) == [{"a": 1}, {"a": 2}]
    assert read_evaluation(folder, "before") == EVALUATION


@pytest.mark.parametrize("name", ["manifest.json", "state/metadata", "_CHECKPOINT_METADATA", "commit_success"])
def test_a_save_outlasts_what_passes(folder: RunFolder, name: str):
    save(folder, 1)
    with refusing(HTTPStatus.SERVICE_UNAVAILABLE, f"upload.*2/.*{name}", times=1):
        save(folder, 2)
    assert restored(folder) == [1, 2]


def test_tensorstore_tries_again_and_is_counted(folder: RunFolder):
    before = faults.retries_so_far()
    with refusing(HTTPStatus.SERVICE_UNAVAILABLE, "upload.*arrays/ocdbt", times=2):
        save(folder, 1)
    assert restored(folder) == [1]
    assert faults.retries_so_far() > before


@pytest.mark.parametrize("name", ["manifest.json", "commit_success", "2/state/metadata"])
@pytest.mark.parametrize("error", [forbidden, no_bucket])
def test_a_save_that_fails_before_its_marker_is_no_step(folder: RunFolder, name: str, error: Any):
    save(folder, 1)
    with (
        faulty(PlannedFault(WRITE, name, error, times=1e9)),
        pytest.raises(StorageFailed, match=r"(writing|saving).* failed: (access is denied|the bucket)"),
    ):
        save(folder, 2)
    assert restored(folder) == [1]
    assert objects.names(folder.checkpoints) == ["1"]
    save(folder, 2)
    assert restored(folder) == [1, 2]


def test_arrays_that_cannot_be_written_are_no_step(folder: RunFolder):
    save(folder, 1)
    with (
        refusing(HTTPStatus.FORBIDDEN, "upload.*2/arrays/ocdbt", times=1e9),
        pytest.raises(StorageFailed, match=r"saving step 2 in gs://.* failed: access is denied"),
    ):
        save(folder, 2)
    assert restored(folder) == [1]


def watch(checkpoints: Checkpoints) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        checkpoints.check()
        time.sleep(0.05)


def test_a_failed_save_is_known_before_the_next(folder: RunFolder):
    checkpoints = Checkpoints(folder.checkpoints, keep_last=2, keep_best=0)
    with faulty(PlannedFault(WRITE, "manifest.json", forbidden, times=1e9)):
        checkpoints.save(1, SMALL, {}, None)
        with pytest.raises(StorageFailed, match="access is denied"):
            watch(checkpoints)


@pytest.mark.parametrize("name", ["checkpoints/1/commit_success", "checkpoints/1/arrays"])
def test_a_step_that_could_not_be_deleted_is_not_read_or_deleted_later(folder: RunFolder, name: str):
    save(folder, 1, 2)
    fault = PlannedFault(DELETE, name, forbidden, times=1e9)
    with faulty(fault), pytest.raises(StorageFailed, match="access is denied"):
        save(folder, 3)
    assert fault.seen
    assert restored(folder) in ([1, 2, 3], [2, 3])
    save(folder, 4)
    assert restored(folder) == [3, 4]


def test_a_bucket_that_vanishes_stops_the_run_and_is_not_made_anew(folder: RunFolder):
    save(folder, 1)
    bucket = folder.path.parent
    with contextlib.suppress(StorageFailed), Record(folder, config_of_steps(2), -1, -1, cursor={}) as record:
        fsspec.filesystem("gs").rm(str(bucket), recursive=True)
        with contextlib.suppress(FileNotFoundError):
            fsspec.filesystem("gs").rmdir(str(bucket))
        record.write_metrics(1, {})
        with pytest.raises(StorageFailed, match="is not there"):
            record.cursor()
    assert not fsspec.filesystem("gs").exists(str(bucket))


def test_fsck_in_a_bucket_moves_what_is_damaged_aside(folder: RunFolder, capsys: pytest.CaptureFixture):
    checkpoints = Checkpoints(folder.checkpoints, keep_last=2, keep_best=0)
    with Record(folder, config_of_steps(2), -1, -1, cursor={}) as record:
        record.write_evaluation("before", EVALUATION)
        for step in (1, 2):
            record.write_samples(step, [{"a": step}])
            record.write_metrics(step, {"x": 1.0})
            checkpoints.save(step, SMALL, {"record": record.cursor()}, None)
    checkpoints.close()
    assert fsck(str(folder.path), quarantine=False)
    for name in ("checkpoints/2/state/metadata", "evaluations/before.json"):
        objects.write_atomically(folder.path / name, objects.read(folder.path / name).replace(b"1", b"3"))
    capsys.readouterr()
    assert not fsck(str(folder.path), quarantine=False)
    assert [line.partition(" is damaged")[0] for line in capsys.readouterr().out.splitlines()[:2]] == [
        f"{folder.path}/checkpoints/2/state/metadata",
        f"{folder.path}/evaluations/before.json",
    ]
    assert fsck(str(folder.path), quarantine=True)
    assert capsys.readouterr().out.endswith("The run continues from step 1.\n")
    assert objects.files(folder.aside) == ["1/evaluations/before.json"]
    moved = {"1/2/commit_success.txt", "1/2/manifest.json"}
    assert moved <= {*objects.files(folder.checkpoints / "set_aside")}
    assert not objects.exists(folder.path / "checkpoints/2")
    assert fsck(str(folder.path), quarantine=False)
