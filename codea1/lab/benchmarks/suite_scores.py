"""What suites are worth that were written for programs: whether they hold, what they run, which mutants they kill."""

import math
import os
import tempfile
import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from coverage import Coverage

from codea1.data.loader import parsed
from codea1.evaluation.result_files import PerQuestion
from codea1.game.answers import extract_program
from codea1.lab.benchmarks.benchmarks import SuiteBenchmark, SuiteTask
from codea1.lab.mutants import mutants
from codea1.lab.sandbox.benchmarks import Arc, BenchmarkPool, TracedRun
from codea1.values.verdict import Verdict

TEST_SECONDS = 10.0  # CPU time of one test, and of a suite on one mutant, as upstream gives cosmic-ray
MUTANT_FACTOR = 10.0  # a suite may take so many times as long on a mutant as on the program,
MIN_MUTANT_SECONDS = 0.5  # but never less than this, nor more than TEST_SECONDS
COVERAGE_AT = (1, 2, 5)  # first tests whose coverage is measured, beside that of all K

_PARSER = threading.Lock()  # CPython 3.11 and 3.12 break when two threads make trees: python/cpython#106905


@dataclass(frozen=True)
class SuiteScore:
    """One suite on its program. Only the first K tests count, K the benchmark's `num_tests`."""

    task_id: str
    verdicts: list[Verdict]  # of each test on its own; fewer than K where the suite has fewer
    details: list[str]  # what failed, in a sentence; empty for a pass
    parses: list[bool]  # each test
    coverage: dict[str, list[float]]  # by "k": the shares of lines and of branches that the first k covering tests run
    mutants: int  # of the program
    killed: int | None  # of them, by the tests that pass; None where none passes, or these fail when run together
    lost: bool  # the sandbox failed: nothing is known
    seconds: float  # CPU time of everything

    def row(self) -> dict[str, Any]:
        """Returns the score as plain data, to be kept as JSON."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "SuiteScore":
        """Returns what `row` gave, also after a way through JSON that writes NaN as null."""
        coverage = {k: [math.nan if share is None else share for share in both] for k, both in row["coverage"].items()}
        return cls(**{**row, "verdicts": [Verdict(verdict) for verdict in row["verdicts"]], "coverage": coverage})


def score_suites(
    benchmark: SuiteBenchmark, tasks: Iterable[SuiteTask], suites: Mapping[str, Sequence[str]], pool: BenchmarkPool
) -> Iterator[SuiteScore]:
    """Yields the score of each task's suite as it is finished; a task without one has an empty suite."""
    workers = 1 + len(os.sched_getaffinity(0))  # they mostly wait; each has the mutants of one task in memory
    with ThreadPoolExecutor(workers) as executor, warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # about programs that are not ours
        futures = [executor.submit(score_suite, benchmark, task, suites.get(task.id, ()), pool) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            executor.shutdown(cancel_futures=True)


def score_suite(benchmark: SuiteBenchmark, task: SuiteTask, suite: Sequence[str], pool: BenchmarkPool) -> SuiteScore:
    """Runs the first K tests of a suite each on its own, and those that pass together on every mutant of the program.

    A test has a namespace and, on the program itself, a process of its own: a name that two tests define is two
    functions, and a test that hangs or exits costs itself alone. Upstream writes all into one file, where of equal
    names only the last is run.
    """
    tests = [dedent(extract_program(text).source) for text in suite[: benchmark.num_tests]]
    with _PARSER:
        imports, parses = benchmark.imports_of(task.program, *tests), [parsed(test) is not None for test in tests]
    tested = SuiteRuns(benchmark, task, imports, pool)
    runs = tested.alone(tests)
    right = [test for test, run in zip(tests, runs, strict=True) if run.verdict is Verdict.PASS]
    on_mutants, lost = tested.on_mutants(right) if right else ([], False)
    with _PARSER:
        coverage = _coverage(benchmark, task, runs)
    return SuiteScore(
        task_id=task.id,
        verdicts=[run.verdict for run in runs],
        details=[run.detail for run in runs],
        parses=parses,
        coverage=coverage,
        mutants=len(tested.mutants),
        killed=sum(run.verdict is not Verdict.PASS for run in on_mutants) if on_mutants else None,
        lost=lost or _is_lost(runs),
        seconds=tested.seconds,
    )


def metrics(benchmark: SuiteBenchmark, scores: Sequence[SuiteScore]) -> PerQuestion:
    """Returns every metric of some suites, one value per suite in their order; NaN where the sandbox failed.

    With K the benchmark's number of tests: `pass_at_K` is the share of the K tests that hold on the program, missing
    ones included, so that its mean is upstream's sum of correct tests over N K; `pass_at_1` looks at the first test.
    `mut_at_K` is the share of mutants killed, defined as upstream's only where all K tests pass;
    `mut_at_K_of_passing` is that of the tests that pass, 0 where none does. Both are NaN for a program without mutants.
    `mul` is the product of the means of pass_at_K and mut_at_K. `line_coverage_at_k` and `branch_coverage_at_k` are
    those of the first k of the tests that the benchmark lets count towards them; `test_syntax` and `test_executable`
    TestEval's shares of the K tests that parse, and that run up to their assertion at least.
    """
    total = benchmark.num_tests
    measured: PerQuestion = {
        "pass_at_1": [float(score.verdicts[:1] == [Verdict.PASS]) for score in scores],
        f"pass_at_{total}": [score.verdicts.count(Verdict.PASS) / total for score in scores],
        f"mut_at_{total}": [_mutation_score(score, total) for score in scores],
        f"mut_at_{total}_of_passing": [(score.killed or 0) / (score.mutants or math.nan) for score in scores],
        "test_syntax": [sum(score.parses) / total for score in scores],
        "test_executable": [
            sum(verdict in (Verdict.PASS, Verdict.FAIL) for verdict in score.verdicts) / total for score in scores
        ],
    }
    for k in _coverage_at(benchmark):
        measured[f"line_coverage_at_{k}"] = [score.coverage[str(k)][0] for score in scores]
        measured[f"branch_coverage_at_{k}"] = [score.coverage[str(k)][1] for score in scores]
    known = {
        name: [math.nan if score.lost else value for score, value in zip(scores, values, strict=True)]
        for name, values in measured.items()
    }
    factors = zip(known[f"pass_at_{total}"], known[f"mut_at_{total}"], strict=True)
    return {**known, "mul": [list(pair) for pair in factors]}


class SuiteRuns:
    """The runs of tests on one task's program and its mutants."""

    def __init__(self, benchmark: SuiteBenchmark, task: SuiteTask, imports: str, pool: BenchmarkPool) -> None:
        self._benchmark, self._task, self._imports, self._pool = benchmark, task, imports, pool
        with _PARSER:
            self.mutants = [mutant.source for mutant in mutants(task.program)]
        self.seconds = 0.0  # CPU time so far

    def alone(self, tests: Sequence[str]) -> list[TracedRun]:
        """Runs each test on the program in a process of its own, traced."""
        runs = self._run([(self._task.program, [test]) for test in tests], TEST_SECONDS, traced=True)
        must_read = self._benchmark.must_read.format(entry_point=self._task.entry_point)
        return [
            run if must_read in test else replace(run, verdict=Verdict.INVALID, detail=f"it does not call {must_read}")
            for test, run in zip(tests, runs, strict=True)
        ]

    def on_mutants(self, tests: Sequence[str]) -> tuple[list[TracedRun], bool]:
        """Runs tests that pass alone together on each mutant.

        Returns:
          The runs, none where the tests fail together, now or after the mutants; and whether the sandbox failed on any,
          so that nothing is known.
        """
        (first,) = self._run([(self._task.program, tests)], TEST_SECONDS)
        if first.verdict is not Verdict.PASS:
            return [], _is_lost([first])
        limit = min(max(MUTANT_FACTOR * first.cpu_seconds, MIN_MUTANT_SECONDS), TEST_SECONDS)
        runs = self._run([(mutant, tests) for mutant in self.mutants], limit)
        (last,) = self._run([(self._task.program, tests)], TEST_SECONDS)
        return runs if last.verdict is Verdict.PASS else [], _is_lost([*runs, last])

    def _run(
        self, jobs: Sequence[tuple[str, Sequence[str]]], cpu_seconds: float, traced: bool = False
    ) -> list[TracedRun]:
        futures = [
            self._pool.run_suite(
                program,
                tests,
                module=self._benchmark.module,
                imports=self._imports,
                traced=traced,
                cpu_seconds=cpu_seconds,
            )
            for program, tests in jobs
        ]
        runs = [future.result() for future in futures]
        self.seconds += sum(run.cpu_seconds for run in runs)
        return runs


def _is_lost(runs: Iterable[TracedRun]) -> bool:
    return any(run.verdict is Verdict.INFRA for run in runs)


def _mutation_score(score: SuiteScore, num_tests: int) -> float:
    if score.killed is None or not score.mutants or score.verdicts.count(Verdict.PASS) != num_tests:
        return math.nan
    return score.killed / score.mutants


def _coverage_at(benchmark: SuiteBenchmark) -> list[int]:
    return sorted({k for k in COVERAGE_AT if k < benchmark.num_tests} | {benchmark.num_tests})


def _coverage(benchmark: SuiteBenchmark, task: SuiteTask, runs: Sequence[TracedRun]) -> dict[str, list[float]]:
    covering = [run.arcs for run in runs if run.verdict in benchmark.covering]
    firsts = {k: frozenset().union(*covering[:k]) for k in _coverage_at(benchmark)}
    return {str(k): [*each] for k, each in zip(firsts, coverage_of(task.program, [*firsts.values()]), strict=True)}


class Covered(NamedTuple):
    """Shares of a program's executable lines and of the exits of its branching lines; NaN where there are none."""

    lines: float
    branches: float


def coverage_of(program: str, runs: Sequence[Collection[Arc]]) -> list[Covered]:
    """Returns what several runs of a program cover, each a set of arcs as `BenchmarkPool.run_suite` gives them.

    Nothing of the program is run here; it must compile.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program, "utf-8")
        return [_covered(str(path), arcs) for arcs in runs]


def _covered(path: str, arcs: Collection[Arc]) -> Covered:
    library = Coverage(data_file=None, branch=True, config_file=False, messages=False)
    library.get_data().add_arcs({path: arcs})
    _, lines, _, missing, _ = library.analysis2(path)
    exits = library.branch_stats(path).values()
    return Covered(
        _share(len(lines) - len(missing), len(lines)),
        _share(sum(taken for _, taken in exits), sum(total for total, _ in exits)),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
