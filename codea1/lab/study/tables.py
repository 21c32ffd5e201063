"""The tables of a study, filled: ours with intervals, the published number, comparisons, and notes of differences."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

import numpy as np
from scipy import optimize, stats

from codea1.config import OF_TEST_LLM
from codea1.evaluation.statistics import CONFIDENCE, Interval
from codea1.lab.statistics import Difference, difference, holm, interval
from codea1.lab.study.declaration import Study
from codea1.lab.study.layouts import BASE, TINY, Column, Layout, Line, Pair
from codea1.lab.study.results import (
    Measured,
    Result,
    differences,
    require_seeds_of_one_arm,
    same_questions,
    stacked,
)
from codea1.runtime.errors import BadInput

CLEAR = 0.05  # a comparison below is called significant
POWER = 0.8
PLANNED_SEEDS = (3, 5, 10)


@dataclass(frozen=True)
class Comparison:
    """One cell against the same cell of another row."""

    against: str  # title of that row
    difference: Difference  # shares
    p_holm: float = math.nan  # adjusted for all comparisons of the table that are tested

    @property
    def is_clear(self) -> bool:
        return self.p_holm < CLEAR


@dataclass(frozen=True)
class Cell:
    """The content of a row in a column."""

    ours: Interval | None = None  # shares; None: not measured
    seeds: tuple[int, ...] = ()
    published: float | None = None  # percent
    comparisons: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class TableRow:
    """One arm, or the models before training."""

    key: str
    title: str
    cells: tuple[Cell, ...]
    spent: tuple[float, ...] = ()  # steps, sampled tokens and CPU seconds, means over seeds; of a stage's table


@dataclass(frozen=True)
class Table:
    """A layout at one size, filled."""

    layout: Layout
    size: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.layout.name}_{self.size}".replace(" ", "_")

    @property
    def comparisons(self) -> list[Comparison]:
        """Those of all cells."""
        return [comparison for row in self.rows for cell in row.cells for comparison in cell.comparisons]


def tables(study: Study, results: Iterable[Result]) -> list[Table]:
    """Returns every table of a study at every size that a run was given of, the smallest first.

    Raises:
      BadInput: seeds or rows were not asked the same questions, or a row was measured with two numbers of samples or in
        two ways.
    """
    given = list(results)
    of_sizes = [(size, layout) for size in sizes(given) for layout in study.tables() if layout.columns_of(size)]
    filled = [_Filling(study, layout, size, given).table() for size, layout in of_sizes]
    return [table for table in filled if not table.layout.seeds or any(row.spent for row in table.rows)]


def sizes(results: Iterable[Result]) -> list[str]:
    """Returns the sizes of the models, smallest first."""

    def billions(size: str) -> tuple[float, str]:
        number = size.removesuffix("b")
        return (float(number) if number.replace(".", "", 1).isdigit() else 0.0, size)

    return sorted({result.size for result in results}, key=billions)


def seeds_of(results: Iterable[Result], size: str, arm: str, split: str = "") -> dict[int, Result]:
    """Returns the runs of an arm by seed. Raises BadInput: their configs differ in more."""
    place = size, split, arm
    runs = [result for result in results if result.trains and (result.size, result.run.split, result.run.arm) == place]
    require_seeds_of_one_arm(runs)
    return {result.run.seed: result for result in sorted(runs, key=lambda result: result.run.seed)}


class _Filling:
    """One layout at one size, while its cells are filled with what runs measured."""

    def __init__(self, study: Study, layout: Layout, size: str, results: Sequence[Result]) -> None:
        self._study, self._layout, self._size = study, layout, size
        declared = layout.seeds
        self._results = [
            result
            for result in results
            if (result.size, result.run.split) == (size, layout.split) and (not declared or result.run.seed in declared)
        ]
        self._columns = layout.columns_of(size)
        self._lines = {line.key: line for line in layout.lines}
        # The seeds that all rows have that there are, so that they can be read side by side; none without runs.
        of_rows = [set(runs) for line in layout.lines if (runs := self._runs(line.arm))]
        self._seeds = set.intersection(*of_rows) if of_rows and not declared else set()

    def table(self) -> Table:
        """Returns the table. Raises BadInput as `tables` does."""
        rows = []
        for line in self._lines.values():
            cells = tuple(self._cell(line, column) for column in self._columns)
            rows.append(TableRow(line.key, line.title, cells, self._spent(line)))
        missing = self._missing()
        undone = [f"Runs of this table that are not done: {missing}."] if missing else []
        notes = (undone, self._versions(), dict.fromkeys(self._measured()), self._starts())
        every = (*chain(*notes), *self._notes(), *self._detectable())
        return Table(self._layout, self._size, self._columns, _adjusted(rows), every)

    def _runs(self, arm: str) -> dict[int, Result]:
        return seeds_of(self._results, self._size, arm, self._layout.split)

    def _scores(self, line: Line, column: Column, before: bool = False) -> dict[int, list[Measured]]:
        """Returns each of a column's measures, by the table's seeds, or by all where it has none.

        Seeds that lack a measure are left out.

        Args:
          before: those that the row's own runs began with.

        Raises BadInput: a measure was taken with two numbers of samples, or in two ways.
        """
        arms, moment = [line.arm], "before" if before else "after"
        if line.arm == BASE:  # every run of a seed begins with the same models; one without a Test LLM has no measure
            arms, moment = [BASE, *(name for name, arm in self._study.arms.items() if arm.begins_with_base)], "before"
        runs = [result for arm in arms for result in self._results if result.run.arm == arm]
        scores = {}
        for seed in sorted({result.run.seed for result in runs}):
            taken = []
            for measure in column.measures:
                of_runs = [result.measured(measure, moment, line.tester) for result in runs if result.run.seed == seed]
                every = list(chain.from_iterable(of_runs))
                label = f"{line.title}, {measure.split}, seed {seed},"
                if names := differing(every):
                    raise BadInput(f"{label} was measured with more than one {', '.join(names)}: use one evaluation.")
                taken += every[:1]
            if len(taken) == len(column.measures):
                scores[seed] = taken
        return {seed: taken for seed, taken in scores.items() if not self._seeds or seed in self._seeds}

    def _cell(self, line: Line, column: Column) -> Cell:
        number = self._layout.published_number(self._size, line.key, column.key)
        compared = [self._compare(self._lines[key], line, column) for key in line.against]
        by_seed = self._scores(line, column)
        if not by_seed:
            return Cell(published=number)
        scores = stacked([*by_seed.values()], f"{line.title}, {column.title},")
        return Cell(interval(scores), tuple(by_seed), number, tuple(filter(None, compared)))

    def _compare(self, against: Line, line: Line, column: Column) -> Comparison | None:
        """Returns one cell's comparison with that of another row.

        None where they share no seed or no question, or are ends of curves, which have no questions to compare by.
        """
        if not column.measures[0].split:
            return None
        before, after = (self._scores(row, column) for row in (against, line))
        if against.arm == BASE and self._layout.seeds:  # another machine rounds, and so answers, otherwise
            before |= self._scores(line, column, before=True)
        seeds = tuple(seed for seed in after if seed in before)
        if not seeds:
            return None
        label = f"{line.title} and {against.title}, {column.title},"
        both = [[side[seed] for seed in seeds] for side in (before, after)]
        sides = [stacked(side, label) for side in both]
        if not all(map(same_questions, zip(*both[0], *both[1], strict=True))):
            raise BadInput(f"{label} were not measured on the same questions.")
        interval = difference(*sides)
        if not self._is_tested((line.key, against.key), column):
            interval = interval._replace(p_value=math.nan)
        return None if math.isnan(interval.mean) else Comparison(against.title, interval)

    def _is_tested(self, pair: Pair, column: Column) -> bool:
        """Returns whether a comparison gets a p-value.

        In a stage's table those of its primary pairs in the first column do, once all its runs are done: before,
        looking would choose. In any other table all do.
        """
        is_primary = pair in self._layout.primary and column is self._columns[0]
        return not self._layout.seeds or (is_primary and not self._missing())

    def _spent(self, line: Line) -> tuple[float, ...]:
        runs = [*self._runs(line.arm).values()] if self._layout.seeds else []
        return tuple(np.mean([[run.steps, run.tokens, run.cpu_seconds] for run in runs], axis=0)) if runs else ()

    def _missing(self) -> int:
        arms = [line.arm for line in self._lines.values() if line.arm != BASE]
        return sum(len(self._layout.seeds) - len(self._runs(arm)) for arm in arms) if self._layout.seeds else 0

    def _versions(self) -> Iterator[str]:
        """Yields by what versions the runs were begun, where they are several."""
        rows: dict[str, dict[str, None]] = {}
        for line in self._lines.values():
            for run in self._runs(line.arm).values():
                rows.setdefault(run.version or "unknown", {})[line.title] = None
        if len(rows) > 1:
            listed = "; ".join(f"{version} ({', '.join(titles)})" for version, titles in rows.items())
            yield f"Runs were begun by different versions: {listed}."

    def _measured(self) -> Iterator[str]:
        """Yields with how many samples, and in what else differently, rows were measured on a benchmark.

        And of how many tasks a row has a number, where it has none for some.
        """
        measures = [(column, place) for column in self._columns for place in range(len(column.measures))]
        for (column, place), is_chosen in product(measures, (False, True)):
            measure = column.measures[place]
            if not measure.is_of_benchmark:
                continue
            lines = [line for line in self._lines.values() if bool(line.tester) == is_chosen]
            taken = {line.title: [scores[place] for scores in self._scores(line, column).values()] for line in lines}
            rows = {title: measured for title, measured in taken.items() if measured}
            every = [*chain.from_iterable(rows.values())]
            for name in dict.fromkeys([*(["samples"] if every else []), *differing(every)]):
                values = (f"{title} {run.settings.get(name, '-')}" for title, seeds in rows.items() for run in seeds)
                yield f"{measure.split}, {name}: {', '.join(dict.fromkeys(values))}."
            for title, seeds in rows.items():
                has_number = np.min([~np.isnan(result.scores).all(axis=1) for result in seeds], axis=0)
                if not has_number.all():
                    yield f"{title}, {measure.split}: {has_number.sum()} of {len(has_number)} tasks."

    def _starts(self) -> Iterator[str]:
        """Yields where rows started that did not start where Base is: their Test LLM is asked in another prompt."""
        base = Line(BASE, "Base", BASE)
        for line in self._lines.values():
            if line.arm == BASE or self._study.arms[line.arm].taught or line.tester:
                continue
            starts = []
            for column in self._columns:
                of_line, of_base = self._scores(line, column, before=True), self._scores(base, column)
                both = tuple(seed for seed in of_line if seed in of_base)
                if both:
                    scores = [stacked([side[seed] for seed in both], line.title) for side in (of_line, of_base)]
                    means = [interval(side).mean for side in scores]
                    if means[0] != means[1]:
                        starts.append(f"{column.title} {100 * means[0]:.1f} (Base {100 * means[1]:.1f})")
            if starts:
                yield f"{line.title} starts from {', '.join(starts)}, over the same seeds."

    def _notes(self) -> Iterator[str]:
        """Yields what a reader must know of the runs: how they were asked, how long, and in what else they differ."""
        if self._size == TINY and self._layout.tiny_note:
            yield self._layout.tiny_note
        # Base is measured before training, and a Test LLM that was taught in a run that learns nothing.
        arms = [self._study.arms[line.arm] for line in self._layout.lines if line.arm != BASE]
        runs = {arm.name: [*self._runs(arm.name).values()] for arm in arms if not arm.taught}
        firsts = [of_arm[0] for of_arm in runs.values() if of_arm]
        for first in firsts[:1]:
            metrics = {measure.metric for column in self._columns for measure in column.measures}
            if (samples := first.fields.get("validation.test_samples")) and "code_pass_at_4" in metrics:
                yield f"pass@1 and pass@4 are of {samples} samples of a question."
            for run in firsts[1:]:
                pair = first, run
                declared = {name for result in pair for name in self._study.arms[result.run.arm].fields}
                alone = any(result.fields["method"] in ("golden", "static_tests") for result in pair)
                known = {"method", *declared, *(OF_TEST_LLM if alone else ())}
                if fields := [name for name in differences(first.config, run.config) if name not in known]:
                    titles = [self._study.arms[result.run.arm].title for result in pair]
                    yield f"{titles[1]} differs from {titles[0]} also in {', '.join(fields)}."
        for run in (run for of_arm in runs.values() for run in of_arm if run.early):
            steps = " and ".join(map(str, run.early))
            yield f"{Path(run.name).name} was measured at step {steps} of {run.fields['steps']}."

    def _detectable(self) -> Iterator[str]:
        """Yields how large a primary difference must be to be found, by how much it deviates from seed to seed."""
        for first, second in self._layout.primary:
            sides = [self._scores(self._lines[key], self._columns[0]) for key in (first, second)]
            both = [seed for seed in sides[0] if seed in sides[1]]
            if len(both) > 1:
                means, others = ([interval([side[seed][0].scores[None]]).mean for seed in both] for side in sides)
                spread = float(np.std(np.subtract(means, others), ddof=1))
                differing = (
                    f"{100 * detectable(spread, seeds, len(self._layout.primary)):.1f} with {seeds} seeds"
                    for seeds in PLANNED_SEEDS
                )
                titles = " - ".join(self._lines[key].title for key in (first, second))
                yield (
                    f"{titles} deviates by {100 * spread:.1f} points from seed to seed. A paired t test finds so many "
                    f"points with a chance of {POWER:.0%}, as the first of Holm's: {', '.join(differing)}."
                )


def detectable(spread: float, seeds: int, tests: int) -> float:
    """Returns the mean difference that a paired t test finds with a chance of `POWER`, in the units of `spread`.

    Args:
      spread: standard deviation of the differences between two arms, over seeds.
      seeds: of each arm.
      tests: comparisons after Holm; the first of them must pass at 0.05 / tests.
    """
    critical = stats.t.ppf(1 - (1 - CONFIDENCE) / tests / 2, seeds - 1)
    bounds = 0.0, 1000.0  # spreads
    return spread * optimize.brentq(lambda mean: stats.nct.sf(critical, seeds - 1, mean * seeds**0.5) - POWER, *bounds)


def _adjusted(rows: Sequence[TableRow]) -> tuple[TableRow, ...]:
    """Returns the rows with p-values that are adjusted for all comparisons in them that have one."""
    p_holm = iter(holm([pair.difference.p_value for row in rows for cell in row.cells for pair in cell.comparisons]))

    def adjusted(cell: Cell) -> Cell:
        return replace(cell, comparisons=tuple(replace(pair, p_holm=next(p_holm)) for pair in cell.comparisons))

    return tuple(replace(row, cells=tuple(map(adjusted, row.cells))) for row in rows)


def differing(measured: Iterable[Measured]) -> list[str]:
    """Returns the settings of `codea1.benchmark` in which evaluations differ; one that kept none is passed over."""
    kept = [result.settings for result in measured if result.settings]
    return [name for name in dict.fromkeys(chain(*kept)) if len({repr(settings.get(name)) for settings in kept}) > 1]
