"""The results of a study: a row of JSON for each run, from which the report is made, and the runs that fill it."""

import copy
import gzip
import hashlib
import json
import math
import shutil
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codea1.evaluation.result_files import per_question, read_evaluation
from codea1.lab.study.declaration import Study, Trial
from codea1.lab.study.schedule import Job, Schedule
from codea1.lab.worlds.compositions import composition_of
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.storage.objects import write_atomically

METRICS = (
    "code_pass_at_1",
    "code_pass_at_1_greedy",
    "test_validity",
    "test_mutation_score",
    "test_strict_kill",
    "test_mul",
)
# Of every step, as series over the run.
CURVES = (
    "code/reward",
    "code/pass_rate_new",
    "code/hidden_pass_rate",
    "test/reward",
    "test/validity",
    "test/adversarial",
    "test/hidden_kill_rate",
    "test/own_kill_rate",
    "test/trivial_rate",
    "validation/code_pass_at_1",
    "validation/test_validity",
    "validation/test_mutation_score",
    "validation/score",
)


@dataclass(frozen=True)
class Result:
    """One run, done."""

    run: Trial
    recipe: Mapping[str, Any]  # `Study.recipe` of its arm
    steps: int
    tokens: float  # sampled in training
    cpu_seconds: float  # of the trainer, in training
    config: str  # digest of the run's config but for its seed, paths and split
    question_ids: list[str]  # that were measured
    before: Mapping[str, list]  # by metric: a value per question, or a pair whose means are multiplied
    after: Mapping[str, list]
    curves: Mapping[str, list[float | None]]  # a value for every step, from 0

    def rows(self) -> list[dict[str, Any]]:
        """Returns the curves step by step, as metrics.jsonl has them."""
        steps = zip(*self.curves.values(), strict=True)
        return [{"step": step, **dict(zip(self.curves, values, strict=True))} for step, values in enumerate(steps)]


