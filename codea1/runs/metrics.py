"""Metrics: every number of every step, once and in order, as JSON lines and as TensorBoard events."""

import re
import socket
import struct
import sys
import time
from collections.abc import Mapping
from numbers import Integral
from typing import Any

from etils import epath
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from codea1.runs.folder import RunFolder
from codea1.runs.forms import NAME, fits
from codea1.runtime.errors import BadInput, say
from codea1.storage import json_lines
from codea1.storage.checksums import Checksum, checksum, checksum_of
from codea1.storage.objects import GrowingFile, names

Line = tuple[str, dict[str, Any]]  # as it is written, and what it holds
_EVENTS = re.compile(r"events\.out\.tfevents\.(\d+)\.")  # and the second of when the session began


class MetricsWriter:
    """Appends to a run's metrics.jsonl and tensorboard/; one process of a run has one."""

    def __init__(self, folder: RunFolder, last_step: int | None = None):
        """Continues after the last whole line, or after the row of `last_step` (-1: none); drops what follows.

        Raises:
          BadInput: metrics.jsonl is damaged before its last line.
          StorageFailed: it cannot be read or written.
        """
        self._path = folder.metrics
        self._events_folder = folder.tensorboard
        self._events: GrowingFile | None = None
        lines = [line for line in _numbered_lines(self._path) if last_step is None or line[1]["step"] <= last_step]
        self._content = bytearray("".join(line for line, _ in lines).encode())
        self._file = GrowingFile(self._path, bytes(self._content))
        self._last_step = lines[-1][1]["step"] if lines else -1

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Adds the row of one step: to the files on a disk at once, to those in a bucket by `flush` at the latest.

        Args:
          step: greater than every written one.
          values: metric name to a number, or a numpy or JAX scalar. NaN and infinities become null in metrics.jsonl
            and are no event in TensorBoard.

        Raises:
          ValueError: the step is not greater than the last.
          StorageFailed: the row cannot be written.
        """
        if step <= self._last_step:
            raise ValueError(f"metrics of step {step} after those of step {self._last_step}")
        numbers = {name: int(value) if isinstance(value, Integral) else float(value) for name, value in values.items()}
        values = json_lines.plain(numbers)
        line = json_lines.encode({"step": step, **values})
        self._content += line
        self._file.append(line)
        if self._events is None:
            self._events = _begin_events(self._events_folder, first_step=self._last_step + 1)
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items() if value is not None]
        self._events.append(_tf_record(Event(wall_time=time.time(), step=step, summary=Summary(value=scalars))))
        self._last_step = step

    def flush(self) -> Checksum:
        """Returns, when all is stored, what metrics.jsonl holds; writes it again where another changed or lost it."""
        self._file.flush()
        if self._events is not None:
            self._events.flush()
        content = bytes(self._content)
        if checksum(self._path) != (written := checksum_of(content)):
            say(f"{self._path} is not what this run wrote to it; it is written again", sys.stderr)
            self._file.close()
            self._file = GrowingFile(self._path, content)
        return written

    def close(self) -> None:
        self.flush()
        self._file.close()
        if self._events is not None:
            self._events.close()
            self._events = None

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _begin_events(folder: epath.Path, first_step: int) -> GrowingFile:
    """Makes the newest file of a tensorboard/ folder; it hides what earlier files hold from `first_step` on.

    Not by tensorboardX's writer, which puts a bucket's file without retries.
    """
    before = (int(match[1]) for match in map(_EVENTS.match, names(folder)) if match)
    # TensorBoard reads files by name, and the clock may have been set back.
    now = max(time.time_ns(), (max(before, default=0) + 1) * 10**9)
    start = SessionLog(status=SessionLog.START)
    events = (
        Event(wall_time=now / 1e9, file_version="brain.Event:2"),
        Event(wall_time=now / 1e9, step=first_step, session_log=start),
    )
    path = folder / f"events.out.tfevents.{now // 10**9}.{socket.gethostname()}.{now}"
    return GrowingFile(path, b"".join(map(_tf_record, events)))


def _tf_record(event: Event) -> bytes:
    """Returns a TFRecord: the length and the data, each with its checksum."""
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def read_metrics(path: epath.Path) -> list[dict[str, Any]]:
    """Returns the rows of a metrics.jsonl, each with its "step", in order; a live run's unfinished row is left out.

    Raises:
      BadInput: a line other than the last is not a JSON object, or has no step, or one that is not after the last.
      StorageFailed: it cannot be read.
    """
    return [row for _, row in _numbered_lines(path)]


def _numbered_lines(path: epath.Path) -> list[Line]:
    lines, last = list(json_lines.whole_lines(path)), -1
    for number, (_, row) in enumerate(lines, start=1):
        if not isinstance(row.get("step"), int):
            raise BadInput(f"{path}, line {number}: no step.")
        for name, value in row.items():
            if not NAME.fullmatch(name) or not fits(value, (float, bool, None)):
                raise BadInput(f"{path}, line {number}: {name} is not a metric and its number.")
        if row["step"] <= last:
            raise BadInput(f"{path}, line {number}: step {row['step']} comes after step {last}.")
        last = row["step"]
    return lines
