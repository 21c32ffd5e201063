"""Evaluates suites on a benchmark of the Test LLM, from its tasks to the file with the result."""

import contextlib
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from codea1.game.answers import parse_suite, without_thoughts
from codea1.game.prompts import Message
from codea1.lab.benchmarks.benchmarks import (
    SUITE_BENCHMARKS,
    EvaluationSpec,
    SuiteBenchmark,
    SuiteTask,
    load_suites,
    missing_modules,
)
from codea1.lab.benchmarks.best_of_n import ask_for_asserts
from codea1.lab.benchmarks.evaluation import Evaluation, EvaluationFolder, Judged, Key, settings_digest
from codea1.lab.benchmarks.suite_scores import SuiteScore, metrics, score_suites
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.players.policy import Policy
from codea1.rollout.engine import Request, Sample
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host.grading import LOST, why_lost
from codea1.sandbox.isolation import AUTO

FILES = ("suites", "results")


def evaluate_suites(spec: EvaluationSpec, hosts: Hosts) -> None:
    """Measures, prints the table and writes evaluations/NAME.json; all hosts answer, and the main one judges.

    Args:
      spec: `completions` is a file of suites, `model` a Test LLM, `num_tests` the asserts asked for in one answer.

    Raises BadInput for all that can be found wrong before a model is loaded.
    """
    benchmark = SUITE_BENCHMARKS[spec.benchmark]
    with contextlib.ExitStack() as stack:
        with hosts.agreed():
            tasks = benchmark.load(spec.file)
            given = load_suites(spec.completions, tasks, spec.part) if spec.completions else None
            if spec.num_tests and benchmark.must_read:
                raise BadInput(f"--num_tests is for functions: {benchmark.name} has classes.")
            ids = [task.id for task in tasks]
            not_asked = {} if given is None else {id: "no suite was given" for id in ids if id not in given}
            asked_for = [task for task in tasks if task.id not in not_asked]
            left_out = not_asked | _not_importable(benchmark, asked_for)
            tasks = [task for task in tasks if task.id not in left_out]
            pool = stack.enter_context(BenchmarkPool(isolation=AUTO)) if hosts.is_main else None
        evaluation = Evaluation(spec, hosts)

        def settings() -> dict[str, Any]:
            if given is not None:
                return {"completions": spec.completions, "suites": settings_digest([*given.items()])}
            asked = {"in_rounds": False, "num_tests": spec.num_tests} if spec.num_tests else {"in_rounds": True}
            sampling = asdict(spec.sampling)
            del sampling["samples"]  # which are of programs
            return {**evaluation.settings_of_policy("test", spec.test_model), **asked, **sampling}

        folder = stack.enter_context(evaluation.folder(benchmark.name, settings, FILES))
        suites = given if given is not None else _written(evaluation, benchmark, tasks, folder)
        scores: dict[str, SuiteScore] = {}

        def judged(tasks: Sequence[SuiteTask]) -> Iterator[Judged]:
            assert pool is not None
            for score in score_suites(benchmark, tasks, suites, pool):
                scores[score.task_id] = score
                lost = (why_lost(score.verdicts, score.details) or LOST) if score.lost else ""
                rows = {} if score.lost else {(score.task_id, 0): {"score": asdict(score)}}
                yield Judged(rows, [lost] if score.verdicts else [])

        if folder and pool:
            evaluation.console.print(pool.isolation_note)
            for id, reason in left_out.items():
                if id not in not_asked:
                    evaluation.console.print(f"{id} is left out: {reason}", markup=False)
            scores |= {id: SuiteScore.from_row(row["score"]) for (id, _), row in folder.rows["results"].items()}
        before = sum(bool(score.verdicts) for score in scores.values())
        left = [task for task in tasks if task.id not in scores]
        what = f"suites for {benchmark.name}"
        evaluation.keep(folder, "results", what, len(left), judged(left) if folder else (), before)
        if folder:
            measured = metrics(benchmark, [None if id in left_out else scores[id] for id in ids])
            evaluation.publish(benchmark.name, measured, ids, left_out)


def _not_importable(benchmark: SuiteBenchmark, tasks: Sequence[SuiteTask]) -> dict[str, str]:
    """Returns the tasks whose programs import what the sandbox does not have, with the reasons.

    They are never scored, so that their scores are not kept when the package is there. Raises BadInput where those are
    all.
    """
    missing = {task.id: missing_modules(benchmark.whole(task)) for task in tasks}
    left_out = {id: f"this Python has no module {', '.join(names)}" for id, names in missing.items() if names}
    if tasks and len(left_out) == len(tasks):
        (most, count), *_ = Counter(name for names in missing.values() for name in names).most_common(1)
        raise BadInput(
            f"no program of {benchmark.name} can be imported here: {count} of {len(tasks)} import {most}, which this "
            f"Python does not have; install the package, for {sys.executable}."
        )
    return left_out


