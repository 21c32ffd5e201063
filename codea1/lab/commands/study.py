"""Runs a declared study and writes its report: which recipe, in which world, by how much.

  make study
  # or
  python -m codea1.lab study studies/adversary.toml --workdir=runs/study --at_once=2 --hours=2

Each run that ends adds a row to the results, a file beside the declaration (studies/adversary.results.gz); rows that
are there are not run again, so that a study goes on from its results alone, on any machine. The command given again
goes on where it was, also after it was killed. --report_only runs nothing.
"""

import math
import sys
from pathlib import Path

from absl import flags

from codea1.lab.study.declaration import read_study
from codea1.runtime import command

WORKDIR = flags.DEFINE_string("workdir", "runs/study", "folder that gets the runs")
OUTPUT = flags.DEFINE_string("output", "results/study", "folder that gets the report and the figure")
AT_ONCE = flags.DEFINE_integer("at_once", 2, "jobs that run at the same time (CPU only)", lower_bound=1)
HOURS = flags.DEFINE_float("hours", math.inf, "after which what runs saves, and ends", lower_bound=0.0)
REPORT_ONLY = flags.DEFINE_bool("report_only", False, "run nothing")


def main(path: str) -> None:
    study = read_study(path)
    # They import SciPy and matplotlib, once the declaration is checked.
    from codea1.lab.study.report import write
    from codea1.lab.study.results import Results

    results = Results(str(Path(path).with_suffix(".results.gz")))
    went_well = REPORT_ONLY.value or results.complete(study, WORKDIR.value, AT_ONCE.value, HOURS.value)
    write(study, results, OUTPUT.value)
    sys.exit(0 if went_well else 1)


if __name__ == "__main__":
    command.run(main, argument="STUDY")
