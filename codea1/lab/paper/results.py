"""What runs have measured: which experiment each is, and its scores in the columns of the paper's tables."""

import dataclasses
import fnmatch
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from codea1.evaluation.result_files import per_question, read_evaluation
from codea1.evaluation.statistics import Scores
from codea1.lab.paper.experiments import (
    ARMS,
    SUITES,
    begins_with_base,
    experiment_of,
    exported_from,
    size_of,
    size_of_published,
)
from codea1.lab.paper.layouts import Column, Line, Measure
from codea1.lab.study.declaration import BASE
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.runtime.fields import leaves
from codea1.storage.objects import names, read

# What runs of one experiment may differ in: the seed and the models of that seed, and what decides nothing.
_OWN = ("seed", "code.model", "test.model", SUITES, "profile.*", "watchdog.*", "sandbox.slots", "data.folder")
_LAST_SHARE = 0.1  # of the steps, whose mean is the end of a curve
_CHOICE = "_best_of_"  # in the name of a benchmark whose samples a Test LLM chose among

# By (split, whether it was before training, whose Test LLM chose among the samples).
Evaluations = dict[tuple[str, bool, str], dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    """One measure of one run: its scores, of which questions, and how often each was asked."""

    scores: np.ndarray  # [questions, factors], shares
    question_ids: tuple[str, ...] = ()  # in the order of the scores; none for a curve
    samples: str = ""  # programs of a question, for a metric that may be measured with any number of them


@dataclass(frozen=True)
class Run:
    """A folder with measurements, of a training run or of `codea1.evaluate --output`, and what it is of."""

    folder: RunFolder
    experiment: str  # name in ARMS, or BASE; empty: no row of the paper's tables
    size: str
    seed: int
    trains: bool = True  # it is a training run

    @classmethod
    def read(cls, path: str) -> "Run":
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
            return dataclasses.replace(cls.read(evaluated["run"]), folder=folder, trains=False)
        size = size_of_published(evaluated.get("model") or "")
        return cls(folder, BASE if size else "", size, seed=0, trains=False)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Its metrics, step by step."""
        return read_metrics(self.folder.metrics)

    @cached_property
    def _evaluations(self) -> Evaluations:
        """The evaluation of the last step after training began, and that before it."""
        found: Evaluations = {}
        for name in names(self.folder.evaluations):
            evaluation = read_evaluation(self.folder, name.removesuffix(".json")) if name.endswith(".json") else None
            if evaluation:
                key = (evaluation["split"], evaluation["step"] == 0, self._chooser(evaluation))
                if key not in found or found[key]["step"] <= evaluation["step"]:
                    found[key] = evaluation
        return found

    def scores(self, measure: Measure, before: bool = False, tester: str = "") -> Iterator[Measured]:
        """Yields a measure as it was taken, once for each number of samples; nothing where it was not.

        Args:
          before: that of the models that training began with.
          tester: whose Test LLM chose among the samples, which are then judged by that choice.

        Raises:
          BadInput: an evaluation, or metrics.jsonl, is damaged.
          StorageFailed: one cannot be read.
        """
        if not measure.split:
            values = [row[measure.metric] for row in self.rows if row.get(measure.metric) is not None]
            if values and self.has_ended and not before:
                yield Measured(np.array([[np.mean(values[-max(1, round(_LAST_SHARE * len(values))) :])]]))
            return
        split, metric = (f"{measure.split}{_CHOICE}*", "pass_at_1") if tester else (measure.split, measure.metric)
        for (own, was_before, chooser), evaluation in self._evaluations.items():
            if not fnmatch.fnmatch(own, split) or (was_before, chooser) != (before, tester):
                continue
            for name in fnmatch.filter(evaluation["metrics"], metric):
                values = per_question(evaluation["metrics"][name])
                counted = own if tester else name if "*" in metric else ""
                yield Measured(
                    values[:, None] if values.ndim == 1 else values,
                    tuple(evaluation["question_ids"]),
                    counted.rpartition("_")[2],
                )

    @property
    def early(self) -> list[int]:
        """The steps before the run's last at which it was measured last. Raises what `scores` does."""
        measured = self._evaluations.items()
        steps = {each["step"] for (split, before, _), each in measured if not before and split != "validation"}
        return sorted(step for step in steps if step < self._last_step)

    @property
    def has_ended(self) -> bool:
        """Whether the last step of its config is done."""
        return bool(self.rows) and self.rows[-1]["step"] >= self._last_step

    @property
    def _last_step(self) -> int:
        return self.folder.config.get("steps", 0)

    def _chooser(self, evaluation: Mapping[str, Any]) -> str:
        """Returns whose Test LLM chose, by the folders of both evaluations; empty for no choice, "?" where unknown."""
        benchmark, choice, _ = evaluation["split"].partition(_CHOICE)
        if not choice:
            return ""

        def setting(split: str, name: str) -> str:
            """Returns a setting of `codea1.evaluate`, by the folder in which it keeps its samples and verdicts."""
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


class Results:
    """The runs that a report is made of."""

    def __init__(self, runs: Iterable[Run]):
        """Raises BadInput: two runs are the same experiment with the same seed, or differ in more than the seed."""
        self._runs: dict[tuple[str, str], dict[int, Run]] = defaultdict(dict)
        self._measured: dict[tuple[str, str, int], list[Run]] = defaultdict(list)
        for run in runs:
            if run.experiment and run.trains:
                self._add(run)
            if run.experiment:
                self._measured[run.size, run.experiment, run.seed].append(run)

    def _add(self, run: Run) -> None:
        runs = self._runs[run.size, run.experiment]
        if run.seed in runs:
            both = f"{runs[run.seed].folder.path} and {run.folder.path}"
            title = ARMS[run.experiment].title
            raise BadInput(f"{both} are both {title} with seed {run.seed}: give one of them.")
        for other in runs.values():
            if fields := differences(other.folder.config, run.folder.config):
                raise BadInput(
                    f"{other.folder.path} and {run.folder.path} are not seeds of one experiment: their configs differ "
                    f"in {', '.join(fields)}."
                )
        runs[run.seed] = run

    @property
    def sizes(self) -> list[str]:
        """The sizes of the models, smallest first."""

        def billions(size: str) -> tuple[float, str]:
            number = size.removesuffix("b")
            return (float(number) if number.replace(".", "", 1).isdigit() else 0.0, size)

        return sorted({size for size, _, _ in self._measured}, key=billions)

    def runs(self, size: str, experiment: str) -> Mapping[int, Run]:
        """Returns the training runs of an experiment, by seed."""
        return dict(sorted(self._runs.get((size, experiment), {}).items()))

    def scores(self, size: str, line: Line, column: Column, before: bool = False) -> dict[int, list[Measured]]:
        """Returns each of a column's measures, by seed; seeds that lack one are left out.

        Args:
          before: those that the row's own runs began with.

        Raises:
          BadInput: an evaluation, or metrics.jsonl, is damaged, or a measure was taken with two numbers of samples.
          StorageFailed: one cannot be read.
        """
        is_base = line.experiment == BASE
        found = {}
        for seed in sorted({seed for its_size, _, seed in self._measured if its_size == size}):
            sources = list(self._measured.get((size, line.experiment, seed), ()))
            if is_base:  # every run of a seed begins with the same models; one without a Test LLM has not measured it
                own = [(key, each) for key, each in self._measured.items() if key[0] == size and key[2] == seed]
                sources += [run for (_, name, _), each in own if begins_with_base(name) for run in each]
            taken = []
            for measure in column.measures:
                scores = [run.scores(measure, before or is_base, line.tester) for run in sources]
                each = [measured for of_run in scores for measured in of_run]
                samples_of(each, f"{line.title}, {measure.split}, seed {seed},")
                taken += each[:1]
            if len(taken) == len(column.measures):
                found[seed] = taken
        return found


def stacked(by_seed: Mapping[int, list[Measured]], seeds: Sequence[int], what: str) -> list[Scores]:
    """Returns the scores of some seeds as `codea1.evaluation.statistics` reads them: one array for each measure.

    Raises:
      BadInput: the seeds were not asked the same questions; `what` was measured is named.
    """
    parts = list(zip(*(by_seed[seed] for seed in seeds), strict=True))
    if not all(map(same_questions, parts)):
        raise BadInput(f"{what} was not measured on the same questions for every seed.")
    return [np.stack([each.scores for each in part]) for part in parts]


def same_questions(measured: Sequence[Measured]) -> bool:
    """Returns whether all are of the same questions in the same order, by their ids."""
    return len({each.question_ids for each in measured}) == 1


def samples_of(measured: Iterable[Measured], what: str) -> str:
    """Returns with how many samples of a question all were measured; empty where that number is fixed.

    Raises:
      BadInput: with several numbers; `what` was measured is named.
    """
    counts = sorted({each.samples for each in measured if each.samples})
    if len(counts) > 1:
        raise BadInput(f"{what} was measured with {' and with '.join(counts)} samples of a question: use one number.")
    return "".join(counts)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Returns the dotted names of the fields in which two configs differ, but for those that `_OWN` names."""
    one, other = ({name: json.dumps(item) for name, item in leaves(config)} for config in (one, other))
    differing = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    return [name for name in differing if not any(fnmatch.fnmatch(name, pattern) for pattern in _OWN)]
