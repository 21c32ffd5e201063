"""The evaluation of programs on a benchmark of the Code LLM, from what is asked to the file with the result."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from codea1.config import config_of
from codea1.evaluation.attempts import TRUTHS, Attempt, attempts_of_file, attempts_of_truth
from codea1.evaluation.best_of_evaluation import BestOfEvaluation
from codea1.evaluation.code_benchmark import CodeBenchmark
from codea1.evaluation.code_benchmarks import load_benchmark
from codea1.evaluation.evaluation_folder import PROGRAMS, EvaluationFolder, Key
from codea1.evaluation.judging import Judging, broken_questions, measured
from codea1.evaluation.sampling import sampled
from codea1.evaluation.session import Asked, Evaluation, digest, sandbox
from codea1.game.methods import METHODS
from codea1.models import huggingface
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts


def evaluate_code(asked: Asked, hosts: Hosts) -> None:
    """Measures, prints the tables and writes evaluations/NAME.json; all hosts answer, and the main one judges.

    Raises BadInput for all that can be found wrong before a model is loaded.
    """
    with contextlib.ExitStack() as stack:
        with hosts.agreed():
            pool = stack.enter_context(sandbox()) if hosts.is_main else None
            benchmark = load_benchmark(asked.benchmark, asked.file, asked.semantics, pool)
            run = RunFolder.existing(asked.run) if asked.run else None
            attempts = _given(asked.completions, benchmark)
            _require_models(asked, run)
        evaluation = Evaluation(asked, run, hosts)
        settings = partial(_settings, evaluation, attempts)
        folder = stack.enter_context(evaluation.folder(asked.benchmark, settings, PROGRAMS))
        if pool:
            evaluation.console.print(pool.isolation_note)
        broken = hosts.of_main(lambda: _broken(evaluation, benchmark))
        _Programs(evaluation, benchmark, broken, folder).judge(attempts)
        if asked.best_of:
            BestOfEvaluation(evaluation, benchmark, broken, folder, pool).choose()


class _Programs:
    """The programs for the questions that can be judged here; only the main host has the folder that keeps them."""

    def __init__(
        self,
        evaluation: Evaluation,
        benchmark: CodeBenchmark,
        broken: Mapping[str, str],
        folder: EvaluationFolder | None,
    ) -> None:
        self._evaluation, self._benchmark, self._broken, self._folder = evaluation, benchmark, broken, folder
        self._questions = [question for question in benchmark.questions if question.id not in broken]
        self._ids = {question.id for question in self._questions}

    def judge(self, given: Sequence[Attempt] | None) -> None:
        """Judges what was given, or what the Code LLM answers, and publishes how many are right."""
        evaluation, folder = self._evaluation, self._folder
        if given is not None:
            given = [attempt for attempt in given if attempt.question_id in self._ids]
        total = len(self._questions) * evaluation.asked.draw.samples if given is None else len(given)
        there = folder.attempts_at(self._ids) if folder else []
        done = evaluation.hosts.of_main(lambda: {(attempt.question_id, attempt.index) for attempt in there})
        with evaluation.shown("programs", total) as seen:
            judging = Judging(self._benchmark, folder, seen) if folder else None
            for attempt in there:
                judging.add(attempt)
            for attempt in self._new(given, total, done):
                if judging:
                    folder.add_attempt(attempt)
                    judging.add(attempt)
            with evaluation.hosts.agreed():
                if judging:
                    judging.finish()
                    self._tell_failures(judging)
        if folder:
            ids = [question.id for question in self._benchmark.questions]
            metrics = measured(self._benchmark, folder, self._broken)
            evaluation.publish(self._benchmark.name, metrics, ids, self._broken)

    def _new(self, given: Sequence[Attempt] | None, total: int, done: set[Key]) -> Iterator[Attempt]:
        if given is not None:
            return (attempt for attempt in given if (attempt.question_id, attempt.index) not in done)
        if len(done) == total:
            return iter(())
        asked = self._evaluation.asked
        policy = self._evaluation.policy("code", asked.model)
        return sampled(self._benchmark, self._questions, policy, self._evaluation.templates, asked.draw, done)

    def _tell_failures(self, judging: Judging) -> None:
        attempts = self._folder.attempts_at(self._ids)
        empty = sum(not attempt.program for attempt in attempts)
        if empty:
            self._evaluation.console.print(f"{empty} of {len(attempts)} programs are empty and count as failures.")
        if judging.lost:
            self._evaluation.console.print(
                f"the sandbox failed on {len(judging.lost)} programs: their questions are left out until this command "
                "runs again."
            )


def _given(completions: str, benchmark: CodeBenchmark) -> list[Attempt] | None:
    if not completions:
        return None
    if completions in TRUTHS:
        return attempts_of_truth(completions, benchmark)
    return attempts_of_file(completions, benchmark)


def _require_models(asked: Asked, run: RunFolder | None) -> None:
    """Raises BadInput where a folder holds no model, or the run no Test LLM that is asked for; weights stay unread."""
    for url in filter(None, (asked.model, asked.test_model)):
        huggingface.Checkpoint(url)
    if asked.best_of and not asked.test_model and "test" not in METHODS[config_of(run).method].roles:
        raise BadInput(f"{run.path} has no Test LLM for --best_of: give --test_model.")


def _broken(evaluation: Evaluation, benchmark: CodeBenchmark) -> dict[str, str]:
    """The questions that are left out, with the reasons. Raises BadInput where those are all."""
    with evaluation.shown("ground truths", len(benchmark.questions)) as seen:
        broken = broken_questions(benchmark, seen)
    for id, reason in broken.items():
        evaluation.console.print(f"{id} is left out: {reason}", markup=False)
    if len(broken) == len(benchmark.questions):
        id, reason = next(iter(broken.items()))
        raise BadInput(f"no question of {benchmark.name} can be judged here; {id}: {reason}.")
    return broken


def _settings(evaluation: Evaluation, given: Sequence[Attempt] | None) -> dict[str, Any]:
    asked = evaluation.asked
    settings = {"semantics": asked.semantics} if asked.benchmark in ("humanevalplus", "mbppplus") else {}
    if given is not None:
        return settings | {"completions": asked.completions, "attempts": digest(given)}
    return settings | evaluation.settings_of_policy(asked.model) | dataclasses.asdict(asked.draw)
