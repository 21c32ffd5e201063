"""Shows how a run goes, from its files alone: the view of `codea1.train` on any machine that sees its folder.

  python -m codea1.watch RUN    # local or gs://; ends with the run, or on Ctrl-C

The run may be over, or on a pod. Without a terminal every new step is a line. At the end come the warnings that the
report has.
"""

import time

from absl import flags
from rich.console import Console

from codea1.runtime import command

EVERY = flags.DEFINE_float("every", 5.0, "seconds between two looks at the files", lower_bound=0.1)


def main(run: str) -> None:
    watch(run, EVERY.value, Console())


def watch(run: str, every: float, console: Console) -> None:
    """Shows the steps of a run as they come, until the last.

    Args:
      every: seconds between two looks.

    Raises:
      BadInput: there is no run, or its metrics are damaged.
      StorageFailed: they cannot be read.
    """
    # They import numpy and more, which takes a second, once the flags are checked.
    from codea1.evaluation import health
    from codea1.runs.folder import RunFolder
    from codea1.runs.metrics import read_metrics
    from codea1.runtime.errors import BadInput
    from codea1.training.progress import GAME_COLUMNS, SUPERVISED_COLUMNS, Progress

    folder = RunFolder.existing(run)
    while not (rows := read_metrics(folder.metrics)):
        time.sleep(every)
    is_game = not set(SUPERVISED_COLUMNS) & set(rows[0])
    total = (folder.config if is_game else folder.config.get("sft", {})).get("steps")
    if total is None:
        raise BadInput(f"{folder.config_file} does not say how many steps the run has.")
    columns = GAME_COLUMNS if is_game else SUPERVISED_COLUMNS
    with Progress(total, columns=columns, console=console) as progress:
        for row in rows[:-1]:  # what is there already is one line
            progress.remember(row["step"], row)
        progress.update(rows[-1]["step"], rows[-1])
        while rows[-1]["step"] < total:
            time.sleep(every)
            last, rows = rows[-1]["step"], read_metrics(folder.metrics) or rows
            for row in rows:
                if row["step"] > last:
                    progress.update(row["step"], row)
    for warning in health.warnings(rows).values():
        console.print(warning, markup=False, highlight=False)


if __name__ == "__main__":
    command.run(main, argument="RUN")
