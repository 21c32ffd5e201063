"""The results of a study: a row of JSON for each run, from which the report is made, and the runs that fill it."""

import gzip
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codea1.evaluation.result_files import per_question, read_evaluation
from codea1.paper.experiments import Job
from codea1.paper.schedule import OutOfTime, Schedule
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.storage.objects import write_atomically
from codea1.study.declaration import Run, Study

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
    "validation/code_pass_at_1",
    "validation/test_validity",
    "validation/test_mutation_score",
    "validation/score",
)


@dataclass(frozen=True)
class Result:
    """One run, done."""

    run: Run
    recipe: Mapping[str, Any]  # `Study.recipe` of its arm
    steps: int
    tokens: float  # sampled in training
    cpu_seconds: float  # of the trainer, in training
    questions: str  # digest of the ids of the questions measured, and of their order
    before: Mapping[str, list]  # by metric: a value per question, or a pair whose means are multiplied
    after: Mapping[str, list]
    curves: Mapping[str, list[float | None]]  # a value for every step, from 0


class Results:
    """The results of a study in one file, a row per run; rows are only added."""

    def __init__(self, path: str):
        """Reads what is there. Raises BadInput: the file is damaged."""
        self._path = Path(path)
        self._rows: dict[Run, Result] = {}
        self._lock = threading.Lock()  # of the rows and the file
        try:
            lines = gzip.decompress(self._path.read_bytes()).decode().splitlines() if self._path.exists() else []
            for row in map(json.loads, lines):
                result = Result(run=Run(**row.pop("run")), **row)
                self._rows[result.run] = result
        except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
            raise BadInput(f"results {path} are damaged: {type(error).__name__}: {error}.") from None

    def __contains__(self, run: Run) -> bool:
        return run in self._rows

    def __getitem__(self, run: Run) -> Result:
        return self._rows[run]

    def score(self, run: Run) -> float:
        """Returns what recipes are chosen by: pass@1 of the Code LLM plus Mul of the Test LLM, after training."""
        after = self._rows[run].after
        mul = np.prod(np.nanmean(after["test_mul"], axis=0)) if "test_mul" in after else 0.0
        return float(np.nanmean(np.array(after["code_pass_at_1"], float)) + mul)

    def scores(self, runs: Sequence[Run], metric: str, moment: str = "after") -> np.ndarray:
        """Returns a metric of runs that are alike but for their seeds, as [seeds, questions, factors].

        Raises BadInput: the runs were not measured on the same questions.
        """
        rows = [self._rows[run] for run in runs]
        if len({row.questions for row in rows}) > 1:
            raise BadInput(f"{self._path}: {runs[0].name} and its other seeds were measured on different questions.")
        values = np.array([getattr(row, moment)[metric] for row in rows], np.float64)
        return values if values.ndim == 3 else values[..., None]

    def complete(self, study: Study, workdir: str, at_once: int, hours: float) -> bool:
        """Runs what is not there yet, `at_once` side by side; returns False where a job did not end well.

        Stage by stage and rung by rung. After so many hours what runs saves and ends, which is well; it goes on from
        there when this is called again.

        Raises BadInput: a row was made by another recipe than its arm declares now.
        """
        for run, row in self._rows.items():
            declared = study.recipe(run.arm) if run.arm in study.arms else row.recipe
            if row.recipe != declared:
                raise BadInput(
                    f"{self._path}: {run.name} was made as {row.recipe}, and the study declares {declared}: give "
                    "the arm another name, or remove the file."
                )
        deadline = time.monotonic() + 3600 * hours
        for stage in study.stages:
            for runs in study.rungs(stage, self.score):
                left = {run.name: run for run in runs if run not in self}

                def keep(job: Job, left: dict[str, Run] = left) -> None:
                    if job.name in left:
                        self.keep(left[job.name], study.recipe(left[job.name].arm), f"{workdir}/{job.name}")

                for name in left:  # done or not: its row is lost, and without it the next rung has no score
                    (Path(workdir) / "done" / f"{name}.json").unlink(missing_ok=True)
                jobs = study.jobs(list(left.values()), workdir)
                hours_left = (deadline - time.monotonic()) / 3600
                print(f"stage {stage.name}: {len(runs) - len(left)} of {len(runs)} runs are done")
                try:
                    if left and not Schedule(jobs, workdir, at_once=at_once, hours=hours_left, done=keep).run():
                        return False
                except OutOfTime:
                    print("the hours are over: the same command goes on from there")
                    return True
        return True

    def keep(self, run: Run, recipe: Mapping[str, Any], folder: str) -> None:
        """Adds the row of a run that ended, and removes its checkpoints and samples. Thread-safe.

        Raises BadInput: the run lacks an evaluation, or its file is damaged.
        """
        result = _result(run, recipe, RunFolder.existing(folder))
        with self._lock:
            self._rows[run] = result
            lines = [json.dumps(asdict(each)) for each in self._rows.values()]
            write_atomically(self._path, gzip.compress("\n".join(lines).encode(), mtime=0))
        for name in ("checkpoints", "samples", "tensorboard"):
            shutil.rmtree(Path(folder) / name, ignore_errors=True)


def _result(run: Run, recipe: Mapping[str, Any], folder: RunFolder) -> Result:
    evaluations = {name: read_evaluation(folder, name) for name in ("before", "after")}
    for name, found in evaluations.items():
        if found is None:
            raise BadInput(f"run {folder.path} has no evaluation {name} training.")
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
        questions=hashlib.sha256(json.dumps(evaluations["after"]["question_ids"]).encode()).hexdigest()[:16],
        curves={name: curve for name, curve in curves.items() if any(value is not None for value in curve)},
        **values,
    )
