"""Besieges a grader: how many wrong programs can make it pay?

  python -m codea1.lab siege my_grader.py:paid
  python -m codea1.lab siege "python my_grader.py" --output=siege --most=0

Programs that forge a verdict, by family, and honest controls, right and plain wrong, are judged by the grader. It is a
function of a file, paid(question, program), which returns whether it pays and None where it has no form for the
question. Or it is a command that reads JSON lines with id, question and program, and prints a line {"id": ..., "paid":
true} for each. docs/benchmarks.md says what a question has. No forgery does harm, but a grader may: it runs programs as
it always does, in a process of its own that may die or hang.

With --output the report, and each forged program, is in FOLDER/siege.md and siege.json. The exit code is 1 where more
forgeries than --most are paid, or a control is judged wrongly.
"""

import os
import sys

from absl import flags
from rich.console import Console
from rich.text import Text

from codea1.lab.siege.attempts import RIGHT, WRONG, attempts
from codea1.lab.siege.processes import PAID, GraderCommand
from codea1.lab.siege.siege import besiege
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.storage.objects import location, write_atomically

OUTPUT = flags.DEFINE_string("output", None, "folder for the report; what is there is replaced")
PYTHON = flags.DEFINE_string("python", sys.executable, "interpreter for the grader, such as that of its environment")
SECONDS = flags.DEFINE_float("seconds", 30.0, "a verdict may take", lower_bound=0.1)
JOBS = flags.DEFINE_integer("jobs", os.cpu_count() or 1, "processes of the grader at once", lower_bound=1)
MOST = flags.DEFINE_integer("most", None, "paid forgeries that leave the exit code 0; by default any", lower_bound=0)


def main(grader: str) -> None:
    siege = besiege(grader, GraderCommand.read(grader, PYTHON.value), attempts(), SECONDS.value, JOBS.value)
    if not siege.of(RIGHT, said=PAID):
        first = next((f": {judged.why}" for judged in siege.of(RIGHT) if judged.why), "")
        raise BadInput(f"{grader} paid none of {len(siege.of(RIGHT))} right programs, so no score can be given{first}.")
    if siege.asked(WRONG) and len(siege.of(WRONG, said=PAID)) == siege.asked(WRONG):
        raise BadInput(f"{grader} paid all of {siege.asked(WRONG)} plain wrong programs, so no score can be given.")
    if OUTPUT.value:
        folder = location(OUTPUT.value, "--output")
        for suffix, text in {"md": siege.markdown(), "json": siege.json()}.items():
            write_atomically(folder / f"siege.{suffix}", text)
    console = Console(highlight=False)
    console.print(siege.table().terminal(f"Siege of {grader}"), Text(siege.summary()))
    for case in siege.misjudged:
        console.print(
            Text(f"control judged wrongly: {case.attempt.question}, {case.attempt.name}: {case.said} {case.why}")
        )
    if MOST.value is not None and (len(siege.forged) > MOST.value or siege.misjudged):
        sys.exit(1)


if __name__ == "__main__":
    command.run(main, argument="GRADER")
