"""The evaluation of programs on a benchmark of the Code LLM, from what is asked to the file with the result."""

import contextlib
import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from codea1.config import config_of
from codea1.evaluation import best_of_n
from codea1.evaluation.asked import Asked
from codea1.evaluation.attempts import TRUTHS, Attempt, attempts_of_file, attempts_of_truth, kept_attempts, sampled
from codea1.evaluation.benchmark import CodeBenchmark
from codea1.evaluation.code_benchmarks import load_benchmark
from codea1.evaluation.evaluation import Evaluation, EvaluationFolder, Judged, digest, require_models, sandbox
from codea1.evaluation.statistics import pass_at_k_of
from codea1.game.methods import METHODS
from codea1.game.question import Question
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import require_judged, why_lost, why_unjudged
from codea1.values.verdict import Verdict

KS = (1, 8, 16, 32)  # of pass@k
NOTHING = "nothing was generated"
FILES = ("attempts", "results")


def evaluate_code(asked: Asked, hosts: Hosts) -> None:
    """Measures, prints the tables and writes evaluations/NAME.json; all hosts answer, and the main one judges.

    Raises BadInput for all that can be found wrong before a model is loaded.
    """
    with contextlib.ExitStack() as stack:
        with hosts.agreed():
            pool = stack.enter_context(sandbox()) if hosts.is_main else None
            benchmark = load_benchmark(asked.benchmark, asked.file, asked.semantics, pool)
            run = RunFolder.existing(asked.run) if asked.run else None
            given = _given(asked.completions, benchmark)
            require_models(asked.model, asked.test_model)
            if asked.best_of and not asked.test_model and "test" not in METHODS[config_of(run).method].roles:
                raise BadInput(f"{run.path} has no Test LLM for --best_of: give --test_model.")
        evaluation = Evaluation(asked, run, hosts)
        folder = stack.enter_context(evaluation.folder(asked.benchmark, lambda: _settings(evaluation, given), FILES))
        if pool:
            evaluation.console.print(pool.isolation_note)
        broken = hosts.of_main(lambda: _broken(evaluation, benchmark))
        questions = [question for question in benchmark.questions if question.id not in broken]
        _sample_and_judge(evaluation, benchmark, questions, given, folder)
        if folder:
            ids = [question.id for question in benchmark.questions]
            evaluation.publish(benchmark.name, metrics(benchmark, folder, broken), ids, broken)
        if asked.best_of:
            best_of_n.choose(evaluation, benchmark, questions, broken, folder, pool)


def _given(completions: str, benchmark: CodeBenchmark) -> list[Attempt] | None:
    if not completions:
        return None
    return (attempts_of_truth if completions in TRUTHS else attempts_of_file)(completions, benchmark)


def _settings(evaluation: Evaluation, given: Sequence[Attempt] | None) -> dict[str, Any]:
    asked = evaluation.asked
    settings = {"semantics": asked.semantics} if asked.benchmark in ("humanevalplus", "mbppplus") else {}
    if given is not None:
        return settings | {"completions": asked.completions, "attempts": digest(given)}
    return settings | evaluation.settings_of_policy(asked.model) | dataclasses.asdict(asked.sampling)


def _broken(evaluation: Evaluation, benchmark: CodeBenchmark) -> dict[str, str]:
    """Returns the questions that are left out, with the reasons. Raises BadInput where those are all."""
    with evaluation.shown("ground truths", len(benchmark.questions)) as advance:
        broken = broken_questions(benchmark, advance)
    for id, reason in broken.items():
        evaluation.console.print(f"{id} is left out: {reason}", markup=False)
    if len(broken) == len(benchmark.questions):
        id, reason = next(iter(broken.items()))
        raise BadInput(f"no question of {benchmark.name} can be judged here; {id}: {reason}.")
    return broken


