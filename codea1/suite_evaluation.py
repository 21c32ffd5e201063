"""The evaluation of suites on a benchmark of test generation, from what is asked to the file with the result."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import track

from codea1.assembly import config_of, game_rules
from codea1.benchmarks.evaluation_folder import EvaluationFolder
from codea1.benchmarks.held_out import summary
from codea1.benchmarks.missing_modules import missing_modules
from codea1.benchmarks.suite_prompts import Key, ask_for_asserts, ask_in_rounds, suite_of_asserts
from codea1.benchmarks.suite_scores import SuiteScore, metrics, score_suites
from codea1.benchmarks.suite_tasks import SUITE_BENCHMARKS, SuiteTask, load_suites
from codea1.code_evaluation import (
    Asked,
    content_of_file,
    content_of_model,
    digest,
    folder_of,
    home_of,
    publish,
    sandbox,
)
from codea1.errors import BadInput
from codea1.game.methods import METHODS
from codea1.game.prompts import DEFAULT
from codea1.hosts import Hosts
from codea1.models import huggingface
from codea1.policy import Policy, policy_of_folder, policy_of_run
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.sandbox.pool import SandboxPool

FILES = ("suites", "results")  # of the folder of an evaluation: answers by task and round, scores by task

Suites = dict[str, list[str]]


def evaluate_suites(asked: Asked, in_rounds: bool, hosts: Hosts) -> None:
    """Measures, prints the table and writes evaluations/NAME.json; all hosts answer, and the main one judges.

    Args:
      asked: `completions` is a file of suites, `model` a Test LLM, `num_tests` the asserts asked for in one answer.
      in_rounds: ask for a test a round, as the benchmarks do, and not for all asserts at once, as the game does.

    Raises BadInput for all that can be found wrong before a model is loaded.
    """
    benchmark = SUITE_BENCHMARKS[asked.benchmark]
    console = Console(stderr=True, quiet=not hosts.is_main)
    with contextlib.ExitStack() as stack:
        with hosts.agreed():
            tasks = benchmark.load(asked.file)
            suites = load_suites(asked.completions, tasks) if asked.completions else None
            if not in_rounds and benchmark.must_read:
                raise BadInput(f"--rounds=false is for functions: {benchmark.name} has classes.")
            run = RunFolder.existing(asked.run) if asked.run else None
            _require_model(asked.model, run)
            pool = stack.enter_context(sandbox()) if hosts.is_main else None
        step = hosts.of_main(lambda: Checkpoints.reader(run.checkpoints).named(asked.step)) if run else 0
        home = hosts.of_main(lambda: home_of(asked, run))
        with hosts.agreed():
            folder = None
            if hosts.is_main:
                settings = _settings(asked, in_rounds, suites, run, step)
                folder = stack.enter_context(folder_of(home, benchmark.name, step, settings, FILES))
        if suites is None:
            suites = _written(asked, in_rounds, tasks, run, step, folder, hosts, console)
        if folder:
            console.print(pool.isolation_note)
            absent = Counter(module for task in tasks for module in missing_modules(benchmark.whole(task)))
            for module, count in absent.items():
                console.print(f"{count} programs import {module}, which is not installed here: their tests fail.")
            scores = _scores(asked, tasks, suites, folder, pool, console)
            evaluation = summary(metrics(benchmark, scores), step, benchmark.name)
            publish(home, benchmark.name, evaluation, [task.id for task in tasks], {})


def _written(
    asked: Asked,
    in_rounds: bool,
    tasks: Sequence[SuiteTask],
    run: RunFolder | None,
    step: int,
    folder: EvaluationFolder | None,
    hosts: Hosts,
    console: Console,
) -> Suites:
    """The suites that the Test LLM writes, or has written before this was cut off."""
    benchmark = SUITE_BENCHMARKS[asked.benchmark]
    answers: dict[Key, str] = hosts.of_main(
        lambda: {key: row["text"] for key, row in folder.rows("suites").items()}  # as far as it came
    )
    total = len(tasks) * (benchmark.num_tests if in_rounds else 1) - len(answers)
    if total:
        for key, text in _answers(asked, in_rounds, tasks, run, step, dict(answers), total, hosts, console):
            answers[key] = text
            if folder:
                folder.add("suites", key, {"text": text})
    if in_rounds:
        return {task.id: [text for (id, _), text in sorted(answers.items()) if id == task.id] for task in tasks}
    return {
        task.id: suite_of_asserts(answers[task.id, 0], task.entry_point) if (task.id, 0) in answers else []
        for task in tasks
    }


def _answers(
    asked: Asked,
    in_rounds: bool,
    tasks: Sequence[SuiteTask],
    run: RunFolder | None,
    step: int,
    done: Mapping[Key, str],
    total: int,
    hosts: Hosts,
    console: Console,
) -> Iterable[tuple[Key, str]]:
    """What the Test LLM answers that is not `done`, as it comes, with progress."""
    benchmark = SUITE_BENCHMARKS[asked.benchmark]
    console.print("loading the test model")
    policy = _policy(asked, run, step, hosts)
    generate = partial(
        policy.generate,
        seed=asked.draw.seed,
        purpose=f"test/{benchmark.name}",
        temperature=asked.draw.temperature,
        top_p=asked.draw.top_p,
    )
    if in_rounds:
        new = ask_in_rounds(benchmark, tasks, policy, generate, done)
    else:
        rules = game_rules(config_of(run)) if run else None
        templates, sees_solution = (rules.templates, rules.method.sees_solution) if rules else (DEFAULT, True)
        new = ask_for_asserts(tasks, policy, generate, templates, asked.num_tests, done, sees_solution=sees_solution)
    return track(new, "answers", total, console=console, disable=not hosts.is_main)


def _require_model(model: str, run: RunFolder | None) -> None:
    """Raises BadInput where the folder holds no model, or the run no Test LLM; weights stay unread."""
    if model:
        huggingface.Checkpoint(model)
    if run and "test" not in METHODS[config_of(run).method].roles:
        raise BadInput(f"{run.path} has no Test LLM.")


def _policy(asked: Asked, run: RunFolder | None, step: int, hosts: Hosts) -> Policy:
    if run:
        return policy_of_run(run, str(step), "test", asked.lengths, hosts)
    with hosts.agreed():
        return policy_of_folder("test", asked.model, asked.lengths)


def _scores(
    asked: Asked,
    tasks: Sequence[SuiteTask],
    suites: Suites,
    folder: EvaluationFolder,
    pool: SandboxPool,
    console: Console,
) -> list[SuiteScore]:
    """The score of each task's suite; what the sandbox lost is not kept, so that it is tried again another time."""
    scores = {id: SuiteScore.from_row(row["score"]) for (id, _), row in folder.rows("results").items()}
    left = [task for task in tasks if task.id not in scores]
    new: Iterator[SuiteScore] = score_suites(SUITE_BENCHMARKS[asked.benchmark], left, suites, pool)
    for score in track(new, "suites", len(left), console=console):
        scores[score.task_id] = score
        if not score.lost:
            folder.add("results", (score.task_id, 0), {"score": score.row()})
    if lost := sum(score.lost for score in scores.values()):
        console.print(f"the sandbox failed on {lost} suites: they are left out until this command runs again.")
    return [scores[task.id] for task in tasks]


def _settings(
    asked: Asked, in_rounds: bool, suites: Mapping[str, Sequence[str]] | None, run: RunFolder | None, step: int
) -> dict[str, Any]:
    """All that the results depend on; two evaluations whose settings differ are not one."""
    settings: dict[str, Any] = {"benchmark": asked.benchmark, "file": content_of_file(asked.file)}
    if suites is not None:
        return settings | {"completions": asked.completions, "suites": digest([*suites.items()])}
    prompt, response, _ = asked.lengths
    settings |= {"model": asked.model or asked.run, "weights": content_of_model(asked.model, run, step), "step": step}
    settings |= {"in_rounds": in_rounds, "num_tests": asked.num_tests}
    settings |= {"max_prompt_length": prompt, "max_response_length": response}
    draw = asked.draw  # its `samples` is of programs
    return settings | {"temperature": draw.temperature, "top_p": draw.top_p, "seed": draw.seed}
