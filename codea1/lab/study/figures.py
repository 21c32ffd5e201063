"""The figures of a study: training curves, rows of tables, and a stage's arms over the compute that they took."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from codea1.lab.report.figures import BOOK, CODE, CODE_2, TEST, TEST_2, points, smoothed, smoothing_width, style
from codea1.lab.study.declaration import Study
from codea1.lab.study.layouts import CurvesFigure
from codea1.lab.study.results import Result
from codea1.lab.study.tables import Table, seeds_of, sizes

_COLORS = (CODE, TEST, BOOK, TEST_2, CODE_2, "#c9a227", "#7a7a7a")
_COLUMNS = 2  # panels side by side: more would be too small to read on a page
_NO_SHARES = ("reward", "response_tokens", "size", "added", "removed")  # how metrics end that are none


def figures(study: Study, results: Collection[Result], tables: Sequence[Table]) -> Iterator[tuple[str, Figure]]:
    """Yields each figure that there is something to draw in, with its name: those of every size."""
    for size in sizes(results):
        for declared in study.figures:
            if figure := _curves(study, results, size, declared):
                yield f"{declared.name}_{size}", figure
    for table in tables:
        rows = [row for row in table.rows if any(cell.ours for cell in row.cells)]
        if table.layout.is_drawn and len(rows) > 1:
            yield table.name, _rows(table)
        if sum(bool(row.spent) for row in table.rows) > 1:
            yield f"compute_{table.layout.name}", _compute(table)


def _curves(study: Study, results: Collection[Result], size: str, declared: CurvesFigure) -> Figure | None:
    """Draws a panel for each curve, a line for each arm: the mean over seeds, between the bounds of all."""
    runs = {arm: list(seeds_of(results, size, arm, declared.split).values()) for arm in declared.arms}
    every = [run for of_arm in runs.values() for run in of_arm]
    present = [metric for metric in declared.panels if any(len(points(run.rows, metric)[0]) for run in every)]
    if not present:
        return None
    figure = _canvas(len(present), f"{size}: mean over seeds, lowest and highest seed")
    for axes, metric in zip(figure.axes, present, strict=True):
        for color, (arm, of_arm) in zip(_COLORS, runs.items(), strict=False):
            _draw_curve(axes, of_arm, metric, study.arms[arm].title, color)
        style(axes, declared.panels[metric], share=metric.rpartition("/")[2] not in _NO_SHARES)
    _legend(figure)
    return figure


def _draw_curve(axes: Axes, runs: Sequence[Result], metric: str, title: str, color: str) -> None:
    pairs = (points(run.rows, metric) for run in runs)
    of_seeds = [dict(zip(steps.tolist(), values, strict=True)) for steps, values in pairs if len(steps)]
    steps = sorted(set.intersection(*map(set, of_seeds))) if of_seeds else []
    if not steps:
        return
    width = smoothing_width(len(steps))
    lines = np.stack([smoothed(np.array([values[step] for step in steps]), width) for values in of_seeds])
    label = f"{title} ({len(of_seeds)} seed{'s' * (len(of_seeds) > 1)})"
    axes.plot(steps, lines.mean(axis=0), color=color, label=label, linewidth=2)
    axes.fill_between(steps, lines.min(axis=0), lines.max(axis=0), color=color, alpha=0.15, linewidth=0)


def _rows(table: Table) -> Figure:
    """Draws a panel for each column: what stands in its rows with its interval; the published numbers are hollow."""
    title, places = table.layout.title, [float(place) for place in range(len(table.rows))]
    figure = _canvas(len(table.columns), f"{table.size}: {title}; bars: 95 % intervals")
    for number, (axes, column) in enumerate(zip(figure.axes, table.columns, strict=True)):
        cells = [(place, row.cells[number]) for place, row in zip(places, table.rows, strict=True)]
        if ours := [(place, cell.ours) for place, cell in cells if cell.ours]:
            _draw_bars(axes, ours, color=_COLORS[0], label="ours", linestyle="none")
        if published := [(place, cell.published) for place, cell in cells if cell.published is not None]:
            axes.plot(*zip(*published, strict=True), color=_COLORS[1], label="paper", marker="o", mfc="none", ls=":")
        style(axes, f"{column.title} (%)", xlabel="")
        axes.set_xticks(places, [row.title for row in table.rows], rotation=20, ha="right")
    _legend(figure)
    return figure


def _compute(table: Table) -> Figure:
    """Draws the first column of a stage's table over the CPU seconds and the sampled tokens of training."""
    figure = _canvas(2, table.layout.title)
    for axes, (price, xlabel) in zip(figure.axes, ((2, "CPU seconds of training"), (1, "sampled tokens")), strict=True):
        for color, row in zip(_COLORS, (row for row in table.rows if row.spent), strict=False):
            if ours := row.cells[0].ours:
                _draw_bars(axes, [(row.spent[price], ours)], color=color, label=row.title)
        style(axes, f"{table.columns[0].title} (%)", xlabel=xlabel)
    _legend(figure)
    return figure


def _draw_bars(axes: Axes, cells: Sequence[tuple[float, Sequence[float]]], **look: Any) -> None:
    """Draws means with the bounds of their intervals, in percent, at their places."""
    places = [place for place, _ in cells]
    means, lows, highs = 100 * np.array([interval for _, interval in cells]).T
    axes.errorbar(places, means, np.maximum([means - lows, highs - means], 0), marker="o", capsize=3, **look)


def _canvas(panels: int, title: str) -> Figure:
    """Returns a figure with empty panels."""
    lines = -(-panels // _COLUMNS)
    figure = Figure(figsize=(4.1 * _COLUMNS, 2.6 * lines + 0.9), dpi=110)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.08)
    figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    for place in range(1, panels + 1):
        figure.add_subplot(lines, _COLUMNS, place).locator_params("x", nbins=5)
    return figure


def _legend(figure: Figure) -> None:
    """Draws one legend for all panels, below them."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(handles.values(), handles, loc="outside lower left", ncols=_COLUMNS, frameon=False, fontsize=9)
