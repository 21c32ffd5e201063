"""Examines a run: every checkpoint, its book, the samples, evaluations and metrics, against their checksums.

  python -m codea1.fsck RUN                 # local or gs://; also while the run is live; changes nothing
  python -m codea1.fsck RUN --quarantine    # moves what is damaged to set_aside/

A line says of each damaged thing what is wrong with it and what follows, and the last one from which step the run
continues. Files on a disk are read once; of those in a bucket, Cloud Storage knows the checksums. The exit code is 0
where the run is sound, or what was damaged has been moved aside, and 1 where damage is left.
"""

import os
import sys

from absl import flags

from codea1.runtime import command

QUARANTINE = flags.DEFINE_bool("quarantine", False, "move what is damaged aside; no process may work in the folder")


def main(run: str) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"  # a live run may hold the TPU
    from codea1.lab.runs.fsck import fsck  # imports JAX, once the flags are checked

    if not fsck(run, QUARANTINE.value):
        sys.exit(1)


if __name__ == "__main__":
    command.run(main, argument="RUN")
