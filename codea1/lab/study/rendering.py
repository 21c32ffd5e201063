"""Filled tables as Markdown and CSV."""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence

from codea1.lab.report.tables import TextTable, bold, percents, with_bounds
from codea1.lab.statistics import SEEDS_TO_COMPARE
from codea1.lab.study.tables import CLEAR, Cell, Comparison, Table

CSV_COLUMNS = (
    *("table", "size", "row", "column", "seeds", "mean", "low", "high", "published"),
    *("against", "difference", "difference_low", "difference_high", "p", "p_holm"),
)


def markdown(table: Table) -> str:
    """Returns a table in GitHub's Markdown: the values, the comparisons, what training took, and notes."""
    title = f"{table.layout.title}, {table.size}"
    parts = [f"## {_escaped(title)}", _values(table).markdown()]
    if table.comparisons:
        parts.append(_differences(table).markdown())
    spent = [[row.title, *(f"{number:,.0f}" for number in row.spent)] for row in table.rows if row.spent]
    if spent:
        parts.append(TextTable(["training", "steps", "tokens", "CPU s"], spent).markdown())
    return "\n\n".join([*parts, *map(_escaped, _notes(table))]) + "\n"


def comma_separated(table: Table) -> str:
    """Returns a table as CSV with a head, a line per cell and comparison: means, bounds, differences in percent."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            published = "" if cell.published is None else str(cell.published)
            place = (table.layout.name, table.size, row.title, column.title, " ".join(map(str, cell.seeds)))
            ours = _csv_percents(cell.ours or (math.nan,) * 3)
            for compared in map(_csv_comparison, cell.comparisons or ()) if cell.comparisons else ([""] * 6,):
                writer.writerow([*place, *ours, published, *compared])
    return text.getvalue()


def _values(table: Table) -> TextTable:
    rows = []
    for row in table.rows:
        seeds = ", ".join(map(str, sorted({seed for cell in row.cells for seed in cell.seeds})))
        rows.append([_escaped(row.title), seeds, *map(_value, row.cells)])
    return TextTable(["", "seeds", *(_escaped(column.title) for column in table.columns)], rows)


def _differences(table: Table) -> TextTable:
    rows = []
    for row in table.rows:
        for title in dict.fromkeys(pair.against for cell in row.cells for pair in cell.comparisons):
            compared = ({pair.against: pair for pair in cell.comparisons}.get(title) for cell in row.cells)
            rows.append([_escaped(f"{row.title} - {title}"), *map(_comparison, compared)])
    return TextTable(["difference", *(_escaped(column.title) for column in table.columns)], rows)


def _notes(table: Table) -> Iterator[str]:
    counts = {len(cell.seeds) for row in table.rows for cell in row.cells if cell.seeds}
    several = "Several seeds: 95 % intervals by Student's t over seeds crossed with questions. "
    note = "One seed: 95 % bootstrap intervals over its questions, which say nothing of another seed. "
    yield f"Percent. {several if max(counts, default=0) > 1 else ''}{note if 1 in counts else ''}".strip()
    if table.comparisons:
        yield (
            "Differences are paired by question and seed, over the seeds that both rows have and the questions that "
            "are defined for both."
        )
    if count := sum(not math.isnan(pair.p_holm) for pair in table.comparisons):
        which = "primary comparisons" if table.layout.seeds else "comparisons"
        yield f"P-values are corrected for {count} {which} of this table (Holm), and what is below {CLEAR:g} is bold."
    if any(math.isnan(pair.p_holm) for pair in table.comparisons) and max(counts, default=0) < SEEDS_TO_COMPARE:
        yield (
            f"A difference without a p-value is over fewer than {SEEDS_TO_COMPARE} seeds: it says how these runs "
            "differ, and not the methods."
        )
    if any(cell.published is not None for row in table.rows for cell in row.cells):
        yield f"paper: {table.layout.published_in}."
    yield from table.notes


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


def _shown(shares: Sequence[float], sign: str = "") -> str:
    mean, low, high = percents(shares, sign)
    return mean if low == high else with_bounds(shares, sign)  # a curve of one seed has no interval


def _value(cell: Cell) -> str:
    ours = "-" if cell.ours is None else "undefined" if math.isnan(cell.ours.mean) else _shown(cell.ours)
    return ours if cell.published is None else f"{ours}, paper {cell.published:.2f}"


def _comparison(comparison: Comparison | None) -> str:
    if comparison is None:
        return "-"
    value = _shown(comparison.difference[:3], sign="+")
    if math.isnan(comparison.p_holm):
        return value
    p_value = "p < 0.001" if comparison.p_holm < 0.001 else f"p = {comparison.p_holm:.3f}"
    return f"{bold(value, comparison.is_clear)}, {p_value}"


def _csv_comparison(comparison: Comparison) -> list[str]:
    p_values = (comparison.difference.p_value, comparison.p_holm)
    texts = ["" if math.isnan(p_value) else f"{p_value:.6f}" for p_value in p_values]
    return [comparison.against, *_csv_percents(comparison.difference[:3]), *texts]


def _csv_percents(shares: Sequence[float]) -> list[str]:
    return ["" if math.isnan(share) else f"{100 * share:.4f}" for share in shares]
