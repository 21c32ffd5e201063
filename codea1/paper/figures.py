"""The paper's figures, drawn of the runs given: training curves, alpha, Mistake Book, golden source, collaboration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from codea1.evaluation.figures import SMOOTHED_SHARE, smoothed, style
from codea1.paper.experiments import CODE_A1, EXPERIMENTS, recipe
from codea1.paper.results import Results, Run
from codea1.paper.tables import Table

_COLORS = ("#1f6fb4", "#d9622b", "#5b8c3a", "#9c3d7d", "#45b0b8", "#c9a227", "#7a7a7a")
_BOOK_COMPARED = (CODE_A1, "no_book")
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
        for name, compared, curves in (("training", _COMPARED, _TRAINING), ("mistake_book", _BOOK_COMPARED, _BOOK)):
            if figure := _curves(results, size, compared, curves):
                yield f"{name}_{size}", figure
    for table in tables:
        name = table.layout.name
        if name in ("alpha", "golden_source", "collaboration") and _rows_with_ours(table) > 1:
            yield table.name, _alpha(table) if name == "alpha" else _groups(table)


def _curves(results: Results, size: str, experiments: Sequence[str], curves: Sequence[Curve]) -> Figure | None:
    """Draws a panel for each curve, a line for each experiment: the mean over seeds, between the bounds of all."""
    runs = {name: list(results.runs(size, name).values()) for name in experiments}
    present = [curve for curve in curves if any(_points(run, curve.metric) for of in runs.values() for run in of)]
    if not present:
        return None
    figure = _canvas(len(present), f"{size}: mean over seeds, lowest and highest seed")
    for axes, curve in zip(figure.axes, present, strict=True):
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


def _alpha(table: Table) -> Figure:
    """Draws every column over alpha, with intervals; the published numbers are hollow."""
    own = recipe(table.size).alpha
    alphas = [float(EXPERIMENTS[row.key].settings.get("game.alpha", own)) for row in table.rows]
    title = f"{table.size}: alpha, the weight of validity; bars: 95 % intervals"
    figure = _cells(table, title, alphas, line="-", xlabel="alpha")
    _legend(figure)
    return figure


def _groups(table: Table) -> Figure:
    """Draws a panel for each column, a point for each row with its interval; the published numbers are hollow."""
    places = range(len(table.rows))
    figure = _cells(table, f"{table.size}: {table.layout.title}; bars: 95 % intervals", places, line="none", xlabel="")
    for axes in figure.axes:
        axes.set_xticks(places, [row.title for row in table.rows], rotation=20, ha="right")
    _legend(figure)
    return figure


def _cells(table: Table, title: str, places: Sequence[float], line: str, xlabel: str) -> Figure:
    """Draws a panel for each column, with what stands in its rows at the places given."""
    figure = _canvas(len(table.columns), title)
    for number, (axes, column) in enumerate(zip(figure.axes, table.columns, strict=True)):
        cells = [(place, row.cells[number]) for place, row in zip(places, table.rows, strict=True)]
        ours = [(place, cell.ours) for place, cell in cells if cell.ours]
        if ours:
            means, lows, highs = 100 * np.array([interval for _, interval in ours]).T
            bars = np.maximum([means - lows, highs - means], 0)
            options = {"color": _COLORS[0], "label": "ours", "marker": "o", "linestyle": line, "capsize": 3}
            axes.errorbar([place for place, _ in ours], means, bars, **options)
        published = [(place, cell.published) for place, cell in cells if cell.published is not None]
        if published:
            options = {"color": _COLORS[1], "label": "paper", "marker": "o", "mfc": "none", "ls": ":"}
            axes.plot(*zip(*published, strict=True), **options)
        style(axes, f"{column.title} (%)", xlabel=xlabel)
    return figure


def _rows_with_ours(table: Table) -> int:
    return sum(any(cell.ours for cell in row.cells) for row in table.rows)


def _canvas(panels: int, title: str) -> Figure:
    """Returns a figure with empty panels, four side by side."""
    lines = -(-panels // 4)
    figure = Figure(figsize=(16.4, 3.0 * lines + 0.9), dpi=110, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    for place in range(1, panels + 1):
        figure.add_subplot(lines, 4, place)
    return figure


def _legend(figure: Figure) -> None:
    """Draws one legend for all panels, below them."""
    found = {}
    for axes in figure.axes:
        found |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if found:
        figure.legend(found.values(), found.keys(), loc="outside lower left", ncols=6, frameon=False, fontsize=9)