def broken_questions(benchmark: CodeBenchmark, advance: Callable[[], None]) -> dict[str, str]:
    """Returns the questions of which not even the ground truth passes here, with the reasons.

    They say nothing about a model. `advance` is called for each that is judged. Raises BadInput as `require_judged`
    does.
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
        advance()
        if run.verdict is Verdict.INFRA:
            broken[id] = f"the sandbox failed on its own solution, until this command runs again: {run.detail}"
        elif run.verdict is not Verdict.PASS:
            broken[id] = f"its own solution does not pass: {run.verdict.value}: {run.detail}"
    require_judged(unjudged, f"ground truths of {benchmark.name}")
    return broken


def _sample_and_judge(
    evaluation: Evaluation,
    benchmark: CodeBenchmark,
    questions: Sequence[Question],
    given: Sequence[Attempt] | None,
    folder: EvaluationFolder | None,
) -> None:
    """Judges what was given, or what the Code LLM answers while it answers; what the folder holds is not done again."""
    asked, ids = evaluation.asked, {question.id for question in questions}
    there = kept_attempts(folder, ids) if folder else []
    done = evaluation.hosts.of_main(lambda: {attempt.key for attempt in there})
    if given is not None:
        new = [attempt for attempt in given if attempt.question_id in ids and attempt.key not in done]
    elif len(done) == len(questions) * asked.sampling.samples:
        new = []
    else:
        policy = evaluation.policy("code", asked.model)
        new = sampled(benchmark, questions, policy, evaluation.templates, asked.sampling, done)
    judged = {attempt.key for attempt in there if attempt.key in folder.rows("results")}
    left = [attempt for attempt in there if attempt.key not in judged]
    total = len(questions) * asked.sampling.samples if given is None else len(done) + len(new)
    evaluation.keep(
        folder,
        "results",
        f"programs for {benchmark.name}",
        total - len(judged),
        _judged(benchmark, questions, left, new, folder),
        before=len(judged),
    )
    if folder:
        attempts = kept_attempts(folder, ids)
        if empty := sum(not attempt.program for attempt in attempts):
            evaluation.console.print(f"{empty} of {len(attempts)} programs are empty and count as failures.")


def _judged(
    benchmark: CodeBenchmark,
    questions: Sequence[Question],
    left: Sequence[Attempt],
    new: Iterable[Attempt],
    folder: EvaluationFolder | None,
) -> Iterator[Judged]:
    """Yields what came of each attempt, in their order, while the new ones still come; nothing without a folder."""
    by_id = {question.id: question for question in questions}
    running: deque[tuple[Attempt, Future[ScriptRun]]] = deque()
    for attempt in itertools.chain(left, _kept(new, folder)):
        if attempt.program:
            running.append((attempt, benchmark.judge(by_id[attempt.question_id], attempt.program)))
        else:
            yield Judged({attempt.key: {"verdict": Verdict.FAIL.value, "detail": NOTHING, "cpu_seconds": 0.0}})
        while running and running[0][1].done():
            yield _result(*running.popleft())
    for attempt, future in running:
        yield _result(attempt, future)


def _kept(new: Iterable[Attempt], folder: EvaluationFolder | None) -> Iterator[Attempt]:
    """Yields the attempts that it keeps: without a folder none, but all are sampled, for hosts do that together."""
    for attempt in new:
        if folder:
            folder.add("attempts", attempt.key, {"program": attempt.program})
            yield attempt


def _result(attempt: Attempt, future: Future[ScriptRun]) -> Judged:
    run = future.result()
    row = {"verdict": run.verdict.value, "detail": run.detail, "cpu_seconds": run.cpu_seconds}
    rows = {} if run.verdict is Verdict.INFRA else {attempt.key: row}
    return Judged(rows, [why_lost([run.verdict], [run.detail])])


def metrics(benchmark: CodeBenchmark, folder: EvaluationFolder, left_out: Collection[str]) -> dict[str, list[float]]:
    """Returns avg@n and unbiased pass@k per question; NaN for those left out, or with an attempt without a result.

    n is the smallest number of attempts at a question that has any; avg@n is over all of a question's. One without
    attempts is NaN.
    """
    passes: dict[str, list[float]] = {question.id: [] for question in benchmark.questions}
    for attempt in kept_attempts(folder, passes):
        row = folder.rows("results").get(attempt.key)
        passes[attempt.question_id].append(math.nan if row is None else float(row["verdict"] == Verdict.PASS.value))
    n = min((len(row) for id, row in passes.items() if row and id not in left_out), default=0)
    for id in left_out:
        passes[id] = [math.nan] * n
    found = {f"avg_at_{n}": [math.fsum(row) / len(row) if row else math.nan for row in passes.values()]}
    for k in KS:
        if k <= n:
            found[f"pass_at_{k}"] = [pass_at_k_of(row, k) for row in passes.values()]
    return found
