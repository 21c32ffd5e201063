"""The paper's tables as layouts: which rows, filled by which experiments, against which row, over which columns."""

from collections.abc import Mapping
from dataclasses import dataclass

from codea1.paper import published
from codea1.paper.experiments import BASE, CODE_A1, EXPERIMENTS, SFT_TEST, TINY
from codea1.paper.published import PublishedTable

TRAINING_SPLIT = "test"  # held-out questions that `codea1.train` itself asks before the first step and after the last


@dataclass(frozen=True)
class Measure:
    """One metric of one benchmark, as `codea1.evaluation.evaluations` keeps it; or the end of a training curve."""

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
    experiment: str  # name in EXPERIMENTS, BASE or SFT_TEST
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
    return Line(experiment, title or EXPERIMENTS[experiment].title, experiment, against)


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
            published.CODE_GENERATION,
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
            published.TEST_GENERATION,
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
            published.ALPHA,
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
            published.GOLDEN_SOURCE,
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
            published.COLLABORATION,
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
