"""Tables of what was measured, in percent: for a terminal and in Markdown."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

LABELS = {
    "code_pass_at_1_greedy": "Code pass@1, greedy",
    "test_validity": "Test validity",
    "test_mutation_score": "Test mutation score",
    "test_mutation_score_at_1": "Test mutation@1",
    "test_strict_kill": "Test strict kill",
    "test_mul": "Test Mul",
}


def label(metric: str) -> str:
    """Returns what a metric is called in a table: its own name where it is not known."""
    pass_at_k = re.fullmatch(r"code_pass_at_(\d+)", metric)
    return f"Code pass@{pass_at_k[1]}" if pass_at_k else LABELS.get(metric, metric)


def percents(shares: Iterable[float], sign: str = "") -> list[str]:
    """Returns shares as percentages with one decimal; `sign` "+" writes that of positive ones, too."""
    return [f"{100 * share:{sign}.1f}" for share in shares]


def with_bounds(interval: Sequence[float] | None, sign: str = "") -> str:
    """Returns a mean and its bounds in percent, "50.0 [41.2, 58.8]"; "-" where it was not measured or is undefined."""
    if interval is None or math.isnan(interval[0]):
        return "-"
    mean, low, high = percents(interval, sign)
    return f"{mean} [{low}, {high}]"


def evaluation_table(evaluation: Mapping[str, Any], title: str) -> Table:
    """Returns the metrics of one evaluation, see `codea1.evaluation.result_files`, for a terminal."""
    table = Table("metric", "%", "95 % interval", title=title, title_justify="left")
    for name, metric in evaluation["metrics"].items():
        mean, _, bounds = with_bounds([metric[key] for key in ("mean", "low", "high")]).partition(" ")
        table.add_row(label(name), mean, bounds)
    return table


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Returns a table in GitHub's Markdown; the first `left` columns are aligned to the left, the others to the right.

    The cells are Markdown already.
    """
    rule = [":--" if index < left else "--:" for index in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rule, *rows))
