"""W&B, offline: what is handed over is what metrics.jsonl has, and what fails stops nothing."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runs.samples import Samples
from codea1.training.record import Record
from tests.conftest import config_of_steps

BLOCK, FULL, LAST = 1 << 15, 1, 4

CODE = {"player": "code", "question_id": "q", "solution": 0, "reward": 0.5, "advantage": 1.0}
CODE |= {"text": "def f(a): ...", "history": [{"test": "assert f(1) == 1", "verdict": "fail"}], "golden": []}
TEST = {"player": "test", "question_id": "q", "solution": 0, "suite": 1, "reward": None, "advantage": 0.0}
ASSERTS = [
    {"verdict": "fail", "source": "assert f(1) == 2", "mark": "right"},
    {"verdict": None, "source": "assert g()", "mark": "rejected"},
]
TEST |= {"text": "assert f(1) == 2", "asserts": ASSERTS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> RunFolder:
    monkeypatch.setenv("WANDB_SILENT", "true")
    return RunFolder.open(str(tmp_path / "my_run"), {"seed": 3, "game": {"alpha": 0.5}})


def open_record(folder: RunFolder, done: int) -> Record:
    config = config_of_steps(4, every=2)
    config.log.wandb.project, config.log.wandb.offline = "codea1-tests", True
    return Record(folder, config, done, done, cursor={})


def written(folder: RunFolder) -> list[wandb_internal_pb2.Record]:
    """All records of all offline runs in the folder, in order."""
    found = []
    for path in sorted((folder.path / "wandb").glob("offline-run-*/*.wandb")):
        ended = time.monotonic() + 30
        own = []
        while not (own and own[-1].WhichOneof("record_type") == "exit"):  # another process writes them
            assert time.monotonic() < ended, f"{path} does not end"
            own = [wandb_internal_pb2.Record.FromString(data) for data in log_records(path.read_bytes())]
        found += own
    return found


def log_records(content: bytes) -> Iterator[bytes]:
    """Yields the records of a file in LevelDB's log format, which has a header of seven bytes in W&B's."""
    position, parts = 7, b""
    while position + 7 <= len(content):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        size, kind = struct.unpack_from("<HB", content, position + 4)
        parts += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (FULL, LAST):
            yield parts
            parts = b""


def history(records: list[wandb_internal_pb2.Record]) -> list[dict]:
    rows = [each.history for each in records if each.WhichOneof("record_type") == "history"]
    return [{item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in rows]


def test_metrics_samples_and_config_come_back_from_the_files_of_one_run(folder: RunFolder):
    with open_record(folder, done=-1) as record:
        record.write_samples(1, [CODE])
        record.write_metrics(1, {"code/reward": 0.25, "test/reward": float("nan")})
        record.write_samples(2, iter([CODE, TEST]))
        record.write_metrics(2, {"code/reward": 0.5})
    with open_record(folder, done=2) as record:
        record.write_samples(3, [CODE])
        record.write_metrics(3, {"code/reward": 0.75})
    records = written(folder)
    rows = history(records)
    assert [(row["_step"], row["code/reward"]) for row in rows] == [(1, 0.25), (2, 0.5), (3, 0.75)]
    # At each validation.
    assert [any(name.startswith("samples") for name in row) for row in rows] == [False, True, False]
    assert "test/reward" not in rows[0]
    runs = [each.run for each in records if each.WhichOneof("record_type") == "run"]
    assert {run.run_id for run in runs} == {(folder.path / "wandb_id").read_text()}
    assert {(run.display_name, run.project) for run in runs} == {("my_run", "codea1-tests")}
    assert json.loads(next(item.value_json for item in runs[0].config.update if item.key == "game")) == {"alpha": 0.5}
    (table,) = (folder.path / "wandb").glob("offline-run-*/files/media/table/samples_*.json")
    assert json.loads(table.read_text())["data"] == [
        ["q", "code", 0, None, "def f(a): ...", "fail  assert f(1) == 1", 0.5, 1.0],
        ["q", "test", 0, 1, "assert f(1) == 2", "fail  assert f(1) == 2\nrejected  assert g()", None, 0.0],
    ]
    assert [*Samples(folder).read(2)] == [CODE, TEST]  # nothing is lost to the table
    assert [row["log/failures"] for row in read_metrics(folder.metrics)] == [0, 0, 0]


def test_what_cannot_begin_is_told_once_and_the_run_goes_on(folder: RunFolder, monkeypatch, capsys):
    def refuse(**_: object) -> None:
        raise ConnectionError("no way to api.wandb.ai")

    monkeypatch.setattr(wandb, "init", refuse)
    with open_record(folder, done=-1) as record:
        for step in (1, 2):
            record.write_samples(step, [CODE])
            record.write_metrics(step, {"x": float(step)})
    assert [(row["x"], row["log/failures"]) for row in read_metrics(folder.metrics)] == [(1, 1), (2, 1)]
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("W&B failed, and the run goes on: ConnectionError: no way to api.wandb.ai") == 1
