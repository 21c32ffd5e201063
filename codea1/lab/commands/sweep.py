"""Trains with every combination of some config values, over seeds, and writes one table (docs/tables.md).

  python -m codea1.lab sweep --config=configs/tiny.py:steps=20 --sweep=config.game.alpha=0.1,0.3,0.5 --seeds=3 \
    --workdir=runs/alpha

--sweep may be given several times. --config.FIELD=VALUE holds for all runs. Values are checked before the first run.
Runs are measured on the validation questions, so that the test split is left to what is chosen. The command given again
goes on where it was, also with more values or seeds. --at_once runs some side by side; an accelerator belongs to one
process.
"""

import sys

from absl import flags

from codea1.config import validate
from codea1.lab.study.sweep import sweep_study
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import require
from codea1.storage.objects import is_remote

WORKDIR = flags.DEFINE_string("workdir", None, "folder that gets the runs and the report")
SWEEP = flags.DEFINE_multi_string("sweep", [], "a field and its values: config.game.alpha=0.1,0.3")
SEEDS = flags.DEFINE_integer("seeds", 1, "runs of each combination", lower_bound=1)
AT_ONCE = flags.DEFINE_integer("at_once", 1, "jobs that run at the same time (CPU only)", lower_bound=1)
CONFIG = command.define_config(validate)


def main() -> None:
    CONFIG()
    if not WORKDIR.value or is_remote(WORKDIR.value):
        raise BadInput("give --workdir, the folder on a disk that gets the runs.")
    workdir = WORKDIR.value.rstrip("/")
    require("matplotlib", "a sweep's report")
    study = sweep_study(command.config_arguments(), SWEEP.value, SEEDS.value)
    # They import SciPy and matplotlib, once the flags are checked.
    from codea1.lab.study.report import write
    from codea1.lab.study.results import Results

    results = Results(f"{workdir}/results.gz")
    went_well = results.complete(study, workdir, AT_ONCE.value)
    print(write(study, results, f"{workdir}/report"))
    print(f"report: {workdir}/report/report.md")
    sys.exit(0 if went_well else 1)


if __name__ == "__main__":
    command.run(main)
