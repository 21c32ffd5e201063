"""The report of a study: compute, and each stage's comparisons, from declaration and results."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import optimize, stats

from codea1.evaluation.statistics import CONFIDENCE, tenths
from codea1.lab.report.audit import audits
from codea1.lab.report.tables import TextTable, label, percents, with_bounds
from codea1.lab.statistics import Difference, difference, holm, interval
from codea1.lab.study import figures
from codea1.lab.study.declaration import Pair, Stage, Study, Trial
from codea1.lab.study.results import METRICS, PASS, Arms, Result, Results, differences, of_one_code, scores
from codea1.runtime.errors import BadInput
from codea1.storage.objects import write_atomically

POWER = 0.8
PLANNED_SEEDS = (5, 10)
GROWN = (PASS, "test_validity", "test_mutation_score", "test_mul")
WATCHED = {
    "code/pass_rate_new": "pass rate",
    "code/hidden_pass_rate": "hidden pass rate",
    "test/reward": "Test reward",
    "test/hidden_kill_rate": "hidden kills",
    "test/own_kill_rate": "own kills",
    "test/trivial_rate": "trivial",
}
PLAYERS = ("Code LLM", "Test LLM")  # as the audit calls them


def write(study: Study, results: Results, output: str) -> str:
    """Writes report.md and its pictures to the folder `output`; returns the report.

    Its first part is what equal compute bought, of the stages that report: of those on the validation split only where
    there is no other.

    Raises BadInput: runs that are compared were asked other questions, or seeds of an arm have other configs.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    reporting = [stage for stage in study.stages if stage.split != "validation"] or study.stages
    parts = [f"# {study.title}", *_compute_parts(study, reporting, results, folder)]
    for stage in study.stages:
        seeds = "one seed" if len(stage.seeds) == 1 else f"{len(stage.seeds)} seeds"
        parts.append(f"## {stage.name}: the {stage.split} split, {seeds}")
        for world in stage.worlds:
            parts += [f"### World {world}"] if world else []
            parts += _stage_parts(study, stage, world, results)
    report = "\n\n".join(parts) + "\n"
    write_atomically(folder / "report.md", report)
    return report


def _places(stages: Sequence[Stage]) -> list[tuple[Stage, str]]:
    return [(stage, world) for stage in stages for world in stage.worlds]


def _compute_parts(study: Study, stages: Sequence[Stage], results: Results, folder: Path) -> Iterator[str]:
    for stage, world in _places(stages):
        done = {arm: runs for arm, runs in _done(stage, world, results).items() if runs}
        name = "_".join(filter(None, ("compute", stage.name, world)))
        title = f"{stage.name}, world {world}" if world else stage.name
        if codes := _codes(done):
            yield f"No figure of {title}: {codes}"
        elif len(done) > 1:
            write_atomically(folder / f"{name}.png", figures.compute(study, done, title))
            yield f"![{title}: pass@1 over the compute of each arm]({name}.png)"
            borrowed = [own.title for own in map(study.arms.__getitem__, done) if own.opponent or own.suites_of]
            if borrowed:
                yield f"Not in it is what the finished Test LLM cost of: {'; '.join(borrowed)}."


def _codes(done: Arms) -> str:
    """Returns the sentence that rows of different code are not compared, with their digests; empty where they are."""
    every = [run for runs in done.values() for run in runs]
    if of_one_code(every):
        return ""
    arms: dict[str, dict[str, None]] = {}
    for run in every:
        arms.setdefault(run.code, {})[run.run.arm] = None
    listed = "; ".join(f"{f'`{code}`' if code else 'unknown'} ({', '.join(own)})" for code, own in arms.items())
    return f"rows of different code are not compared, and their digests are {listed}."


def _stage_parts(study: Study, stage: Stage, world: str, results: Results) -> Iterator[str]:
    done = _done(stage, world, results)
    left = sum(len(stage.seeds) - len(runs) for runs in done.values())
    if codes := _codes(done):
        yield f"In this part {codes}"
        done = {arm: runs if of_one_code(runs) else [] for arm, runs in done.items()}
    heads = ["arm", "seeds", *(label(metric) for metric in METRICS), "steps", "tokens, thousands", "CPU s"]
    rows = [_arm_row(study.arms[arm].title, runs) for arm, runs in done.items() if runs]
    first = next((runs for runs in done.values() if runs and "test_mul" in runs[0].metrics("before")), None)
    if first:
        rows.insert(0, ["before training", str(len(first)), *_cells(first, "before"), "", "", ""])
    if rows:
        yield TextTable(heads, rows).markdown()
    if left and not stage.rungs:
        yield f"{left} of these runs are not done."
    if starts := study.start is not None and _starts(study, done):
        yield f"Not all arms began with the same pass@1 on each question, as if from another warm start: {starts}."
    for name, pairs in (("primary", stage.primary), ("secondary", stage.secondary)):
        if found := _found(study, done, pairs):
            yield f"Pass@1 of the first less the second, in points, paired by seed and composition; {name} comparisons:"
            complete = not left and len(found) == len(pairs)
            yield _comparison_table(study, found, complete)
            yield from filter(None, (_undeclared(study, done, pair) for pair in found))
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
        yield "After less before training, in points:"
        yield TextTable(["arm", *map(label, GROWN)], grown).markdown()


