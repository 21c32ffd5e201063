"""What runs have measured: which experiment each is, and its scores in the columns of the paper's tables."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from codea1.evaluation.result_files import read_evaluation
from codea1.lab.paper.experiments import (
    ARMS,
    begins_with_base,
    experiment_of,
    exported_from,
    size_of,
    size_of_published,
)
from codea1.lab.paper.layouts import Column, Line, Measure
from codea1.lab.study.declaration import BASE, Trial
from codea1.lab.study.results import Key, Measured, Result, require_seeds_of_one_arm
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.storage.objects import names, read

_LAST_SHARE = 0.1  # of the steps, whose mean is the end of a curve
_CHOICE = "_best_of_"  # in the name of a benchmark whose samples a Test LLM chose among


@dataclass(frozen=True)
class PaperRun:
    """A folder with measurements, of a training run or of `codea1.benchmark --output`, and what it is of."""

    folder: RunFolder
    experiment: str  # name of an arm, or BASE; empty: no row of the paper's tables
    size: str
    seed: int
    trains: bool = True  # it is a training run

    @classmethod
    def read(cls, path: str) -> "PaperRun":
        """Reads what a folder is of. Raises BadInput: it is neither."""
        folder = RunFolder.existing(path)
        if "method" in folder.config:
            experiment = experiment_of(folder.config)
            name = experiment.name if experiment else ""
            return cls(folder, name, size_of(folder.config), folder.config.get("seed", 0))
        evaluated = folder.config.get("evaluated")
        if not isinstance(evaluated, dict):
            raise BadInput(f"{folder.path} is neither a training run nor an evaluation, by its config.json.")
        if evaluated.get("run"):
            return replace(cls.read(evaluated["run"]), folder=folder, trains=False)
        size = size_of_published(evaluated.get("model") or "")
        return cls(folder, BASE if size else "", size, seed=0, trains=False)

    @cached_property
    def result(self) -> Result:
        """What was measured: before training, and after its last step that was measured.

        Raises (this, and what reads it):
          BadInput: an evaluation, or metrics.jsonl, is damaged.
          StorageFailed: one cannot be read.
        """
        found: dict[Key, dict[str, Any]] = {}
        for name in names(self.folder.evaluations):
            evaluation = read_evaluation(self.folder, name.removesuffix(".json")) if name.endswith(".json") else None
            if evaluation:
                moment = "after" if evaluation["step"] else "before"
                key = (evaluation["split"], moment, self._chooser(evaluation))
                if key not in found or found[key]["step"] <= evaluation["step"]:
                    found[key] = evaluation
        run = Trial("", "", self.experiment, self.seed)
        return Result(run, self.folder.config, found, read_metrics(self.folder.metrics))

    def measured(self, measure: Measure, before: bool = False, tester: str = "") -> Iterator[Measured]:
        """Yields a measure as it was taken, once for each number of samples; nothing where it was not.

        Args:
          before: that of the models that training began with.
          tester: whose Test LLM chose among the samples, which are then judged by that choice.
        """
        if measure.split:
            moment = "before" if before else "after"
            split, metric = (f"{measure.split}{_CHOICE}*", "pass_at_1") if tester else (measure.split, measure.metric)
            yield from self.result.measured(metric, split, moment, tester)
        elif self.has_ended and not before:
            values = [row[measure.metric] for row in self.result.rows if row.get(measure.metric) is not None]
            if values:
                yield Measured(np.array([[np.mean(values[-max(1, round(_LAST_SHARE * len(values))) :])]]))

    @property
    def early(self) -> list[int]:
        """The steps before the run's last at which it was measured last."""
        measured = self.result.evaluations.items()
        steps = {each["step"] for (split, moment, _), each in measured if moment == "after" and split != "validation"}
        return sorted(step for step in steps if step < self._last_step)

    @property
    def has_ended(self) -> bool:
        """Whether the last step of its config is done."""
        return bool(self.result.rows) and self.result.rows[-1]["step"] >= self._last_step

    @property
    def _last_step(self) -> int:
        return self.folder.config.get("steps", 0)

    def _chooser(self, evaluation: Mapping[str, Any]) -> str:
        """Returns whose Test LLM chose, by the folders of both evaluations; empty for no choice, "?" where unknown."""
        benchmark, choice, _ = evaluation["split"].partition(_CHOICE)
        if not choice:
            return ""

        def setting(split: str, name: str) -> str:
            """Returns a setting of `codea1.benchmark`, by the folder in which it keeps its samples and verdicts."""
            folder = self.folder.evaluations / f"{split}_step_{evaluation['step']:06d}"
            return json.loads(read(folder / "config.json"))[name]

        try:
            model, tester = setting(benchmark, "model"), setting(evaluation["split"], "test_model")
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return "?"
        if model == tester:
            return self.experiment
        size = size_of_published(tester)
        if size:
            return BASE if size == self.size else "?"
        return exported_from(tester) or "?"


