"""The paper's figures, drawn of the runs given: training curves, alpha, Mistake Book, golden source, collaboration."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from codea1.lab.paper.experiments import ARMS, CODE_A1, code_a1_settings
from codea1.lab.paper.tables import Table, sizes
from codea1.lab.report.figures import BOOK, CODE, CODE_2, TEST, TEST_2, points, smoothed, smoothing_width, style
from codea1.lab.study.results import Result, Results

_COLORS = (CODE, TEST, BOOK, TEST_2, CODE_2, "#c9a227", "#7a7a7a")
_COLUMNS = 4  # panels side by side
_FIGURES = {  # of training curves: experiments, and the metric and title of each panel
    "training": (
        (CODE_A1, "golden", "self_play", "no_book", "black_box", "simple"),
        {
            "code/reward": "Code LLM: reward",
            "code/pass_rate_new": "Code LLM: pass rate on new tests",
            "validation/code_pass_at_1": "Validation: pass@1",
            "test/reward": "Test LLM: reward",
            "test/validity": "Test LLM: validity",
            "test/kill_rate": "Test LLM: kill rate",
            "validation/test_mul": "Validation: Mul",
            "code/response_tokens": "Code LLM: response (tokens)",
        },
    ),
    "mistake_book": (
        (CODE_A1, "no_book"),
        {
            "code/pass_rate_new": "Pass rate on new tests",
            "code/pass_rate_history": "Pass rate on historical tests",
            "book/size": "Size (tests)",
            "book/added": "Added per step (tests)",
            "book/removed": "Removed per step (tests)",
        },
    ),
}
_NO_SHARES = ("code/reward", "test/reward", "code/response_tokens", "book/size", "book/added", "book/removed")


def figures(results: Results, tables: Sequence[Table]) -> Iterator[tuple[str, Figure]]:
    """Yields each figure that there is something to draw in, with its name: those of every size."""
    for size in sizes(results):
        for name in _FIGURES:
            if figure := _curves(results, size, name):
                yield f"{name}_{size}", figure
    for table in tables:
        filled = [row for row in table.rows if any(cell.ours for cell in row.cells)]
        if table.layout.name in ("alpha", "golden_source", "collaboration") and len(filled) > 1:
            yield table.name, _cells(table)


def _curves(results: Results, size: str, name: str) -> Figure | None:
    """Draws a panel for each curve, a line for each experiment: the mean over seeds, between the bounds of all."""
    experiments, titles = _FIGURES[name]
    runs = {experiment: list(results.seeds(size, experiment).values()) for experiment in experiments}
    everything = [run for own in runs.values() for run in own]
    present = [metric for metric in titles if any(len(points(run.rows, metric)[0]) for run in everything)]
    if not present:
        return None
    figure = _canvas(len(present), f"{size}: mean over seeds, lowest and highest seed")
    for axes, metric in zip(figure.axes, present, strict=True):
        for color, (experiment, own) in zip(_COLORS, runs.items(), strict=False):
            _draw_curve(axes, own, metric, experiment, color)
        style(axes, titles[metric], share=metric not in _NO_SHARES)
    _legend(figure)
    return figure


def _draw_curve(axes: Axes, runs: Sequence[Result], metric: str, experiment: str, color: str) -> None:
    pairs = (points(run.rows, metric) for run in runs)
    of_seeds = [dict(zip(steps.tolist(), values, strict=True)) for steps, values in pairs if len(steps)]
    steps = sorted(set.intersection(*map(set, of_seeds))) if of_seeds else []
    if not steps:
        return
    width = smoothing_width(len(steps))
    lines = np.stack([smoothed(np.array([own[step] for step in steps]), width) for own in of_seeds])
    label = f"{ARMS[experiment].title} ({len(of_seeds)} seed{'s' * (len(of_seeds) > 1)})"
    axes.plot(steps, lines.mean(axis=0), color=color, label=label, linewidth=2)
    axes.fill_between(steps, lines.min(axis=0), lines.max(axis=0), color=color, alpha=0.15, linewidth=0)


def _cells(table: Table) -> Figure:
    """Draws a panel for each column, with what stands in its rows and its interval; the published numbers are hollow.

    The table of alpha is drawn over alpha, any other with a place for each row.
    """
    if table.layout.name == "alpha":
        own = code_a1_settings(table.size)["game.alpha"]
        places = [float(ARMS[row.key].fields.get("game.alpha", own)) for row in table.rows]
        title, line, xlabel = "alpha, the weight of validity", "-", "alpha"
    else:
        places, title, line, xlabel = list(range(len(table.rows))), table.layout.title, "none", ""
    figure = _canvas(len(table.columns), f"{table.size}: {title}; bars: 95 % intervals")
    for number, (axes, column) in enumerate(zip(figure.axes, table.columns, strict=True)):
        cells = [(place, row.cells[number]) for place, row in zip(places, table.rows, strict=True)]
        ours = [(place, cell.ours) for place, cell in cells if cell.ours]
        if ours:
            means, lows, highs = 100 * np.array([interval for _, interval in ours]).T
            bars = np.maximum([means - lows, highs - means], 0)
            at = [place for place, _ in ours]
            axes.errorbar(at, means, bars, color=_COLORS[0], label="ours", marker="o", linestyle=line, capsize=3)
        published = [(place, cell.published) for place, cell in cells if cell.published is not None]
        if published:
            at, percents = zip(*published, strict=True)
            axes.plot(at, percents, color=_COLORS[1], label="paper", marker="o", mfc="none", ls=":")
        style(axes, f"{column.title} (%)", xlabel=xlabel)
        if not xlabel:
            axes.set_xticks(places, [row.title for row in table.rows], rotation=20, ha="right")
    _legend(figure)
    return figure


def _canvas(panels: int, title: str) -> Figure:
    """Returns a figure with empty panels."""
    lines = -(-panels // _COLUMNS)
    figure = Figure(figsize=(4.1 * _COLUMNS, 3.0 * lines + 0.9), dpi=110)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.08)
    figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    for place in range(1, panels + 1):
        figure.add_subplot(lines, _COLUMNS, place)
    return figure


def _legend(figure: Figure) -> None:
    """Draws one legend for all panels, below them."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        found |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if found:
        figure.legend([*found.values()], [*found], loc="outside lower left", ncols=6, frameon=False, fontsize=9)
