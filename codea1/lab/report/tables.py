"""Tables of texts, for a terminal, in Markdown and in HTML, and what shares are called and look like in them."""

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

LABELS = {
    "code_pass_at_1_greedy": "Code pass@1, greedy",
    "test_validity": "Test validity",
    "test_mutation_score": "Test mutation score",
    "test_mutation_score_at_1": "Test mutation@1",
    "test_strict_kill": "Test strict kill",
    "test_mul": "Test Mul",
}


@dataclass(frozen=True)
class TextTable:
    """Rows of texts under heads. A cell that is **bold** is so in all forms."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1  # columns that are aligned to the left; the others are to the right

    def markdown(self) -> str:
        """Returns the table in GitHub's Markdown; the cells are Markdown already."""
        rule = [":--" if index < self.left else "--:" for index in range(len(self.heads))]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.heads, rule, *self.rows))

    def html(self) -> str:
        """Returns the table in HTML, a cell of the class "left" or of none; no text is taken for markup."""
        lines = ["<table>"]
        for kind, row in (("th", self.heads), *(("td", row) for row in self.rows)):
            cells = []
            for index, cell in enumerate(map(_styled, row)):
                text = html.escape(cell.plain)
                cells.append(f"<{kind}{' class=left' * (index < self.left)}>{f'<b>{text}</b>' if cell.style else text}")
            lines.append(f"<tr>{''.join(cells)}</tr>")
        return "\n".join([*lines, "</table>"])

    def terminal(self, title: str = "", caption: str = "") -> Group:
        """Returns the table for a terminal, under a title and over a caption; no text is taken for rich's markup."""
        # One of four columns fits in 80.
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for index, head in enumerate(self.heads):
            table.add_column(Text(head), justify="left" if index < self.left else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*map(_styled, row))
        # Beside the table, as wide as the terminal: rich wraps a title of its own to the width of the columns.
        return Group(*([Text(title)] if title else ()), table, *([Text(caption)] if caption else ()))


LEGEND = TextTable(  # of pages that show samples
    ("word", "what it says"),
    (
        ("pass, fail", "the program gave the right value to the test, or another one"),
        ("error, timeout", "the program raised or died in the test, or was too slow"),
        ("not_run", "the program had used up its time before this test"),
        ("right", "the assert states what the ground truth answers"),
        ("wrong answer", "it states another answer; rewards that run it all the same take the ground truth's"),
        ("duplicate", "an earlier assert of the suite has the same input"),
        ("unusable", "the ground truth has no answer that can be compared: it raises, or runs too long"),
        ("rejected", "the reward does not read it as a test, and counts it against the suite"),
        ("dropped", "the official reader loses it, and does not count it"),
        ("surplus", "it is beyond the number of asserts that were asked for"),
        ("infra", "the sandbox failed: nothing is learned from the sample"),
        ("advantage", "how much better than the other samples of its group: above 0 the answer becomes likelier"),
    ),
    left=2,
)


def _styled(cell: str) -> Text:
    is_bold = len(cell) > 4 and cell.startswith("**") and cell.endswith("**")
    return Text(cell[2:-2], "bold") if is_bold else Text(cell)


def bold(text: str, is_bold: bool) -> str:
    """Returns a cell's text, which is bold if it says so."""
    return f"**{text}**" if is_bold else text


def label(metric: str, without: int = 0) -> str:
    """Returns what a metric is called in a table, by default its own name, and how many questions it leaves out."""
    pass_at_k = re.fullmatch(r"code_pass_at_(\d+)", metric)
    name = f"Code pass@{pass_at_k[1]}" if pass_at_k else LABELS.get(metric, metric)
    return f"{name} ({without} left out)" if without else name


def undefined(*sides: Mapping[str, Any]) -> int:
    """Returns how many questions have no value, or lack a factor of it, on any side of a metric of an evaluation."""
    questions = zip(*(side["per_question"] for side in sides), strict=True)
    flat = ([part for value in row for part in (value if isinstance(value, list) else [value])] for row in questions)
    return sum(any(part is None or math.isnan(part) for part in parts) for parts in flat)


def percents(shares: Iterable[float], sign: str = "") -> list[str]:
    """Returns shares as percentages with one decimal; `sign` "+" writes that of positive ones, too."""
    return [f"{round(100 * share, 9) + 0.0:{sign}.1f}" for share in shares]  # no -0.0 or 0.05 by a CPU's order of sums


def with_bounds(interval: Sequence[float] | None, sign: str = "") -> str:
    """Returns a mean and its bounds in percent, "50.0 [41.2, 58.8]"; "-" where it was not measured or is undefined."""
    if interval is None or math.isnan(interval[0]):
        return "-"
    mean, low, high = percents(interval, sign)
    return f"{mean} [{low}, {high}]"


def evaluation_table(evaluation: Mapping[str, Any], title: str) -> Group:
    """Returns the metrics of one evaluation, see `codea1.evaluation.result_files`, for a terminal."""
    rows = []
    for name, metric in evaluation["metrics"].items():
        mean, _, bounds = with_bounds([metric[key] for key in ("mean", "low", "high")]).partition(" ")
        rows.append([label(name, undefined(metric)), mean, bounds])
    return TextTable(("metric", "%", "95 % interval"), rows).terminal(title)
