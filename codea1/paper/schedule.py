"""The paper's jobs, each after what it needs: what is done, what is left and for how long, what failed."""

import contextlib
import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codea1.paper.commands import Job, Place
from codea1.paper.experiments import EXPERIMENTS, SFT_TEST
from codea1.paper.running_job import RunningJob
from codea1.runtime.errors import BadInput

_DONE, _LOGS = "done", "logs"  # folders in the workdir

_POLL_SECONDS = 0.2

# Seconds on two idle cores for the tiny pair, for the first plan; what has run since corrects them.
_SECONDS = {"warm start": 267.0, "SFT": 110.0, "suites": 60.0}
_TRAIN = {True: (45.0, 0.9), False: (85.0, 3.4)}  # by whether the tests are fixed: in all, and for each step


@dataclass(frozen=True)
class Failure:
    """A job that did not end well, or could not begin."""

    job: Job
    reason: str


class Schedule:
    """The jobs of a plan, kept in a folder: a marker for each that is done, and what each said."""

    def __init__(self, place: Place, folder: Path, python: str, steps: int, at_once: int = 1):
        """Nothing is written yet.

        Args:
          folder: `place.workdir`, on a disk.
          python: the interpreter that runs the jobs.
          steps: of each training run, for the times that are told.
          at_once: how many jobs run at the same time.
        """
        self._place, self._folder, self._python, self._at_once = place, folder, python, at_once
        self._jobs = place.jobs()
        self._estimates = {job.name: _estimate(job, steps) for job in self._jobs}

    def run(self) -> bool:
        """Runs what is left, then the report; returns whether all went well.

        Raises:
          BadInput: the folder cannot be written.
        """
        try:
            for name in (_DONE, _LOGS):
                (self._folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"workdir {self._folder} cannot be used: {error.strerror or error}.") from None
        done = sum(self._seconds_taken(job) is not None for job in self._jobs)
        print(f"{len(self._jobs)} jobs, {done} of them done; {self._time_left([], [])}", flush=True)
        failures = self._run_all([job for job in self._jobs if self._seconds_taken(job) is None])
        report = self._place.report([each for each in self._place.runs() if (Path(each) / "config.json").exists()])
        unreported = self._run_all([report])
        if not unreported:
            print(f"report: {self._folder / 'report' / 'report.md'}")
        failures += unreported
        for failure in failures:
            print(f"failed: {failure.job.name}: {failure.reason}")
        return not failures

    def _run_all(self, waiting: Sequence[Job]) -> list[Failure]:
        """Runs jobs to their ends; an interruption is passed on to those that run, and waits for them to save.

        A second interruption is ignored: what runs would be left behind alone, and begun twice by the next start.
        """
        failures: list[Failure] = []
        running: list[RunningJob] = []
        try:
            while waiting or running:
                failures += (prevented := _prevented(waiting, failures))
                stuck = {failure.job for failure in prevented}
                unfinished = {job.name for job in (*waiting, *(each.job for each in running))}
                ready = [job for job in waiting if job not in stuck and not unfinished & set(job.needs)]
                begun = ready[: self._at_once - len(running)]
                for job in begun:
                    self._tell(job, failures, running)
                    running.append(RunningJob(job, self._python, self._folder / _LOGS / f"{job.name}.log"))
                waiting = [job for job in waiting if job not in begun and job not in stuck]
                time.sleep(_POLL_SECONDS)
                failures += self._ended(running)
        except BaseException:
            with _uninterrupted():
                for each in running:
                    each.terminate()
                print(f"stopping: {len(running)} jobs save what they have", flush=True)
                for each in running:
                    each.wait()
            raise
        return failures

    def _ended(self, running: list[RunningJob]) -> list[Failure]:
        """Takes those that have ended from `running`, marks them as done, and returns those that failed."""
        codes = [(each, each.exit_code()) for each in running]
        running[:] = [each for each, code in codes if code is None]
        failures: list[Failure] = []
        for each, code in codes:
            if code == 0:
                self._mark(each.job, each.seconds)
            elif code is not None:
                print(f"  {each.job.name} ended with {code}, see {each.log}", flush=True)
                failures.append(Failure(each.job, f"exit code {code}: {each.last_line()} (all in {each.log})"))
        return failures

    def _tell(self, job: Job, failures: Sequence[Failure], running: Sequence[RunningJob]) -> None:
        number = f"{self._jobs.index(job) + 1}/{len(self._jobs)}" if job in self._jobs else "last"
        print(f"[{number}] {job.name}: {self._time_left(failures, running)}\n  {job.command}", flush=True)

    def _mark(self, job: Job, seconds: float) -> None:
        marker = {"command": job.command, "seconds": seconds}
        (self._folder / _DONE / f"{job.name}.json").write_text(json.dumps(marker) + "\n")

    def _seconds_taken(self, job: Job) -> float | None:
        """How long a job took; None where it is not done, or was another command then."""
        try:
            marker = json.loads((self._folder / _DONE / f"{job.name}.json").read_text())
            return float(marker["seconds"]) if marker["command"] == job.command else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _time_left(self, failures: Sequence[Failure], running: Sequence[RunningJob]) -> str:
        """What is left by the estimates, corrected by how those of the same kind turned out."""
        taken = {job: seconds for job in self._jobs if (seconds := self._seconds_taken(job)) is not None}
        over = {failure.job for failure in failures} | taken.keys()
        spent = {each.job: each.seconds for each in running}
        left = sum(
            max(0.0, self._estimates[job.name] * self._factor(job.kind, taken) - spent.get(job, 0.0))
            for job in self._jobs
            if job not in over
        )
        return f"about {max(1, round(left / self._at_once / 60))} min left for all" if left else "nothing left"

    def _factor(self, kind: str, taken: Mapping[Job, float]) -> float:
        same = [job for job in taken if job.kind == kind] or list(taken)
        return sum(taken[job] for job in same) / sum(self._estimates[job.name] for job in same) if same else 1.0


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    before = {kind: signal.signal(kind, signal.SIG_IGN) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _prevented(waiting: Sequence[Job], failures: Sequence[Failure]) -> list[Failure]:
    """Those of `waiting` that will never get what they need."""
    prevented: list[Failure] = []
    for job in waiting:  # each is after what it needs, so that one pass finds those that need a prevented one
        failed = [each.job.name for each in (*failures, *prevented) if each.job.name in job.needs]
        if failed:
            prevented.append(Failure(job, f"not begun, because it needs {' and '.join(failed)}"))
    return prevented


def _estimate(job: Job, steps: int) -> float:
    if not job.experiment:
        return _SECONDS[job.kind]
    once, each = _TRAIN[EXPERIMENTS[job.experiment].trains_on_fixed_tests]
    return once + each * (1 if job.experiment == SFT_TEST else steps)
