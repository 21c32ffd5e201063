"""Programs and suites of other origin, judged by each other and by a benchmark: no model is asked.

A suite's tests are what it states: calls with answers that may be wrong. All different tests of a question run on all
its programs. Of each question, and then on average over questions:

  output_accuracy       share of the tests whose answer is the ground truth's
  attack_rate           share of the wrong programs that fail a right test
  fidelity              Spearman's correlation of the tests that a program passes with its verdict by the benchmark: as
                        UTRL has it (Lee et al., arXiv 2508.21107), but for a verdict in the place of a share of hidden
                        tests; of questions with right and wrong programs, and 0 where all pass as many tests
  pass_at_1             share of the programs that are right: what a choice at random gives
  pass_at_1_first_best  whether the first of the programs that pass most different tests is right
  pass_at_1_max_pass    share of right ones among those that pass most tests, each as often as it was written
  pass_at_1_agreement   the same by dual execution agreement (CodeT, Chen et al., arXiv 2207.10397): programs that pass
                        the same tests are a set, and the best has most sqrt(programs) * tests, repetitions included

Where no program passes a test, the choice is at random. `..._gain` is what a choice has more than pass_at_1. With a
benchmark that has base inputs, `base_...` is the same by those alone.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from codea1.game.answers import stated_tests
from codea1.game.asserts import Rejected, parse_assert
from codea1.game.calls import CallTest
from codea1.game.grading import Judge, is_true
from codea1.game.question import Question
from codea1.lab.benchmarks.benchmarks import CodeBenchmark, benchmark_rows
from codea1.lab.benchmarks.evaluation import Attempt, Evaluation, EvaluationFolder, Judged, settings_digest
from codea1.runtime.errors import BadInput
from codea1.runtime.futures import Awaiting, every, start
from codea1.sandbox.host.grading import LOST, Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.values.verdict import Verdict

FILES = ("crossings",)
_AT_ONCE = 4  # questions, each with the verdicts of all its programs in memory

Suites = Mapping[str, Counter[CallTest]]  # by question: how often each test was written


@dataclass(frozen=True)
class Crossing:
    """Which programs of a question pass which tests, and which of both are right."""

    passes: np.ndarray  # bool [programs, tests]
    times: np.ndarray  # int [tests]: how often each was written
    is_right: np.ndarray  # bool [tests]: it states what the ground truth answers
    is_solved: np.ndarray  # bool [programs]: by the benchmark's own judgement

    def scores(self) -> dict[str, float]:
        """Returns what the module's page lists; NaN where there is nothing to measure."""
        at_random = float(self.is_solved.mean())
        chosen = {
            "first_best": self._best(self.passes.sum(axis=1))[:1],
            "max_pass": self._best(self.passes @ self.times),
            "agreement": self._best(self.agreement),
        }
        found = {
            "output_accuracy": float(self.is_right @ self.times / self.times.sum()) if self.times.size else math.nan,
            "attack_rate": _mean(~self.passes[~self.is_solved][:, self.is_right].all(axis=1)),
            "fidelity": self.fidelity,
            "pass_at_1": at_random,
        }
        for name, programs in chosen.items():
            found[f"pass_at_1_{name}"] = float(self.is_solved[programs].mean())
        for name in chosen:
            found[f"{name}_gain"] = found[f"pass_at_1_{name}"] - at_random
        return found

    @cached_property
    def agreement(self) -> np.ndarray:
        """CodeT's score of each program, float [programs]: that of the set which it is in."""
        sets = Counter(row.tobytes() for row in self.passes)
        together = np.array([sets[row.tobytes()] for row in self.passes])
        return np.sqrt(together) * (self.passes @ self.times)

    @property
    def fidelity(self) -> float:
        """Spearman's correlation of the share of tests passed with the verdict."""
        if not self.times.size or self.is_solved.all() or not self.is_solved.any():
            return math.nan
        passed = self.passes @ self.times
        return float(stats.spearmanr(passed, self.is_solved).statistic) if np.ptp(passed) else 0.0

    def _best(self, score: np.ndarray) -> np.ndarray:
        """Returns the indices of the programs with the highest score; of all where that is 0."""
        return np.flatnonzero(score == score.max())


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else math.nan