class Results:
    """The results of a study in one file, a row per run; rows are only added."""

    def __init__(self, path: str):
        """Reads what is there. Raises BadInput: the file is damaged."""
        self._path = Path(path)
        self._rows: dict[Trial, Result] = {}
        self._lock = threading.Lock()  # of the rows and the file
        try:
            lines = gzip.decompress(self._path.read_bytes()).decode().splitlines() if self._path.exists() else []
            for row in map(json.loads, lines):
                result = Result(run=Trial(**row.pop("run")), **row)
                self._rows[result.run] = result
        except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
            raise BadInput(f"results {path} are damaged: {type(error).__name__}: {error}.") from None

    def __contains__(self, run: Trial) -> bool:
        return run in self._rows

    def __getitem__(self, run: Trial) -> Result:
        return self._rows[run]

    def score(self, run: Trial) -> float:
        """Returns what recipes are chosen by: pass@1 of the Code LLM plus Mul of the Test LLM, after training."""
        measured = [name for name in ("code_pass_at_1", "test_mul") if name in self._rows[run].after]
        return float(sum(np.nanmean(self.scores([run], name), axis=1).prod() for name in measured))

    def scores(self, runs: Sequence[Trial], metric: str, moment: str = "after") -> np.ndarray:
        """Returns a metric of runs that are alike but for their seeds, as [seeds, compositions, factors].

        Procedural questions of one composition differ in their constants alone and are no independent draws: their mean
        is one value. NaN where no question of a composition has a value. Any other question is a composition.

        Raises BadInput: the runs were not measured on the same questions, a question is of no family of their world, or
        their configs differ.
        """
        rows = [self._rows[run] for run in runs]
        for what, differ in (
            ("measured on different questions", "question_ids"),
            ("made by different configs", "config"),
        ):
            if any(getattr(row, differ) != getattr(rows[0], differ) for row in rows):
                raise BadInput(f"{self._path}: {runs[0].name} and its other seeds were {what}.")
        values = np.array([getattr(row, moment)[metric] for row in rows], np.float64)
        values = values if values.ndim == 3 else values[..., None]
        compositions = [composition_of(id, runs[0].world) for id in rows[0].question_ids]
        members = [[i for i, each in enumerate(compositions) if each == name] for name in dict.fromkeys(compositions)]
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # a mean of nothing is NaN
            return np.stack([np.nanmean(values[:, questions], axis=1) for questions in members], axis=1)

    def complete(self, study: Study, workdir: str, at_once: int, hours: float = math.inf) -> bool:
        """Runs what is not there yet, `at_once` side by side; returns False where a job did not end well.

        Stage by stage and rung by rung.

        Raises:
          BadInput: a row was made by another recipe than its arm declares now.
          HoursOver: so many hours are over, and what ran has saved.
        """
        for run, row in self._rows.items():
            declared = study.recipe(run.arm) if run.arm in study.arms else row.recipe
            if row.recipe != declared:
                raise BadInput(
                    f"{self._path}: {run.name} was made as {row.recipe}, and the study declares {declared}: give "
                    "the arm or a sweep's workdir another name, or remove the file."
                )
        deadline = time.monotonic() + 3600 * hours
        for stage in study.stages:
            for runs in study.rungs(stage, self.score):
                left = {run.name: run for run in runs if run not in self}

                def keep(job: Job, left: dict[str, Trial] = left) -> None:
                    if job.name in left:
                        arm = left[job.name].arm
                        self.keep(left[job.name], study.recipe(arm), f"{workdir}/{job.name}", study.left_over(arm))

                for name in left:  # done or not: its row is lost, and without it the next rung has no score
                    (Path(workdir) / "done" / f"{name}.json").unlink(missing_ok=True)
                jobs = study.jobs(list(left.values()), workdir)
                hours_left = (deadline - time.monotonic()) / 3600
                print(f"stage {stage.name}: {len(runs) - len(left)} of {len(runs)} runs are done")
                if left and not Schedule(jobs, workdir, at_once=at_once, hours=hours_left, done=keep).run():
                    return False
        return True

    def keep(self, run: Trial, recipe: Mapping[str, Any], folder: str, left_over: Sequence[str] = ()) -> None:
        """Adds the row of a run that ended, and removes what is `left_over` in its folder.

        Thread-safe.

        Raises BadInput: the run lacks an evaluation, or its file is damaged.
        """
        result = _result(run, recipe, RunFolder.existing(folder))
        with self._lock:
            self._rows[run] = result
            lines = [json.dumps(asdict(each)) for each in self._rows.values()]
            write_atomically(self._path, gzip.compress("\n".join(lines).encode(), mtime=0))
        for name in left_over:
            shutil.rmtree(Path(folder) / name, ignore_errors=True)


def _digest(config: Mapping[str, Any]) -> str:
    """Returns a digest of what runs of one arm and world have in common in their configs."""
    common = copy.deepcopy(dict(config))
    common.pop("seed", None)
    for section in [common.get("code", {}), common.get("test", {})]:
        section.pop("model", None)
    common.get("data", {}).pop("folder", None)
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()[:16]


def _result(run: Trial, recipe: Mapping[str, Any], folder: RunFolder) -> Result:
    evaluations = {}
    for name in ("before", "after"):
        evaluation = read_evaluation(folder, name)
        if evaluation is None:
            raise BadInput(f"run {folder.path} has no evaluation {name} training.")
        evaluations[name] = evaluation
    rows = read_metrics(folder.metrics)
    curves = {name: [None if row.get(name) is None else round(row[name], 4) for row in rows] for name in CURVES}
    values = {
        name: {
            metric: np.round(per_question(found["metrics"][metric]), 4).tolist()
            for metric in METRICS
            if metric in found["metrics"]
        }
        for name, found in evaluations.items()
    }
    return Result(
        run,
        dict(recipe),
        steps=int(rows[-1]["step"]),
        tokens=sum(row.get("perf/tokens", 0.0) for row in rows),
        cpu_seconds=sum(row.get("perf/cpu_seconds", 0.0) for row in rows),
        config=_digest(folder.config),
        question_ids=evaluations["after"]["question_ids"],
        curves={name: curve for name, curve in curves.items() if any(value is not None for value in curve)},
        **values,
    )
