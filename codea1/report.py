"""Draws a run's report from its folder: report.md, report.png and the final table on the terminal.

  python -m codea1.report RUN
  python -m codea1.report RUN --seeds=studies/demo.results.gz   # where it lies among other seeds of its experiment

Of several runs it fills the paper's tables (docs/tables.md), next to the published numbers, and prints them in
Markdown; with --output it writes them as Markdown and CSV, and the figures as PNG and PDF:

  python -m codea1.report RUN RUN RUN --output=FOLDER
"""

from absl import flags

from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.runtime.extras import require

OUTPUT = flags.DEFINE_string("output", None, "folder that gets the tables and figures of several runs")
SEEDS = flags.DEFINE_string("seeds", None, "results of a study with other seeds; nothing is written then")


def main(*runs: str) -> None:
    # They import SciPy, which takes seconds, once the flags are checked.
    if SEEDS.value:
        if len(runs) > 1 or OUTPUT.value:
            raise BadInput("--seeds compares one run, and writes nothing.")
        from codea1.lab.study.report import place_run

        place_run(runs[0], SEEDS.value)
    elif len(runs) == 1 and not OUTPUT.value:
        from codea1.lab.report.run_report import report_run

        report_run(runs[0])
    else:
        if OUTPUT.value:
            require("matplotlib", "--output, whose figures are drawn,")
        from codea1.lab.study.report import report_runs

        report_runs(runs, OUTPUT.value)


if __name__ == "__main__":
    command.run(main, argument="RUN", many=True)
