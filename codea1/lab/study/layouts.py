"""The tables and figures that a study declares: rows against rows, over columns, next to published numbers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from codea1.lab.report.tables import label

BASE = "base"  # the models before training, as a row
TINY = "tiny"  # the size of the demo's models
OWN_SPLIT = "test"  # of the questions that `codea1.train` itself asks before the first step and after the last
METRICS = (  # the columns of a study that declares none
    *("code_pass_at_1", "code_pass_at_1_greedy"),
    *("test_validity", "test_mutation_score", "test_strict_kill", "test_mul"),
)
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?b)(?![a-z])", re.IGNORECASE)

Pair = tuple[str, str]  # of arms: is the first above the second?


class Measure(NamedTuple):
    """One metric of one evaluation, as `codea1.evaluation.result_files` keeps it; or the end of a training curve."""

    metric: str  # where it ends in "*", the first metric that begins so
    split: str = OWN_SPLIT  # of the evaluation; empty: a metric of metrics.jsonl, over the last tenth of the steps

    @property
    def is_of_benchmark(self) -> bool:
        """Whether `codea1.benchmark` measures it, and no run itself."""
        return self.split not in ("", OWN_SPLIT)


@dataclass(frozen=True)
class Column:
    """One column of a table: the plain mean of its measures, which for most is one."""

    key: str
    title: str
    measures: tuple[Measure, ...]


@dataclass(frozen=True)
class Line:
    """One row of a table."""

    key: str  # an arm and, behind a plus, its tester
    title: str
    arm: str  # its name, or BASE
    against: tuple[str, ...] = ()  # keys of the rows that it is compared with
    tester: str = ""  # whose Test LLM chooses among the samples: an arm or BASE; empty: there is no choice


@dataclass(frozen=True)
class Layout:
    """One table."""

    name: str
    title: str
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]  # at every size but TINY
    tiny_columns: tuple[Column, ...]  # none: there is no such table
    published: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)  # percents by size and row
    published_in: str = ""  # the place in the paper or on its project page
    tiny_note: str = ""
    is_drawn: bool = False
    split: str = ""  # of the runs
    seeds: tuple[int, ...] = ()  # that are declared, of a stage's table; none: all that there are
    primary: tuple[Pair, ...] = ()  # of a stage's table

    def columns_of(self, size: str) -> tuple[Column, ...]:
        return self.tiny_columns if size == TINY else self.columns

    def published_number(self, size: str, row: str, column: str) -> float | None:
        """Returns a cell's number in percent, by the keys of its row and column; None where none was published."""
        numbers = self.published.get(size, {}).get(row, [None] * len(self.columns))
        return dict(zip((column.key for column in self.columns), numbers, strict=True)).get(column)


@dataclass(frozen=True)
class CurvesFigure:
    """A figure of training curves: a panel for each metric, a line for each arm."""

    name: str
    arms: Sequence[str]
    panels: Mapping[str, str]  # titles by metric of metrics.jsonl
    split: str = ""  # of the runs


def declared_columns(declared: Mapping[str, Sequence[str]]) -> dict[str, Column]:
    """Returns columns by their keys, or those of METRICS where none is declared. Raises IndexError: one is empty."""
    columns = {key: Column(key, texts[0], tuple(map(_measure, texts[1:]))) for key, texts in declared.items()}
    return columns or {metric: Column(metric, label(metric), (Measure(metric),)) for metric in METRICS}


def declared_table(declared: Mapping[str, Any], columns: Mapping[str, Column], titles: Mapping[str, str]) -> Layout:
    """Returns a table as a file declares it. Raises KeyError or TypeError: a key, column or arm is unknown.

    Args:
      titles: of arms and BASE.
    """
    keys = dict(declared)
    lines = tuple(_line(titles, **row) for row in keys.pop("rows"))
    every, tiny = (tuple(columns[name] for name in keys.pop(key)) for key in ("columns", "tiny_columns"))
    return Layout(lines=lines, columns=every, tiny_columns=tiny, **keys)


def published_size(player: Mapping[str, Any]) -> str:
    """Returns the size that a player's shape or model folder names, as "1.5b"; empty: codea1.sft makes the model."""
    names = (player.get("shape", ""), Path(player.get("model", "")).name)
    return next((size[1].lower() for name in names if (size := _SIZE.search(name))), "")


def _line(titles: Mapping[str, str], key: str, title: str = "", against: Sequence[str] = ()) -> Line:
    arm, _, tester = key.partition("+")
    names = [titles[name] for name in (arm, tester) if name]
    return Line(key, title or " with tests of ".join(names), arm, tuple(against), tester)


def _measure(text: str) -> Measure:
    split, _, metric = text.rpartition(" ")
    return Measure(metric, split)
