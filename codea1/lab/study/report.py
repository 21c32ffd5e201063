"""The report of a study: compute, claims, the law, and each stage's comparisons, from declaration and results."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import optimize, stats

from codea1.evaluation.statistics import CONFIDENCE, tenths
from codea1.lab.report.audit import audits
from codea1.lab.report.tables import TextTable, label, percents, with_bounds
from codea1.lab.statistics import Difference, difference, holm, interval
from codea1.lab.study import figures, law
from codea1.lab.study.declaration import Pair, Stage, Study, Trial
from codea1.lab.study.law import PASS, Arms
from codea1.lab.study.results import METRICS, Result, Results, differences, of_one_code, scores
from codea1.lab.study.worlds import unlike_training, worlds_table
from codea1.lab.worlds.worlds import WORLDS
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
Found = Mapping[str, Mapping[Pair, Difference]]  # in each world


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
    parts += [*_claims_parts(study, results), *_law_parts(study, reporting, results, folder)]
    if any(world for stage in study.stages for world in stage.worlds):
        own = dict.fromkeys(world for stage in study.stages for world in stage.worlds if world)
        heading = "## Worlds: near misses exposed, and right programs of the corpus, in %"
        parts += [heading, worlds_table([name for name in WORLDS if name in own])]
    for stage in study.stages:
        seeds = "one seed" if len(stage.seeds) == 1 else f"{len(stage.seeds)} seeds"
        parts.append(f"## {stage.name}: the {stage.split} split, {seeds}")
        pairs = (*stage.primary, *stage.secondary)
        found: Found = {world: _found(study, _done(stage, world, results), pairs) for world in stage.worlds}
        if len(stage.worlds) > 1 and any(found.values()):
            write_atomically(folder / f"{stage.name}.png", figures.gain(study, stage, found))
            parts.append(f"![gain by world]({stage.name}.png)")
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


def _claims_parts(study: Study, results: Results) -> Iterator[str]:
    rows, codes = [], []
    for stage, world in _places(study.stages):
        for text, *pair in stage.claims:
            done = {arm: runs for arm, runs in _done(stage, world, results).items() if arm in pair}
            found = _compared(done, (pair[0], pair[1]))
            apart = _compared_apart(stage, world, done, (pair[0], pair[1]))
            paired = _common(done, (pair[0], pair[1]))
            seeds = len(paired[0])
            # As a p-value, a verdict appears once all declared runs are done.
            said = verdict(found) if found and seeds == len(stage.seeds) else "-"
            spent = []
            for name, unit in (("cpu_seconds", 1), ("tokens", 1000)):
                means = [np.mean([getattr(run, name) for run in runs]) / unit for runs in paired if runs]
                spent.append(" / ".join(f"{mean:,.0f}" for mean in means) or "-")
            of_all = f"{seeds} of {len(stage.seeds)}"
            points = [with_bounds(each and each[:3], "+") for each in (found, apart)]
            rows.append([text, world, of_all, *points, *spent, said])
            codes += [f"Of the claims {sentence}"] if (sentence := _codes(done)) else []
    if rows:
        yield "## Claims"
        yield (
            "Pass@1 of the arm that is claimed to be above, less that of the other, in points, over all compositions "
            "and over those that equal none of training. Each claim is judged by the 95 % interval over all, not "
            "corrected for their number: *shown* lies above 0, *not shown* holds 0, *contradicted* lies below. "
            "Intervals cross seeds with compositions; that of one seed says nothing of another seed. CPU seconds are "
            "the trainer's in its steps, without compilation, warm start and the sandbox's processes."
        )
        spent = ["CPU s of both", "tokens of both, thousands"]
        heads = ("claim", "world", "seeds", "points", "unlike training", *spent, "verdict")
        yield TextTable(heads, rows, left=2).markdown()
        yield from dict.fromkeys(codes)


def verdict(found: Difference) -> str:
    """Returns what an interval says of the claim that the first side is above the second."""
    return "shown" if found.low > 0 else "contradicted" if found.high < 0 else "not shown"


def _law_parts(study: Study, stages: Sequence[Stage], results: Results, folder: Path) -> Iterator[str]:
    dose_of = law.doses(study)
    worlds: dict[str, tuple[Arms, Arms]] = {}
    sentences = []
    for world in dict.fromkeys(world for stage in stages for world in stage.worlds):
        runs: dict[str, dict[Trial, Result]] = {arm: {} for arm in study.arms}
        for arm, own in (each for stage in stages for each in _done(stage, world, results).items()):
            runs[arm] |= {result.run: result for result in own}  # stages share runs
        found = {arm: [*own.values()] for arm, own in runs.items() if own}
        dosed = {arm: found[arm] for arm in dose_of if arm in found}
        if len(dosed) < 2:
            continue
        if codes := _codes(found):
            sentences.append(f"Against the curve{f' of {world}' if world else ''} {codes}")
        of_doses = [run for own in dosed.values() for run in own]
        like = {arm: own for arm, own in found.items() if of_one_code([*of_doses, *own])}
        if of_one_code(of_doses):
            worlds[world] = dosed, {arm: own for arm, own in like.items() if arm not in dosed}
    if worlds or sentences:
        yield "## The law: pass@1 by the contrast of groups"
    if worlds:
        write_atomically(folder / "response.png", figures.response(study, dose_of, worlds))
        yield "![pass@1 over the chance that a suite exposes a wrong program](response.png)"
        write_atomically(folder / "law.png", figures.law(study, worlds))
        yield "![pass@1 over the contrast of groups](law.png)"
        yield (
            "A monotone curve of pass@1 over one number is fitted on the runs of a world's doses, straight between two "
            "and flat beyond its ends. The number is *g*, the share of groups of solutions of which new or golden "
            "tests kill one and spare one, or *unpaid wrong*, the share of wrong solutions that are not paid in full, "
            "each over all steps. Errors are measured less predicted, in points, means and standard deviations over "
            "seeds. A dose's is by the curve of all other doses, where they enclose it. The mean absolute error is "
            "over arms, of their means over seeds, then over single runs. The curve over g is refuted where that of "
            f"the other arms exceeds {100 * law.REFUTED:.0f} points."
        )
    for world, (dosed, others) in worlds.items():
        yield from [f"### The law in world {world}"] if world else []
        yield _law_table(study, dosed, others)
    yield from sentences


def _law_table(study: Study, dosed: Arms, others: Arms) -> str:
    predictors = (law.contrast, law.unpaid)
    found = [law.errors(dosed, others, predictor) for predictor in predictors]
    rows = []
    for arm, runs in (*dosed.items(), *others.items()):
        cells = []
        for predictor, errors in zip(predictors, found, strict=True):
            mean = float(np.mean(errors[arm]))
            spread = f" ± {100 * np.std(errors[arm], ddof=1):.1f}" if len(runs) > 1 else ""
            at = 100 * float(np.mean([predictor(run) for run in runs]))
            cells += ["-" if math.isnan(at) else f"{at:.1f}", "-" if math.isnan(mean) else f"{100 * mean:+.1f}{spread}"]
        passed = 100 * law.pass_at_1(runs).mean()
        rows.append([study.arms[arm].title, str(runs[0].steps), str(len(runs)), f"{passed:.1f}", *cells])
    for what, arms in (("doses", dosed), ("others", others)):
        cells = []
        for errors in found:
            known = [100 * errors[arm] for arm in arms if np.isfinite(errors[arm]).all()]
            of_arms, of_runs = [abs(each.mean()) for each in known], [abs(error) for each in known for error in each]
            means = (
                f"{np.mean(of_arms):.1f} of {len(of_arms)}, {np.mean(of_runs):.1f} of {len(of_runs)}" if known else "-"
            )
            cells.append(means)
        rows.append([f"mean absolute error, {what}", "", "", "", "", cells[0], "", cells[1]])
    heads = ("arm", "steps", "seeds", "Code pass@1", "g, %", "error by g", "unpaid wrong, %", "error by it")
    return TextTable(heads, rows).markdown()


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
            apart = {pair: _compared_apart(stage, world, done, pair) for pair in found}
            yield _comparison_table(study, found, apart, complete)
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


def _compared_apart(stage: Stage, world: str, done: Arms, pair: Pair) -> Difference | None:
    """Returns `_compared` on compositions of the test split that equal none of training; None also without a world."""
    unlike = unlike_training(WORLDS[world]) if world and stage.split == "test" else frozenset()
    return _compared(done, pair, unlike) if unlike else None


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


def _comparison_table(
    study: Study,
    found: Mapping[Pair, Difference],
    apart: Mapping[Pair, Difference | None],
    complete: bool,
) -> str:
    """Returns the differences, with p-values once all declared runs are done: before, looking would choose.

    `apart` are the differences on compositions that equal none of training, where there are some.
    """
    p_values = [each.p_value for each in found.values()]
    tested = complete and not any(map(math.isnan, p_values))
    rows = []
    for (pair, each), other, adjusted in zip(found.items(), apart.values(), holm(p_values), strict=True):
        names = " less ".join(study.arms[arm].title for arm in pair)
        cells = [f"{p:.2g}" if tested else "-" for p in (each.p_value, adjusted)]
        unlike = [with_bounds(other and other[:3], "+")] if any(apart.values()) else []
        rows.append([names, with_bounds(each[:3], "+"), *unlike, *cells])
    unlike = ["unlike training"] if any(apart.values()) else []
    heads = ["comparison", "points", *unlike, "p", "p, Holm"]
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
