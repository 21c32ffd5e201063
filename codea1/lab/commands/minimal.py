"""Plays the whole game from one file, codea1/lab/minimal.py, which is there to be read and changed.

  make train                                                      # its warm start is where both policies begin
  python -m codea1.lab minimal --start=runs/tiny/sft --steps=60

Prints a line for each step and keeps nothing. On the devices of one host.
"""

from absl import flags

from codea1.runtime import command

START = flags.DEFINE_string("start", "runs/tiny/sft", "workdir of codea1.sft: both policies start from its model")
QUESTIONS = flags.DEFINE_string("questions", "procedural/blind", "source of the questions, as config.data.train.source")
FOLDER = flags.DEFINE_string("folder", "data", "where worlds are prepared")
STEPS = flags.DEFINE_integer("steps", 60, "training steps", lower_bound=1)
SEED = flags.DEFINE_integer("seed", 0, "of everything random")


def main() -> None:
    from codea1.lab import minimal  # imports JAX, once the flags are checked

    minimal.run(f"{START.value}/model", QUESTIONS.value, FOLDER.value, STEPS.value, SEED.value)


if __name__ == "__main__":
    command.run(main)
