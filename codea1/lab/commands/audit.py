"""Watches a run for hacked rewards: tells where what pays a player rises and its hidden reward does not.

  python -m codea1.lab audit runs/tiny/code_a1

For each player: both sides, and the gap between them, in every tenth of the run, and how they changed. Reads the
metrics of a finished or a live run that was trained with --config.game.hidden_reward=True, and changes nothing.
"""

import sys
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime import command
from codea1.runtime.errors import BadInput

if TYPE_CHECKING:  # it imports SciPy; a wrong flag is reported before
    from codea1.evaluation.audit import Audit


def main(run: str) -> None:
    from codea1.evaluation import audit

    folder = RunFolder.existing(run)
    rows = read_metrics(folder.metrics)
    if not audit.has_hidden_reward(rows):
        raise BadInput(f"{folder.path} has no hidden reward: no step was made with --config.game.hidden_reward=True.")
    audits = audit.audits(rows)
    if not audits:
        raise BadInput(f"{folder.path} has too few steps with a hidden reward: fewer than {audit.MIN_STEPS}.")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    changes = Table(*audit.HEADS, title=audit.EXPLANATION, title_justify="left")
    for each in audits:
        console.print(_by_tenth(each))
        for cells in each.cells():
            changes.add_row(*map(Text, cells))
    console.print(changes)
    warnings = [f"warning: {warning}" for warning in audit.warnings(audits)]
    for line in warnings or [audit.NO_WARNING]:
        console.print(Text(line))


def _by_tenth(audit: "Audit") -> Table:
    sides = (audit.paid, audit.hidden, audit.gap)
    table = Table("steps", title=f"{audit.player}, by tenth of the run", title_justify="left")
    for side in sides:
        table.add_column(side.label, justify="right")
    steps_by_tenth = np.array_split(audit.steps, len(audit.gap.tenths))
    for steps, *means in zip(steps_by_tenth, *(side.tenths for side in sides), strict=True):
        table.add_row(f"{steps[0]} to {steps[-1]}", *(f"{mean:.3f}" for mean in means))
    return table


if __name__ == "__main__":
    command.run(main, argument="RUN")