def given_suites(path: str, questions: Sequence[Question], num_tests: int) -> tuple[Suites, Counter[str]]:
    """Reads suites: rows with task_id and, as a list of asserts, `tests` or, as the text of an answer, `suite`.

    A task may have any number of rows. Forms that people write are read too, see `read_fixed_tests`.

    Args:
      num_tests: that count of each row, the first ones.

    Returns:
      The tests, and why how many asserts are none.

    Raises:
      BadInput: names the file and row of what is malformed or unknown; or no suite is of a question.
    """
    by_id = {question.id.lower(): question for question in questions}
    suites: dict[str, Counter[CallTest]] = defaultdict(Counter)
    rejected: Counter[str] = Counter()
    for where, row in benchmark_rows(path):
        question = by_id.get(str(row.get("task_id", "")).lower())
        if question is None:
            raise BadInput(f"{where}: the task {row.get('task_id')} is not in the benchmark.")
        tests, text = row.get("tests"), row.get("suite")
        if isinstance(tests, list) and all(isinstance(test, str) for test in tests):
            read = [parse_assert(test, question.entry_point) for test in tests]
        elif isinstance(text, str):
            read = stated_tests(text, question.entry_point)
        else:
            raise BadInput(f"{where}: it has neither tests, a list of texts, nor suite, a text.")
        rejected.update(test.reason for test in read if isinstance(test, Rejected))
        suites[question.id].update([test for test in read if not isinstance(test, Rejected)][:num_tests])
    if not suites:
        raise BadInput(f"{path} holds no suite.")
    return suites, rejected


def cross(
    evaluation: Evaluation,
    benchmark: CodeBenchmark,
    left_out: Mapping[str, str],
    programs: EvaluationFolder,
    pool: SandboxPool,
) -> None:
    """Runs the suites of a file on the programs that were judged, and publishes the means over questions.

    Args:
      left_out: questions of the benchmark that are not judged, with the reasons.
      programs: the folder with programs and their verdicts.

    Raises BadInput as `given_suites` and `require_judged` do.
    """
    spec = evaluation.spec
    suites, rejected = given_suites(spec.suites, benchmark.questions, spec.num_tests)
    read = sum(map(Counter.total, suites.values()))
    evaluation.console.print(f"{read:,} tests of {len(suites)} tasks; {rejected.total():,} asserts cannot be read")
    for reason, count in rejected.most_common(5):
        evaluation.console.print(f"  {count:,}: {reason}", markup=False)
    questions = [each for each in benchmark.questions if each.id in suites and each.id not in left_out]
    name = f"{benchmark.name}_suites"
    tests = {id: sorted((test.text, times) for test, times in own.items()) for id, own in suites.items()}
    settings = {**programs.settings, "suites": settings_digest(tests)}
    with evaluation.folder(name, lambda: settings, FILES) as folder:
        assert folder is not None  # what was given is judged by one host
        done = folder.rows("crossings")
        left = [question for question in questions if (question.id, 0) not in done]
        crossed = _crossed(benchmark, left, suites, programs, Grader(pool))
        evaluation.keep(folder, "crossings", "questions", len(left), crossed, before=len(done))
        rows = [folder.rows("crossings").get((question.id, 0), {}) for question in benchmark.questions]
        names = dict.fromkeys(key for row in rows for key in row if key not in ("question_id", "index"))
        metrics = {key: [math.nan if row.get(key) is None else row[key] for row in rows] for key in names}
        ids = [question.id for question in benchmark.questions]
        none = {id: "it has no suite" for id in ids if id not in suites}
        evaluation.publish(name, metrics, ids, none | dict(left_out))


def _crossed(
    benchmark: CodeBenchmark, questions: Sequence[Question], suites: Suites, programs: EvaluationFolder, grader: Grader
) -> Iterator[Judged]:
    """Yields the scores of each question; none where the sandbox failed on one of its programs."""
    results, attempts = programs.rows("results"), defaultdict(list)
    for attempt in programs.attempts({question.id for question in questions}):
        attempts[attempt.question_id].append(attempt)
    running = []
    for question in questions:
        own = attempts[question.id]
        if not own or any(attempt.key not in results for attempt in own):  # another start judges them all
            continue
        solved = {
            prefix: np.array([passes(results[attempt.key]) for attempt in own])
            for prefix, passes in benchmark.judgements.items()
        }
        running.append(start(_run(question, own, solved, suites[question.id], grader)))
        if len(running) > _AT_ONCE:
            yield running.pop(0).result()
    for each in running:
        yield each.result()


def _run(
    question: Question,
    attempts: Sequence[Attempt],
    solved: Mapping[str, np.ndarray],
    suite: Counter[CallTest],
    grader: Grader,
) -> Awaiting[Judged]:
    """Runs the tests of a question on its programs, and scores them by each of the benchmark's judgements."""
    tests, judge = list(suite), Judge(question, grader)
    answers = yield from judge.answers(test.call for test in tests)
    gradings = yield from every([judge.grade(attempt.program, tests) for attempt in attempts])
    passes = np.array([[verdict is Verdict.PASS for verdict in grading.verdicts] for grading in gradings])
    is_right = [is_true(test, answers[test.call]) for test in tests]
    lost = [LOST for each in answers.values() if each.reason == "infra"] + [each.lost for each in gradings if each.lost]
    if lost:
        return Judged({}, lost[:1])
    shape, times = (len(attempts), len(tests)), np.array([suite[test] for test in tests], int)
    scores = {
        f"{prefix}{name}": None if math.isnan(score) else score
        for prefix, is_solved in solved.items()
        for name, score in Crossing(passes.reshape(shape), times, np.array(is_right, bool), is_solved).scores().items()
    }
    return Judged({(question.id, 0): scores}, [""])
