"""Metrics: every number of every step, once and in order, as JSON lines and as TensorBoard events."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from codea1.errors import BadInput
from codea1.runs import json_lines
from codea1.runs.atomic import write_atomically
from codea1.runs.folder import RunFolder


class MetricsWriter:
    """Appends to a run's metrics.jsonl and tensorboard/; one process of a run has one."""

    def __init__(self, folder: RunFolder):
        """Continues after the last whole line; what a crash left of a further one is dropped.

        Raises:
          BadInput: metrics.jsonl is damaged before its last line.
        """
        self._path = folder.metrics
        self._events_folder = folder.tensorboard
        self._events: EventsWriter | None = None
        rows = _numbered_lines(self._path)
        self._last_step = rows[-1][1]["step"] if rows else -1
        self._rewrite([line for line, _ in rows])

    def truncate_after(self, step: int) -> None:
        """Forgets every step after `step`: the run goes on from there. -1 forgets all."""
        rows = [(line, row) for line, row in _numbered_lines(self._path) if row["step"] <= step]
        self._file.close()
        self._close_events()
        self._last_step = rows[-1][1]["step"] if rows else -1
        self._rewrite([line for line, _ in rows])

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Writes the row of one step; both files hold it when this returns.

        Args:
          step: greater than every written one.
          values: metric name to a number, or a numpy or JAX scalar. NaN and infinities become null in metrics.jsonl
            and are no event in TensorBoard.

        Raises:
          ValueError: the step is not greater than the last.
        """
        if step <= self._last_step:
            raise ValueError(f"metrics of step {step} after those of step {self._last_step}")
        row = {"step": step, **{name: _number(value) for name, value in values.items()}}
        self._file.write(json_lines.encode(row))
        self._file.flush()
        self._write_events(step, {name: value for name, value in json_lines.plain(row).items() if name != "step"})
        self._last_step = step

    def close(self) -> None:
        self._file.close()
        self._close_events()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rewrite(self, lines: list[str]) -> None:
        write_atomically(self._path, "".join(lines))
        self._file = self._path.open("a")

    def _write_events(self, step: int, row: Mapping[str, float | None]) -> None:
        if self._events is None:
            self._events = self._open_events()
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items() if value is not None]
        self._events.write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self._events.flush()

    def _open_events(self) -> EventsWriter:
        # Not SummaryWriter: its flush leaves behind what its queue still holds.
        self._events_folder.mkdir(parents=True, exist_ok=True)
        now = time.time_ns()
        events = EventsWriter(str(self._events_folder / "events"), f".{now}")  # TensorBoard reads files by name
        # TensorBoard hides what earlier files hold from the step of a session's start on.
        start = Event(wall_time=now / 1e9, step=self._last_step + 1, session_log=SessionLog(status=SessionLog.START))
        events.write_event(start)
        return events

    def _close_events(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None


def read_metrics(path: epath.Path) -> list[dict[str, Any]]:
    """Returns the rows of a metrics.jsonl, each with its "step", in order; a live run's unfinished row is left out.

    Raises:
      BadInput: a line other than the last is not a JSON object, or has no step.
    """
    return [row for _, row in _numbered_lines(path)]


def _numbered_lines(path: epath.Path) -> list[tuple[str, dict[str, Any]]]:
    lines = json_lines.whole_lines(path)
    for number, (_, row) in enumerate(lines, start=1):
        if not isinstance(row.get("step"), int):
            raise BadInput(f"{path}, line {number}: no step.")
    return lines


def _number(value: Any) -> int | float:
    if isinstance(value, (int, np.integer)):
        return int(value)
    return float(value)
