"""The paper's tables, filled: ours with intervals, the published number beside it, comparisons, missing commands."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from codea1.evaluation.statistics import Difference, Interval, difference, holm, interval
from codea1.paper.commands import Place
from codea1.paper.experiments import BASE, EXPERIMENTS, FIELDS, SFT_TEST, TINY, recipe, value
from codea1.paper.layouts import LAYOUTS, TINY_CODE, TRAINING_SPLIT, Column, Layout, Line
from codea1.paper.results import Results, differences, same_questions, samples_of, stacked
from codea1.runtime.errors import BadInput

CLEAR = 0.05  # a comparison below is called significant


@dataclass(frozen=True)
class Comparison:
    """One cell against the same cell of another row."""

    against: str  # title of that row
    difference: Difference  # shares
    seeds: tuple[int, ...]  # that both have
    p_holm: float = math.nan  # adjusted for all comparisons of the table that have a p-value

    @property
    def is_clear(self) -> bool:
        return self.p_holm < CLEAR


@dataclass(frozen=True)
class Cell:
    """What stands at a row and a column."""

    ours: Interval | None = None  # shares; None: not measured
    seeds: tuple[int, ...] = ()
    published: float | None = None  # percent
    comparisons: tuple[Comparison, ...] = ()
    commands: tuple[str, ...] = ()  # that would fill it, where it is missing


@dataclass(frozen=True)
class Row:
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
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.layout.name}_{self.size}"


def tables(results: Results, places: Mapping[str, Place]) -> list[Table]:
    """Returns every table at every size that a run was given of.

    Args:
      places: by size, where the commands that fill missing cells run.

    Raises:
      BadInput: an evaluation is damaged, seeds or rows were not asked the same questions, or a row was measured with
        two numbers of samples.
      StorageFailed: a file cannot be read.
    """
    layouts = [(size, each) for size in results.sizes for each in LAYOUTS.values() if each.columns_of(size)]
    return [fill(layout, size, results, places[size]) for size, layout in layouts]


def fill(layout: Layout, size: str, results: Results, place: Place) -> Table:
    """Returns one table at one size.

    Raises:
      BadInput: as `tables` does.
    """
    columns = layout.columns_of(size)
    lines = {line.key: replace(line, title=line.title.format(alpha=recipe(size).alpha)) for line in layout.lines}
    seeds = _shared_seeds(layout, size, results)
    rows = []
    for line in lines.values():
        cells = []
        for column in columns:
            cell = _cell(layout, line, column, size, results, place, seeds)
            compared = (_compare(lines[key], line, column, size, results, seeds) for key in line.against)
            cells.append(replace(cell, comparisons=tuple(filter(None, compared))))
        rows.append(Row(line.key, line.title, tuple(cells)))
    notes = (
        *_samples(lines.values(), columns, size, results),
        *_starts(lines.values(), columns, size, results, seeds),
        *_notes(layout, size, results),
    )
    return Table(layout, size, columns, _adjusted(rows), notes)


def _shared_seeds(layout: Layout, size: str, results: Results) -> set[int]:
    """The seeds that all rows have that there are, so that they can be read beside each other; none without runs."""
    of_rows = [set(runs) for line in layout.lines if (runs := results.runs(size, line.experiment))]
    return set.intersection(*of_rows) if of_rows else set()


def _cell(
    layout: Layout, line: Line, column: Column, size: str, results: Results, place: Place, seeds: set[int]
) -> Cell:
    """A cell, of some seeds alone where there are any."""
    published = layout.published.value(size, line.key, column.key) if layout.published else None
    by_seed = {seed: taken for seed, taken in results.scores(size, line, column).items() if not seeds or seed in seeds}
    if not by_seed:
        commands = dict.fromkeys(_commands(line, column, size, results, place))  # a row's run can be its tester's too
        return Cell(published=published, commands=tuple(commands))
    scores = stacked(by_seed, tuple(by_seed), f"{line.title}, {column.title},")
    return Cell(interval(scores), tuple(by_seed), published)


def _compare(
    against: Line, line: Line, column: Column, size: str, results: Results, shared: set[int]
) -> Comparison | None:
    """One cell's comparison, on the table's seeds where it has some."""
    if column.is_curve:
        return None
    before, after = (results.scores(size, each, column) for each in (against, line))
    seeds = tuple(seed for seed in after if seed in before and (not shared or seed in shared))
    if not seeds:
        return None
    what = f"{line.title} and {against.title}, {column.title},"
    sides = [stacked(side, seeds, what) for side in (before, after)]
    if not all(map(same_questions, zip(*(side[seed] for side in (before, after) for seed in seeds), strict=True))):
        raise BadInput(f"{what} were not measured on the same questions.")
    found = difference(*sides)
    return None if math.isnan(found.mean) else Comparison(against.title, found, seeds)


def _adjusted(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with p-values that are adjusted for all comparisons in them."""
    found = [comparison.difference.p_value for row in rows for cell in row.cells for comparison in cell.comparisons]
    p_values = iter(holm([p_value for p_value in found if not math.isnan(p_value)]))
    return tuple(replace(row, cells=tuple(_with_p(cell, p_values) for cell in row.cells)) for row in rows)


