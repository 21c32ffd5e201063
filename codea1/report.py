"""Draws a run's report from its folder: report.md, report.png and the final table on the terminal.

  python -m codea1.report RUN

Of several runs it fills the paper's tables (docs/tables.md), with the published numbers beside ours, and prints them in
Markdown; with --output it writes them as Markdown, LaTeX and CSV, and the figures as PNG and PDF:

  python -m codea1.report RUN RUN RUN --output=FOLDER
"""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from codea1.evaluation.run_report import table_title, terminal_table, write_report
from codea1.paper import report as paper_report
from codea1.paper.results import Run
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import with_exit_code


@with_exit_code
def main(arguments: Sequence[str] | None = None) -> None:
    """Does what the words of a command line ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m codea1.report", description="Draws the report of a run, or the paper's tables of several."
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folder")
    parser.add_argument("--output", metavar="FOLDER", help="gets the tables and figures of several runs")
    given = parser.parse_args(arguments)
    if len(given.runs) == 1 and not given.output:
        report(given.runs[0])
    else:
        report_all(given.runs, given.output)


def report(run: str) -> None:
    """Writes the report of the run folder `run` and prints its table.

    Raises:
      BadInput: the folder is no run, or a file in it is damaged.
      StorageFailed: a file cannot be read or written.
    """
    folder = RunFolder.existing(run)
    comparisons = write_report(folder)
    console = Console()
    title = table_title(folder)
    console.print(terminal_table(comparisons, title) if comparisons else title)
    print(f"wrote {folder.report}")


def report_all(paths: Sequence[str], output: str | None) -> None:
    """Fills the paper's tables from several run folders; prints them, or writes them to the folder `output`.

    Raises:
      BadInput: a folder is no run, runs do not belong together, a file is damaged, or `output` cannot be a folder.
      StorageFailed: a file cannot be read or written.
    """
    runs = [Run.read(path) for path in paths]
    if not output:
        _, tables = paper_report.filled(runs)
        print(paper_report.markdown(runs, tables), end="")
        return
    paper_report.write(runs, output)
    print(f"wrote {output}/{paper_report.REPORT}, its tables as .tex and .csv and its figures as .png and .pdf")


if __name__ == "__main__":
    sys.exit(main())
