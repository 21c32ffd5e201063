"""Evaluates programs on a benchmark of the Code LLM, from its questions to the file with the result."""

import contextlib
import dataclasses
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, cast

from codea1.data.loader import load_questions
from codea1.data.rows import Row
from codea1.evaluation.statistics import pass_at_k
from codea1.game.answers import extract_program, without_thoughts
from codea1.game.prompts import PromptTemplates
from codea1.game.question import Question
from codea1.lab.benchmarks import best_of_n, bigcodebench, livecodebench
from codea1.lab.benchmarks.benchmarks import (
    BIGCODEBENCH,
    LIVECODEBENCH,
    AnswerSampling,
    CodeBenchmark,
    EvaluationSpec,
    benchmark_rows,
    require_all,
)
from codea1.lab.benchmarks.bigcodebench import BigCodeBench
from codea1.lab.benchmarks.evalplus import DATASETS, CheckScripts, EvalPlus, load_problems
from codea1.lab.benchmarks.evaluation import Attempt, Evaluation, EvaluationFolder, Judged, Key, settings_digest
from codea1.lab.benchmarks.livecodebench import LiveCodeBench
from codea1.lab.mutants import drawn_mutants
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.players.policy import Policy
from codea1.rollout.engine import Request
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import require_judged, why_lost, why_unjudged
from codea1.sandbox.isolation import AUTO
from codea1.values.verdict import Verdict

KS = (1, 8, 10, 16, 32)  # of pass@k
NOTHING = "nothing was generated"
NOT_ASKED = "no completion was given"
FILES = ("attempts", "results")
GROUND_TRUTH, MUTATED = "ground_truth", "mutated_ground_truth"  # values of --completions that are no files


def evaluate_code(spec: EvaluationSpec, hosts: Hosts) -> None:
    """Measures, prints the tables and writes evaluations/NAME.json; all hosts answer, and the main one judges.

    Raises BadInput for all that can be found wrong before a model is loaded.
    """
    with contextlib.ExitStack() as stack:
        with hosts.agreed():
            pool = stack.enter_context(BenchmarkPool(isolation=AUTO)) if hosts.is_main else None
            benchmark = load_benchmark(spec, pool)
            given = given_attempts(spec.completions, benchmark, spec.part) if spec.completions else None
        evaluation = Evaluation(spec, hosts)

        def settings() -> dict[str, Any]:
            settings: dict[str, Any] = {"semantics": spec.semantics} if spec.benchmark in DATASETS else {}
            if spec.benchmark == LIVECODEBENCH:
                settings = dict(zip(("from", "until"), spec.window, strict=True))
            if given is not None:
                return settings | {"completions": spec.completions, "attempts": settings_digest(given)}
            return settings | evaluation.settings_of_policy("code", spec.model) | dataclasses.asdict(spec.sampling)

        folder = stack.enter_context(evaluation.folder(spec.benchmark, settings, FILES))
        if pool:
            evaluation.console.print(pool.isolation_note)
        broken = hosts.of_main(lambda: _broken(evaluation, benchmark, given))
        questions = [question for question in benchmark.questions if question.id not in broken]
        _sample_and_judge(evaluation, benchmark, questions, given, folder)
        if folder:
            ids = [question.id for question in benchmark.questions]
            evaluation.publish(benchmark.name, metrics(benchmark, folder, broken), ids, broken)
        if spec.best_of:
            best_of_n.choose(evaluation, benchmark, questions, broken, folder, pool)


def load_benchmark(spec: EvaluationSpec, pool: BenchmarkPool | None) -> CodeBenchmark:
    """Loads one of CODE_BENCHMARKS from its official file, or files, local or in a bucket.

    Raises:
      BadInput: no such file, with where to get it, or names the file and row of what is wrong.
    """
    judging = cast(BenchmarkPool, pool)  # a host without one judges nothing
    name, path = spec.benchmark, spec.file
    if name == LIVECODEBENCH:
        return LiveCodeBench(livecodebench.load_tasks(spec.files, spec.window), judging)
    if name in BIGCODEBENCH:
        return BigCodeBench(name, bigcodebench.load_tasks(path), judging)
    if spec.semantics == "evalplus":
        return EvalPlus(name, load_problems(name, path), judging)
    return CheckScripts(name, [question for question in load_questions(path) if question.data_source == name], judging)


def _has_ground_truths(benchmark: CodeBenchmark) -> bool:
    return any(question.ground_truth for question in benchmark.questions)


