"""The evaluation of suites on a benchmark of test generation, from what is asked to the file with the result."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from codea1.config import config_of
from codea1.evaluation.evaluation_folder import EvaluationFolder, Key
from codea1.evaluation.missing_modules import missing_modules
from codea1.evaluation.session import Asked, Evaluation, digest, sandbox
from codea1.evaluation.suite_prompts import ask_for_asserts, ask_in_rounds, suite_of_asserts
from codea1.evaluation.suite_scores import SuiteScore, metrics, score_suites
from codea1.evaluation.suite_tasks import SUITE_BENCHMARKS, SuiteBenchmark, SuiteTask, load_suites
from codea1.game.methods import METHODS
from codea1.models import huggingface
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host.grading import LOST, require_judged, why_lost
from codea1.sandbox.host.pool import SandboxPool

FILES = ("suites", "results")  # of the folder of an evaluation: answers by task and round, scores by task

Suites = Mapping[str, Sequence[str]]  # tests by task


def evaluate_suites(asked: Asked, in_rounds: bool, hosts: Hosts) -> None:
    """Measures, prints the table and writes evaluations/NAME.json; all hosts answer, and the main one judges.

    Args:
      asked: `completions` is a file of suites, `model` a Test LLM, `num_tests` the asserts asked for in one answer.
      in_rounds: ask for a test a round, as the benchmarks do, and not for all asserts at once, as the game does.

    Raises BadInput for all that can be found wrong before a model is loaded.
    """
    benchmark = SUITE_BENCHMARKS[asked.benchmark]
    with contextlib.ExitStack() as stack:
        with hosts.agreed():
            tasks = benchmark.load(asked.file)
            given = load_suites(asked.completions, tasks) if asked.completions else None
            if not in_rounds and benchmark.must_read:
                raise BadInput(f"--rounds=false is for functions: {benchmark.name} has classes.")
            run = RunFolder.existing(asked.run) if asked.run else None
            _require_model(asked.model, run)
            pool = stack.enter_context(sandbox()) if hosts.is_main else None
        evaluation = Evaluation(asked, run, hosts)
        settings = partial(_settings, evaluation, in_rounds, given)
        folder = stack.enter_context(evaluation.folder(benchmark.name, settings, FILES))
        suites = _Written(evaluation, benchmark, tasks, in_rounds, folder).suites() if given is None else given
        with hosts.agreed():
            if folder:
                evaluation.console.print(pool.isolation_note)
                _tell_missing_modules(evaluation, benchmark, tasks)
                scores = _scores(evaluation, benchmark, tasks, suites, folder, pool)
                evaluation.publish(benchmark.name, metrics(benchmark, scores), [task.id for task in tasks], {})


class _Written:
    """What the Test LLM writes, or has written before this was cut off; only the main host has the folder for it."""

    def __init__(
        self,
        evaluation: Evaluation,
        benchmark: SuiteBenchmark,
        tasks: Sequence[SuiteTask],
        in_rounds: bool,
        folder: EvaluationFolder | None,
    ) -> None:
        self._evaluation, self._benchmark, self._tasks = evaluation, benchmark, tasks
        self._in_rounds, self._folder = in_rounds, folder

    def suites(self) -> Suites:
        """Asks for what is missing."""
        folder = self._folder
        answers: dict[Key, str] = self._evaluation.hosts.of_main(
            lambda: {key: row["text"] for key, row in folder.rows("suites").items()}
        )
        missing = len(self._tasks) * (self._benchmark.num_tests if self._in_rounds else 1) - len(answers)
        if missing:
            with self._evaluation.shown("answers", missing) as seen:
                for key, text in self._new(dict(answers)):
                    answers[key] = text
                    if folder:
                        folder.add("suites", key, {"text": text})
                    seen()
        return _by_task(answers) if self._in_rounds else self._of_asserts(answers)

    def _new(self, done: Mapping[Key, str]) -> Iterator[tuple[Key, str]]:
        """The answers that are not `done`, as they come."""
        evaluation, asked = self._evaluation, self._evaluation.asked
        policy = evaluation.policy("test", asked.model)
        generate = partial(
            policy.generate,
            seed=asked.draw.seed,
            purpose=f"test/{self._benchmark.name}",
            temperature=asked.draw.temperature,
            top_p=asked.draw.top_p,
        )
        if self._in_rounds:
            return ask_in_rounds(self._benchmark, self._tasks, policy, generate, done)
        return ask_for_asserts(
            self._tasks,
            policy,
            generate,
            evaluation.templates,
            asked.num_tests,
            done,
            sees_solution=evaluation.sees_solution,
        )

    def _of_asserts(self, answers: Mapping[Key, str]) -> Suites:
        there = (task for task in self._tasks if (task.id, 0) in answers)
        return {task.id: suite_of_asserts(answers[task.id, 0], task.entry_point) for task in there}


def _by_task(answers: Mapping[Key, str]) -> Suites:
    suites: dict[str, list[str]] = defaultdict(list)
    for (task_id, _), text in sorted(answers.items()):
        suites[task_id].append(text)
    return suites


def _require_model(model: str, run: RunFolder | None) -> None:
    """Raises BadInput where the folder holds no model, or the run no Test LLM; weights stay unread."""
    if model:
        huggingface.Checkpoint(model)
    if run and "test" not in METHODS[config_of(run).method].roles:
        raise BadInput(f"{run.path} has no Test LLM.")


def _tell_missing_modules(evaluation: Evaluation, benchmark: SuiteBenchmark, tasks: Sequence[SuiteTask]) -> None:
    absent = Counter(module for task in tasks for module in missing_modules(benchmark.whole(task)))
    for module, count in absent.items():
        evaluation.console.print(f"{count} programs import {module}, which is not installed here: their tests fail.")


def _scores(
    evaluation: Evaluation,
    benchmark: SuiteBenchmark,
    tasks: Sequence[SuiteTask],
    suites: Suites,
    folder: EvaluationFolder,
    pool: SandboxPool,
) -> list[SuiteScore]:
    """The score of each task's suite; what the sandbox lost is not kept, so that it is tried again another time.

    Raises BadInput as `require_judged` does.
    """
    scores = {id: SuiteScore.from_row(row["score"]) for (id, _), row in folder.rows("results").items()}
    left = [task for task in tasks if task.id not in scores]
    with evaluation.shown("suites", len(left)) as seen:
        for score in score_suites(benchmark, left, suites, pool):
            scores[score.task_id] = score
            if not score.lost:
                folder.add("results", (score.task_id, 0), {"score": score.row()})
            seen()
    run = [score for score in scores.values() if score.verdicts]
    reasons = [why_lost(score.verdicts, score.details) or LOST if score.lost else "" for score in run]
    require_judged(reasons, f"suites for {benchmark.name}")
    if lost := sum(score.lost for score in scores.values()):
        evaluation.console.print(
            f"the sandbox failed on {lost} suites: they are left out until this command runs again."
        )
    return [scores[task.id] for task in tasks]


def _settings(evaluation: Evaluation, in_rounds: bool, given: Suites | None) -> dict[str, Any]:
    asked = evaluation.asked
    if given is not None:
        return {"completions": asked.completions, "suites": digest([*given.items()])}
    draw = asked.draw  # its `samples` is of programs
    return {
        **evaluation.settings_of_policy(asked.model),
        **{"in_rounds": in_rounds, "num_tests": asked.num_tests},
        **{"temperature": draw.temperature, "top_p": draw.top_p, "seed": draw.seed},
    }
