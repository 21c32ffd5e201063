"""Prepares the questions of worlds, for training and evaluation to read them, or writes tests for them by a rule.

  python -m codea1.lab worlds classic                  # what a config's source `procedural` is
  python -m codea1.lab worlds classic blind --folder=data
  python -m codea1.lab worlds blind --rule=statement --count=7 --output=tests.jsonl

`codea1.sft` does the first for its config. A run that starts from other models needs it before, and so does an
evaluation on another machine. What a rule wrote is `config.data.static_tests` of runs without a Test LLM.
"""

from absl import flags

from codea1.data.sources import world_folder
from codea1.lab.commands import require_absent
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.storage.objects import location

FOLDER = flags.DEFINE_string("folder", "data", "config.data.folder of the runs that read them")
RULE = flags.DEFINE_string("rule", "", "of codea1/lab/worlds/rules.py, that writes tests for the training questions")
COUNT = flags.DEFINE_integer("count", 7, "tests of each question, at most", lower_bound=1)
OUTPUT = flags.DEFINE_string("output", "", "the rule's file, local or gs://; what is there is replaced")


def main(*worlds: str) -> None:
    if not RULE.value:
        require_absent("with --rule", OUTPUT, COUNT)
    if RULE.value and (len(worlds) != 1 or not OUTPUT.value):
        raise BadInput("a rule writes the tests of one world: give --output, the file to write, and one WORLD.")
    from codea1.lab.data.static_tests import write_static_tests
    from codea1.lab.worlds.procedural import prepare
    from codea1.lab.worlds.rules import ruled_tests
    from codea1.lab.worlds.worlds import world_named

    if RULE.value:
        output = location(OUTPUT.value, "--output")
        tests = list(ruled_tests(world_named(worlds[0]), RULE.value, COUNT.value))
        write_static_tests(output, tests)
        print(f"wrote {output}: {sum(len(written) for _, written in tests):,} tests of {len(tests):,} questions")
        return
    for world in worlds:
        prepare(world, FOLDER.value)
        print(world_folder(world, FOLDER.value))


if __name__ == "__main__":
    command.run(main, argument="WORLD", many=True)
