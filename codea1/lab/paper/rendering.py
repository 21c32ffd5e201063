"""Filled tables as Markdown, LaTeX and CSV."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from codea1.lab.paper.tables import CLEAR, Cell, Comparison, Table
from codea1.lab.report.tables import TextTable, bold, percents, with_bounds
from codea1.lab.statistics import SEEDS_TO_COMPARE

CSV_COLUMNS = (
    *("table", "size", "row", "column", "seeds", "mean", "low", "high", "published", "published_from"),
    *("against", "difference", "difference_low", "difference_high", "p", "p_holm", "filled_by"),
)
_LATEX = {
    "\\": r"\textbackslash{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}

Missing = Mapping[tuple[str, ...], int]  # lists of commands that fill missing cells, each with its number


def markdown(table: Table) -> str:
    """Returns a table in GitHub's Markdown: the values, the comparisons, and what would fill missing cells."""
    missing = _missing(table)
    titles = [_markdown_text(column.title) for column in table.columns]
    values, compared = [], []
    for row in table.rows:
        seeds = ", ".join(map(str, sorted({seed for cell in row.cells for seed in cell.seeds})))
        values.append([_markdown_text(row.title), seeds, *(_markdown_value(cell, missing) for cell in row.cells)])
        for title in dict.fromkeys(each.against for cell in row.cells for each in cell.comparisons):
            found = ({each.against: each for each in cell.comparisons}.get(title) for cell in row.cells)
            compared.append([_markdown_text(f"{row.title} - {title}"), *map(_markdown_comparison, found)])
    parts = [f"## {_markdown_text(_title(table))}", TextTable(["", "seeds", *titles], values).markdown()]
    if compared:
        parts.append(TextTable(["difference", *titles], compared).markdown())
    parts += map(_markdown_text, _notes(table))
    for commands, number in missing.items():
        parts.append("\n".join([f"[{number}] is filled by", "", "```sh", *commands, "```"]))
    return "\n\n".join(parts) + "\n"


def latex(table: Table) -> str:
    """Returns a table for LaTeX with the package booktabs; comments over it have the commands for missing cells.

    A star is the last comparison of the cell where it is significant after correction; a number with a dagger is the
    published one.
    """
    missing = _missing(table)
    commands = [(number, each) for listed, number in missing.items() for each in listed]
    lines = [f"% missing [{number}]: {' '.join(each.split())}" for number, each in commands]
    lines += [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    lines += [_latex_line(["", *(column.title for column in table.columns)]), r"\midrule"]
    lines += [_latex_line([row.title], [_latex_value(cell, missing) for cell in row.cells]) for row in table.rows]
    caption = [f"{_title(table)}.", _what_is_shown(table)]
    if count := _compared(table):
        caption.append(
            f"Star: differs from the last row that it is compared with, p < {CLEAR:g} (Holm, {count}), on "
            "the questions that are defined for both."
        )
    if table.layout.published and table.is_published:
        caption.append(f"Dagger: of the paper, {table.layout.published.origin}.")
    text = latex_text(" ".join([*caption, *table.notes]))
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{text}}}"]
    return "\n".join([*lines, rf"\label{{tab:{table.name.replace('_', '-')}}}", r"\end{table}"]) + "\n"