def _with_p(cell: Cell, p_values: Iterator[float]) -> Cell:
    adjusted = (
        each if math.isnan(each.difference.p_value) else replace(each, p_holm=next(p_values))
        for each in cell.comparisons
    )
    return replace(cell, comparisons=tuple(adjusted))


def _commands(line: Line, column: Column, size: str, results: Results, place: Place) -> Iterator[str]:
    """What would fill a cell: the runs that there are not, and their measurement where training does not make it."""
    splits = [measure.split for measure in column.measures if measure.split not in ("", TRAINING_SPLIT)]
    if line.experiment == BASE and splits:
        yield from _exported(line.tester, size, results, place)
        yield from (place.evaluate(split, tester=line.tester) for split in splits)
        return
    runs = results.runs(size, line.experiment)
    if not runs or not splits:  # a run that was cut off goes on by its own command; no command adds to one that ended
        ended = {f"{run.experiment}_{seed}" for seed, run in runs.items() if run.has_ended}
        yield from (job.command for job in place.jobs_for(line.experiment) if job.name not in ended)
    yield from _exported(line.tester, size, results, place)
    folders = [str(run.folder.path) for run in runs.values()] or place.folders(line.experiment)
    for split in splits:
        yield from (place.evaluate(split, folder, line.tester) for folder in folders)


def _exported(tester: str, size: str, results: Results, place: Place) -> Iterator[str]:
    """What makes the model folder of a Test LLM that chooses among samples; Base is one already."""
    if tester in ("", BASE):
        return
    seed = EXPERIMENTS[tester].seeds[0]
    run = results.runs(size, tester).get(seed)
    if run is None:
        yield place.train(EXPERIMENTS[tester], seed).command
    yield place.export(tester, str(run.folder.path) if run else place.run(tester, seed))


def _samples(lines: Iterable[Line], columns: Sequence[Column], size: str, results: Results) -> Iterator[str]:
    """With how many samples of a question each row was measured, where that is the choice of who measured."""
    counts = {}
    for line in lines:
        taken = (results.scores(size, line, column).values() for column in columns)
        measured = [each for by_seed in taken for parts in by_seed for each in parts]
        if count := samples_of(measured, line.title):
            counts[line.title] = count
    if counts:
        yield f"Samples of a question: {', '.join(f'{title} {count}' for title, count in counts.items())}."


def _starts(
    lines: Iterable[Line], columns: Sequence[Column], size: str, results: Results, shared: set[int]
) -> Iterator[str]:
    """From where rows started that did not start where Base is: their Test LLM is asked in another prompt."""
    base = Line(BASE, "Base", BASE)
    for line in lines:
        if line.experiment in (BASE, SFT_TEST) or line.tester:
            continue
        found = []
        for column in columns:
            own = results.scores(size, line, column, before=True)
            bases = results.scores(size, base, column)
            both = tuple(seed for seed in own if seed in bases and (not shared or seed in shared))
            if both:
                means = [interval(stacked(each, both, line.title)).mean for each in (own, bases)]
                if means[0] != means[1]:
                    found.append(f"{column.title} {100 * means[0]:.1f} (Base {100 * means[1]:.1f})")
        if found:
            yield f"{line.title} starts from {', '.join(found)}, over the same seeds."


def _notes(layout: Layout, size: str, results: Results) -> Iterator[str]:
    """What a reader of the rows must know of the runs: how they were asked, how long, and in what else they differ."""
    if size == TINY and any(line.experiment == "golden" for line in layout.lines):
        yield (
            "The dataset's tests are five random inputs, never the empty list: of the 576 near misses of the training "
            "questions 85 (14.8 %) pass all of them (docs/demo.md)."
        )
    first = None
    for line in layout.lines:
        # Base is measured before training, and the SFT Test LLM in a run that learns nothing.
        runs = {} if line.experiment in (BASE, SFT_TEST) else results.runs(size, line.experiment)
        for run in list(runs.values())[:1]:
            if first is None:
                first = run
                samples = value(run.folder.config, "validation.test_samples")
                if samples and layout.columns_of(size)[0] is TINY_CODE[0]:
                    yield f"pass@1 and pass@4 are of {samples} samples of a question."
            fields = [name for name in differences(first.folder.config, run.folder.config) if name not in FIELDS]
            if fields:
                titles = [EXPERIMENTS[each.experiment].title for each in (run, first)]
                yield f"{titles[0]} differs from {titles[1]} also in {', '.join(fields)}."
        for run in (each for each in runs.values() if each.early):
            steps = " and ".join(map(str, run.early))
            yield f"{run.folder.path.name} was measured at step {steps} of {run.folder.config['steps']}."
