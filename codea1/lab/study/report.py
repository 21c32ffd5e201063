"""The report of a study: worlds, recipes, power, comparisons and the figure, from the declaration and its results."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from codea1.evaluation import figures
from codea1.evaluation.audit import audits, tenths
from codea1.evaluation.statistics import CONFIDENCE, Difference, difference, holm, interval
from codea1.evaluation.tables import TextTable, label, percents, with_bounds
from codea1.lab.study.declaration import Pair, Stage, Study, Trial
from codea1.lab.study.results import METRICS, Result, Results, scores
from codea1.lab.study.worlds import world_facts
from codea1.lab.worlds.worlds import WORLDS
from codea1.storage.objects import write_atomically

POWER = 0.8
PLANNED_SEEDS = (5, 10)
PASS, MUL = "code_pass_at_1", "test_mul"
GROWN = (PASS, "test_validity", "test_mutation_score", MUL)
WATCHED = {
    "code/pass_rate_new": "pass rate",
    "code/hidden_pass_rate": "hidden pass rate",
    "test/reward": "Test reward",
    "test/hidden_kill_rate": "hidden kills",
    "test/own_kill_rate": "own kills",
    "test/trivial_rate": "trivial",
}
_STEPS = re.compile(r", \d+ steps")  # in titles: all that a figure shows have as many
PLAYERS = ("Code LLM", "Test LLM")  # as the audit calls them


def write(study: Study, results: Results, output: str) -> str:
    """Writes report.md, and for a stage of several worlds NAME.png, to the folder `output`; returns the report."""
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    parts = [f"# {study.title}"]
    if any(world for stage in study.stages for world in stage.worlds):
        parts.append(worlds_table())
    for stage in study.stages:
        seeds = "one seed" if len(stage.seeds) == 1 else f"{len(stage.seeds)} seeds"
        parts.append(f"## {stage.name}: the {stage.split} split, {seeds}")
        if len(stage.worlds) > 1 and (picture := draw(study, stage, results)):
            write_atomically(folder / f"{stage.name}.png", picture)
            parts.append(f"![gain by world]({stage.name}.png)")
        for world in stage.worlds:
            parts += [f"### World {world}"] if world else []
            parts += _stage_parts(study, stage, world, results)
    report = "\n\n".join(parts) + "\n"
    write_atomically(folder / "report.md", report)
    return report


def worlds_table() -> str:
    """Returns what each world is, measured without training."""
    rows = []
    for name, world in WORLDS.items():
        facts = world_facts(world)
        bland = (facts.one, facts.four, facts.golden, facts.sixteen)
        aimed = (facts.stated, facts.aimed, facts.all_aimed, facts.expert, facts.right_programs)
        restated, tested = facts.restated
        rows.append([name, str(facts.compositions), f"{restated} of {tested}", *percents((*bland, *aimed))])
    heads = (
        *("world", "compositions", "test ones restated", "one bland input", "four", "golden tests", "16 hidden"),
        *("four aimed at the problem", "four aimed", "all aimed", "expert", "right"),
    )
    return (
        "## Worlds: near misses exposed, and right programs of the corpus, in %\n\n" + TextTable(heads, rows).markdown()
    )


def _stage_parts(study: Study, stage: Stage, world: str, results: Results) -> Iterator[str]:
    done = {arm: _done(stage, world, arm, results) for arm in stage.arms}
    left = sum(len(stage.seeds) - len(runs) for runs in done.values())
    heads = ["arm", "seeds", *(label(metric) for metric in METRICS), "steps", "tokens, thousands", "CPU s"]
    rows = [_arm_row(study.arms[arm].title, runs) for arm, runs in done.items() if runs]
    first = next((runs for runs in done.values() if runs and MUL in runs[0].metrics("before")), None)
    if first:
        rows.insert(0, ["before training", str(len(first)), *_cells(first, "before"), "", "", ""])
    if rows:
        yield TextTable(heads, rows).markdown()
    if left and not stage.rungs:
        yield f"{left} of these runs are not done."
    for name, pairs in (("primary", stage.primary), ("secondary", stage.secondary)):
        compared = {pair: _compared(done, pair) for pair in pairs}
        found = {pair: each for pair, each in compared.items() if each is not None}
        if found:
            yield f"Pass@1 of the first less the second, in points, paired by seed and composition; {name} comparisons:"
            yield _comparison_table(study, found, complete=not left)
    planned = [_power_row(study, stage, pair, done) for pair in stage.primary if stage.split == "validation"]
    if any(planned):
        yield f"What a paired t test then finds with a chance of {POWER:.0%}, as the first of Holm's, in points:"
        heads = ["comparison", "seeds", "deviation over seeds", *(f"with {seeds} seeds" for seeds in PLANNED_SEEDS)]
        yield TextTable(heads, [*filter(None, planned)]).markdown()
    watched = [row for arm, runs in done.items() if runs and (row := _watch_row(study.arms[arm].title, runs))]
    if watched:
        yield "In training, first tenth of the steps → last, in %, and for how many seeds the audit warns of a player:"
        heads = ["arm", *WATCHED.values(), *(f"warned of {player}" for player in PLAYERS)]
        yield TextTable(heads, watched).markdown()
    grown = [_growth_row(study.arms[arm].title, runs) for arm, runs in done.items() if runs]
    if grown:
        yield "After less before training, in points, and Mul over the start's:"
        heads = ["arm", *map(label, GROWN), "Mul, times the start's", "Mul less 1.5 times the start's"]
        yield TextTable(heads, grown).markdown()


def _done(stage: Stage, world: str, arm: str, results: Results) -> list[Result]:
    runs = [Trial(stage.split, world, arm, seed) for seed in stage.seeds]
    return [results[run] for run in runs if run in results]


def _cells(runs: Sequence[Result], moment: str) -> list[str]:
    there = runs[0].metrics(moment)
    return [with_bounds(interval([scores(runs, metric, moment)])) if metric in there else "-" for metric in METRICS]


def _arm_row(title: str, runs: Sequence[Result]) -> list[str]:
    tokens, seconds = (np.mean([getattr(run, name) for run in runs]) for name in ("tokens", "cpu_seconds"))
    cells = _cells(runs, "after")
    return [title, str(len(runs)), *cells, str(runs[0].steps), f"{tokens / 1000:,.0f}", f"{seconds:,.0f}"]


def _common(done: dict[str, list[Result]], pair: Pair) -> tuple[list[Result], list[Result]]:
    """Returns the runs of both arms, of the seeds that both have."""
    seeds = {each.run.seed for each in done[pair[0]]} & {each.run.seed for each in done[pair[1]]}
    first, second = ([each for each in done[arm] if each.run.seed in seeds] for arm in pair)
    return first, second


def _compared(done: dict[str, list[Result]], pair: Pair) -> Difference | None:
    first, second = _common(done, pair)
    return difference([scores(second, PASS)], [scores(first, PASS)]) if first else None


def _comparison_table(study: Study, found: dict[Pair, Difference], complete: bool) -> str:
    """Returns the differences, with p-values once all declared runs are done: before, looking would choose."""
    p_values = [each.p_value for each in found.values()]
    tested = complete and not any(map(math.isnan, p_values))
    rows = []
    for pair, each, adjusted in zip(found, found.values(), holm(p_values), strict=True):
        names = " less ".join(study.arms[arm].title for arm in pair)
        cells = [f"{p:.2g}" if tested else "-" for p in (each.p_value, adjusted)]
        rows.append([names, with_bounds(each[:3], "+"), *cells])
    return TextTable(("comparison", "points", "p", "p, Holm"), rows).markdown()


def _power_row(study: Study, stage: Stage, pair: Pair, done: dict[str, list[Result]]) -> list[str] | None:
    first, second = _common(done, pair)
    if len(first) < 2:
        return None
    by_seed = [np.nanmean(scores(runs, PASS), axis=(1, 2)) for runs in (first, second)]
    spread = float(np.std(by_seed[0] - by_seed[1], ddof=1))
    names = " less ".join(study.arms[arm].title for arm in pair)
    points = percents(detectable(spread, seeds, len(stage.primary)) for seeds in PLANNED_SEEDS)
    return [names, str(len(first)), *percents([spread]), *points]


def _growth_row(title: str, runs: Sequence[Result]) -> list[str]:
    before, after = (
        {name: scores(runs, name, moment) for name in GROWN if name in runs[0].metrics(moment)}
        for moment in ("before", "after")
    )
    both = before.keys() & after.keys()
    cells = [with_bounds(difference([before[name]], [after[name]])[:3], "+") if name in both else "-" for name in GROWN]
    if MUL not in both:
        return [title, *cells, "-", "-"]
    times = interval([after[MUL]]).mean / interval([before[MUL]]).mean
    above = difference([before[MUL] * [1.5, 1.0]], [after[MUL]])
    return [title, *cells, f"{times:.2f}", with_bounds(above[:3], "+")]


def _watch_row(title: str, runs: Sequence[Result]) -> list[str] | None:
    """Returns how what pays the players and what is hidden from them went; None where nothing hidden was measured."""
    rows = [run.rows for run in runs]
    found = [audit for each in rows for audit in audits(each)]
    if not found:
        return None
    cells = []
    for name in WATCHED:
        series = [[row[name] for row in each if row.get(name) is not None] for each in rows]
        ends = [tenths(np.array(each))[[0, -1]] for each in series if each]
        cells.append("{:.1f} → {:.1f}".format(*100 * np.mean(ends, axis=0)) if ends else "-")
    warned = [sum(bool(each.warning) for each in found if each.player == player) for player in PLAYERS]
    return [title, *cells, *map(str, warned)]


def detectable(spread: float, seeds: int, tests: int) -> float:
    """Returns the mean difference that a paired t test finds with a chance of `POWER`, in the units of `spread`.

    Args:
      spread: standard deviation of the differences between two arms, over seeds.
      seeds: of each arm.
      tests: comparisons after Holm; the first of them must pass at 0.05 / tests.
    """
    critical = stats.t.ppf(1 - (1 - CONFIDENCE) / tests / 2, seeds - 1)
    low, high = 0.0, 100 * spread
    for _ in range(60):
        middle = (low + high) / 2
        reached = stats.nct.sf(critical, seeds - 1, middle / spread * math.sqrt(seeds))
        low, high = (low, middle) if reached >= POWER else (middle, high)
    return high


def draw(study: Study, stage: Stage, results: Results) -> bytes | None:
    """Returns a PNG: worlds by how rare their mistakes are, and the difference of each compared pair in each.

    None where no pair has been run.
    """
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
        points = []
        for world in stage.worlds:
            if found := _compared({arm: _done(stage, world, arm, results) for arm in pair}, pair):
                points.append((places[world] + beside, *(100 * bound for bound in found[:3])))
        if points:
            x, mean, low, high = np.array(sorted(points)).T
            name = " less ".join(_STEPS.sub("", study.arms[arm].title) for arm in pair)
            axes.errorbar(x, mean, [mean - low, high - mean], color=color, marker="o", capsize=3, label=name)
    axes.axhline(0.0, color=figures.FAINT, linewidth=0.8)
    axes.set_xticks(list(places.values()), [f"{100 * exposed[world]:.0f} %\n{world}" for world in places])
    if not axes.containers:
        return None
    axes.set_xlim(-0.4, len(places) - 0.6)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    figure.legend(fontsize=9, frameon=False, labelcolor=figures.INK, loc="outside lower left")
    return figures.picture(figure, "png")
