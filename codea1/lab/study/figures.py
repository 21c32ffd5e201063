"""The figures of a study: pass@1 over compute, over the dose of an adversary, and what arms gain by world."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from codea1.lab.report import figures
from codea1.lab.statistics import Difference, interval
from codea1.lab.study.declaration import Arm, Pair, Stage, Study
from codea1.lab.study.law import PASS, Arms, Predictor, contrast, curve, levels
from codea1.lab.study.results import Result, scores
from codea1.lab.study.worlds import world_facts
from codea1.lab.worlds.worlds import WORLDS

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


def gain(study: Study, stage: Stage, found: Mapping[str, Mapping[Pair, Difference]]) -> bytes:
    """Returns a PNG: worlds by how rare their mistakes are, and the difference of each pair compared in each."""
    exposed = {world: world_facts(WORLDS[world]).four for world in stage.worlds}
    places = {world: place for place, world in enumerate(sorted(exposed, key=lambda world: -exposed[world]))}
    figure = Figure(figsize=(6.4, 3.8), dpi=140, layout="constrained")
    axes = figure.add_subplot()
    figures.style(
        axes, "Pass@1 of the Code LLM, difference in points", xlabel="near misses that four bland inputs expose"
    )
    pairs = (*stage.primary, *stage.secondary)
    for number, (pair, color) in enumerate(zip(pairs, (figures.TEST, figures.CODE, figures.BOOK), strict=False)):
        beside = 0.08 * (number - (len(pairs) - 1) / 2)  # marks of one world stand side by side
        own = {world: compared[pair] for world, compared in found.items() if pair in compared}
        points = [(places[world] + beside, *(100 * bound for bound in each[:3])) for world, each in own.items()]
        if points:
            x, mean, low, high = np.array(sorted(points)).T
            name = " less ".join(_STEPS.sub("", study.arms[arm].title) for arm in pair)
            axes.errorbar(x, mean, [mean - low, high - mean], color=color, marker="o", capsize=3, label=name)
    axes.axhline(0.0, color=figures.FAINT, linewidth=0.8)
    axes.set_xticks(list(places.values()), [f"{100 * exposed[world]:.0f} %\n{world}" for world in places])
    axes.set_xlim(-0.4, len(places) - 0.6)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    figure.legend(fontsize=9, frameon=False, labelcolor=figures.INK, loc="outside lower left")
    return figures.picture(figure, "png")


def response(study: Study, dose_of: Mapping[str, float], worlds: Mapping[str, tuple[Arms, Arms]]) -> bytes:
    """Returns a PNG: pass@1 of scripted adversaries over their dose, and lines for what is compared in the first world.

    Args:
      dose_of: arms of which each world has some.
      worlds: the arms of each world: those of doses, and others; of these, stages with primary comparisons have lines,
        at their levels.
    """
    figure = Figure(figsize=(7.2, 4.0), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    first, (_, others) = next(iter(worlds.items()))
    compared = {arm for stage in study.stages if stage.primary for arm in stage.arms}
    title = " in ".join(filter(None, ("Code LLM, pass@1 (%); dashed: other arms", first)))
    figures.style(axes, title, "chance that a suite exposes a wrong program")
    for world, (dosed, _) in worlds.items():
        arms = sorted(dosed, key=dose_of.__getitem__)
        mean, low, high = np.array([_passed(dosed[arm]) for arm in arms]).T
        axes.errorbar(
            [dose_of[arm] for arm in arms], mean, [mean - low, high - mean], marker="o", capsize=3, label=world
        )
    doses = sorted({dose_of[arm] for dosed, _ in worlds.values() for arm in dosed})
    least = min(filter(None, doses))
    axes.set_xscale("symlog", linthresh=least, linscale=0.5)
    axes.set_xlim(-least / 4, 1.2 * doses[-1])
    axes.set_xticks(doses, [f"{dose:g}" for dose in doses])
    axes.set_xticks([], minor=True)
    colors = {_LEARNS: figures.TEST, _FROZEN: figures.TEST_2, _TRIVIAL: figures.FAINT}
    text_at = -np.inf
    heights = levels({arm: runs for arm, runs in others.items() if arm in compared})
    for height, arm in sorted((100 * level, arm) for arm, level in heights.items()):
        color = colors[kind(study.arms[arm])]
        axes.axhline(height, color=color, linewidth=1.0, linestyle="dashed", zorder=0)
        text_at = max(height, text_at + 3.2)  # points: lines of text do not overlap
        title, at = study.arms[arm].title, (1.01, text_at)
        axes.annotate(title, at, xycoords=("axes fraction", "data"), va="center", fontsize=8, color=color)
    if len(worlds) > 1:
        axes.legend(fontsize=9, frameon=False, labelcolor=figures.INK)
    return figures.picture(figure, "png")


def law(study: Study, worlds: Mapping[str, tuple[Arms, Arms]]) -> bytes:
    """Returns a PNG: in each world, pass@1 over the contrast of groups, and the curve through those of doses."""
    shown = [arm for arm in study.arms if any(arm in arms for both in worlds.values() for arms in both)]
    columns = min(3, len(worlds))
    lines = -(-len(worlds) // columns)
    figure = Figure(figsize=(max(7.2, 4.8 * columns), 3.6 * lines + 1.0), dpi=120, layout="constrained")
    for place, (world, (dosed, others)) in enumerate(worlds.items(), start=1):
        axes = figure.add_subplot(lines, columns, place)
        figures.style(axes, f"Pass@1 (%) {world}".strip(), "share g of groups with a kill and a survivor")
        runs = [run for own in dosed.values() for run in own]
        at = sorted(map(contrast, runs))
        axes.plot(at, 100 * curve(runs, contrast)(at), color=figures.FAINT, linewidth=1.5)
        _mark_arms(axes, study, {**dosed, **others}, shown, contrast)
        axes.set_ylim(*np.clip(axes.get_ylim(), 0, 105))  # intervals of two seeds reach beyond all shares
    _legend(figure, study, shown)
    return figures.picture(figure, "png")


def _passed(runs: Sequence[Result]) -> np.ndarray:
    """Returns pass@1 after training and the bounds of its interval [3], in percent."""
    return 100 * np.array(interval([scores(runs, PASS)]))


def _mark_arms(axes: Axes, study: Study, done: Arms, shown: Sequence[str], at: Predictor) -> None:
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
