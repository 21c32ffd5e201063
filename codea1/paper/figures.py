"""The paper's figures, drawn of the runs given: training curves, alpha, Mistake Book, golden source, collaboration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from codea1.evaluation.figures import SMOOTHED_SHARE, smoothed, style
from codea1.paper.experiments import CODE_A1, EXPERIMENTS, recipe
from codea1.paper.results import Results, Run
from codea1.paper.tables import Cell, Table

_COLORS = ("#1f6fb4", "#d9622b", "#5b8c3a", "#9c3d7d", "#45b0b8", "#c9a227", "#7a7a7a")
_COMPARED = (CODE_A1, "golden", "self_play", "no_book", "black_box", "simple")


@dataclass(frozen=True)
class Curve:
    """One training metric in a panel of its own."""

    metric: str
    title: str
    share: bool = False


_TRAINING = (
    Curve("code/reward", "Code LLM: reward"),
    Curve("code/pass_rate_new", "Code LLM: pass rate on new tests", share=True),
    Curve("validation/code_pass_at_1", "Validation: pass@1", share=True),
    Curve("test/reward", "Test LLM: reward"),
    Curve("test/validity", "Test LLM: validity", share=True),
    Curve("test/kill_rate", "Test LLM: kill rate", share=True),
    Curve("validation/test_mul", "Validation: Mul", share=True),
    Curve("code/response_tokens", "Code LLM: response (tokens)"),
)
_BOOK = (
    Curve("code/pass_rate_new", "Pass rate on new tests", share=True),
    Curve("code/pass_rate_history", "Pass rate on historical tests", share=True),
    Curve("book/size", "Size (tests)"),
    Curve("book/added", "Added per step (tests)"),
    Curve("book/removed", "Removed per step (tests)"),
)


def figures(results: Results, tables: Sequence[Table]) -> Iterator[tuple[str, Figure]]:
    """Yields each figure that there is something to draw in, with its name: those of every size."""
    for size in results.sizes:
        yield from _drawn(f"training_{size}", _curves(results, size, _COMPARED, _TRAINING))
        yield from _drawn(f"mistake_book_{size}", _curves(results, size, (CODE_A1, "no_book"), _BOOK))
    for table in tables:
        if table.layout.name == "alpha":
            yield from _drawn(table.name, _alpha(table))
        if table.layout.name in ("golden_source", "collaboration"):
            yield from _drawn(table.name, _groups(table))


def _drawn(name: str, figure: Figure | None) -> Iterator[tuple[str, Figure]]:
    if figure is not None:
        yield name, figure


def _curves(results: Results, size: str, experiments: Sequence[str], curves: Sequence[Curve]) -> Figure | None:
    """A panel for each curve, a line for each experiment: the mean over seeds, and all seeds between its bounds."""
    runs = {name: list(results.runs(size, name).values()) for name in experiments}
    present = [curve for curve in curves if any(_points(run, curve.metric) for of in runs.values() for run in of)]
    if not present:
        return None
    figure = _canvas(len(present), f"{size}: mean over seeds, lowest and highest seed")
    for place, curve in enumerate(present, start=1):
        axes = figure.add_subplot(_lines(len(present)), 4, place)
        for color, (name, of) in zip(_COLORS, runs.items(), strict=False):
            _draw_curve(axes, [points for run in of if (points := _points(run, curve.metric))], name, color)
        style(axes, curve.title, share=curve.share)
    _legend(figure)
    return figure


def _draw_curve(axes: Axes, of_seeds: Sequence[Mapping[int, float]], experiment: str, color: str) -> None:
    steps = sorted(set.intersection(*map(set, of_seeds))) if of_seeds else []
    if not steps:
        return
    values = np.array([[points[step] for step in steps] for points in of_seeds])
    width = 2 * round(len(steps) * SMOOTHED_SHARE / 2) + 1
    lines = np.stack([smoothed(each, width) for each in values])
    label = f"{EXPERIMENTS[experiment].title} ({len(of_seeds)} seed{'s' * (len(of_seeds) > 1)})"
    axes.plot(steps, lines.mean(axis=0), color=color, label=label, linewidth=2)
    axes.fill_between(steps, lines.min(axis=0), lines.max(axis=0), color=color, alpha=0.15, linewidth=0)


def _points(run: Run, metric: str) -> dict[int, float]:
    return {row["step"]: row[metric] for row in run.rows if row.get(metric) is not None}


def _alpha(table: Table) -> Figure | None:
    """Every column over alpha, with intervals; the published numbers are hollow."""
    alphas = [_alpha_of(row.key, table.size) for row in table.rows]
    figure = _canvas(len(table.columns), f"{table.size}: alpha, the weight of validity; bars: 95 % intervals")
    for place, column in enumerate(table.columns, start=1):
        axes = figure.add_subplot(_lines(len(table.columns)), 4, place)
        cells = [row.cells[place - 1] for row in table.rows]
        _draw_cells(axes, alphas, cells, _COLORS[0], "ours")
        _draw_published(axes, alphas, cells, _COLORS[1])
        style(axes, f"{column.title} (%)", xlabel="alpha")
    _legend(figure)
    return figure if _has_ours(table) else None


def _alpha_of(key: str, size: str) -> float:
    return float(EXPERIMENTS[key].settings.get("game.alpha", recipe(size).alpha))


def _groups(table: Table) -> Figure | None:
    """A panel for each column, a point for each row with its interval; the published numbers are hollow."""
    figure = _canvas(len(table.columns), f"{table.size}: {table.layout.title}; bars: 95 % intervals")
    for place, column in enumerate(table.columns, start=1):
        axes = figure.add_subplot(_lines(len(table.columns)), 4, place)
        cells = [row.cells[place - 1] for row in table.rows]
        _draw_cells(axes, range(len(cells)), cells, _COLORS[0], "ours", line="none")
        _draw_published(axes, range(len(cells)), cells, _COLORS[1])
        style(axes, f"{column.title} (%)", xlabel="")
        axes.set_xticks(range(len(cells)), [row.title for row in table.rows], rotation=20, ha="right")
    _legend(figure)
    return figure if _has_ours(table) else None


def _draw_cells(
    axes: Axes, places: Sequence[float], cells: Sequence[Cell], color: str, label: str, line: str = "-"
) -> None:
    there = [place for place, cell in zip(places, cells, strict=True) if cell.ours]
    if there:
        means, lows, highs = 100 * np.array([cell.ours for cell in cells if cell.ours]).T
        bars = np.maximum([means - lows, highs - means], 0)
        axes.errorbar(there, means, bars, color=color, label=label, marker="o", linestyle=line, capsize=3)


def _draw_published(axes: Axes, places: Sequence[float], cells: Sequence[Cell], color: str) -> None:
    there = [(place, cell.published) for place, cell in zip(places, cells, strict=True) if cell.published is not None]
    if there:
        axes.plot(*zip(*there, strict=True), color=color, label="paper", marker="o", mfc="none", ls=":")


def _has_ours(table: Table) -> bool:
    return sum(any(cell.ours for cell in row.cells) for row in table.rows) > 1


def _canvas(panels: int, title: str) -> Figure:
    lines = _lines(panels)
    figure = Figure(figsize=(16.4, 3.0 * lines + 0.9), dpi=110, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    return figure


def _lines(panels: int) -> int:
    return -(-panels // 4)


def _legend(figure: Figure) -> None:
    """One legend for all panels, below them."""
    found = {}
    for axes in figure.axes:
        found |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if found:
        figure.legend(found.values(), found.keys(), loc="outside lower left", ncols=6, frameon=False, fontsize=9)