def comma_separated(table: Table) -> str:
    """Returns a table as CSV with a head, a line per cell and comparison: means, bounds, differences in percent."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            source = table.layout.published.source if table.layout.published else ""
            published = ["", ""] if cell.published is None else [cell.published, source]
            place = (table.layout.name, table.size, row.title, column.title, " ".join(map(str, cell.seeds)))
            ours = _csv_percents(cell.ours or (math.nan,) * 3)
            for comparison in cell.comparisons or (None,):
                compared = _csv_comparison(comparison) if comparison else [""] * 6
                writer.writerow([*place, *ours, *published, *compared, " && ".join(cell.commands)])
    return text.getvalue()


def latex_text(text: str) -> str:
    """Returns `text` with everything that LaTeX would read as a command escaped."""
    return "".join(_LATEX.get(char, char) for char in text)


def _title(table: Table) -> str:
    return f"{table.layout.title}, {table.size}"


def _what_is_shown(table: Table) -> str:
    counts = {len(cell.seeds) for row in table.rows for cell in row.cells if cell.seeds}
    several = "Several seeds: 95 % intervals by Student's t over seeds crossed with questions. "
    one = "One seed: 95 % bootstrap intervals over its questions, which say nothing of another seed. "
    return f"Percent. {several if max(counts, default=0) > 1 else ''}{one if 1 in counts else ''}".strip()


def _notes(table: Table) -> Iterable[str]:
    yield _what_is_shown(table)
    if count := _compared(table):
        yield (
            "Differences are paired by question and seed, over the seeds that both rows have and the questions that "
            f"are defined for both; p-values are corrected for the {count} of this table (Holm), and what "
            f"is below {CLEAR:g} is bold."
        )
    if any(math.isnan(each.p_holm) for each in table.comparisons):
        yield (
            f"A difference without a p-value is over fewer than {SEEDS_TO_COMPARE} seeds: it says how these runs "
            "differ, and not the methods."
        )
    if table.layout.published and table.is_published:
        yield f"paper: {table.layout.published.origin}."
    yield from table.notes


def _compared(table: Table) -> str:
    """Returns how many comparisons of a table have a p-value, as words; empty where none has."""
    count = sum(not math.isnan(each.p_holm) for each in table.comparisons)
    return f"{count} comparison{'s' if count > 1 else ''}" if count else ""


def _missing(table: Table) -> Missing:
    lists = dict.fromkeys(cell.commands for row in table.rows for cell in row.cells if cell.commands)
    return {commands: number for number, commands in enumerate(lists, start=1)}


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


def _shown(shares: Sequence[float], sign: str = "") -> str:
    mean, low, high = percents(shares, sign)
    return mean if low == high else with_bounds(shares, sign)  # a curve of one seed has no interval


def _markdown_value(cell: Cell, missing: Missing) -> str:
    if cell.ours is not None:
        ours = "undefined" if math.isnan(cell.ours.mean) else _shown(cell.ours)
    else:
        ours = f"missing [{missing[cell.commands]}]" if cell.commands else "-"
    return ours if cell.published is None else f"{ours}, paper {cell.published:.2f}"


def _markdown_comparison(comparison: Comparison | None) -> str:
    if comparison is None:
        return "-"
    value = _shown(comparison.difference[:3], sign="+")
    if math.isnan(comparison.p_holm):
        return value
    p_value = "p < 0.001" if comparison.p_holm < 0.001 else f"p = {comparison.p_holm:.3f}"
    return f"{bold(value, comparison.is_clear)}, {p_value}"


def _latex_line(texts: Sequence[str], cells: Sequence[str] = ()) -> str:
    return " & ".join([*map(latex_text, texts), *cells]) + r" \\"


def _latex_value(cell: Cell, missing: Missing) -> str:
    star = r"$^{*}$" if cell.comparisons and cell.comparisons[-1].is_clear else ""
    paper = "" if cell.published is None else f" ({cell.published:.2f}$^{{\\dagger}}$)"
    if cell.ours is None or math.isnan(cell.ours.mean):
        return (f"missing [{missing[cell.commands]}]" if cell.commands else "--") + paper
    mean, low, high = percents(cell.ours)
    return f"{mean}{star}" + ("" if low == high else rf" {{\scriptsize [{low}, {high}]}}") + paper


def _csv_comparison(comparison: Comparison) -> list[str]:
    found = comparison.difference
    p_values = ["" if math.isnan(each) else f"{each:.6f}" for each in (found.p_value, comparison.p_holm)]
    return [comparison.against, *_csv_percents(found[:3]), *p_values]


def _csv_percents(shares: Iterable[float]) -> list[str]:
    return ["" if math.isnan(share) else f"{100 * share:.4f}" for share in shares]
