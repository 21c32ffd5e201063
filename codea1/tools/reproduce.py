"""Trains by every method of the paper and writes the tables and figures (docs/tables.md).

  make tables
  # or
  python -m codea1.tools.reproduce --config=configs/tiny.py:steps=40 --workdir=runs/tables --at_once=2
  python -m codea1.tools.reproduce --config=configs/code_a1.py:size=1.5b,topology=v5e-16 --workdir=gs://BUCKET/tables \
    --dry_run

The command given again goes on where it was: what is done is kept, and a run that was cut off is continued. A job that
fails is told and left; the others go on, but for those that read what it was to write, and the exit code is 1.
--at_once runs some side by side, for one run does not fill two cores; an accelerator belongs to one process. With
--dry_run the commands are printed, in their order, and nothing runs.
"""

import argparse
import contextlib
import runpy
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ml_collections import ConfigDict

from codea1.config import validate
from codea1.paper.commands import Place
from codea1.paper.experiments import TINY, size_of
from codea1.paper.schedule import Schedule
from codea1.runtime.errors import BadInput, with_exit_code
from codea1.storage.objects import is_remote


@with_exit_code
def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the words of a command line ask for; returns 1 when a job failed, and 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m codea1.tools.reproduce", description="Trains every method; writes tables."
    )
    parser.add_argument("--config", required=True, help="config file, with its argument after a colon")
    parser.add_argument("--workdir", required=True, help="folder that gets the runs and the report")
    parser.add_argument("--at_once", type=int, default=1, help="jobs that run at the same time (CPU only)")
    parser.add_argument("--dry_run", action="store_true", help="print the commands only")
    given = parser.parse_args(arguments)
    if given.at_once < 1:
        raise BadInput(f"--at_once is {given.at_once}; it must be at least 1.")
    config, place = _read(given.config, given.workdir.rstrip("/"))
    if given.dry_run:
        print("\n".join(job.command for job in (*place.jobs(), place.report(place.runs()))))
        return 0
    if is_remote(given.workdir):
        raise BadInput(f"workdir {given.workdir} is in a bucket: run what --dry_run prints, on every host.")
    schedule = Schedule(place, Path(place.workdir), sys.executable, config.steps, given.at_once)
    try:
        with _terminated_like_interrupted():
            return 0 if schedule.run() else 1
    except KeyboardInterrupt:
        print("stopped: the same command goes on from there", file=sys.stderr)
        return 130


def _read(given: str, workdir: str) -> tuple[ConfigDict, Place]:
    """Reads the config as every job will, so that a mistake in it is told before anything runs."""
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
    except Exception as error:  # a config file is a program: whatever it raises is the user's to mend
        raise BadInput(f"config file {path}: {type(error).__name__}: {error}") from None
    validate(config)
    size = size_of(config.to_dict())
    return config, Place(path, arguments, workdir, size, "" if size == TINY else config.test.model)


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
