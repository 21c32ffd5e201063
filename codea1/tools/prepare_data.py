"""Makes the training set of the paper's kind from files of KodCode-V1.

  python -m codea1.tools.prepare_data train-*.parquet --output=data/kodcode_hard.parquet \
    --exclude=humanevalplus_mbppplus.parquet

The files are those of huggingface.co/datasets/KodCode/KodCode-V1 (CC BY-NC 4.0), Parquet or JSON lines, local or on
gs://. Kept are questions that ask for one function, are hard by the published pass rate, are nearly none of the
evaluation sets', and whose ground truth, run twice in the sandbox, passes at least one of their asserts. The official
file of Code-A1 needs none of this: --config.data.train.source reads it as it is.
"""

from absl import flags

from codea1.data.kodcode import HARD, make_training_set
from codea1.runtime import command
from codea1.runtime.errors import BadInput

OUTPUT = flags.DEFINE_string("output", None, "file of the training set, .parquet")
EXCLUDE = flags.DEFINE_list("exclude", [], "files of evaluation sets to stay away from")
MAX_PASS_RATE = flags.DEFINE_float("max_pass_rate", HARD, "share of trials below which a question is hard")


def main(*files: str) -> None:
    if not OUTPUT.value:
        raise BadInput("--output is missing: it names the file of the training set.")
    make_training_set(files, OUTPUT.value, EXCLUDE.value, MAX_PASS_RATE.value)


if __name__ == "__main__":
    command.run(main, argument="FILE", many=True)
