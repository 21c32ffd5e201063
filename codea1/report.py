"""Draws a run's report from its folder: report.md, report.png and the final table on the terminal.

python -m codea1.report RUN

Of several runs it prints the final tables side by side, in Markdown:

python -m codea1.report RUN RUN RUN
"""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from codea1.errors import BadInput
from codea1.runs.folder import RunFolder
from codea1.runs.report import table_title, write_report
from codea1.runs.tables import compare, runs_table, terminal_table


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when done, 2 after bad input, whose sentence goes to stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m codea1.report", description="Draws a run's report from its folder."
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folder")
    runs = parser.parse_args(arguments).runs
    try:
        if len(runs) == 1:
            report(runs[0])
        else:
            print(runs_table({run.path.name: compare(run) for run in map(RunFolder.existing, runs)}))
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def report(run: str) -> None:
    """Writes the report of the run folder `run` and prints its table.

    Raises:
      BadInput: the folder is no run, cannot be written, or a file in it is damaged.
    """
    folder = RunFolder.existing(run)
    try:
        comparisons = write_report(folder)
    except OSError as error:
        raise BadInput(f"the report in {folder.path} cannot be written: {error.strerror or error}.") from None
    console = Console()
    title = table_title(folder)
    console.print(terminal_table(comparisons, title) if comparisons else title)
    print(f"wrote {folder.report}")


if __name__ == "__main__":
    sys.exit(main())
