"""The report of a run: its tables and curves as report.md and report.png, drawn from the files beside them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codea1.evaluation import figures
from codea1.evaluation.evaluations import read_evaluation
from codea1.evaluation.tables import Comparison, compare, markdown_table
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.storage.objects import write_atomically


def write_report(folder: RunFolder) -> list[Comparison]:
    """Writes report.md and report.png anew, of a finished or a live run, and returns the rows of the final table.

    Raises:
      BadInput: a file that the report is drawn from is damaged; nothing is written.
    """
    rows = read_metrics(folder.metrics)
    comparisons = compare(folder)
    parts = [f"# Run {folder.path.name}", _summary(folder, rows), "## Before and after", table_title(folder)]
    parts.append(markdown_table(comparisons) if comparisons else "")
    if rows:
        parts += ["## Curves", f"![Curves of the run]({folder.figure.name})", _missing(rows)]
        write_atomically(folder.figure, figures.draw(rows, f"{folder.path.name}: {rows[-1]['step']} steps"))
    write_atomically(folder.report, "\n\n".join(filter(None, parts)) + "\n")
    return comparisons


def table_title(folder: RunFolder) -> str:
    """Returns the sentence over the final table: what was measured, on what, with which intervals."""
    evaluations = {name: read_evaluation(folder, name) for name in ("before", "after")}
    done = {name: evaluation for name, evaluation in evaluations.items() if evaluation}
    if not done:
        return "No evaluation has been made yet."
    first = next(iter(done.values()))
    steps = " and ".join(f"{name} at step {evaluation['step']}" for name, evaluation in done.items())
    return (
        f"{first['questions']} questions of the {first['split']} split, {steps}; % with 95 % bootstrap intervals over "
        "questions. The difference is paired by question; bold where its interval leaves out 0."
    )


def _summary(folder: RunFolder, rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"- Config: [{folder.config_file.name}]({folder.config_file.name})"]
    if rows:
        lines.append(f"- Steps: {rows[-1]['step']}")
    _, seconds = figures.points(rows, "time/total")
    if len(seconds):
        minutes = seconds.sum() / 60
        lines.append(f"- Time in steps: {minutes:.1f} minutes, {np.median(seconds):.2f} s per step (median)")
    _, speed = figures.points(rows, "perf/tokens_per_second")
    if len(speed):
        lines.append(f"- Tokens per second: {np.median(speed):,.0f} (median)")
    return "\n".join(lines)


def _missing(rows: Sequence[Mapping[str, Any]]) -> str:
    missing = figures.missing_series(rows)
    return f"Not recorded in this run: {', '.join(f'`{metric}`' for metric in missing)}." if missing else ""
