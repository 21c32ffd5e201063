"""Runs jobs, each after what it needs, and tells what is done, what is left, the time left, and failures.

A marker in the workdir remembers each job that is done, from the moment it is; the command given again runs the others.
"""

import contextlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import mean
from typing import Any

from codea1.runtime.errors import RESTART_EXIT_CODE, BadInput

_DONE, _LOGS = "done", "logs"  # folders in the workdir
_ATTEMPTS = 3  # at a job that asks to be started again


@dataclass(frozen=True)
class Job:
    """One command to run."""

    name: str
    kind: str  # those of one take about as long
    arguments: tuple[str, ...]  # after `python`
    needs: tuple[str, ...] = ()  # names of jobs whose output it reads

    @property
    def command(self) -> str:
        """As it is typed in a shell."""
        return shlex.join(("python", *self.arguments))

    @property
    def folder(self) -> str:
        """The folder that it makes or goes on with; empty where it makes files."""
        return next((word.partition("=")[2] for word in self.arguments if word.startswith("--workdir=")), "")


class HoursOver(Exception):
    """The hours of a schedule are over; the same jobs go on from there."""


class Schedule:
    """Jobs, with a folder for their markers and their output."""

    def __init__(
        self,
        jobs: Sequence[Job],
        folder: str,
        at_once: int = 1,
        hours: float = math.inf,
        done: Callable[[Job], None] = lambda job: None,
    ):
        """Plans the jobs; nothing is written yet.

        Args:
          jobs: each after what it needs.
          folder: on a disk.
          at_once: how many jobs run at the same time.
          hours: after which no job begins, and those that run save what they have and end.
          done: called after each job that ended well, before it counts as done.
        """
        self._jobs, self._folder, self._at_once = list(jobs), Path(folder), at_once
        self._done = done
        self._deadline = time.monotonic() + 3600 * hours
        self._failures: dict[str, str] = {}  # why, by the name of the job that did not end well or could not begin
        self._processes: dict[Job, subprocess.Popen] = {}
        self._lock = threading.Lock()  # of the processes, and whether they are being stopped
        self._is_stopping = False

    def run(self) -> bool:
        """Runs what is left; returns whether all ended well.

        Raises:
          BadInput: the folder cannot be written.
          HoursOver: the hours are over.
          KeyboardInterrupt: also of SIGTERM; the jobs that ran have saved what they had.
        """
        try:
            for name in (_DONE, _LOGS):
                (self._folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"workdir {self._folder} cannot be used: {error.strerror or error}.") from None
        left = [job for job in self._jobs if seconds_taken(job, self._folder) is None]
        print(f"{len(self._jobs)} jobs, {len(self._jobs) - len(left)} of them done; {self._time_left()}", flush=True)
        with _handled(signal.default_int_handler, signal.SIGTERM):
            try:
                self._run_all(left)
            except KeyboardInterrupt:
                print("stopped: the same command goes on from there", file=sys.stderr)
                raise
        for name, reason in self._failures.items():
            print(f"failed: {name}: {reason}")
        return not self._failures

    def _run_all(self, jobs: Sequence[Job]) -> None:
        """Runs jobs to their ends; of those that can begin, the earliest of `jobs` begins first.

        An interruption is passed on to those that run, and waits for them to save. A second one is
        ignored: what runs would be left behind alone, and begun twice by the next start.
        """
        by_name = {job.name: job for job in jobs}
        order = TopologicalSorter({job.name: [name for name in job.needs if name in by_name] for job in jobs})
        order.prepare()
        place = {name: i for i, name in enumerate(by_name)}
        ready: list[str] = []
        running: dict[Future[None], str] = {}
        shares = _shares(self._at_once)
        # What a worker starts stays on the cores that it takes.
        workers = ThreadPoolExecutor(self._at_once, initializer=lambda: os.sched_setaffinity(0, shares.pop()))
        with workers:
            try:
                while order.is_active():
                    ready = sorted((*ready, *order.get_ready()), key=place.__getitem__)
                    while ready and len(running) < self._at_once:
                        name = ready.pop(0)
                        running[workers.submit(self._run_one, by_name[name])] = name
                    left = min(max(self._deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)
                    ended = wait(running, timeout=left, return_when=FIRST_COMPLETED).done
                    if not ended:
                        raise HoursOver
                    for future in ended:
                        order.done(running.pop(future))
                        future.result()
            except BaseException:
                with _handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM):
                    workers.shutdown(wait=False, cancel_futures=True)
                    with self._lock:
                        self._is_stopping = True
                        for process in self._processes.values():
                            process.terminate()
                        print(f"stopping: {len(self._processes)} jobs save what they have", flush=True)
                    workers.shutdown()
                raise

    def _run_one(self, job: Job) -> None:
        """Runs a job, again where it asks for that; writes its marker, or keeps why it failed."""
        if failed := [name for name in job.needs if name in self._failures]:
            self._failures[job.name] = f"not begun, because it needs {' and '.join(failed)}"
            return
        print(
            f"[{self._jobs.index(job) + 1}/{len(self._jobs)}] {job.name}: {self._time_left()}\n  {job.command}",
            flush=True,
        )
        began = time.monotonic()
        log = self._folder / _LOGS / f"{job.name}.log"
        for _ in range(_ATTEMPTS):
            code = self._exit_code(job, log)
            if code != RESTART_EXIT_CODE:
                break
        if code == 0:
            self._done(job)
            marker = {"command": job.command, "seconds": time.monotonic() - began}
            marker_of(job.name, self._folder).write_text(json.dumps(marker) + "\n")
        elif not self._is_stopping:
            print(f"  {job.name} ended with {code}, see {log}", flush=True)
            lines = log.read_text(errors="replace").strip().splitlines()
            last = lines[-1].strip() if lines else "no output"
            self._failures[job.name] = f"exit code {code}: {last} (all in {log})"

    def _exit_code(self, job: Job, log: Path) -> int | None:
        """Runs a job's process and returns its exit code; None where all are being stopped. `log` gets its output."""
        with self._lock, log.open("ab") as output:
            if self._is_stopping:
                return None
            # In a session of its own, so that the terminal's ^Z and ^C reach it through its parent and not twice.
            process = self._processes[job] = subprocess.Popen(
                (sys.executable, *job.arguments), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        code = process.wait()
        with self._lock:
            del self._processes[job]
        return code

    def _time_left(self) -> str:
        """Returns how long the others take if each takes as long as the mean of its kind did, or of all."""
        taken = {job: seconds for job in self._jobs if (seconds := seconds_taken(job, self._folder)) is not None}
        left = [job for job in self._jobs if job not in taken and job.name not in self._failures]
        if not left or not taken:
            return f"{len(left)} left"
        of_kinds = [[taken[job] for job in taken if job.kind == other.kind] or [*taken.values()] for other in left]
        return f"{len(left)} left, about {max(1, round(sum(map(mean, of_kinds)) / self._at_once / 60))} min"


def marker_of(name: str, folder: str | Path) -> Path:
    """Returns the marker in a schedule's folder by which a job of this name is done."""
    return Path(folder) / _DONE / f"{name}.json"


def seconds_taken(job: Job, folder: str | Path) -> float | None:
    """Returns how long a job took; None where it is not done, or was another command then."""
    try:
        marker = json.loads(marker_of(job.name, folder).read_text())
        return float(marker["seconds"]) if marker["command"] == job.command else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _shares(count: int) -> list[set[int]]:
    """Returns which cores each of so many jobs side by side has: its share, or all where there are too few.

    Two training runs, each with a thread for each core, hinder one another: on two cores they took 1.3 times as long.
    """
    cores = sorted(os.sched_getaffinity(0))
    return [set(cores[i::count] if count <= len(cores) else cores) for i in range(count)]


@contextlib.contextmanager
def _handled(handler: Any, *kinds: signal.Signals) -> Iterator[None]:
    """Handles signals of these kinds so inside of the block."""
    before = {kind: signal.signal(kind, handler) for kind in kinds}
    try:
        yield
    finally:
        for kind, previous in before.items():
            signal.signal(kind, previous)