def _written(
    evaluation: Evaluation, benchmark: SuiteBenchmark, tasks: Sequence[SuiteTask], folder: EvaluationFolder | None
) -> Mapping[str, Sequence[str]]:
    """Returns the tests of each task that the Test LLM writes, or wrote before this was cut off."""
    spec = evaluation.spec

    def ask(policy: Policy, done: Mapping[Key, str]) -> Iterator[tuple[Key, str]]:
        generate = partial(policy.generate, **spec.sampling.options(f"test/{benchmark.name}"))
        if not spec.num_tests:
            return ask_in_rounds(benchmark, tasks, policy, generate, done)
        shows = evaluation.sees_solution
        wanted = [((task.id, 0), task.id, task.question, task.program if shows else None) for task in tasks]
        return ask_for_asserts(wanted, policy, generate, evaluation.templates, spec.num_tests, done)

    rounds = range(1 if spec.num_tests else benchmark.num_tests)
    texts = evaluation.ask_for_texts(folder, [(task.id, n) for task in tasks for n in rounds], ask)
    if spec.num_tests:
        answered = [task for task in tasks if (task.id, 0) in texts]
        return {task.id: suite_of_asserts(texts[task.id, 0], task.entry_point) for task in answered}
    suites: dict[str, list[str]] = defaultdict(list)
    for (task_id, _), text in sorted(texts.items()):
        suites[task_id].append(text)
    return suites


SYSTEM = (
    "You write test functions in Python. Your whole answer is one Python function: no explanation before or after it, "
    "no quotation marks around it."
)
FIRST = """\
Write a test function for '{entry_point}', which is given below with what it is for. It must try one input only.

The program to test:
----
{program}
----

What '{entry_point}' is for:
----
{description}
----

Your test function begins with:
{call}"""
NEXT = (
    "Write one more test function for the same program. It must not repeat any test above and should reach statements "
    "and branches that those do not."
)


def round_messages(benchmark: SuiteBenchmark, task: SuiteTask, tests: Sequence[str]) -> list[Message]:
    """Returns the chat that asks for one more test after those that the Test LLM wrote so far."""
    call = benchmark.call.format(entry_point=task.entry_point)
    first = FIRST.format(entry_point=task.entry_point, program=task.program, description=task.description, call=call)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": first}]
    for test in tests:
        messages += [{"role": "assistant", "content": test}, {"role": "user", "content": NEXT}]
    return messages


def ask_in_rounds(
    benchmark: SuiteBenchmark,
    tasks: Sequence[SuiteTask],
    policy: Policy,
    generate: Callable[[Sequence[Request]], Iterator[Sample]],
    done: Mapping[Key, str],
) -> Iterator[tuple[Key, str]]:
    """Asks for suites of one test per round, K rounds, each shown the tests before it, as both benchmarks do it.

    Where the chat is too long for the Test LLM its oldest tests are left out, never the program; to a program that does
    not fit by itself there is no answer. All hosts make the same call.

    Args:
      policy: makes the prompts, and knows which fit.
      generate: draws its samples for requests.
      done: answers that there are already; they are not asked for again.

    Yields:
      The others as they come, by task and round.
    """
    answers = dict(done)
    for number in range(benchmark.num_tests):
        requests = []
        for task in tasks:
            if (task.id, number) in done:
                continue
            tests = [answers[task.id, earlier] for earlier in range(number) if (task.id, earlier) in answers]
            for oldest in range(len(tests) + 1):
                prompt_ids = policy.prompt_ids(round_messages(benchmark, task, tests[oldest:]))
                if policy.fits(prompt_ids):
                    requests.append(Request(task.id, prompt_ids, first_sample=number, num_samples=1))
                    break
        for sample in generate(requests):
            key = sample.question_id, number
            answers[key] = without_thoughts(policy.tokenizer.decode(sample.token_ids))
            yield key, answers[key]


def suite_of_asserts(answer: str, entry_point: str) -> list[str]:
    """Returns the tests in an answer of `ask_for_asserts`, each complete by itself."""
    return [item.test.text if item.test else item.source for item in parse_suite(answer, entry_point).asserts]
