"""Makes a training set with the columns of the official Code-A1 file of files in other forms.

  python -m codea1.lab convert kodcode train-*.parquet --output=data/kodcode_hard.parquet \
    --exclude=humanevalplus_mbppplus.parquet
  python -m codea1.lab convert leetcode LeetCodeDataset-train.jsonl --output=data/leetcode.parquet

Forms: kodcode, mbpp, humanevalpack, leetcode, quixbugs (a clone's folder), stdin (programs with inputs and outputs, as
APPS and TACO have them). Files are Parquet, JSON lines or a JSON array, gzipped or not, local or on gs://. A row is
kept where its solution, run twice in the sandbox, passes at least one of its tests; what is left out is counted by its
reason, and listed in OUTPUT.left_out.jsonl. One that was stopped goes on when the same command is given again.
docs/data.md says where each file comes from.
"""

from absl import flags

from codea1.lab.data.conversion import Format, make_training_set
from codea1.lab.data.formats import FORMATS, HARD, kodcode
from codea1.runtime import command
from codea1.runtime.errors import BadInput

OUTPUT = flags.DEFINE_string("output", None, "file of the training set, .parquet")
EXCLUDE = flags.DEFINE_list("exclude", [], "files of evaluation sets to stay away from")
MAX_PASS_RATE = flags.DEFINE_float("max_pass_rate", HARD, "of kodcode: share of trials below which a question is kept")


def main(form: str, *files: str) -> None:
    formats: dict[str, Format] = {"kodcode": kodcode(MAX_PASS_RATE.value), **FORMATS}
    if form not in formats:
        raise BadInput(f"{form!r} is no form of files; known are {', '.join(formats)}.")
    if not files:
        raise BadInput("FILE is missing.")
    if not OUTPUT.value:
        raise BadInput("--output is missing: it names the file of the training set.")
    make_training_set(formats[form], files, OUTPUT.value, EXCLUDE.value)


if __name__ == "__main__":
    command.run(main, argument="FORM FILE", many=True)
