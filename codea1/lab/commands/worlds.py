"""Prepares the questions of worlds, for training and evaluation to read them.

  python -m codea1.lab worlds classic                  # what a config's source `procedural` is
  python -m codea1.lab worlds blind r32 --folder=data

`codea1.sft` does it for its config. A run that starts from other models needs this first, as does whoever evaluates a
run on another machine.
"""

from absl import flags

from codea1.data.sources import world_folder
from codea1.runtime import command

FOLDER = flags.DEFINE_string("folder", "data", "config.data.folder of the runs that read them")


def main(*worlds: str) -> None:
    from codea1.lab.worlds.procedural import prepare  # imports tensorflow-datasets, once the flags are checked

    for world in worlds:
        prepare(world, FOLDER.value)
        print(world_folder(world, FOLDER.value))


if __name__ == "__main__":
    command.run(main, argument="WORLD", many=True)
