"""Runs a declared study and writes its report: which recipe, in which world, by how much.

  python -m codea1.lab study studies/real_searched.toml --workdir=runs/study --hours=2
  # every method of the paper, and its tables (docs/tables.md)
  python -m codea1.lab study studies/paper.toml --config=configs/tiny.py:steps=40 --workdir=runs/tables
  python -m codea1.lab study studies/paper.toml --config=configs/code_a1.py:size=1.5b,topology=v5e-16 \
    --workdir=gs://BUCKET/tables --dry_run

Each run that ends adds a row to the results, a file next to the declaration (studies/real.results.gz), or in the
workdir where the declaration or --config says so. Rows that are there are not run again, so that a study goes on from
its results alone, on any machine. The command given again goes on where it was, also after it was killed. A job that
fails is reported and left; the others go on, but for those that read what it was to write, and the exit code is 1.
"""

import math
import sys
from pathlib import Path

from absl import flags

from codea1.lab.study.declaration import read_study, with_config
from codea1.lab.study.schedule import HoursOver
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import require
from codea1.storage.objects import is_remote

CONFIG = flags.DEFINE_string("config", None, "config file, with its argument, instead of the declared one")
WORKDIR = flags.DEFINE_string("workdir", "runs/study", "folder that gets the runs")
OUTPUT = flags.DEFINE_string("output", None, "folder that gets the report; by default WORKDIR/report")
AT_ONCE = flags.DEFINE_integer("at_once", 0, "jobs side by side (CPU only); 0: 2 with warm starts, or 1", lower_bound=0)
HOURS = flags.DEFINE_float("hours", math.inf, "after which what runs saves, and ends", lower_bound=0.0)
REPORT_ONLY = flags.DEFINE_bool("report_only", False, "run nothing")
DRY_RUN = flags.DEFINE_bool("dry_run", False, "print the commands of all runs only")


def main(path: str) -> None:
    study, workdir = read_study(path), WORKDIR.value.rstrip("/")
    file = str(Path(path).with_suffix(".results.gz"))
    if study.results or CONFIG.value:
        file = f"{workdir}/{study.results or 'results.gz'}"
    if CONFIG.value:
        study = with_config(study, CONFIG.value)
    if not REPORT_ONLY.value:  # rows stay, whatever their config is called today
        study.require_configs()
    if DRY_RUN.value:
        print(*(job.command for job in study.jobs(study.all_runs(), workdir)), sep="\n")
        if study.results:
            folders = dict.fromkeys(f"{workdir}/{run.name}" for run in study.all_runs())
            print("python -m codea1.report", *folders, f"--output={OUTPUT.value or f'{workdir}/report'}")
        return
    if is_remote(workdir):
        raise BadInput(f"workdir {workdir} is in a bucket: run what --dry_run prints, on every host.")
    require("matplotlib", "a study's report")
    at_once = AT_ONCE.value or (1 if study.start is None else 2)
    # They import SciPy and matplotlib, once the declaration is checked.
    from codea1.lab.study.report import write
    from codea1.lab.study.results import Results

    results = Results(file)
    went_well = True
    try:
        went_well = REPORT_ONLY.value or results.complete(study, workdir, at_once, HOURS.value)
    except HoursOver:
        print("the hours are over: the same command goes on from there")
    write(study, list(results), OUTPUT.value or f"{workdir}/report")
    sys.exit(0 if went_well else 1)


if __name__ == "__main__":
    command.run(main, argument="STUDY")
