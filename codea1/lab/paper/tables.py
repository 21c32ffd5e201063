"""The paper's tables, filled: ours with intervals, the published number beside it, comparisons, missing commands."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path

import numpy as np

from codea1.config import OF_TEST_LLM
from codea1.evaluation.statistics import Interval
from codea1.lab.paper.experiments import (
    ARMS,
    FIELDS,
    OWN,
    SFT_TEST,
    TINY,
    Workplace,
    begins_with_base,
    code_a1_settings,
)
from codea1.lab.paper.layouts import COLUMNS, LAYOUTS, Column, Layout, Line
from codea1.lab.statistics import Difference, difference, holm, interval
from codea1.lab.study.declaration import BASE
from codea1.lab.study.results import OWN_SPLIT, Measured, Result, Results, differences, same_questions, stacked
from codea1.runtime.errors import BadInput

CLEAR = 0.05  # a comparison below is called significant


@dataclass(frozen=True)
class Comparison:
    """One cell against the same cell of another row."""

    against: str  # title of that row
    difference: Difference  # shares
    p_holm: float = math.nan  # adjusted for all comparisons of the table that have a p-value

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
    commands: tuple[str, ...] = ()  # that would fill it, where it is missing


@dataclass(frozen=True)
class TableRow:
    """One method."""

    key: str
    title: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A layout at one size, filled."""

    layout: Layout
    size: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.layout.name}_{self.size}"

    @property
    def comparisons(self) -> list[Comparison]:
        """Those of all cells."""
        return [comparison for row in self.rows for cell in row.cells for comparison in cell.comparisons]

    @property
    def is_published(self) -> bool:
        """Whether the paper has a number for any cell."""
        return any(cell.published is not None for row in self.rows for cell in row.cells)


def tables(results: Results, places: Mapping[str, Workplace]) -> list[Table]:
    """Returns every table at every size that a run was given of, the smallest first.

    Args:
      results: as `codea1.lab.paper.experiments.collected` gives them.
      places: by size, where the commands that fill missing cells run.

    Raises:
      BadInput: an evaluation is damaged, seeds or rows were not asked the same questions, or a row was measured with
        two numbers of samples or in two ways.
      StorageFailed: a file cannot be read.
    """
    layouts = [(size, each) for size in sizes(results) for each in LAYOUTS.values() if each.columns_of(size)]
    return [_Filling(layout, size, results, places[size]).table() for size, layout in layouts]


def sizes(results: Results) -> list[str]:
    """Returns the sizes of the models, smallest first."""

    def billions(size: str) -> tuple[float, str]:
        number = size.removesuffix("b")
        return (float(number) if number.replace(".", "", 1).isdigit() else 0.0, size)

    return sorted(results.worlds, key=billions)


