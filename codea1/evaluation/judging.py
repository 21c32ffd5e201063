"""Programs judged by a benchmark as they come, each once, and what their results say."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from codea1.evaluation.attempts import Attempt
from codea1.evaluation.code_benchmark import CodeBenchmark
from codea1.evaluation.evaluation_folder import EvaluationFolder
from codea1.evaluation.pass_at_k import pass_at_k
from codea1.sandbox.host.grading import require_judged, why_lost, why_unjudged
from codea1.sandbox.host.results import ScriptRun
from codea1.values.verdict import Verdict

KS = (1, 8, 16, 32)  # of pass@k
NOTHING = "nothing was generated"


@dataclass
class Judging:
    """Judges attempts in the background; whoever adds them takes the results, too."""

    benchmark: CodeBenchmark
    folder: EvaluationFolder
    seen: Callable[[], None]  # called for each result

    def __post_init__(self) -> None:
        self._questions = {question.id: question for question in self.benchmark.questions}
        self._running: deque[tuple[Attempt, Future[ScriptRun]]] = deque()
        self.lost: set[tuple[str, int]] = set()  # the sandbox failed on them; a later evaluation judges them again
        self._reasons: list[str] = []  # of each attempt that was run: why the sandbox failed; empty where it did not

    def add(self, attempt: Attempt) -> None:
        """Judges an attempt, unless the folder has its result."""
        key = attempt.question_id, attempt.index
        if key in self.folder.rows("results"):
            self._reasons.append("")
            self.seen()
        elif not attempt.program:
            self._keep(attempt, ScriptRun(Verdict.FAIL, NOTHING, 0.0))
        else:
            question = self._questions[attempt.question_id]
            self._running.append((attempt, self.benchmark.judge(question, attempt.program)))
        while self._running and self._running[0][1].done():
            self._take()

    def finish(self) -> None:
        """Waits for all results. Raises BadInput as `require_judged` does."""
        while self._running:
            self._take()
        require_judged(self._reasons, f"programs for {self.benchmark.name}")

    def _take(self) -> None:
        attempt, future = self._running.popleft()
        run = future.result()
        self._reasons.append(why_lost([run.verdict], [run.detail]))
        self._keep(attempt, run)

    def _keep(self, attempt: Attempt, run: ScriptRun) -> None:
        key = attempt.question_id, attempt.index
        if run.verdict is Verdict.INFRA:
            self.lost.add(key)
        else:
            row = {"verdict": run.verdict.value, "detail": run.detail, "cpu_seconds": run.cpu_seconds}
            self.folder.add("results", key, row)
        self.seen()


def broken_questions(benchmark: CodeBenchmark, seen: Callable[[], None]) -> dict[str, str]:
    """Questions of which not even the ground truth passes here, with the reasons: they say nothing about a model.

    Raises BadInput as `require_judged` does.
    """
    missing = benchmark.missing_modules()
    broken = {id: f"this Python has no module {', '.join(names)}" for id, names in missing.items()}
    futures = {
        question.id: benchmark.judge(question, question.ground_truth)
        for question in benchmark.questions
        if question.id not in broken
    }
    unjudged = []
    for id, future in futures.items():
        run = future.result()
        unjudged.append(why_unjudged(run))
        seen()
        if run.verdict is Verdict.INFRA:
            broken[id] = f"the sandbox failed on its own solution, until this command runs again: {run.detail}"
        elif run.verdict is not Verdict.PASS:
            broken[id] = f"its own solution does not pass: {run.verdict.value}: {run.detail}"
    require_judged(unjudged, f"ground truths of {benchmark.name}")
    return broken


def measured(benchmark: CodeBenchmark, folder: EvaluationFolder, left_out: Mapping[str, str]) -> dict[str, list[float]]:
    """avg@n and unbiased pass@k per question; NaN for those that are left out, or have an attempt without a result.

    n is the smallest number of attempts at a question that has any; avg@n is over all of a question's. One without
    attempts is NaN.
    """
    passes = {question.id: [] for question in benchmark.questions}
    for attempt in folder.attempts:
        passes[attempt.question_id].append(_passed(folder, attempt))
    n = min((len(row) for id, row in passes.items() if row and id not in left_out), default=0)
    for id in left_out:
        passes[id] = [math.nan] * n
    metrics = {f"avg_at_{n}": [math.fsum(row) / len(row) if row else math.nan for row in passes.values()]}
    for k in KS:
        if k <= n:
            metrics[f"pass_at_{k}"] = [_pass_at(k, row) for row in passes.values()]
    return metrics


def _passed(folder: EvaluationFolder, attempt: Attempt) -> float:
    row = folder.rows("results").get((attempt.question_id, attempt.index))
    return math.nan if row is None else float(row["verdict"] == Verdict.PASS.value)


def _pass_at(k: int, passes: Sequence[float]) -> float:
    return math.nan if not passes or any(map(math.isnan, passes)) else pass_at_k(len(passes), int(sum(passes)), k)
