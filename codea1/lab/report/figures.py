"""The look of all figures, and the picture of one run: the curves of the Code-A1 paper and the validation scores."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # of an extra, which a run can do without
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CODE, TEST = "#1f6fb4", "#d9622b"  # the two players, in every panel
CODE_2, TEST_2 = "#45b0b8", "#9c3d7d"  # a second series of the same player
BOOK, INK, FAINT = "#5b8c3a", "#333333", "#8a8a8a"
COLUMNS = 3  # panels side by side
SMOOTHED_SHARE = 0.08  # of the steps that one smoothed point averages

Rows = Sequence[Mapping[str, Any]]  # of metrics.jsonl in step order; None is a value that was not finite


@dataclass(frozen=True)
class Series:
    """One metric drawn in a panel."""

    metric: str
    label: str
    color: str


@dataclass(frozen=True)
class Panel:
    """One set of axes. A share is drawn from 0 to 1; a measured panel has a few points and is not smoothed.

    A panel that needs a metric is optional: without it the panel is left out, and nothing is said to be missing.
    """

    title: str
    series: tuple[Series, ...]
    share: bool = False
    measured: bool = False
    needs: str = ""  # a metric

    def is_drawn(self, rows: Rows) -> bool:
        """Returns whether `rows` hold a number for what it needs, or, where it needs nothing, for any of its series."""
        metrics = [self.needs] if self.needs else [series.metric for series in self.series]
        return any(len(points(rows, metric)[0]) for metric in metrics)


def _of_both(metric: str) -> tuple[Series, Series]:
    return Series(f"code/{metric}", "Code LLM", CODE), Series(f"test/{metric}", "Test LLM", TEST)


PANELS = (
    Panel("Reward", _of_both("reward")),
    Panel(
        "Pass rate of solutions",
        (
            Series("code/pass_rate_new", "on new tests", CODE),
            Series("code/pass_rate_history", "on historical tests", CODE_2),
        ),
        share=True,
    ),
    Panel(
        "Validity and kill rate of tests",
        (Series("test/validity", "validity", TEST), Series("test/kill_rate", "kill rate", TEST_2)),
        share=True,
    ),
    Panel(
        "Code LLM: paid and hidden",
        (
            Series("code/pass_rate_new", "paid: generated tests", CODE),
            Series("code/pass_rate_golden", "paid: fixed tests", CODE),
            Series("code/hidden_pass_rate", "hidden: check scripts", CODE_2),
        ),
        share=True,
        needs="code/hidden_pass_rate",
    ),
    Panel(
        "Code LLM: paid but wrong",
        (Series("code/paid_but_wrong", "reward 1, fails its check script", CODE),),
        share=True,
        needs="code/paid_but_wrong",
    ),
    Panel(
        "Test LLM: paid and hidden",
        (Series("test/reward", "paid: reward", TEST), Series("test/hidden_kill_rate", "hidden: kill rate", TEST_2)),
        needs="test/hidden_kill_rate",
    ),
    Panel(
        "Mistake Book: tests per step",
        (Series("book/added", "added", TEST), Series("book/removed", "removed", CODE)),
    ),
    Panel("Mistake Book: size (tests)", (Series("book/size", "tests", BOOK),)),
    Panel("Suite length (tokens)", (Series("test/response_tokens", "tokens", TEST),)),
    Panel("Suite length (tests)", (Series("test/suite_tests", "tests", TEST),)),
    Panel("Entropy (nats per token)", _of_both("entropy")),
    Panel("KL from the start (nats per token)", _of_both("kl_ref")),
    Panel(
        "Validation: Code LLM",
        (
            Series("validation/code_pass_at_1", "pass@1", CODE),
            Series("validation/code_pass_at_1_greedy", "pass@1, greedy", CODE_2),
        ),
        share=True,
        measured=True,
    ),
    Panel(
        "Validation: Test LLM",
        (
            Series("validation/test_validity", "validity", TEST),
            Series("validation/test_strict_kill", "strict kill", TEST_2),
        ),
        share=True,
        measured=True,
    ),
)


def missing_series(rows: Rows) -> list[str]:
    """Returns the metrics of `PANELS` that no row holds a number for, but for those of optional panels."""
    metrics = [series.metric for panel in PANELS if not panel.needs for series in panel.series]
    return [metric for metric in metrics if not len(points(rows, metric)[0])]


def draw(rows: Rows, title: str) -> bytes:
    """Returns a PNG with a panel for each part of `PANELS` that `rows` hold; what they lack is named below."""
    from matplotlib.figure import Figure

    missing = missing_series(rows)
    panels = [panel for panel in PANELS if panel.is_drawn(rows)]
    counts = [len(points(rows, s.metric)[0]) for panel in panels if not panel.measured for s in panel.series]
    width = smoothing_width(max(counts, default=0))
    notes = [f"Thin: each step. Thick: mean over {width} steps." if width > 1 else "Each step, not smoothed."]
    if missing:
        notes.append(f"Not recorded in this run: {', '.join(missing)}.")
    footer = textwrap.fill(" ".join(notes), 150)
    lines = max(1, -(-len(panels) // COLUMNS))
    height = 2.9 * lines + 0.7 + 0.18 * footer.count("\n")
    bottom = (0.25 + 0.18 * footer.count("\n")) / height
    figure = Figure(figsize=(4.1 * COLUMNS, height), dpi=110)
    figure.set_layout_engine("constrained", rect=(0, bottom, 1, 1 - bottom), w_pad=0.1, h_pad=0.08)
    figure.suptitle(title, fontsize=14, color=INK, x=0.01, ha="left")
    for place, panel in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(lines, COLUMNS, place), panel, rows, width)
    figure.text(0.01, 0.05 / height, footer, fontsize=9, color=FAINT, va="bottom")
    return picture(figure, "png")


def _draw_panel(axes: "Axes", panel: Panel, rows: Rows, width: int) -> None:
    from matplotlib.ticker import MaxNLocator

    for series in panel.series:
        steps, values = points(rows, series.metric)
        if not len(steps):
            continue
        if panel.measured:
            axes.plot(steps, values, color=series.color, label=series.label, marker="o", markersize=4, linewidth=1.8)
        else:
            axes.plot(steps, values, color=series.color, alpha=0.3, linewidth=0.9)
            axes.plot(steps, smoothed(values, width), color=series.color, label=series.label, linewidth=2)
    style(axes, panel.title, share=panel.share)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.legend(loc="lower right" if panel.measured else "best", fontsize=9, frameon=False, labelcolor=INK)


def points(rows: Rows, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the steps and the values [n] of one metric, where it has one."""
    pairs = [(row["step"], row[metric]) for row in rows if row.get(metric) is not None]
    return np.array([step for step, _ in pairs], np.int64), np.array([value for _, value in pairs], np.float64)


