"""The final table: each metric before and after the run, and the difference, with 95 % intervals."""

import dataclasses
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from etils import epath
from rich import box
from rich.table import Table
from rich.text import Text

from codea1.evaluation.across_seeds import Interval
from codea1.evaluation.evaluations import interval, per_question, read_evaluation
from codea1.evaluation.intervals import paired_difference
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput

LABELS = {
    "code_pass_at_1_greedy": "Code pass@1, greedy",
    "test_validity": "Test validity",
    "test_mutation_score": "Test mutation score",
    "test_mutation_score_at_1": "Test mutation@1",
    "test_strict_kill": "Test strict kill",
    "test_mul": "Test Mul",
}
_PASS_AT_K = re.compile(r"code_pass_at_(\d+)")
COLUMNS = ("metric", "before", "after", "difference")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One metric over the same questions before and after; None where a side was not measured."""

    metric: str
    before: Interval | None
    after: Interval | None
    difference: Interval | None

    @property
    def is_clear(self) -> bool:
        """Whether the interval of the difference leaves out 0."""
        return self.difference is not None and (self.difference.low > 0 or self.difference.high < 0)

    def cells(self) -> tuple[str, str, str, str]:
        """Returns the texts for `COLUMNS`; percentages, as every known metric is a share."""
        return label(self.metric), _shown(self.before), _shown(self.after), _shown(self.difference, sign="+")


def label(metric: str) -> str:
    """Returns what a metric is called in a table: its own name where it is not known."""
    pass_at_k = _PASS_AT_K.fullmatch(metric)
    return f"Code pass@{pass_at_k[1]}" if pass_at_k else LABELS.get(metric, metric)


def compare(folder: RunFolder) -> list[Comparison]:
    """Returns the rows of the final table, in the order in which the metrics were measured.

    Raises:
      BadInput: an evaluation is damaged, or the two are not of the same questions.
    """
    before, after = read_evaluation(folder, "before"), read_evaluation(folder, "after")
    both = before.keys() & after.keys() & {"split", "questions", "question_ids"} if before and after else ()
    if any(before[key] != after[key] for key in both):
        raise BadInput(f"{folder.evaluations}: before.json and after.json are not of the same questions.")
    sides = [evaluation["metrics"] if evaluation else {} for evaluation in (before, after)]
    return [_comparison(folder, name, sides[0].get(name), sides[1].get(name)) for name in {**sides[0], **sides[1]}]


def terminal_table(comparisons: list[Comparison], title: str) -> Table:
    """Returns the table for a terminal; a difference that is clear of 0 is bold."""
    table = Table(
        caption=title,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )  # fits in 80 columns
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == COLUMNS[0] else "right")
    for comparison in comparisons:
        *cells, difference = comparison.cells()
        table.add_row(*(Text(cell) for cell in cells), Text(difference, "bold" if comparison.is_clear else ""))
    return table


def evaluation_table(evaluation: Mapping[str, Any], title: str) -> Table:
    """Returns one evaluation's metrics for a terminal, as percentages."""
    table = Table("metric", "%", "95 % interval", title=title, title_justify="left")
    for name, metric in evaluation["metrics"].items():
        bounds = f"[{100 * metric['low']:.1f}, {100 * metric['high']:.1f}]"
        table.add_row(label(name), f"{100 * metric['mean']:.1f}", bounds)
    return table


def markdown_table(comparisons: list[Comparison]) -> str:
    """Returns the same table in GitHub's Markdown."""
    lines = [f"| {' | '.join(COLUMNS)} |", "| :-- | --: | --: | --: |"]
    for comparison in comparisons:
        *cells, difference = comparison.cells()
        lines.append(f"| {' | '.join([*cells, f'**{difference}**' if comparison.is_clear else difference])} |")
    return "\n".join(lines)


def runs_table(folders: Iterable[RunFolder]) -> str:
    """Returns the final tables of several runs side by side in Markdown: before, after and the difference.

    Each is called by the end of its path that no other shares.

    Raises:
      BadInput: as `compare` does.
    """
    by_path = {folder.path: {row.metric: row for row in compare(folder)} for folder in folders}
    by_metric = {_short(path, by_path): rows for path, rows in by_path.items()}
    metrics = dict.fromkeys(metric for rows in by_metric.values() for metric in rows)
    lines = [f"| metric | {' | '.join(by_metric)} |", f"| :-- |{' --: |' * len(by_metric)}"]
    lines += [
        f"| {label(metric)} | {' | '.join(_change(rows.get(metric)) for rows in by_metric.values())} |"
        for metric in metrics
    ]
    return "\n".join(lines)


def _short(path: epath.Path, paths: Collection[epath.Path]) -> str:
    """The shortest end of a path that ends no other of `paths`."""
    ends = (path.parts[-length:] for length in range(1, len(path.parts)))
    alone = ("/".join(end) for end in ends if sum(each.parts[-len(end) :] == end for each in paths) == 1)
    return next(alone, str(path))


def _change(row: Comparison | None) -> str:
    if row is None or row.difference is None:
        return "-"
    difference = _shown(row.difference, sign="+")
    ends = f"{100 * row.before.mean:.1f} → {100 * row.after.mean:.1f}"
    return f"{ends}, {f'**{difference}**' if row.is_clear else difference}"


def _comparison(
    folder: RunFolder, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Comparison:
    difference = None
    if before and after:
        sides = [per_question(before), per_question(after)]
        if sides[0].shape != sides[1].shape:
            raise BadInput(f"{folder.evaluations}: {name} is not of the same questions in before.json and after.json.")
        difference = paired_difference(*sides)
    return Comparison(name, before and interval(before), after and interval(after), difference)


def _shown(interval: Interval | None, sign: str = "") -> str:
    if interval is None or math.isnan(interval.mean):
        return "-"
    mean, low, high = (f"{100 * value:{sign}.1f}" for value in interval)
    return f"{mean} [{low}, {high}]"
