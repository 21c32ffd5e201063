"""Trains by every method of the paper and writes the tables and figures (docs/tables.md).

  make tables
  # or
  python -m codea1.lab reproduce --config=configs/tiny.py:steps=40 --workdir=runs/tables --at_once=2
  python -m codea1.lab reproduce --config=configs/code_a1.py:size=1.5b,topology=v5e-16 --workdir=gs://BUCKET/tables \
    --dry_run

The command given again goes on where it was: what is done is kept, and a run that was cut off is continued. A job that
fails is reported and left; the others go on, but for those that read what it was to write, and the exit code is 1.
--at_once runs some side by side, for one run does not fill two cores; an accelerator belongs to one process. With
--dry_run the commands are printed, in their order, and nothing runs.
"""

import sys

from absl import flags

from codea1.lab.paper.reproduce import reproduce
from codea1.runtime import command
from codea1.runtime.errors import BadInput

CONFIG = flags.DEFINE_string("config", None, "config file, with its argument after a colon")
WORKDIR = flags.DEFINE_string("workdir", None, "folder that gets the runs and the report")
AT_ONCE = flags.DEFINE_integer("at_once", 1, "jobs that run at the same time (CPU only)", lower_bound=1)
DRY_RUN = flags.DEFINE_bool("dry_run", False, "print the commands only")


def main() -> None:
    if not CONFIG.value or not WORKDIR.value:
        raise BadInput("give --config, the config file, and --workdir, the folder that gets the runs.")
    try:
        went_well = reproduce(CONFIG.value, WORKDIR.value, AT_ONCE.value, DRY_RUN.value)
    except KeyboardInterrupt:
        print("stopped: the same command goes on from there", file=sys.stderr)
        raise
    sys.exit(0 if went_well else 1)


if __name__ == "__main__":
    command.run(main)
