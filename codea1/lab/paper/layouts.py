"""The paper's tables: which rows, filled by which experiments, against which row, over which columns; its numbers.

The published numbers are those of the Code-A1 paper (arXiv 2603.15611), in percent. They say nothing of their spread:
they are single runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from codea1.lab.paper.experiments import ARMS, CODE_A1, SFT_TEST, TINY
from codea1.lab.study.declaration import BASE

TRAINING_SPLIT = "test"  # held-out questions that `codea1.train` itself asks before the first step and after the last


@dataclass(frozen=True)
class PublishedTable:
    """One table of numbers in percent."""

    place: str  # in the paper or on its project page
    columns: tuple[str, ...]  # keys of `Column`
    rows: Mapping[tuple[str, str], tuple[float, ...]]  # by the size of both players and the key of `Line`
    source: str = "table"  # or "figure": the numbers were read off

    @property
    def origin(self) -> str:
        """Where the numbers are from, in words."""
        return f"{self.place}, {'as printed' if self.source == 'table' else 'read off the figure'}"

    def value(self, size: str, row: str, column: str) -> float | None:
        """Returns the number of a cell, in percent; None where nothing was published."""
        values = self.rows.get((size, row))
        return None if values is None or column not in self.columns else values[self.columns.index(column)]


@dataclass(frozen=True)
class Measure:
    """One metric of one benchmark, as `codea1.evaluation.result_files` keeps it; or the end of a training curve."""

    metric: str  # where it ends in "*", the first metric that begins so
    split: str = ""  # of the evaluation; empty: a metric of metrics.jsonl, over the last tenth of the steps


@dataclass(frozen=True)
class Column:
    """One column of a table: the plain mean of its measures, which for most is one."""

    key: str  # by which the published tables know it
    title: str
    measures: tuple[Measure, ...]

    @property
    def is_curve(self) -> bool:
        """Whether it is read off a training curve: then there are no questions to compare by."""
        return not self.measures[0].split


@dataclass(frozen=True)
class Line:
    """One row of a table."""

    key: str  # by which the published tables know it
    title: str  # {alpha} in it is that of Code-A1 at the size
    experiment: str  # name in ARMS, BASE or SFT_TEST
    against: tuple[str, ...] = ()  # keys of the rows that it is compared with
    tester: str = ""  # whose Test LLM chooses among the samples: an experiment or BASE; empty: there is no choice


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
    "figure",
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


def _test(metric: str) -> tuple[Measure, ...]:
    return (Measure(metric, TRAINING_SPLIT),)


_HUMANEVAL = Measure("avg_at_*", "humanevalplus")
_MBPP = Measure("avg_at_*", "mbppplus")
_BIGCODEBENCH = Measure("avg_at_*", "bigcodebench_complete")
TINY_CODE = (
    Column("tiny_pass", "pass@1", _test("code_pass_at_1")),
    Column("tiny_greedy", "pass@1, greedy", _test("code_pass_at_1_greedy")),
    Column("tiny_pass_at_4", "pass@4", _test("code_pass_at_4")),
)
TINY_TEST = (
    Column("tiny_validity", "Validity", _test("test_validity")),
    Column("tiny_mutation", "Mutation score", _test("test_mutation_score")),
    Column("tiny_kill", "Strict kill", _test("test_strict_kill")),
    Column("tiny_mul", "Mul", _test("test_mul")),
)
_BENCHMARKS = (
    Column("humanevalplus", "HumanEval+", (_HUMANEVAL,)),
    Column("mbppplus", "MBPP+", (_MBPP,)),
    Column("bigcodebench", "BigCodeBench", (_BIGCODEBENCH,)),
)
CODE = (*_BENCHMARKS, Column("average", "Avg", (_HUMANEVAL, _MBPP, _BIGCODEBENCH)))
TEST = (
    Column("ult_pass", "ULT pass@5", (Measure("pass_at_5", "ult"),)),
    Column("ult_mut", "ULT mut@5", (Measure("mut_at_5", "ult"),)),
    Column("ult_mul", "ULT Mul", (Measure("mul", "ult"),)),
)
_CURVES = (
    Column("pass_rate_new", "Training: pass rate, new tests", (Measure("code/pass_rate_new"),)),
    Column("pass_rate_history", "Training: pass rate, history", (Measure("code/pass_rate_history"),)),
)


def _line(experiment: str, *against: str, title: str = "") -> Line:
    return Line(experiment, title or ARMS[experiment].title, experiment, against)


def _together(code: str, test: str, *against: str) -> Line:
    name = {BASE: "Base", CODE_A1: "Code-A1"}
    return Line(f"{code}+{test}", f"{name[code]} with tests of {name[test]}", code, against, test)


_BASE_LINE = Line(BASE, "Base", BASE)
LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            "code_generation",
            "Code generation (the paper's Table 1)",
            (
                _BASE_LINE,
                _line("golden", BASE),
                _line("self_play", BASE, "golden"),
                _line(CODE_A1, BASE, "golden", "self_play"),
            ),
            TINY_CODE,
            CODE,
            CODE_GENERATION,
        ),
        Layout(
            "test_generation",
            "Test generation (the paper's Table 2)",
            (
                _BASE_LINE,
                _line(SFT_TEST, BASE),
                _line("self_play", BASE),
                _line(CODE_A1, BASE, SFT_TEST, "self_play"),
            ),
            TINY_TEST,
            TEST,
            TEST_GENERATION,
        ),
        Layout(
            "alpha",
            "Alpha, the weight of validity in the Test LLM's reward",
            (
                _line("alpha_0", CODE_A1, title="alpha = 0"),
                _line("alpha_0.25", CODE_A1, title="alpha = 0.25"),
                Line(CODE_A1, "alpha = {alpha:g}, Code-A1", CODE_A1),
                _line("alpha_0.75", CODE_A1, title="alpha = 0.75"),
                _line("alpha_1", CODE_A1, title="alpha = 1"),
            ),
            TINY_CODE + TINY_TEST,
            _BENCHMARKS + TEST,
            ALPHA,
        ),
        Layout(
            "golden_source",
            "Generated tests as fixed golden tests",
            (
                _line("golden", title="The dataset's tests"),
                _line("static_base", "golden"),
                _line("static_sft", "golden"),
                _line("static_a1", "golden"),
            ),
            TINY_CODE,
            CODE,
            GOLDEN_SOURCE,
        ),
        Layout(
            "collaboration",
            "Test-time collaboration: the sample that passes most generated tests (one of n)",
            (
                _BASE_LINE,
                _line(CODE_A1, BASE),
                _together(BASE, BASE, BASE),
                _together(CODE_A1, BASE, CODE_A1),
                _together(BASE, CODE_A1, BASE, f"{BASE}+{BASE}"),
                _together(CODE_A1, CODE_A1, CODE_A1, f"{CODE_A1}+{BASE}"),
            ),
            (),
            CODE,
            COLLABORATION,
        ),
        Layout(
            "mistake_book",
            "Mistake Book",
            (_line(CODE_A1, title="with"), _line("no_book", CODE_A1, title="without")),
            TINY_CODE + TINY_TEST + _CURVES,
            CODE + TEST + _CURVES,
        ),
        Layout(
            "ablations",
            "What else was taken away",
            (
                _line(CODE_A1),
                *(_line(name, CODE_A1) for name in ("black_box", "frozen_code", "frozen_test", "simple")),
            ),
            TINY_CODE + TINY_TEST,
            CODE + TEST,
        ),
    )
}