class PaperRuns:
    """The runs that a report is made of."""

    def __init__(self, runs: Iterable[PaperRun]):
        """Raises BadInput: two runs are the same experiment with the same seed, or differ in more than the seed."""
        self._all = [run for run in runs if run.experiment]
        trained: dict[tuple[str, str], dict[int, PaperRun]] = defaultdict(dict)
        for run in (run for run in self._all if run.trains):
            own = trained[run.size, run.experiment]
            if run.seed in own:
                both, title = f"{own[run.seed].folder.path} and {run.folder.path}", ARMS[run.experiment].title
                raise BadInput(f"{both} are both {title} with seed {run.seed}: give one of them.")
            own[run.seed] = run
            require_seeds_of_one_arm([(str(each.folder.path), each.folder.config) for each in own.values()])

    @property
    def sizes(self) -> list[str]:
        """The sizes of the models, smallest first."""

        def billions(size: str) -> tuple[float, str]:
            number = size.removesuffix("b")
            return (float(number) if number.replace(".", "", 1).isdigit() else 0.0, size)

        return sorted({run.size for run in self._all}, key=billions)

    def runs(self, size: str, experiment: str) -> Mapping[int, PaperRun]:
        """Returns the training runs of an experiment, by seed."""
        own = [run for run in self._all if run.trains and (run.size, run.experiment) == (size, experiment)]
        return {run.seed: run for run in sorted(own, key=lambda run: run.seed)}

    def scores(self, size: str, line: Line, column: Column, before: bool = False) -> dict[int, list[Measured]]:
        """Returns each of a column's measures, by seed; seeds that lack one are left out.

        Args:
          before: those that the row's own runs began with.

        Raises:
          BadInput: an evaluation, or metrics.jsonl, is damaged, or a measure was taken with two numbers of samples.
          StorageFailed: one cannot be read.
        """
        is_base = line.experiment == BASE
        own = [run for run in self._all if run.size == size and run.experiment == line.experiment]
        if is_base:  # every run of a seed begins with the same models; one without a Test LLM has not measured it
            own += [run for run in self._all if run.size == size and begins_with_base(run.experiment)]
        found = {}
        for seed in sorted({run.seed for run in own}):
            sources = [run for run in own if run.seed == seed]
            taken = []
            for measure in column.measures:
                scores = [run.measured(measure, before or is_base, line.tester) for run in sources]
                each = [measured for of_run in scores for measured in of_run]
                samples_of(each, f"{line.title}, {measure.split}, seed {seed},")
                taken += each[:1]
            if len(taken) == len(column.measures):
                found[seed] = taken
        return found


def samples_of(measured: Iterable[Measured], what: str) -> str:
    """Returns with how many samples of a question all were measured; empty where that number is fixed.

    Raises:
      BadInput: with several numbers; `what` was measured is named.
    """
    counts = sorted({each.samples for each in measured if each.samples})
    if len(counts) > 1:
        raise BadInput(f"{what} was measured with {' and with '.join(counts)} samples of a question: use one number.")
    return "".join(counts)
