"""The numbers that the Code-A1 paper (arXiv 2603.15611) publishes, in percent, as data.

Each table is a mapping from (size of both players, row) to the row's values in the order of its columns; rows are named
as in `codea1.paper.layouts`. The numbers say nothing of their spread: they are single runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Source(Enum):
    """How a number was found."""

    TABLE = "as printed"
    FIGURE = "read off the figure"


@dataclass(frozen=True)
class PublishedTable:
    """One table of numbers in percent."""

    place: str  # in the paper or on its project page
    columns: tuple[str, ...]  # keys of columns of `codea1.paper.layouts`
    rows: Mapping[tuple[str, str], tuple[float, ...]]  # by (size, row)
    source: Source = Source.TABLE

    @property
    def origin(self) -> str:
        return f"{self.place}, {self.source.value}"

    def value(self, size: str, row: str, column: str) -> float | None:
        """Returns the number of a cell, in percent; None where nothing was published."""
        values = self.rows.get((size, row))
        return None if values is None or column not in self.columns else values[self.columns.index(column)]


CODE_COLUMNS = ("humanevalplus", "mbppplus", "bigcodebench", "average")
TEST_COLUMNS = ("ult_pass", "ult_mut", "ult_mul")

CODE_GENERATION = PublishedTable(
    "Table 1, avg@32",
    CODE_COLUMNS,
    {
        ("1.5b", "base"): (63.42, 60.87, 29.34, 51.21),
        ("1.5b", "golden"): (71.15, 63.30, 34.23, 56.23),
        ("1.5b", "self_play"): (70.64, 63.54, 33.47, 55.88),
        ("1.5b", "code_a1"): (72.69, 63.33, 34.82, 56.95),
        ("3b", "base"): (77.63, 63.12, 41.78, 60.84),
        ("3b", "golden"): (81.96, 68.05, 45.41, 65.14),
        ("3b", "self_play"): (81.86, 67.06, 45.09, 64.67),
        ("3b", "code_a1"): (83.52, 69.07, 45.85, 66.15),
        ("7b", "base"): (83.69, 71.95, 49.41, 68.35),
        ("7b", "golden"): (84.68, 74.16, 52.28, 70.37),
        ("7b", "self_play"): (84.70, 74.23, 52.25, 70.39),
        ("7b", "code_a1"): (85.21, 74.50, 52.46, 70.72),
    },
)

TEST_GENERATION = PublishedTable(
    "Table 2, of a tenth of UnLeakedTestBench (it is not told which)",
    TEST_COLUMNS,
    {
        ("1.5b", "base"): (16.29, 22.30, 3.63),
        ("1.5b", "sft_test"): (14.76, 29.45, 4.35),
        ("1.5b", "self_play"): (23.39, 28.91, 6.76),
        ("1.5b", "code_a1"): (27.05, 26.41, 7.14),
        ("3b", "base"): (20.93, 42.55, 8.91),
        ("3b", "sft_test"): (23.51, 36.29, 8.53),
        ("3b", "self_play"): (29.64, 50.92, 15.09),
        ("3b", "code_a1"): (30.86, 49.56, 15.29),
        ("7b", "base"): (28.73, 51.25, 14.72),
        ("7b", "sft_test"): (28.72, 50.85, 14.60),
        ("7b", "self_play"): (35.13, 55.57, 19.52),
        ("7b", "code_a1"): (37.15, 53.14, 19.74),
    },
)

# Code-A1's row, alpha = 0.5, has other code numbers here than in CODE_GENERATION, and the same test numbers.
ALPHA = PublishedTable(
    "figure of the alpha sweep (alpha.png)",
    ("humanevalplus", "mbppplus", "bigcodebench", *TEST_COLUMNS),
    {
        ("1.5b", "alpha_0"): (70.42, 62.10, 34.12, 11.01, 35.79, 3.94),
        ("1.5b", "alpha_0.25"): (71.85, 63.45, 34.56, 20.41, 29.39, 6.00),
        ("1.5b", "code_a1"): (72.63, 64.72, 34.98, 27.05, 26.41, 7.14),
        ("1.5b", "alpha_0.75"): (71.94, 64.10, 34.61, 29.17, 20.43, 5.96),
        ("1.5b", "alpha_1"): (70.88, 63.02, 34.20, 29.86, 19.79, 5.91),
    },
    Source.FIGURE,
)

GOLDEN_SOURCE = PublishedTable(
    "table of generated tests as static golden tests",
    CODE_COLUMNS,
    {
        ("1.5b", "golden"): (71.15, 63.30, 34.23, 56.23),
        ("1.5b", "static_base"): (69.68, 63.66, 32.85, 55.40),
        ("1.5b", "static_sft"): (71.49, 64.24, 32.93, 56.22),
        ("1.5b", "static_a1"): (71.67, 64.42, 34.17, 56.75),
    },
)

COLLABORATION = PublishedTable(
    "table of test-time collaboration, or parallel scaling",
    CODE_COLUMNS,
    {
        ("3b", "base"): (77.63, 63.12, 41.78, 60.84),
        ("3b", "code_a1"): (83.52, 69.07, 45.85, 66.15),
        ("3b", "base+base"): (82.32, 70.63, 42.45, 65.13),
        ("3b", "code_a1+base"): (84.76, 71.69, 45.91, 67.45),
        ("3b", "base+code_a1"): (82.93, 70.90, 43.63, 65.82),
        ("3b", "code_a1+code_a1"): (85.37, 71.96, 46.09, 67.81),
    },
)
