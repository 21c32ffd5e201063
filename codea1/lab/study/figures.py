"""The figure of a study: pass@1 over the compute of its arms."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from codea1.lab.report import figures
from codea1.lab.statistics import interval
from codea1.lab.study.declaration import Arm, Study
from codea1.lab.study.results import PASS, Arms, Result, scores

# What the Code LLM of an arm learns against, and how its mark looks: the form, and whether it is filled.
_LEARNS, _FROZEN, _TRIVIAL = "a Test LLM learns", "frozen Test LLM", "trivial baseline: no Test LLM"
_MARKS = {_LEARNS: ("o", True), _FROZEN: ("D", True), _TRIVIAL: ("s", False)}
_STEPS = re.compile(r", \d+ steps")  # in titles: all that a figure shows have as many
_SPAN = 4.0  # of a logarithmic axis at least, so that arms of one price look like it


def kind(arm: Arm) -> str:
    """Returns what the Code LLM of an arm learns against, as legends say it."""
    if arm.tests or arm.method in ("static_tests", "golden", "scripted"):
        return _TRIVIAL
    return _FROZEN if arm.opponent or arm.fields.get("frozen") == "test" else _LEARNS


def compute(study: Study, done: Arms, title: str) -> bytes:
    """Returns a PNG: pass@1 of each arm over the CPU seconds and the sampled tokens of its training."""
    figure = Figure(figsize=(9.6, 4.4), dpi=120, layout="constrained")
    figure.suptitle(title, fontsize=12, color=figures.INK, x=0.01, ha="left")
    prices = {"CPU seconds of training": lambda run: run.cpu_seconds, "sampled tokens": lambda run: run.tokens}
    for axes, (xlabel, price) in zip(figure.subplots(1, 2, sharey=True), prices.items(), strict=True):
        figures.style(axes, "Code LLM, pass@1 (%)", xlabel)
        _mark_arms(axes, study, done, list(done), price)
        low, high = axes.dataLim.intervalx
        if low > 0:  # what was not recorded is 0
            wider = max(1.2, (_SPAN * low / high) ** 0.5)
            axes.set(xscale="log", xlim=(low / wider, high * wider))
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _legend(figure, study, list(done))
    return figures.picture(figure, "png")


def _passed(runs: Sequence[Result]) -> np.ndarray:
    """Returns pass@1 after training and the bounds of its interval [3], in percent."""
    return 100 * np.array(interval([scores(runs, PASS)]))


def _mark_arms(axes: Axes, study: Study, done: Arms, shown: Sequence[str], at: Callable[[Result], float]) -> None:
    """Draws pass@1 of arms with intervals, over the mean of `at`; a mark has the arm's number among those shown."""
    for arm, runs in done.items():
        x, (mean, low, high) = np.mean([at(run) for run in runs]), _passed(runs)
        look = _look(study, arm, shown)
        axes.errorbar([x], [mean], [[mean - low], [high - mean]], capsize=2, **look)
        ink = "white" if _MARKS[kind(study.arms[arm])][1] else look["color"]
        axes.annotate(str(shown.index(arm) + 1), (x, mean), ha="center", va="center", fontsize=6.5, color=ink, zorder=9)


def _look(study: Study, arm: str, shown: Sequence[str]) -> dict[str, Any]:
    marker, is_filled = _MARKS[kind(study.arms[arm])]
    color = f"C{shown.index(arm) % 10}"
    return {"color": color, "marker": marker, "ms": 9, "mfc": color if is_filled else "white", "ls": "none"}


def _legend(figure: Figure, study: Study, shown: Sequence[str]) -> None:
    """Draws one legend below all panels: the arms by their numbers, and what each form of a mark means."""
    titles = [f"{number}  {study.arms[arm].title}" for number, arm in enumerate(shown, start=1)]
    handles = [Line2D([], [], **_look(study, arm, shown)) for arm in shown]
    for name in dict.fromkeys(kind(study.arms[arm]) for arm in shown):
        marker, is_filled = _MARKS[name]
        face = figures.FAINT if is_filled else "white"
        handles.append(Line2D([], [], color=figures.FAINT, marker=marker, mfc=face, ms=9, ls="none"))
        titles.append(name)
    look = {"fontsize": 8, "frameon": False, "labelcolor": figures.INK, "ncols": 3}
    figure.legend(handles, titles, loc="outside lower left", **look)
