"""What suites are worth that were written for programs: whether they hold, what they run, which mutants they kill."""

import math
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

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
COVERAGE_AT = (1, 2, 5)  # first tests whose coverage is measured, in addition to all K

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

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "SuiteScore":
        """Returns what became a row by `asdict`, and JSON that writes NaN as null."""
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
    names only the last is run. Tests that pass alone but not together, before or after the mutants, kill none.
    """
    tests = [dedent(extract_program(text).source) for text in suite[: benchmark.num_tests]]
    with _PARSER:
        imports, parses = benchmark.imports_of(task.program, *tests), [parsed(test) is not None for test in tests]
        changed = [mutant.source for mutant in mutants(task.program)]

    def run(jobs: Sequence[tuple[str, Sequence[str]]], cpu_seconds: float, traced: bool = False) -> list[TracedRun]:
        """Runs jobs, tests on a program, all at once; the tests of each together and in a process of their own."""
        options: dict[str, Any] = {"module": benchmark.module, "imports": imports, "traced": traced}
        futures = [pool.run_suite(program, tests, **options, cpu_seconds=cpu_seconds) for program, tests in jobs]
        return [future.result() for future in futures]

    alone = run([(task.program, [test]) for test in tests], TEST_SECONDS, traced=True)
    must_read = benchmark.must_read.format(entry_point=task.entry_point)
    for i, test in enumerate(tests):
        if must_read not in test:
            alone[i] = replace(alone[i], verdict=Verdict.INVALID, detail=f"it does not call {must_read}")
    right = [test for test, of_test in zip(tests, alone, strict=True) if of_test.verdict is Verdict.PASS]
    together, killed = run([(task.program, right)] if right else [], TEST_SECONDS), None
    if together and together[0].verdict is Verdict.PASS:
        seconds = min(max(MUTANT_FACTOR * together[0].cpu_seconds, MIN_MUTANT_SECONDS), TEST_SECONDS)
        on_mutants = run([(mutant, right) for mutant in changed], seconds)
        together += on_mutants + run([(task.program, right)], TEST_SECONDS)
        if changed and together[-1].verdict is Verdict.PASS:
            killed = sum(of_mutant.verdict is not Verdict.PASS for of_mutant in on_mutants)
    covering = [of_test.arcs for of_test in alone if of_test.verdict in benchmark.covering]
    firsts = {str(k): frozenset().union(*covering[:k]) for k in _coverage_at(benchmark)}
    with _PARSER:
        covered = coverage_of(task.program, [*firsts.values()])
    return SuiteScore(
        task_id=task.id,
        verdicts=[of_test.verdict for of_test in alone],
        details=[of_test.detail for of_test in alone],
        parses=parses,
        coverage={k: [*shares] for k, shares in zip(firsts, covered, strict=True)},
        mutants=len(changed),
        killed=killed,
        lost=any(done.verdict is Verdict.INFRA for done in alone + together),
        seconds=sum((done.cpu_seconds for done in alone + together), 0.0),
    )


def metrics(benchmark: SuiteBenchmark, scores: Sequence[SuiteScore | None]) -> PerQuestion:
    """Returns every metric of some suites, one value per suite in their order; NaN for None, or if the sandbox failed.

    With K the benchmark's number of tests: `pass_at_K` is the share of the K tests that hold on the program, missing
    ones included, so that its mean is upstream's sum of correct tests over N K; `pass_at_1` looks at the first test.
    `mut_at_K` is the share of mutants killed, defined as upstream's only where all K tests pass;
    `mut_at_K_of_passing` is that of the tests that pass, 0 where none does. Both are NaN for a program without mutants.
    `mul` is the product of the means of pass_at_K and mut_at_K. `line_coverage_at_k` and `branch_coverage_at_k` are
    those of the first k of the tests that the benchmark lets count towards them; `test_syntax` and `test_executable`
    TestEval's shares of the K tests that parse, and that run up to their assertion at least.
    """
    total = benchmark.num_tests
    measures: dict[str, Callable[[SuiteScore], float]] = {
        "pass_at_1": lambda score: float(score.verdicts[:1] == [Verdict.PASS]),
        f"pass_at_{total}": lambda score: score.verdicts.count(Verdict.PASS) / total,
        f"mut_at_{total}": lambda score: _mutation_score(score, total),
        f"mut_at_{total}_of_passing": lambda score: (score.killed or 0) / (score.mutants or math.nan),
        "test_syntax": lambda score: sum(score.parses) / total,
        "test_executable": lambda score: (
            sum(verdict in (Verdict.PASS, Verdict.FAIL) for verdict in score.verdicts) / total
        ),
    }
    for k in _coverage_at(benchmark):
        for i, what in enumerate(("line", "branch")):
            measures[f"{what}_coverage_at_{k}"] = partial(_covered_share, str(k), i)
    measured: PerQuestion = {
        name: [math.nan if score is None or score.lost else measure(score) for score in scores]
        for name, measure in measures.items()
    }
    factors = zip(measured[f"pass_at_{total}"], measured[f"mut_at_{total}"], strict=True)
    return {**measured, "mul": [list(pair) for pair in factors]}


def _mutation_score(score: SuiteScore, num_tests: int) -> float:
    if score.killed is None or not score.mutants or score.verdicts.count(Verdict.PASS) != num_tests:
        return math.nan
    return score.killed / score.mutants


def _covered_share(k: str, index: int, score: SuiteScore) -> float:
    return score.coverage[k][index]


def _coverage_at(benchmark: SuiteBenchmark) -> list[int]:
    return sorted({k for k in COVERAGE_AT if k < benchmark.num_tests} | {benchmark.num_tests})


def coverage_of(program: str, runs: Sequence[Collection[Arc]]) -> list[tuple[float, float]]:
    """Returns what several runs of a program cover, each a set of arcs as `BenchmarkPool.run_suite` gives them.

    That is the shares of its executable lines and of the exits of its branching lines; NaN where there are none.
    Nothing of the program is run here; it must compile.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        Path(path).write_text(program, "utf-8")
        return [_covered(path, arcs) for arcs in runs]


def _covered(path: str, arcs: Collection[Arc]) -> tuple[float, float]:
    library = Coverage(data_file=None, branch=True, config_file=False, messages=False)
    library.get_data().add_arcs({path: arcs})
    _, lines, _, missing, _ = library.analysis2(path)
    exits = library.branch_stats(path).values()
    taken, total = sum(taken for _, taken in exits), sum(total for total, _ in exits)
    return (len(lines) - len(missing)) / (len(lines) or math.nan), taken / (total or math.nan)
