"""The paper's tables as studies/paper.toml declares them: which rows against which, over which columns; its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codea1.lab.paper.experiments import ARMS, PAPER, TINY
from codea1.lab.study.declaration import BASE
from codea1.lab.study.results import Measure


@dataclass(frozen=True)
class Column:
    """One column of a table: the plain mean of its measures, which for most is one."""

    key: str
    title: str
    measures: tuple[Measure, ...]


@dataclass(frozen=True)
class Line:
    """One row of a table."""

    key: str  # an experiment and, behind a plus, its tester
    title: str  # {alpha} in it is that of Code-A1 at the size
    experiment: str  # name in ARMS, or BASE
    against: tuple[str, ...] = ()  # keys of the rows that it is compared with
    tester: str = ""  # whose Test LLM chooses among the samples: an experiment or BASE; empty: there is no choice


@dataclass(frozen=True)
class PublishedTable:
    """Numbers in percent."""

    place: str  # in the paper or on its project page
    rows: Mapping[str, Mapping[str, Sequence[float]]]  # by size and key of `Line`, one for each column
    source: str = "table"  # or "figure": the numbers were read off

    @property
    def origin(self) -> str:
        """Where the numbers are from, in words."""
        return f"{self.place}, {'as printed' if self.source == 'table' else 'read off the figure'}"


@dataclass(frozen=True)
class Layout:
    """One table of the paper, or one that the paper could have had."""

    name: str
    title: str
    lines: tuple[Line, ...]
    tiny_columns: tuple[Column, ...]  # none: there is no such table
    columns: tuple[Column, ...]  # at every other size
    published: PublishedTable | None = None

    def columns_of(self, size: str) -> tuple[Column, ...]:
        return self.tiny_columns if size == TINY else self.columns

    def published_number(self, size: str, row: str, column: str) -> float | None:
        """Returns a cell's number in percent, by the keys of its row and column; None where none was published."""
        numbers = self.published.rows.get(size, {}).get(row) if self.published else None
        return None if numbers is None else dict(zip((each.key for each in self.columns), numbers, strict=True))[column]


def _line(key: str, title: str = "", against: Sequence[str] = ()) -> Line:
    experiment, _, tester = key.partition("+")
    names = ["Base" if each == BASE else ARMS[each].title for each in (experiment, tester) if each]
    return Line(key, title or " with tests of ".join(names), experiment, tuple(against), tester)


def _measure(text: str) -> Measure:
    split, _, metric = text.rpartition(" ")
    return Measure(metric, split)


def _layout(declared: Mapping[str, Any]) -> Layout:
    lines = tuple(_line(**row) for row in declared["rows"])
    tiny, columns = (tuple(COLUMNS[key] for key in declared[name]) for name in ("tiny_columns", "columns"))
    published = PublishedTable(**declared["published"]) if "published" in declared else None
    return Layout(declared["name"], declared["title"], lines, tiny, columns, published)


COLUMNS = {key: Column(key, title, tuple(map(_measure, texts))) for key, (title, *texts) in PAPER.columns.items()}
LAYOUTS = {layout.name: layout for layout in map(_layout, PAPER.tables)}