def smoothing_width(steps: int) -> int:
    """Returns over how many of a curve's steps, an odd number, a smoothed point is the mean."""
    return 2 * round(steps * SMOOTHED_SHARE / 2) + 1


def smoothed(values: np.ndarray, width: int) -> np.ndarray:
    """Returns the centred mean [n] over `width` (odd) neighbours, over fewer at the ends."""
    centers = np.arange(len(values))
    low, high = np.maximum(centers - width // 2, 0), np.minimum(centers + width // 2 + 1, len(values))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return (sums[high] - sums[low]) / (high - low)


def style(axes: "Axes", title: str, xlabel: str = "step", share: bool = False) -> None:
    """Gives axes the look of every figure of this project; a share is drawn from 0 to 1."""
    axes.set_title(title, fontsize=11, color=INK, loc="left")
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=9, colors=INK, length=3, color=FAINT)
    axes.set_xlabel(xlabel, fontsize=9, color=INK)
    if share:
        axes.set_ylim(-0.02, 1.02)


def picture(figure: "Figure", kind: str) -> bytes:
    """Returns a figure as "png", of 256 colours, or "pdf"; the same figure gives the same bytes."""
    from PIL import Image

    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
    if kind == "pdf":
        return content.getvalue()
    smaller = io.BytesIO()  # the curves of 120 steps take 190 kB so, and 510 kB in all colours
    Image.open(content).convert("RGB").quantize().save(smaller, format="png", optimize=True)
    return smaller.getvalue()
