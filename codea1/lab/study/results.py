"""What was measured of runs: of those in folders, or those that a study keeps, a row of JSON for each."""

import fcntl
import fnmatch
import gzip
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from codea1.data.sources import CLASSIC, world_of
from codea1.evaluation.result_files import per_question, read_evaluation
from codea1.lab.statistics import Scores
from codea1.lab.study.declaration import Study, Trial
from codea1.lab.study.layouts import OWN_SPLIT, TINY, Measure, published_size
from codea1.lab.study.schedule import Job, Schedule, marker_of, seconds_taken
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.runtime.settings import leaves
from codea1.storage.objects import exists, names, write_atomically

SUITES = "data.static_tests"  # config field: the file whose tests `static_tests` trains on
CHOICE = "_best_of_"  # in the split of a benchmark whose samples a Test LLM chose among
# What seeds of one arm may differ in: the seed and the models of that seed, and what decides nothing.
_OF_SEED = ("seed", "code.model", "test.model", SUITES, "profile.*", "watchdog.*", "sandbox.slots", "data.folder")
_CURVES = ("code/", "test/", "book/", "validation/")  # how the metrics of a step begin that a row keeps
# Of the settings of `codea1.benchmark`, those in which numbers that stand side by side may differ, or `samples`.
_OF_ONE = ("model", "weights", "test_model", "test_weights", "step", "seed", "samples")
_LAST_SHARE = 0.1  # of the steps, whose mean is the end of a curve

# A split, "before" or "after" training, and whose Test LLM chose among the samples.
Key = tuple[str, str, str]


class Measured(NamedTuple):
    """One measure of one run: its scores, of which questions, and how they were asked."""

    scores: np.ndarray  # [questions, factors], shares
    question_ids: tuple[str, ...] = ()  # in the order of the scores; none for a curve
    settings: Mapping[str, Any] = {}  # of `codea1.benchmark` but those of `_OF_ONE`; `samples` where any number may be


@dataclass(frozen=True)
class Result:
    """One run, and what was measured of it: all that its folder has, or what is kept of it as a row."""

    run: Trial  # of an arm; empty: of none that is known
    config: Mapping[str, Any]
    evaluations: Mapping[Key, Mapping[str, Any]]  # as `codea1.evaluation.result_files` has them
    rows: Sequence[Mapping[str, Any]]  # metrics, step by step
    recipe: Mapping[str, Any] = field(default_factory=dict)  # `Study.recipe` of its arm
    tokens: float = 0.0  # sampled in training
    cpu_seconds: float = 0.0  # of the trainer, in training
    version: str = ""  # of this package, with its commit, that began the run; empty: unknown
    folder: RunFolder | None = None  # of one that is no row
    size: str = ""  # of the models: "1.5b" where the name says so, "tiny" for the demo's
    trains: bool = True  # it is a training run, and not one of `codea1.benchmark --output`

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Result":
        """Returns what a row of the results' file holds. Raises what a damaged one makes Python raise."""
        evaluations = {}
        for kept in row["evaluations"]:
            metrics = {name: {"per_question": values} for name, values in kept["metrics"].items()}
            evaluations[kept["split"], kept["moment"], kept["chooser"]] = {**kept, "metrics": metrics}
        curves = row["curves"]
        rows = [dict(zip(curves, values, strict=True)) for values in zip(*curves.values(), strict=True)]
        totals = {name: row[name] for name in ("recipe", "tokens", "cpu_seconds", "version", "config")}
        return cls(Trial(**row["run"]), evaluations=evaluations, rows=rows, size=size_of(row["config"]), **totals)

    def row(self) -> dict[str, Any]:
        """Returns what a study keeps of it: all evaluations, and the players' metrics of every step to four digits."""
        row = {name: getattr(self, name) for name in ("recipe", "tokens", "cpu_seconds", "version", "config")}
        evaluations = []
        for (split, moment, chooser), evaluation in self.evaluations.items():
            metrics = {name: np.round(per_question(v), 4).tolist() for name, v in evaluation["metrics"].items()}
            about = {key: evaluation[key] for key in ("step", "question_ids", "settings") if key in evaluation}
            evaluations.append({"split": split, "moment": moment, "chooser": chooser, **about, "metrics": metrics})
        kept = dict.fromkeys(name for step in self.rows for name in step if name.startswith(_CURVES))
        curves = {"step": [step["step"] for step in self.rows]}
        curves |= {name: [_four_digits(step.get(name)) for step in self.rows] for name in kept}
        return {"run": asdict(self.run), **row, "evaluations": evaluations, "curves": curves}

    @property
    def name(self) -> str:
        """What it is called: its folder, or the run that a row is of."""
        return str(self.folder.path) if self.folder else self.run.name

    @property
    def fields(self) -> dict[str, Any]:
        """The config's fields by their dotted names."""
        return dict(leaves(self.config))

    def measured(self, measure: Measure, moment: str = "after", chooser: str = "") -> Iterator[Measured]:
        """Yields a measure as it was taken, once for each number of samples; nothing where it was not.

        Args:
          measure: a curve has an end where the run has ended.
          moment: "before" training or "after" it.
          chooser: whose Test LLM chose among the samples, which are then judged by that choice.
        """
        metric, split = ("pass_at_1", f"{measure.split}{CHOICE}*") if chooser else measure
        if not measure.split:
            values = [row[metric] for row in self.rows if row.get(metric) is not None]
            if values and self.has_ended and moment == "after":
                yield Measured(np.array([[np.mean(values[-max(1, round(_LAST_SHARE * len(values))) :])]]))
            return
        for (measured_split, when, by), evaluation in self.evaluations.items():
            if not fnmatch.fnmatch(measured_split, split) or (when, by) != (moment, chooser):
                continue
            for name in fnmatch.filter(evaluation["metrics"], metric):
                values = per_question(evaluation["metrics"][name])
                with_count = measured_split if chooser else name if "*" in metric else ""  # its last word is a number
                samples = {"samples": with_count.rpartition("_")[2]} if with_count else {}
                shares = values[:, None] if values.ndim == 1 else values
                settings = {**evaluation.get("settings", {}), **samples}
                yield Measured(shares, tuple(evaluation["question_ids"]), settings)

    @property
    def steps(self) -> int:
        """How many are done."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def early(self) -> list[int]:
        """The steps before the run's last at which it was measured last."""
        measured = self.evaluations.items()
        steps = {row["step"] for (split, moment, _), row in measured if moment == "after" and split != "validation"}
        return sorted(step for step in steps if step < self.fields.get("steps", 0))

    @property
    def has_ended(self) -> bool:
        """Whether the last step of its config is done."""
        return bool(self.rows) and self.steps >= self.fields.get("steps", 0)