def given_attempts(completions: str, benchmark: CodeBenchmark, part: bool = False) -> list[Attempt]:
    """Returns the programs of a file, or the ground truths, one each, as they are or as a mutant.

    Rows of a file have `task_id` and, as text, `solution` or else `completion`: a solution is a whole program, alone or
    in a code block; a completion goes on where the question's code ends.

    Raises BadInput: the file, line or task that is malformed, unknown to the benchmark, or without a completion.
    """
    if completions in (GROUND_TRUTH, MUTATED) and not _has_ground_truths(benchmark):
        raise BadInput(f"--completions={completions}: {benchmark.name} has no ground truths.")
    if completions == GROUND_TRUTH:
        return [Attempt(question.id, 0, question.ground_truth) for question in benchmark.questions]
    if completions == MUTATED:
        drawn = ((q.id, drawn_mutants(q.ground_truth, 1, q.id)) for q in benchmark.questions)
        return [Attempt(id, 0, program) for id, programs in drawn for program in programs]
    questions = {question.id.lower(): question for question in benchmark.questions}
    count: Counter[str] = Counter()
    attempts = []
    for where, row in benchmark_rows(completions):
        if not isinstance(row.get("task_id"), str):
            raise BadInput(f"{where}: there is no task_id.")
        question = questions.get(row["task_id"].lower())
        if question is None:
            raise BadInput(f"{where}: the task {row['task_id']} is not in {benchmark.name}.")
        field = "solution" if "solution" in row else "completion"
        if not isinstance(row.get(field), str):
            raise BadInput(f"{where}: {field} is {'not text' if field in row else 'missing, and so is solution'}.")
        take = benchmark.program if field == "solution" else benchmark.continued
        program = take(question, row[field]) if row[field].strip() else ""
        attempts.append(Attempt(question.id, count[question.id], program))
        count[question.id] += 1
    if not (part and attempts):
        require_all([question.id for question in benchmark.questions], count, completions)
    return attempts


def _broken(evaluation: Evaluation, benchmark: CodeBenchmark, given: Sequence[Attempt] | None) -> dict[str, str]:
    """Returns the questions that are left out, with the reasons. Raises BadInput where those are all."""
    asked = {q.id for q in benchmark.questions} if given is None else {a.question_id for a in given}
    if _has_ground_truths(benchmark):
        with evaluation.shown("ground truths", len(asked)) as advance:
            broken = broken_questions(benchmark, asked, advance)
    else:
        evaluation.console.print(f"{benchmark.name} has no ground truths: that its tests are right is taken on trust.")
        broken = broken_questions(benchmark, asked, lambda: None)
    for id, reason in broken.items():
        if reason != NOT_ASKED:
            evaluation.console.print(f"{id} is left out: {reason}", markup=False)
    if len(broken) == len(benchmark.questions):
        id, reason = next(iter(broken.items()))
        raise BadInput(f"no question of {benchmark.name} can be judged here; {id}: {reason}.")
    return broken


def broken_questions(benchmark: CodeBenchmark, asked: Collection[str], advance: Callable[[], None]) -> dict[str, str]:
    """Returns the questions that are not `asked`, or of which not even the ground truth passes here, with the reasons.

    They say nothing about a model. A question without a ground truth is not among the latter. `advance` is called for
    each that is judged. Raises BadInput as `require_judged` does.
    """
    broken = benchmark.unjudged()
    broken |= {question.id: NOT_ASKED for question in benchmark.questions if question.id not in asked}
    judged = [question for question in benchmark.questions if question.ground_truth and question.id not in broken]
    futures = [(question.id, benchmark.judge(question, question.ground_truth)) for question in judged]
    unjudged = []
    for id, future in futures:
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
    spec, ids = evaluation.spec, {question.id for question in questions}
    there = folder.attempts(ids) if folder else []
    done = evaluation.hosts.of_main(lambda: {attempt.key for attempt in there})
    if given is not None:
        new = [attempt for attempt in given if attempt.question_id in ids and attempt.key not in done]
        total = len(done) + len(new)
    else:
        total, new = len(questions) * spec.sampling.samples, ()
        if len(done) < total:
            policy = evaluation.policy("code", spec.model)
            new = sampled(benchmark, questions, policy, evaluation.templates, spec.sampling, done)
    results = folder.rows["results"] if folder else {}
    left = [attempt for attempt in there if attempt.key not in results]
    before = len(there) - len(left)
    by_id = {question.id: question for question in questions}

    def judged() -> Iterator[Judged]:
        """Yields what came of each attempt, in their order, while the new ones still come."""
        running: deque[tuple[Attempt, Future[ScriptRun]]] = deque()
        for attempt in itertools.chain(left, new):
            if folder is None:
                continue  # this host samples with the others, and judges nothing
            if attempt.key not in folder.rows["attempts"]:
                folder.add("attempts", attempt.key, {"program": attempt.program})
            if attempt.program:
                running.append((attempt, benchmark.judge(by_id[attempt.question_id], attempt.program)))
            else:
                yield Judged({attempt.key: {"verdict": Verdict.FAIL.value, "detail": NOTHING, "cpu_seconds": 0.0}})
            while running and running[0][1].done():
                yield _result(*running.popleft())
        for attempt, future in running:
            yield _result(attempt, future)

    evaluation.keep(folder, "results", f"programs for {benchmark.name}", total - before, judged(), before)
    if folder:
        attempts = folder.attempts(ids)
        if empty := sum(not attempt.program for attempt in attempts):
            evaluation.console.print(f"{empty} of {len(attempts)} programs are empty and count as failures.")


