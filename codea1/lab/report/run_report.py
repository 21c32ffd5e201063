"""The report of a run: its metrics before and after, its warnings and curves: report.md, report.png, report.html."""

import dataclasses
import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.text import Text

from codea1.evaluation import health
from codea1.evaluation.result_files import interval_of, per_question, read_evaluation
from codea1.evaluation.statistics import Interval, paired_difference
from codea1.lab.report import audit, figures
from codea1.lab.report.run_page import page
from codea1.lab.report.tables import TextTable, bold, label, undefined, with_bounds
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput, visible
from codea1.runtime.extras import is_installed, needs
from codea1.storage.objects import remove, write_atomically


@dataclasses.dataclass(frozen=True)
class BeforeAfter:
    """One metric over the same questions before and after; None where a side was not measured."""

    metric: str
    before: Interval | None
    after: Interval | None
    difference: Interval | None
    left_out: int = 0  # questions without a value on a side: the sandbox failed, or there is no mutant

    @property
    def is_clear(self) -> bool:
        """Whether the interval of the difference leaves out 0."""
        return self.difference is not None and (self.difference.low > 0 or self.difference.high < 0)


def compare(folder: RunFolder) -> list[BeforeAfter]:
    """Returns the rows of the final table, in the order in which the metrics were measured.

    Raises:
      BadInput: an evaluation is damaged, or the two are not of the same questions.
    """
    before, after = read_evaluation(folder, "before"), read_evaluation(folder, "after")
    if before and after and any(before[key] != after[key] for key in ("split", "question_ids")):
        raise BadInput(f"{folder.evaluations}: before.json and after.json are not of the same questions.")
    first, last = (evaluation["metrics"] if evaluation else {} for evaluation in (before, after))
    comparisons = []
    for name in {**first, **last}:
        sides = [metrics.get(name) for metrics in (first, last)]
        if all(sides) and len({per_question(side).shape for side in sides}) > 1:
            raise BadInput(f"{folder.evaluations}: before.json and after.json have other factors of {name}.")
        difference = paired_difference(*map(per_question, sides)) if all(sides) else None
        before, after = (interval_of(side) if side else None for side in sides)
        comparisons.append(BeforeAfter(name, before, after, difference, undefined(*filter(None, sides))))
    return comparisons


def comparison_table(comparisons: list[BeforeAfter]) -> TextTable:
    """Returns the final table, in percent, as every metric is a share; a difference that is clear of 0 is bold."""
    rows = []
    for row in comparisons:
        difference = bold(with_bounds(row.difference, "+"), row.is_clear)
        rows.append([label(row.metric, row.left_out), with_bounds(row.before), with_bounds(row.after), difference])
    return TextTable(("metric", "before", "after", "difference"), rows)


def report_run(path: str) -> None:
    """Writes the report of a run folder and prints its table and warnings.

    Raises:
      BadInput: the folder is no run, or a file in it is damaged.
      StorageFailed: a file cannot be read or written.
    """
    folder = RunFolder.existing(path)
    show_report(folder, Console().print)
    print(f"wrote {folder.report}")


def show_report(folder: RunFolder, show: Callable[[Group | Text], None]) -> None:
    """Writes report.md, report.png and report.html again, of a finished or a live run; shows its table and warnings.

    Raises:
      BadInput: a file that the report is drawn from is damaged; nothing is written.
    """
    rows = read_metrics(folder.metrics)
    comparisons, title = compare(folder), table_title(folder)
    table = comparison_table(comparisons) if comparisons else None
    unhealthy, audits = [*health.warnings(rows).values()], audit.audits(rows)
    warnings = [*unhealthy, *audit.warnings(audits)]
    undrawn = "" if is_installed("matplotlib") else f"{folder.figure.name} {needs('matplotlib')}"
    name = visible(folder.path.name)
    plain = name.replace("$", r"\$")  # which would begin Matplotlib's formulas
    parts = [f"# Run {html.escape(name)}", _summary(folder, rows), "## Before and after", title]
    parts.append(table.markdown() if table else "")
    if unhealthy:
        parts += ["## Warnings", "\n".join(f"- **Warning.** {warning}" for warning in unhealthy)]
    if audits:
        parts += ["## Paid and hidden", audit.EXPLANATION, audit.table_of(audits).markdown()]
        parts += [f"**Warning.** {warning}" for warning in audit.warnings(audits)] or [audit.NO_WARNING]
    if rows:
        parts.append("## Curves")
        if undrawn:
            parts.append(f"They are in [{folder.page.name}]({folder.page.name}): {undrawn}.")
            remove(folder.figure)  # which may be of earlier steps
        else:
            parts.append(f"![Curves of the run]({folder.figure.name})")
            write_atomically(folder.figure, figures.draw(rows, f"{plain}: {rows[-1]['step']} steps"))
        if missing := figures.missing_series(rows):
            parts.append(f"Not recorded in this run: {', '.join(f'`{metric}`' for metric in missing)}.")
    write_atomically(folder.report, "\n\n".join(filter(None, parts)) + "\n")
    text = page(f"Run {name}", rows, table.html() if table else "", title, warnings, Samples(folder))
    write_atomically(folder.page, text)
    show(table.terminal(caption=title) if table else Text(title))
    for warning in warnings:
        show(Text(f"\nwarning: {warning}"))
    if undrawn:
        show(Text(f"\nnote: {undrawn}"))


def table_title(folder: RunFolder) -> str:
    """Returns the sentence over the final table: what was measured, on what, with which intervals."""
    done = {name: evaluation for name in ("before", "after") if (evaluation := read_evaluation(folder, name))}
    if not done:
        return "No evaluation has been made yet."
    first = next(iter(done.values()))
    steps = " and ".join(f"{name} at step {evaluation['step']}" for name, evaluation in done.items())
    return (
        f"{first['questions']} questions of the {first['split']} split, {steps}; % with 95 % bootstrap intervals over "
        "questions, taken as independent. The difference is paired by question; bold where its interval leaves out 0."
    )


def _summary(folder: RunFolder, rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"- Config: [{folder.config_file.name}]({folder.config_file.name})"]
    if made_with := folder.made_with:
        text = ", ".join(f"{name} {version}" for name, version in made_with.items())
        lines.append(f"- Made with {html.escape(visible(text))}")
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
