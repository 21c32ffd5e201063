import itertools
import math
import struct
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from tensorboardX.proto.event_pb2 import Event, SessionLog

from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter, read_metrics
from codea1.runtime.errors import BadInput
from codea1.storage import objects
from codea1.storage.checksums import checksum, checksum_of
from codea1.storage.objects import is_remote


@pytest.fixture(params=["disk", "bucket"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    workdir = str(tmp_path) if request.param == "disk" else f"{request.getfixturevalue('bucket')}/run"
    return RunFolder.open(workdir, {})


def steps(folder: RunFolder) -> list[int]:
    return [row["step"] for row in read_metrics(folder.metrics)]


def shown_scalars(folder: RunFolder) -> list[tuple[str, int, float]]:
    """What TensorBoard shows: a session's start hides every earlier event at or after its step."""
    shown: list[tuple[str, int, float]] = []
    for path in sorted(folder.tensorboard.iterdir()):
        data = path.read_bytes()  # records of an 8-byte length, a checksum, the event and a checksum
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            if event.session_log.status == SessionLog.START:
                shown = [entry for entry in shown if entry[1] < event.step]
            shown += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
    return shown


def test_rows_are_there_when_write_returns_or_once_flushed(folder: RunFolder):
    with MetricsWriter(folder) as writer:
        writer.write(0, {"validation/test_mul": 0.5})
        writer.write(1, {"code/reward": jnp.float32(0.25), "book/size": np.int64(3), "test/kl_ref": math.nan})
        if is_remote(folder.path):
            writer.flush()
        assert read_metrics(folder.metrics) == [
            {"step": 0, "validation/test_mul": 0.5},
            {"step": 1, "code/reward": 0.25, "book/size": 3, "test/kl_ref": None},
        ]
        assert shown_scalars(folder) == [("validation/test_mul", 0, 0.5), ("code/reward", 1, 0.25), ("book/size", 1, 3)]


def test_a_step_is_written_once_and_in_order(folder: RunFolder):
    with MetricsWriter(folder) as writer:
        writer.write(3, {})
        for step in (3, 2):
            with pytest.raises(ValueError, match="after those of step 3"):
                writer.write(step, {})
    with MetricsWriter(folder) as writer, pytest.raises(ValueError, match="after those of step 3"):
        writer.write(3, {})


@pytest.mark.parametrize("set_back", [0, 3600])
def test_a_resumed_run_has_every_step_once(folder: RunFolder, set_back: int, monkeypatch: pytest.MonkeyPatch):
    with MetricsWriter(folder) as writer:
        for step in range(1, 6):
            writer.write(step, {"x": step})
    now = time.time_ns() - set_back * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: now)
    with MetricsWriter(folder, last_step=3) as writer:
        assert steps(folder) == [1, 2, 3]
        for step in range(4, 7):
            writer.write(step, {"x": 10 * step})
    expected = [(1, 1), (2, 2), (3, 3), (4, 40), (5, 50), (6, 60)]
    assert [(row["step"], row["x"]) for row in read_metrics(folder.metrics)] == expected
    assert [(step, value) for _, step, value in shown_scalars(folder)] == expected


def test_a_row_cut_by_a_crash_is_dropped(folder: RunFolder):
    with MetricsWriter(folder) as writer:
        writer.write(1, {"x": 1})
    folder.metrics.write_text(folder.metrics.read_text() + '{"step": 2, "x"')
    assert steps(folder) == [1]
    with MetricsWriter(folder) as writer:
        writer.write(2, {"x": 2})
    assert steps(folder) == [1, 2]


def test_a_writer_that_was_killed_leaves_a_beginning(folder: RunFolder):
    killed = MetricsWriter(folder)
    for step in range(1, 4):
        killed.write(step, {"x": step})
    killed.flush()
    killed.write(4, {"x": 4})  # in a bucket it may be lost
    assert steps(folder) in ([1, 2, 3], [1, 2, 3, 4])
    with MetricsWriter(folder, last_step=3) as writer:
        writer.write(4, {"x": 40})
    assert [row["x"] for row in read_metrics(folder.metrics)] == [1, 2, 3, 40]
    assert [value for *_, value in shown_scalars(folder)] == [1, 2, 3, 40]


def test_flush_tells_what_is_there(folder: RunFolder):
    with MetricsWriter(folder) as writer:
        assert writer.flush() == checksum_of(b"")
        writer.write(1, {"x": 0.1})
        one = writer.flush()
        assert one == checksum(folder.metrics)
        writer.write(2, {"x": 0.2})
        assert writer.flush() == checksum(folder.metrics) != one
    with MetricsWriter(folder, last_step=1) as writer:
        assert writer.flush() == one


def test_a_large_object_is_put_less_often(monkeypatch: pytest.MonkeyPatch):
    now, puts = 0.0, []
    monkeypatch.setattr(objects.time, "monotonic", lambda: now)
    monkeypatch.setattr(objects, "write_atomically", lambda path, content: puts.append(len(content)))
    file = objects.GrowingFile(epath.Path("gs://bucket/metrics.jsonl"), b"")
    monkeypatch.setattr(objects, "_PUT_BYTES_PER_SECOND", 1024)
    for _ in range(2000):
        now += 1.0
        file.append(bytes(100))
    file.close()
    assert puts[-1] == 2000 * 100
    assert all(before < after for before, after in itertools.pairwise(puts))
    assert puts[1:4] == [100, 200, 300]
    assert sum(puts) <= 2000 * 1024 + 2000 * 100  # bytes: linear in time


@pytest.mark.parametrize("line", ["{", "{}", "3"])
def test_a_damaged_row_is_named(folder: RunFolder, line: str):
    folder.metrics.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(BadInput, match=r"metrics\.jsonl, line 2"):
        MetricsWriter(folder)
