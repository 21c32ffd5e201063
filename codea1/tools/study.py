"""Runs a declared study and writes its report: which recipe, in which world, by how much.

  make study
  # or
  python -m codea1.tools.study studies/adversary.toml --workdir=runs/study --at_once=2 --hours=2

Each run that ends adds a row to the results, a file beside the declaration (studies/adversary.results.gz); rows that
are there are not run again, so that a study goes on from its results alone, on any machine. The command given again
goes on where it was, also after it was killed. --report_only runs nothing.
"""

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from codea1.paper.experiments import Job
from codea1.paper.schedule import OutOfTime, Schedule
from codea1.runtime import command
from codea1.study.declaration import Run, Study, read_study

if TYPE_CHECKING:
    from codea1.study.results import Results

WORKDIR = flags.DEFINE_string("workdir", "runs/study", "folder that gets the runs")
OUTPUT = flags.DEFINE_string("output", "docs/study", "folder that gets the report and the figure")
AT_ONCE = flags.DEFINE_integer("at_once", 2, "jobs that run at the same time (CPU only)", lower_bound=1)
HOURS = flags.DEFINE_float("hours", math.inf, "after which what runs saves, and ends", lower_bound=0.0)
REPORT_ONLY = flags.DEFINE_bool("report_only", False, "run nothing")


def main(path: str) -> None:
    study = read_study(path)
    from codea1.study.report import write  # imports SciPy and matplotlib, once the declaration is checked
    from codea1.study.results import Results

    results = Results(str(Path(path).with_suffix(".results.gz")))
    went_well = REPORT_ONLY.value or _run(study, results)
    write(study, results, OUTPUT.value)
    sys.exit(0 if went_well else 1)


def _run(study: Study, results: "Results") -> bool:
    """Runs what is left, stage by stage and rung by rung; returns whether all of it ended well."""
    deadline = time.monotonic() + 3600 * HOURS.value
    for stage in study.stages:
        for runs in study.rungs(stage, results.score):
            left = {run.name: run for run in runs if run not in results}

            def keep(job: Job, left: dict[str, Run] = left) -> None:
                if job.name in left:
                    results.keep(left[job.name], job.command, f"{WORKDIR.value}/{job.name}")

            hours = (deadline - time.monotonic()) / 3600
            jobs = study.jobs(list(left.values()), WORKDIR.value)
            print(f"stage {stage.name}: {len(runs) - len(left)} of {len(runs)} runs are done")
            try:
                if left and not Schedule(jobs, WORKDIR.value, at_once=AT_ONCE.value, hours=hours, done=keep).run():
                    return False
            except OutOfTime:
                print("the hours are over: the same command goes on from there")
                return True
    return True


if __name__ == "__main__":
    command.run(main, argument="STUDY")
