"""Replays the update of one step of a run from its saved samples, and compares the metrics with the run's.

  python -m codea1.lab replay runs/tiny/code_a1 --step=91

Starts from the checkpoint of the step before; step 1 starts from the model folders. Runs on the devices there are, a
CPU's too: on the same machine with the same mesh the numbers are the same to the last bit, elsewhere to rounding.
Changes nothing in the run's folder. Exits with 1 when a metric differs by more than rounding.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags
from rich.console import Console

from codea1.config import config_of
from codea1.lab.report.tables import TextTable
from codea1.runs.folder import RunFolder
from codea1.runtime import command
from codea1.runtime.errors import BadInput

if TYPE_CHECKING:  # it imports JAX, which takes seconds; wrong flags are reported before
    from codea1.lab.runs.saved_step import MetricPair, Tolerance

STEP = flags.DEFINE_integer("step", None, "training step", lower_bound=1)
HOSTS = command.define_hosts()


def main(run: str) -> None:
    hosts = HOSTS()
    console = Console(quiet=not hosts.is_main, highlight=False, width=None if sys.stdout.isatty() else 120)
    with hosts.agreed():
        if STEP.value is None:
            raise BadInput("--step is missing: it says which training step is made again.")
        folder = RunFolder.existing(run)
        config = config_of(folder)
        from codea1.lab.runs.saved_step import ROUNDING, SavedStep

        saved = SavedStep(folder, config, STEP.value)
        console.print(f"{folder.path}: step {saved.step} again, from {saved.start}")
        pairs = saved.replay()
    tolerance = ROUNDING[config.model.dtype]
    rows = []
    for pair in pairs:
        said = "equal" if pair.is_equal else "rounding" if pair.is_close(tolerance) else "DIFFERS"
        difference = "" if pair.is_equal else f"{pair.again - pair.recorded:+.1e}"
        rows.append((pair.name, f"{pair.recorded:.9g}", f"{pair.again:.9g}", difference, said))
    console.print(TextTable(("metric", "run", "replay", "difference", ""), rows).terminal())
    console.print(_verdict(pairs, tolerance))
    if not all(pair.is_close(tolerance) for pair in pairs):
        sys.exit(1)


def _verdict(pairs: "Sequence[MetricPair]", tolerance: "Tolerance") -> str:
    if all(pair.is_equal for pair in pairs):
        return f"all {len(pairs)} metrics are equal to the last bit"
    within = f"{tolerance.absolute:g} + {tolerance.relative:g} of the value"
    different = [pair.name for pair in pairs if not pair.is_close(tolerance)]
    if different:
        return f"{len(different)} of {len(pairs)} metrics differ by more than {within}: {', '.join(different)}"
    return f"all {len(pairs)} metrics are equal within {within}, {sum(pair.is_equal for pair in pairs)} to the last bit"


if __name__ == "__main__":
    command.run(main, argument="RUN")
