"""Makes a file of questions with mutants of their ground truths, or with wrong ones, for training to read.

  python -m codea1.lab mutate data/mbpp.parquet --mutants=8 --output=data/mbpp_mutants.parquet
  python -m codea1.lab mutate procedural/blind --split=train --wrong_truths=0.1 --output=data/blind_noisy.parquet

A question that has mutants keeps them. --wrong_truths gives a share of the questions one of their paid mutants as the
ground truth, to measure what wrong labels do to training (docs/methods.md). Else rows stay as they are.
"""

from absl import flags

from codea1.lab.data.mutated import mutated_rows, write_rows
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import require
from codea1.storage.objects import exists, location

OUTPUT = flags.DEFINE_string("output", None, "file of the questions, .parquet")
SPLIT = flags.DEFINE_string("split", "train", "of a dataset: which of its splits; a file has one")
FOLDER = flags.DEFINE_string("folder", "data", "where worlds are prepared")
MUTANTS = flags.DEFINE_integer("mutants", 8, "made for a question that has none", lower_bound=0)
WRONG = flags.DEFINE_float("wrong_truths", 0.0, "share of questions with a wrong ground truth", 0.0, 1.0)
SEED = flags.DEFINE_integer("seed", 0, "draws the questions that get wrong ground truths")


def main(source: str) -> None:
    if not OUTPUT.value or not OUTPUT.value.endswith(".parquet"):
        raise BadInput("give --output, the .parquet file that gets the questions.")
    require("pyarrow", f"output {OUTPUT.value}")
    path = location(OUTPUT.value, "output")
    if exists(path):
        raise BadInput(f"output {path} is there already.")
    rows = list(mutated_rows(source, SPLIT.value, FOLDER.value, MUTANTS.value, WRONG.value, SEED.value))
    write_rows(path, rows)
    print(f"wrote {path}: {sum(bool(row['mutants']) for row in rows)} of {len(rows)} questions have mutants")


if __name__ == "__main__":
    command.run(main, argument="FILE")