def _done(stage: Stage, world: str, results: Results) -> dict[str, list[Result]]:
    """Returns the runs of each arm that are done."""
    trials = {arm: [Trial(stage.split, world, arm, seed) for seed in stage.seeds] for arm in stage.arms}
    return {arm: [results[run] for run in own if run in results] for arm, own in trials.items()}


def _cells(runs: Sequence[Result], moment: str) -> list[str]:
    there = runs[0].metrics(moment)
    return [with_bounds(interval([scores(runs, metric, moment)])) if metric in there else "-" for metric in METRICS]


def _arm_row(title: str, runs: Sequence[Result]) -> list[str]:
    tokens, seconds = (np.mean([getattr(run, name) for run in runs]) for name in ("tokens", "cpu_seconds"))
    cells = _cells(runs, "after")
    return [title, str(len(runs)), *cells, str(runs[0].steps), f"{tokens / 1000:,.0f}", f"{seconds:,.0f}"]


def _starts(study: Study, done: Arms) -> str:
    """Returns which arms of a seed began unlike others, by their pass@1 before training; empty where none did."""
    found: dict[int, dict[bytes, list[str]]] = {}
    for run in (run for runs in done.values() for run in runs if PASS in run.metrics("before")):
        start = scores([run], PASS, "before").tobytes()
        found.setdefault(run.run.seed, {}).setdefault(start, []).append(study.arms[run.run.arm].title)
    return "; ".join(
        f"seed {seed} ({' / '.join(', '.join(arms) for arms in starts.values())})"
        for seed, starts in found.items()
        if len(starts) > 1
    )


def _common(done: Arms, pair: Pair) -> tuple[list[Result], list[Result]]:
    """Returns the runs of both arms, of the seeds that both have; none where the arms are of different code.

    Raises BadInput: they were not measured on the same questions.
    """
    if not of_one_code([run for arm in pair for run in done[arm]]):
        return [], []
    seeds = {each.run.seed for each in done[pair[0]]} & {each.run.seed for each in done[pair[1]]}
    first, second = ([each for each in done[arm] if each.run.seed in seeds] for arm in pair)
    if len({each.question_ids for each in (*first, *second)}) > 1:
        raise BadInput(f"{pair[0]} and {pair[1]} were not measured on the same questions: they cannot be compared.")
    return first, second


def _compared(done: Arms, pair: Pair, only: Collection[str] = ()) -> Difference | None:
    """Returns how far the first arm is above the second, on `only` some compositions or all.

    None where no seed has both, they are of different code, or they were measured on none of those compositions.
    """
    first, second = _common(done, pair)
    if not first:
        return None
    one, other = (scores(runs, PASS, only=only) for runs in (second, first))
    return difference([one], [other]) if one.size else None


def _undeclared(study: Study, done: Arms, pair: Pair) -> str:
    """Returns in which fields configs of two arms differ, and those that are declared do not: a file was edited.

    Empty where there are none, or rows do not keep them.
    """
    one, other = (runs[0] for runs in _common(done, pair))
    found = differences(one.config, other.config) if one.fields and other.fields else []
    try:
        declared = differences(*(study.config_of(each.run).to_dict() for each in (one, other))) if found else []
    except BadInput as error:
        return f"Whether configs differ undeclared is not known: {error}"
    left = ", ".join(name for name in found if name not in declared)
    titles = " and ".join(study.arms[arm].title for arm in pair)
    return left and f"The configs of {titles} also differ in {left}, which their recipes do not declare."


def _found(study: Study, done: Arms, pairs: Sequence[Pair]) -> dict[Pair, Difference]:
    compared = {pair: _compared(done, pair) for pair in pairs}
    return {pair: each for pair, each in compared.items() if each is not None}


def _comparison_table(study: Study, found: Mapping[Pair, Difference], complete: bool) -> str:
    """Returns the differences, with p-values once all declared runs are done: before, looking would choose."""
    p_values = [each.p_value for each in found.values()]
    tested = complete and not any(map(math.isnan, p_values))
    rows = []
    for (pair, each), adjusted in zip(found.items(), holm(p_values), strict=True):
        names = " less ".join(study.arms[arm].title for arm in pair)
        cells = [f"{p:.2g}" if tested else "-" for p in (each.p_value, adjusted)]
        rows.append([names, with_bounds(each[:3], "+"), *cells])
    heads = ["comparison", "points", "p", "p, Holm"]
    return TextTable(heads, rows).markdown()


def _power_row(study: Study, stage: Stage, pair: Pair, done: Arms) -> list[str] | None:
    first, second = _common(done, pair)
    if len(first) < 2:
        return None
    by_seed = [np.nanmean(scores(runs, PASS), axis=(1, 2)) for runs in (first, second)]
    spread = float(np.std(by_seed[0] - by_seed[1], ddof=1))
    names = " less ".join(study.arms[arm].title for arm in pair)
    points = percents(detectable(spread, seeds, len(stage.primary)) for seeds in PLANNED_SEEDS)
    return [names, str(len(first)), *percents([spread]), *points]


def _growth_row(title: str, runs: Sequence[Result]) -> list[str]:
    both = runs[0].metrics("before").keys() & runs[0].metrics("after")
    sides = {name: [[scores(runs, name, when)] for when in ("before", "after")] for name in GROWN if name in both}
    return [title, *(with_bounds(difference(*sides[name])[:3], "+") if name in sides else "-" for name in GROWN)]


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
    bounds = 0.0, 100.0  # spreads
    return spread * optimize.brentq(lambda mean: stats.nct.sf(critical, seeds - 1, mean * seeds**0.5) - POWER, *bounds)