def _four_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def size_of(config: Mapping[str, Any]) -> str:
    """Returns the size of a run's models: "1.5b" where the shape or model folder is called so, "tiny" for the demo's.

    Args:
      config: as `RunFolder.config` holds it. A model folder of another name is its own size.
    """
    player = config.get("code", {})
    if size := published_size(player):
        return size
    if world := world_of(dict(leaves(config)).get("data.test.source", "")):
        return TINY if world == CLASSIC else f"{TINY} {world}"
    return PurePath(player.get("model", "")).name or "unknown"


def evaluations_of(folder: RunFolder, chooser: Callable[[Mapping[str, Any]], str]) -> dict[Key, Mapping[str, Any]]:
    """Returns what was measured in a folder, of several steps after training the last; `chooser` says who chose.

    The `settings` of one of `codea1.benchmark` are with it.

    Raises:
      BadInput: an evaluation is damaged.
      StorageFailed: one cannot be read.
    """
    last: dict[Key, Mapping[str, Any]] = {}
    for name in (name.removesuffix(".json") for name in names(folder.evaluations) if name.endswith(".json")):
        if evaluation := read_evaluation(folder, name):
            if exists(folder.evaluations / name / "config.json"):
                settings = RunFolder.existing(str(folder.evaluations / name)).config
                evaluation["settings"] = {key: value for key, value in settings.items() if key not in _OF_ONE}
            key = evaluation["split"], "after" if evaluation["step"] else "before", chooser(evaluation)
            if key not in last or last[key]["step"] < evaluation["step"]:
                last[key] = evaluation
    return last


def stacked(seeds: Sequence[Sequence[Measured]], label: str) -> list[Scores]:
    """Returns the measures of some seeds as `codea1.lab.statistics` reads them: one array for each measure.

    Raises:
      BadInput: the seeds were not asked the same questions; `label` names what was measured.
    """
    parts = list(zip(*seeds, strict=True))
    if not all(map(same_questions, parts)):
        raise BadInput(f"{label} was not measured on the same questions for every seed.")
    return [np.stack([measured.scores for measured in part]) for part in parts]


def same_questions(measured: Sequence[Measured]) -> bool:
    """Returns whether all are of the same questions in the same order, by their ids."""
    return len({result.question_ids for result in measured}) == 1


