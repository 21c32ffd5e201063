"""Runs every experiment of the paper, or prints the commands."""

import dataclasses
import runpy
from pathlib import Path

from ml_collections import ConfigDict

from codea1.config import validate
from codea1.lab.paper.experiments import EXPERIMENTS, SFT_TEST, TINY, Workplace, size_of
from codea1.lab.study.schedule import Job, Schedule
from codea1.runtime.errors import BadInput
from codea1.storage.objects import is_remote

# Seconds on two idle cores for the tiny pair, for the first plan; what has run since corrects them.
_SECONDS = {"warm start": 267.0, "SFT": 110.0, "suites": 60.0}
_TRAIN = {True: (45.0, 0.9), False: (85.0, 3.4)}  # by whether the tests are fixed: in all, and for each step


def reproduce(config: str, workdir: str, at_once: int = 1, dry_run: bool = False) -> bool:
    """Runs all jobs, or prints their commands; returns whether all ended well.

    Args:
      config: file, with its argument after a colon.
      workdir: folder that gets the runs and the report; on a disk where the jobs run.

    Raises:
      BadInput: some job could not read the config, or the workdir cannot be used.
      KeyboardInterrupt: also of SIGTERM; the jobs that ran have saved what they had.
    """
    own, place = _read(config, workdir.rstrip("/"))
    if dry_run:
        print("\n".join(job.command for job in (*place.jobs(), place.report(place.runs()))))
        return True
    if is_remote(workdir):
        raise BadInput(f"workdir {workdir} is in a bucket: run what --dry_run prints, on every host.")
    jobs = [dataclasses.replace(job, seconds=_estimate(job, own.steps)) for job in place.jobs()]

    def report() -> Job:
        return place.report([each for each in place.runs() if (Path(each) / "config.json").exists()])

    went_well = Schedule(jobs, workdir, at_once=at_once).run(last=report)
    if went_well or (Path(workdir) / "report").exists():
        print(f"report: {Path(workdir) / 'report' / 'report.md'}")
    return went_well


def _read(given: str, workdir: str) -> tuple[ConfigDict, Workplace]:
    """Reads the config as every job will, so that a mistake in it is reported before anything runs."""
    path, _, argument = given.partition(":")
    arguments = dict(part.split("=", 1) for part in argument.split(",") if "=" in part)
    planned = sorted(arguments.keys() & {"seed", "method", "sft"})
    if planned:
        raise BadInput(f"config argument {planned[0]} is the plan's own: leave it out of --config={given}.")
    if not Path(path).is_file():
        raise BadInput(f"config file {path} does not exist.")
    try:
        config = runpy.run_path(path)["get_config"](argument or None)
    except BadInput:
        raise
    except Exception as error:  # a config file is Python: whatever it raises is the user's to mend
        raise BadInput(f"config file {path}: {type(error).__name__}: {error}") from None
    validate(config)
    size = size_of(config.to_dict())
    return config, Workplace(path, arguments, workdir, size, "" if size == TINY else config.test.model)


def _estimate(job: Job, steps: int) -> float:
    if not job.experiment:
        return _SECONDS[job.kind]
    once, each = _TRAIN[EXPERIMENTS[job.experiment].trains_on_fixed_tests]
    return once + each * (1 if job.experiment == SFT_TEST else steps)
