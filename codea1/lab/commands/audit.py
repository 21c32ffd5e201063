"""Watches a run for hacked rewards: tells where what pays a player rises and its hidden reward does not.

  python -m codea1.lab audit runs/tiny/code_a1

For each player: both sides, and the gap between them, in every tenth of the run, and how they changed. Reads the
metrics of a finished or a live run that was trained with --config.game.hidden_reward=True, and changes nothing.
"""

import sys

import numpy as np
from rich.console import Console
from rich.text import Text

from codea1.lab.report.tables import TextTable
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime import command
from codea1.runtime.errors import BadInput


def main(run: str) -> None:
    from codea1.evaluation.statistics import MIN_STEPS, TENTHS  # with SciPy, once the flags are checked
    from codea1.lab.report import audit

    folder = RunFolder.existing(run)
    rows = read_metrics(folder.metrics)
    if not audit.has_hidden_reward(rows):
        raise BadInput(f"{folder.path} has no hidden reward: no step was made with --config.game.hidden_reward=True.")
    audits = audit.audits(rows)
    if not audits:
        raise BadInput(f"{folder.path} has too few steps with a hidden reward: fewer than {MIN_STEPS}.")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    for each in audits:
        sides = (each.paid, each.hidden, each.gap)
        tenths = zip(np.array_split(each.steps, TENTHS), *(side.tenths for side in sides), strict=True)
        rows = [(f"{steps[0]} to {steps[-1]}", *(f"{mean:.3f}" for mean in means)) for steps, *means in tenths]
        table = TextTable(["steps", *(side.label for side in sides)], rows)
        console.print(table.terminal(f"{each.player}, by tenth of the run"))
    console.print(audit.table_of(audits).terminal(audit.EXPLANATION))
    warnings = [f"warning: {warning}" for warning in audit.warnings(audits)]
    for line in warnings or [audit.NO_WARNING]:
        console.print(Text(line))


if __name__ == "__main__":
    command.run(main, argument="RUN")