def require_seeds_of_one_arm(results: Sequence[Result]) -> None:
    """Raises BadInput, which tells the fields, where configs of runs differ more than seeds of an arm."""
    for other in results[1:]:
        if fields := ", ".join(differences(results[0].config, other.config)):
            names = f"{results[0].name} and {other.name}"
            raise BadInput(f"{names} are not seeds of one experiment: their configs differ in {fields}.")


def differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Returns the dotted names of the fields in which two configs differ, but for those that `_OF_SEED` names."""
    first, other = ({name: json.dumps(item) for name, item in leaves(config)} for config in (first, other))
    differing = [name for name in sorted(first.keys() | other.keys()) if first.get(name) != other.get(name)]
    return [name for name in differing if not any(fnmatch.fnmatch(name, pattern) for pattern in _OF_SEED)]


class Results:
    """The rows of a study's file, by their runs."""

    def __init__(self, path: str):
        """Reads the file that is there. Raises BadInput: it is damaged."""
        self._path = Path(path)
        self._rows = self._kept()

    def __contains__(self, run: Trial) -> bool:
        return run in self._rows

    def __iter__(self) -> Iterator[Result]:
        return iter(self._rows.values())

    def complete(self, study: Study, workdir: str, at_once: int, hours: float = math.inf) -> bool:
        """Runs what is not there yet, `at_once` side by side; returns False where a job did not end well.

        The row of a run whose folder is there is read again: `codea1.benchmark` may have added an evaluation.

        Raises:
          BadInput: a row was made by another recipe than its arm declares now.
          HoursOver: so many hours are over, and what ran has saved.
        """
        for run, row in self._rows.items():
            declared = study.recipe(run.arm) if run.arm in study.arms else row.recipe
            if row.recipe != declared:
                raise BadInput(
                    f"{self._path}: {run.name} was made as {row.recipe}, and the study declares {declared}: give "
                    "the arm another name, or remove the file."
                )
        runs = {run.name: run for run in study.all_runs()}

        def keep(job: Job) -> None:
            if job.name in runs:
                self.keep(runs[job.name], study.recipe(runs[job.name].arm), job.folder)

        for job in study.jobs([*runs.values()], workdir):
            if job.name in runs and seconds_taken(job, workdir) is not None:
                if Path(job.folder).exists():
                    keep(job)
                elif runs[job.name] not in self:
                    marker_of(job.name, workdir).unlink()
        left = study.jobs([run for run in runs.values() if run not in self], workdir)
        print(f"{sum(run in self for run in runs.values())} of {len(runs)} runs are done")
        return not left or Schedule(left, workdir, at_once, hours, keep).run()

    def keep(self, run: Trial, recipe: Mapping[str, Any], path: str) -> None:
        """Adds the row of a run that ended, whose folder is at a path.

        Other threads and processes may add theirs to the file meanwhile: its rows are read again under a lock.

        Raises BadInput: the run lacks an evaluation, or asked other questions in one; or its file is damaged.
        """
        folder = RunFolder.existing(path)
        evaluations = evaluations_of(folder, lambda evaluation: evaluation["split"].partition(CHOICE)[1])
        if missing := [moment for moment in ("before", "after") if (OWN_SPLIT, moment, "") not in evaluations]:
            raise BadInput(f"run {folder.path} has no evaluation {missing[0]} training.")
        before, after = (evaluations[OWN_SPLIT, moment, ""]["question_ids"] for moment in ("before", "after"))
        if before != after:
            raise BadInput(f"run {folder.path} was not asked the same questions before and after training.")
        steps = read_metrics(folder.metrics)
        tokens, seconds = (sum(step.get(name, 0.0) for step in steps) for name in ("perf/tokens", "perf/cpu_seconds"))
        version = folder.made_with.get("codea1", "")
        row = Result(run, folder.config, evaluations, steps, recipe, tokens, seconds, version).row()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{self._path}.lock", "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._rows = {**self._rows, **self._kept(), run: Result.of_row(row)}
            lines = [json.dumps(result.row()) for result in self._rows.values()]
            write_atomically(self._path, gzip.compress("\n".join(lines).encode(), mtime=0))

    def _kept(self) -> dict[Trial, Result]:
        """Returns the rows of the file; none where there is none. Raises BadInput: it is damaged."""
        try:
            kept = gzip.decompress(self._path.read_bytes()) if self._path.is_file() else b""
            rows = [Result.of_row(json.loads(line)) for line in kept.decode().splitlines()]
        except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
            raise BadInput(f"results {self._path} are damaged: {type(error).__name__}: {error}.") from None
        return {row.run: row for row in rows}
