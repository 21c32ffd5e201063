"""The record of a run: all that it writes and shows besides checkpoints, by one of its hosts."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from codea1.evaluation.evaluations import write_evaluation
from codea1.evaluation.run_report import table_title, terminal_table, write_report
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import Checksum
from codea1.storage.faults import retries_so_far
from codea1.training.progress import Progress


class Record(contextlib.ExitStack):
    """Progress on the terminal, metrics, samples, evaluations and the report. Close it when the run ends."""

    def __init__(
        self, folder: RunFolder, done: int, last_row: int, steps: int, every: int, cursor: Checksum | None
    ) -> None:
        """Opens the record of a run; what it holds of later steps is forgotten.

        Args:
          folder: the run's.
          done: the last step whose samples are there; -1: none.
          last_row: the last step whose metrics are complete; -1: none.
          steps: that the run will have.
          every: how often a step is printed where there is no terminal.
          cursor: what `cursor` returned when step `done` was saved.

        Raises:
          BadInput: what is there of the metrics is damaged.
          StorageFailed: the folder cannot be read or written.
        """
        super().__init__()
        self._folder = folder
        self._retries = 0
        self._metrics = self.enter_context(MetricsWriter(folder))
        self._metrics.truncate_after(last_row)
        there = self._metrics.flush()
        is_changed = cursor is not None and there != cursor
        if is_changed and there.size:
            raise BadInput(
                f"{folder.metrics} is not what step {done} was saved with: a row up to that step was changed or lost. "
                "Put it back, or move it away to go on without those rows."
            )
        self._samples = Samples(folder)
        self._samples.remove_after(done)
        self._progress = self.enter_context(Progress(steps, max(done, 0), every=every))
        if is_changed:
            self._progress.print(f"{folder.metrics} is missing: it begins again after step {done}")

    def note(self, text: str) -> None:
        """Shows what slow thing happens now."""
        self._progress.note(text)

    def print(self, *lines: str) -> None:
        """Prints lines."""
        for line in lines:
            self._progress.print(line)

    def write_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Writes the metrics of a step, and how often storage had to be asked again since the last."""
        retries = retries_so_far()
        self._metrics.write(step, {**row, "storage/retries": retries - self._retries})
        self._retries = retries

    def cursor(self) -> Checksum | None:
        """Returns what the metrics hold, once stored: for the checkpoint of the step that was written last."""
        return self._metrics.flush()

    def write_samples(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes the samples of a step, a row each."""
        self._samples.write(step, rows)

    def write_evaluation(self, name: str, evaluation: Mapping[str, Any]) -> None:
        """Writes an evaluation; see `codea1.evaluation.evaluations`."""
        write_evaluation(self._folder, name, evaluation)

    def show_step(self, step: int, row: Mapping[str, float]) -> None:
        """Shows that a step is done."""
        self._progress.update(step, row)

    def write_report(self) -> None:
        """Writes the report and prints its table."""
        self._progress.print(terminal_table(write_report(self._folder), table_title(self._folder)))


class NoRecord(Record):
    """Records nothing: what the hosts have that do not write the record."""

    def __init__(self) -> None:
        contextlib.ExitStack.__init__(self)

    def note(self, text: str) -> None: ...

    def print(self, *lines: str) -> None: ...

    def write_metrics(self, step: int, row: Mapping[str, float]) -> None: ...

    def cursor(self) -> Checksum | None: ...

    def write_samples(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None: ...

    def write_evaluation(self, name: str, evaluation: Mapping[str, Any]) -> None: ...

    def show_step(self, step: int, row: Mapping[str, float]) -> None: ...

    def write_report(self) -> None: ...