def sampled(
    benchmark: CodeBenchmark,
    questions: Sequence[Question],
    policy: Policy,
    templates: PromptTemplates,
    sampling: AnswerSampling,
    done: Collection[Key],
) -> Iterator[Attempt]:
    """Yields the attempts at the questions that are not `done`, as they finish; empty where the prompt does not fit.

    All hosts make the same call. An attempt is the same whatever is done already.
    """
    by_id = {question.id: question for question in questions}
    requests = []
    for question in questions:
        indices = [index for index in range(sampling.samples) if (question.id, index) not in done]
        prefill = "" if policy.tokenizer.thinks else benchmark.prefill  # it would take the place of the thoughts
        prompt_ids = policy.prompt_ids(benchmark.messages(question, templates), prefill)
        if not policy.fits(prompt_ids):
            yield from (Attempt(question.id, index, "") for index in indices)
            continue
        # One request for each run of consecutive indices, along which index and rank differ by the same number.
        for _, run in itertools.groupby(enumerate(indices), lambda pair: pair[1] - pair[0]):
            numbers = [index for _, index in run]
            requests.append(Request(question.id, prompt_ids, numbers[0], len(numbers)))
    for sample in policy.generate(requests, **sampling.options(f"code/{benchmark.name}")):
        question = by_id[sample.question_id]
        answer = without_thoughts(policy.tokenizer.decode(sample.token_ids))
        if policy.tokenizer.thinks and benchmark.prefill:
            answer = extract_program(answer, question.entry_point).source
        answer = answer[: min((end for end in map(answer.find, benchmark.stops) if end >= 0), default=len(answer))]
        program = benchmark.program(question, answer) if answer.strip() else ""
        yield Attempt(sample.question_id, sample.index, program)


def _result(attempt: Attempt, future: Future[ScriptRun]) -> Judged:
    run = future.result()
    row = {"verdict": run.verdict.value, "detail": run.detail, "cpu_seconds": run.cpu_seconds}
    rows = {} if run.verdict is Verdict.INFRA else {attempt.key: row}
    return Judged(rows, [why_lost([run.verdict], [run.detail])])


def metrics(benchmark: CodeBenchmark, folder: EvaluationFolder, left_out: Collection[str]) -> dict[str, list[float]]:
    """Returns avg@n and unbiased pass@k per question; NaN for those left out, or with an attempt without a result.

    n is the smallest number of attempts at a question that has any; avg@n is over all of a question's. One without
    attempts is NaN. Where a benchmark has inputs beyond the base ones, the same by the base ones alone is `base_...`.
    """
    results: dict[str, list[Row | None]] = {question.id: [] for question in benchmark.questions}
    for attempt in folder.attempts(results):
        results[attempt.question_id].append(folder.rows["results"].get(attempt.key))
    n = min((len(rows) for id, rows in results.items() if rows and id not in left_out), default=0)
    scores = {}
    for prefix, passes in benchmark.judgements.items():
        shares = [
            [math.nan] * n if id in left_out else [math.nan if row is None else float(passes(row)) for row in rows]
            for id, rows in results.items()
        ]
        scores[f"{prefix}avg_at_{n}"] = [math.fsum(row) / len(row) if row else math.nan for row in shares]
        for k in KS:
            if k <= n:
                scores[f"{prefix}pass_at_{k}"] = [pass_at_k(row, k) for row in shares]
    return scores
