"""The record of a run: all that it writes and shows besides checkpoints, by one of its hosts."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rich.console import Console, RenderableType

from codea1.config import Config
from codea1.evaluation import health
from codea1.evaluation.result_files import read_evaluation, write_evaluation
from codea1.runs.checkpoints import MARKER
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter, read_metrics
from codea1.runs.recorded import compare
from codea1.runs.samples import Samples
from codea1.runs.tracker import MOST_ROWS, Tracker
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import MANIFEST, Checksum, checksum, checksums
from codea1.storage.faults import retries_so_far
from codea1.storage.json_lines import plain
from codea1.storage.objects import exists, move, names, read
from codea1.training.progress import Progress

ShowReport = Callable[[RunFolder, Callable[[RenderableType], None]], None]  # writes into the folder, and prints


class Record(contextlib.ExitStack):
    """Progress on the terminal, metrics, samples, evaluations and the report. Close it when the run ends."""

    def __init__(
        self,
        folder: RunFolder,
        config: Config,
        done: int,
        last_row: int,
        cursor: Mapping[str, Checksum],
        is_main: bool = True,
    ) -> None:
        """Opens the record of a run, and removes what it holds of later steps.

        Args:
          folder: the run's.
          config: the run's; without a terminal, the steps that are validated are printed.
          done: the last step whose samples are there; -1: none.
          last_row: the last step whose metrics are complete; -1: none.
          cursor: what `cursor` returned when step `done` was saved.
          is_main: whether this host writes the record; on the others, every method does nothing.

        Raises:
          BadInput: a file that `cursor` lists is damaged, or the metrics are.
          StorageFailed: the folder cannot be read or written.
        """
        super().__init__()
        self._folder, self._is_main = folder, is_main
        self._steps, self._every = config.steps, config.validation.every
        console = Console(quiet=not is_main)
        self.progress = Progress(self._steps, max(done, 0), every=self._every, console=console)
        if not is_main:
            return
        steps_there = [row["step"] for row in read_metrics(folder.metrics)]  # raises what is wrong with it
        damaged, missing = compare(folder, cursor)
        if damaged:
            raise BadInput(
                f"{' '.join(damaged.values())} That is not what step {done} was saved with: put it back, or "
                f"codea1 fsck {folder.path} --quarantine moves it aside, and the run goes on without it."
            )
        self._samples = Samples(folder, config.log.keep_samples)
        moved = _set_aside(folder, config, self._samples, steps_there, done)
        self._retries, self._told = 0, set[str]()
        self._metrics = self.enter_context(MetricsWriter(folder, last_row))
        rows = read_metrics(folder.metrics)
        self._rows = [_read_by_health(row) for row in rows]
        for row in rows:
            self.progress.remember(row["step"], row)
        samples = f"{folder.samples.name}/"
        there = {name: entry for name, entry in cursor.items() if name not in missing}
        self._samples.written = {name: entry for name, entry in there.items() if name.startswith(samples)}
        # That before training was made before the first checkpoint.
        made = [f"{folder.evaluations.name}/{name}.json" for name in ("before", "after")]
        self._evaluations = checksums(folder.path, made)
        self._samples.remove_after(done)
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="codea1-samples")
        self._written: Future[None] | None = None  # the samples that were given last
        self.callback(self._settle)
        self.enter_context(self.progress)
        wandb = config.log.wandb
        self._tracker = Tracker(folder, wandb.project, wandb.offline, self.progress.print) if wandb.project else None
        if self._tracker:
            self.callback(self._tracker.close)
        for sentence in moved:
            self.progress.print(sentence)
        if folder.metrics.name in missing:
            self.progress.print(f"{folder.metrics} is missing: it begins again after step {done}")
        if others := [name for name in missing if name != folder.metrics.name]:
            sentence = f"{len(others)} of the files that step {done} was saved with are no longer there"
            self.progress.print(f"{sentence}, such as {others[-1]}")

    def write_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Writes the metrics of a step, and how many storage operations were retried since the last.

        Where the step is printed or validated, or skipped an update, it says and counts what `health` warns of.
        """
        if self._is_main:
            retries = retries_so_far()
            row = {**row, "storage/retries": retries - self._retries}
            self._rows.append(_read_by_health(row))
            skips = any(value for name, value in self._rows[-1].items() if name.endswith("skipped"))
            if skips or step == self._steps or step % self._every == 0:
                warnings = health.warnings(self._rows)
                row["health/warnings"] = len(warnings)
                for rule in [rule for rule in warnings if rule not in self._told]:
                    self._told.add(rule)
                    self.progress.print(f"warning, step {step}: {warnings[rule]}")
            if self._tracker:
                self._tracker.metrics(step, row)
                row["log/failures"] = self._tracker.failures
            self._metrics.write(step, row)
            self._retries = retries

    def cursor(self) -> dict[str, Checksum]:
        """Returns the checksums of metrics, samples and evaluations, once all are stored, by name in the run's folder.

        They are for a checkpoint of the last step; see `codea1.runs.recorded.recorded`.
        """
        if not self._is_main:
            return {}
        self._settle()
        evaluations = {name: checksum for name, checksum in self._evaluations.items() if checksum}
        return {self._folder.metrics.name: self._metrics.flush(), **self._samples.written, **evaluations}

    def write_samples(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Begins to write the samples of a step, a row each, while the run goes on; `rows` is read meanwhile.

        Raises StorageFailed where those of the step before could not be written; so do `cursor` and `report`.
        """
        if self._is_main:
            self._settle()
            if self._tracker and (step == self._steps or step % self._every == 0):
                rows = iter(rows)
                shown = list(itertools.islice(rows, MOST_ROWS))
                self._tracker.samples(step, shown)
                rows = itertools.chain(shown, rows)
            self._written = self._writer.submit(self._samples.write, step, rows)

    def _settle(self) -> None:
        """Waits for the samples that are being written."""
        if self._written is not None:
            written, self._written = self._written, None
            written.result()

    def write_evaluation(self, name: str, evaluation: Mapping[str, Any]) -> None:
        """Writes an evaluation; see `codea1.evaluation.result_files`."""
        if self._is_main:
            path = write_evaluation(self._folder, name, evaluation)
            self._evaluations[f"{path.parent.name}/{path.name}"] = checksum(path)

    def report(self, show_report: ShowReport) -> None:
        """Has the report written and shown, once all samples are stored; W&B gets its figure."""
        if self._is_main:
            self._settle()
            show_report(self._folder, self.progress.print)
            if self._tracker and exists(self._folder.figure):
                self._tracker.figure(read(self._folder.figure))


def _set_aside(folder: RunFolder, config: Config, samples: Samples, rows: Iterable[int], done: int) -> list[str]:
    """Moves aside what the folder holds of steps that a run may not make as they were, and returns what to say of it.

    If a step after `done` was saved once, or there are more than a run makes between two checkpoints: all of them.

    Args:
      rows: the steps that have metrics; the others are as `Record` takes them.
    """
    unsaved = 2 * config.checkpoint.every  # a checkpoint is written while the steps to the next one are made
    after = read_evaluation(folder, "after") if done < config.steps else None  # of what was the last step
    moved = []
    start, there = max(done, 0), samples.steps()
    last = max([*there, *rows], default=0)
    was_finished = after is not None and after["step"] > done
    if last > start and (last > start + unsaved or was_finished or _were_saved(folder, done, last)):
        for step in (step for step in there if step > done):
            folder.set_aside(samples.path(step))
        if exists(folder.metrics):
            folder.set_aside(folder.metrics, copies=True)
        moved.append(f"samples and metrics of steps to {last}, saved once, are now in {folder.aside}")
    if after:  # the last, for it says that the run was finished, should this be cut off
        moved.append(_kept(folder, after, done))
    return moved


def _were_saved(folder: RunFolder, done: int, last: int) -> bool:
    """Returns whether one of the steps after `done` up to `last` was saved once, wherever its checkpoint is now."""
    aside = [folder.aside / number / folder.checkpoints.name for number in names(folder.aside)]
    held = folder.checkpoints / folder.aside.name
    aside += [held / number for number in names(held)]
    steps = (place / name for place in (folder.checkpoints, *aside) for name in names(place) if name.isdecimal())
    return any(done < int(step.name) <= last and (exists(step / MARKER) or exists(step / MANIFEST)) for step in steps)


def _kept(folder: RunFolder, after: Mapping[str, Any], done: int) -> str:
    """Gives the evaluation after what was the last step the name that one of that step has, and says so.

    Where there is one, or the step is made again, it is moved aside.
    """
    path, step = folder.evaluations / "after.json", after["step"]
    to = folder.evaluations / f"{after['split']}_step_{step:06d}.json"
    if step > done or exists(to):
        to = folder.set_aside(path)
    else:
        folder.require_inside(folder.evaluations)
        move(path, to)
    return f"{path}, of step {step}, is now {to}: one after step {folder.config['steps']} is made at the end"


def _read_by_health(row: Mapping[str, Any]) -> dict[str, Any]:
    return plain({name: row[name] for name in health.READ if name in row})