class _Filling:
    """One layout at one size, while its cells are filled with what runs measured."""

    def __init__(self, layout: Layout, size: str, results: Results, place: Workplace) -> None:
        self._layout, self._size, self._results, self._place = layout, size, results, place
        self._columns = layout.columns_of(size)
        alpha = code_a1_settings(size)["game.alpha"]
        titled = (replace(line, title=line.title.format(alpha=alpha)) for line in layout.lines)
        self._lines = {line.key: line for line in titled}
        # The seeds that all rows have that there are, so that they can be read beside each other; none without runs.
        of_rows = [set(runs) for line in layout.lines if (runs := self._runs(line.experiment))]
        self._seeds = set.intersection(*of_rows) if of_rows else set()

    def table(self) -> Table:
        """Returns the table. Raises BadInput as `tables` does."""
        rows = []
        for line in self._lines.values():
            cells = []
            for column in self._columns:
                compared = [self._compare(self._lines[key], line, column) for key in line.against]
                cells.append(replace(self._cell(line, column), comparisons=tuple(filter(None, compared))))
            rows.append(TableRow(line.key, line.title, tuple(cells)))
        notes = (*self._samples(), *dict.fromkeys(self._measured()), *self._starts(), *self._notes())
        return Table(self._layout, self._size, self._columns, _adjusted(rows), notes)

    def _runs(self, experiment: str) -> dict[int, Result]:
        return self._results.seeds(self._size, experiment)

    def _scores(self, line: Line, column: Column, before: bool = False) -> dict[int, list[Measured]]:
        """Returns each of a column's measures, by the table's seeds, or by all where it has none.

        Seeds that lack a measure are left out.

        Args:
          before: those that the row's own runs began with.

        Raises BadInput: a measure was taken with two numbers of samples, or in two ways.
        """
        found = self._all_scores(line, column, before)
        return {seed: taken for seed, taken in found.items() if not self._seeds or seed in self._seeds}

    def _all_scores(self, line: Line, column: Column, before: bool = False) -> dict[int, list[Measured]]:
        of_size = [each for each in self._results if each.run.world == self._size]
        own = [each for each in of_size if each.run.arm == line.experiment]
        is_base = line.experiment == BASE
        if is_base:  # every run of a seed begins with the same models; one without a Test LLM has not measured it
            own += [each for each in of_size if begins_with_base(each.run.arm)]
        moment = "before" if before or is_base else "after"
        found = {}
        for seed in sorted({each.run.seed for each in own}):
            taken = []
            for measure in column.measures:
                of_runs = [each.measured(measure, moment, line.tester) for each in own if each.run.seed == seed]
                every = list(chain.from_iterable(of_runs))
                what = f"{line.title}, {measure.split}, seed {seed},"
                samples_of(every, what)
                if names := differing(every):
                    raise BadInput(f"{what} was measured with more than one {', '.join(names)}: use one evaluation.")
                taken += every[:1]
            if len(taken) == len(column.measures):
                found[seed] = taken
        return found

    def _cell(self, line: Line, column: Column) -> Cell:
        number = self._layout.published_number(self._size, line.key, column.key)
        by_seed = self._scores(line, column)
        if not by_seed:  # a row's run can be its tester's too
            return Cell(published=number, commands=tuple(dict.fromkeys(self._commands(line, column))))
        scores = stacked([*by_seed.values()], f"{line.title}, {column.title},")
        return Cell(interval(scores), tuple(by_seed), number)

    def _compare(self, against: Line, line: Line, column: Column) -> Comparison | None:
        """Returns one cell's comparison with that of another row; None where they share no seed or no question."""
        if not column.measures[0].split:  # of the end of a curve there are no questions to compare by
            return None
        before, after = (self._scores(each, column) for each in (against, line))
        seeds = tuple(seed for seed in after if seed in before)
        if not seeds:
            return None
        what = f"{line.title} and {against.title}, {column.title},"
        both = [[side[seed] for seed in seeds] for side in (before, after)]
        sides = [stacked(side, what) for side in both]
        if not all(map(same_questions, zip(*both[0], *both[1], strict=True))):
            raise BadInput(f"{what} were not measured on the same questions.")
        found = difference(*sides)
        return None if math.isnan(found.mean) else Comparison(against.title, found)

    def _commands(self, line: Line, column: Column) -> Iterator[str]:
        """Yields what would fill a cell: the missing runs, and their measurement where training makes none."""
        place = self._place
        splits = [measure.split for measure in column.measures if measure.split not in ("", OWN_SPLIT)]
        if line.experiment == BASE and splits:
            yield from self._exported(line.tester)
            yield from (place.evaluate(split, tester=line.tester) for split in splits)
            return
        runs = self._runs(line.experiment)
        if not runs or not splits:  # a run that was cut off goes on by its own command; none adds to one that ended
            ended = {f"{line.experiment}_{seed}" for seed, run in runs.items() if run.has_ended}
            yield from (job.command for job in place.trained(line.experiment) if job.name not in ended)
        tester = OWN if line.tester == line.experiment else line.tester
        yield from self._exported(tester)
        planned = [f"{place.workdir}/{job.name}" for job in place.trained(line.experiment)]
        folders = [run.name for run in runs.values()] or planned
        yield from (place.evaluate(split, folder, tester) for split in splits for folder in folders)

    def _exported(self, tester: str) -> Iterator[str]:
        """Yields what makes the model folder of a Test LLM that chooses, unless it is Base or the run's own."""
        if tester in ("", BASE, OWN):
            return
        first = self._place.trained(tester)[0]
        run = self._runs(tester).get(0)
        if run is None:
            yield first.command
        yield self._place.export(tester, run.name if run else f"{self._place.workdir}/{first.name}")

    def _samples(self) -> Iterator[str]:
        """Yields with how many samples of a question each row was measured, where the user chooses that."""
        counts = {}
        for line in self._lines.values():
            taken = (self._all_scores(line, column).values() for column in self._columns)
            measured = [each for by_seed in taken for parts in by_seed for each in parts]
            if count := samples_of(measured, line.title):
                counts[line.title] = count
        if counts:
            yield f"Samples of a question: {', '.join(f'{title} {count}' for title, count in counts.items())}."

    def _measured(self) -> Iterator[str]:
        """Yields in what rows were measured differently on a benchmark, and of how many tasks a row has a number."""
        measures = [(column, place) for column in self._columns for place in range(len(column.measures))]
        for (column, place), is_chosen in product(measures, (False, True)):
            split = column.measures[place].split
            if split in ("", OWN_SPLIT):
                continue
            lines = [line for line in self._lines.values() if bool(line.tester) == is_chosen]
            taken = {line.title: [each[place] for each in self._scores(line, column).values()] for line in lines}
            rows = {title: measured for title, measured in taken.items() if measured}
            for name in differing(chain.from_iterable(rows.values())):
                told = (f"{title} {each.settings.get(name, '-')}" for title, own in rows.items() for each in own)
                yield f"{split}, {name}: {', '.join(dict.fromkeys(told))}."
            for title, own in rows.items():
                has_number = np.min([~np.isnan(each.scores).all(axis=1) for each in own], axis=0)
                if not has_number.all():
                    yield f"{title}, {split}: {has_number.sum()} of {len(has_number)} tasks."

    def _starts(self) -> Iterator[str]:
        """Yields where rows started that did not start where Base is: their Test LLM is asked in another prompt."""
        base = Line(BASE, "Base", BASE)
        for line in self._lines.values():
            if line.experiment in (BASE, SFT_TEST) or line.tester:
                continue
            found = []
            for column in self._columns:
                own, bases = self._scores(line, column, before=True), self._scores(base, column)
                both = tuple(seed for seed in own if seed in bases)
                if both:
                    means = [interval(stacked([each[seed] for seed in both], line.title)).mean for each in (own, bases)]
                    if means[0] != means[1]:
                        found.append(f"{column.title} {100 * means[0]:.1f} (Base {100 * means[1]:.1f})")
            if found:
                yield f"{line.title} starts from {', '.join(found)}, over the same seeds."

    def _notes(self) -> Iterator[str]:
        """Yields what a reader must know of the runs: how they were asked, how long, and in what else they differ."""
        if self._size == TINY and "golden" in [line.experiment for line in self._layout.lines]:
            yield (
                "The dataset's tests are five random inputs, never the empty list: of the 576 near misses of the "
                "training questions 85 (14.8 %) pass all of them (docs/demo.md)."
            )
        first = None
        for line in self._layout.lines:
            # Base is measured before training, and the SFT Test LLM in a run that learns nothing.
            is_trained = line.experiment not in (BASE, SFT_TEST)
            runs = list(self._runs(line.experiment).values()) if is_trained else []
            for run in runs[:1]:
                if first is None:
                    first = run
                    samples = run.fields.get("validation.test_samples")
                    if samples and self._columns[0] is COLUMNS["tiny_pass"]:
                        yield f"pass@1 and pass@4 are of {samples} samples of a question."
                alone = any(each.fields["method"] in ("golden", "static_tests") for each in (first, run))
                known = FIELDS + OF_TEST_LLM if alone else FIELDS
                fields = [name for name in differences(first.config, run.config) if name not in known]
                if fields:
                    titles = [ARMS[each.run.arm].title for each in (run, first)]
                    yield f"{titles[0]} differs from {titles[1]} also in {', '.join(fields)}."
            for run in (each for each in runs if each.early):
                steps = " and ".join(map(str, run.early))
                yield f"{Path(run.name).name} was measured at step {steps} of {run.fields['steps']}."


