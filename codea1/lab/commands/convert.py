"""Makes a training set with the columns of the official Code-A1 file of files in other forms.

  python -m codea1.lab convert kodcode train-*.parquet --output=data/kodcode_hard.parquet \
    --exclude=humanevalplus_mbppplus.parquet
  python -m codea1.lab convert leetcode LeetCodeDataset-train.jsonl --output=data/leetcode.parquet
  python -m codea1.lab convert json rows.jsonl --problem=task --solution=program --tests=cases --entry_point=function \
    --licence=MIT --split=80/10/10 --output=data/mine
  python -m codea1.lab convert json data/mbpp.parquet --mutants=8 --output=data/mbpp_mutants.parquet

Forms are json, for rows with fields of any name, and sets by their names, which docs/data.md lists with what a row must
have. Files are Parquet, JSON lines or a JSON array, gzipped or not, local or on gs://; of quixbugs a clone's folder. A
row is kept where its solution, run two or three times in the sandbox, fails none of its tests and passes one, or with
--min_passed=0.8 where it passes 80 % of those it does not run out of time on; what is left out is counted by its
reason, and listed in OUTPUT.left_out.jsonl. One that was stopped goes on when the same command is given again.
With --split OUTPUT is a folder of train.parquet, validation.parquet and test.parquet; by a hash of what is asked the
same question is always in the same one. --mutants makes so many wrong programs for each question that has none, by one
change each to its solution. With json and no other flags FILE is one that convert wrote, whose rows stay as they are.
"""

from dataclasses import replace

from absl import flags

from codea1.lab.commands import require_absent
from codea1.lab.data.conversion import Format, add_mutants, make_training_set
from codea1.lab.data.formats import FORMATS, HARD, kodcode
from codea1.lab.data.sets import format_of_json
from codea1.runtime import command
from codea1.runtime.errors import BadInput

OUTPUT = flags.DEFINE_string("output", None, "file of the training set, .parquet")
EXCLUDE = flags.DEFINE_list("exclude", [], "files of evaluation sets to stay away from")
MAX_PASS_RATE = flags.DEFINE_float("max_pass_rate", HARD, "of kodcode: share of trials below which a question is kept")
MIN_PASSED = flags.DEFINE_float("min_passed", 1.0, "share of the row's tests that its solution must pass", 0.0, 1.0)
SPLIT = flags.DEFINE_string("split", "", "percentages for training, validation and test, such as 80/10/10")
MUTANTS = flags.DEFINE_integer("mutants", 0, "made for each question that has none", lower_bound=0)
LICENCE = flags.DEFINE_string("licence", None, "what every row says of its licence, instead of what the form says")
SOURCE = flags.DEFINE_string("source", None, "the same of its source")
PROBLEM = flags.DEFINE_string("problem", None, "of json: field of the task, a text or a chat that ends with it")
TESTS = flags.DEFINE_string("tests", None, "of json: field of the tests, pairs or asserts")
SOLUTION = flags.DEFINE_string("solution", "", "of json: field of a program, or several; empty: there is none")
ENTRY_POINT = flags.DEFINE_string("entry_point", "", "of json: field that names the function under test")


def main(form: str, *files: str) -> None:
    formats: dict[str, Format] = {"kodcode": kodcode(MAX_PASS_RATE.value), **FORMATS}
    fields = (PROBLEM, SOLUTION, TESTS, ENTRY_POINT)
    if form == "json" and MUTANTS.value and not any(field.value for field in fields):
        require_absent("with rows that are converted", EXCLUDE, MAX_PASS_RATE, MIN_PASSED, SPLIT, LICENCE, SOURCE)
        if len(files) != 1 or not OUTPUT.value:
            raise BadInput("give one FILE of questions, and --output, the file that gets them with mutants.")
        add_mutants(files[0], OUTPUT.value, MUTANTS.value)
        return
    if form == "json":
        if not PROBLEM.value or not TESTS.value:
            raise BadInput("json needs --problem and --tests, the names of the fields that hold them.")
        formats["json"] = format_of_json(PROBLEM.value, SOLUTION.value, TESTS.value, ENTRY_POINT.value)
    elif any(field.value for field in fields):
        raise BadInput("--problem, --solution, --tests and --entry_point name fields of json; other forms have theirs.")
    if form != "kodcode":
        require_absent("with kodcode", MAX_PASS_RATE)
    if form not in formats:
        raise BadInput(f"{form!r} is no form of files; known are json, {', '.join(formats)}.")
    known = formats[form]
    licence, source = LICENCE.value or known.licence, SOURCE.value or known.source
    format = replace(known, licence=licence, source=source, min_passed=MIN_PASSED.value)
    if not files:
        raise BadInput("FILE is missing.")
    if not OUTPUT.value:
        raise BadInput("--output is missing: it names the file of the training set.")
    make_training_set(format, files, OUTPUT.value, EXCLUDE.value, SPLIT.value, MUTANTS.value)


if __name__ == "__main__":
    command.run(main, argument="FORM FILE", many=True)