def samples_of(measured: Iterable[Measured], what: str) -> str:
    """Returns with how many samples of a question all were measured; empty where that number is fixed.

    Raises:
      BadInput: with several numbers; `what` was measured is named.
    """
    counts = sorted({each.samples for each in measured if each.samples})
    if len(counts) > 1:
        raise BadInput(f"{what} was measured with {' and with '.join(counts)} samples of a question: use one number.")
    return "".join(counts)


def differing(measured: Iterable[Measured]) -> list[str]:
    """Returns the settings of `codea1.benchmark` in which evaluations differ; one that kept none is passed over."""
    kept = [each.settings for each in measured if each.settings]
    return [name for name in dict.fromkeys(chain(*kept)) if len({repr(each.get(name)) for each in kept}) > 1]


def _adjusted(rows: Sequence[TableRow]) -> tuple[TableRow, ...]:
    """Returns the rows with p-values that are adjusted for all comparisons in them."""
    found = [each for row in rows for cell in row.cells for each in cell.comparisons]
    p_holm = iter(holm([each.difference.p_value for each in found]))

    def adjusted(cell: Cell) -> Cell:
        return replace(cell, comparisons=tuple(replace(each, p_holm=next(p_holm)) for each in cell.comparisons))

    return tuple(replace(row, cells=tuple(map(adjusted, row.cells))) for row in rows)
