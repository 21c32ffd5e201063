"""Best-of-N without a ground truth: of a question's programs, the one that passes most of the tests that were written.

The Test LLM writes a suite for each program, which it is shown unless it was trained without. The answers that its
tests state are taken for right; all different tests of a question run on all its programs.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from codea1.game.answers import parse_suite
from codea1.game.calls import CallTest
from codea1.game.grading import Judge
from codea1.game.prompts import PromptTemplates, test_messages
from codea1.game.question import Question
from codea1.lab.benchmarks.benchmarks import CodeBenchmark
from codea1.lab.benchmarks.evaluation import Attempt, Evaluation, EvaluationFolder, Judged, Key
from codea1.players.policy import Policy
from codea1.rollout.engine import Request, Sample
from codea1.runtime.futures import Awaiting, every, start
from codea1.sandbox.host.grading import LOST, Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.values.verdict import Verdict

FILES = ("suites", "choices")


def choose(
    evaluation: Evaluation,
    benchmark: CodeBenchmark,
    questions: Sequence[Question],
    left_out: Mapping[str, str],
    programs: EvaluationFolder | None,
    pool: SandboxPool | None,
) -> None:
    """Lets tests choose one program of each question, and publishes how many of those are right.

    Args:
      questions: those of the benchmark that are not `left_out`, which has the reasons.
      programs: the folder with programs and their verdicts; of the main host, which alone has the sandbox, too.

    Raises BadInput as `require_judged` does.
    """
    spec, ids = evaluation.spec, {question.id for question in questions}
    sampled = evaluation.hosts.of_main(lambda: programs.attempts(ids) if programs else [])
    attempts = {id: [*group] for id, group in itertools.groupby(sampled, lambda attempt: attempt.question_id)}
    wanted = [
        (attempt.key, f"{question.id}#{attempt.index}", question, attempt.program if evaluation.sees_solution else None)
        for question in questions
        for attempt in attempts[question.id]
        if attempt.program
    ]

    def settings() -> dict[str, Any]:
        assert programs is not None
        of_test_llm = evaluation.settings_of_policy("test", spec.test_model, "test_")
        return {**programs.settings, **of_test_llm, "num_tests": spec.num_tests, "seed": spec.sampling.seed}

    def ask(policy: Policy, done: Mapping[Key, str]) -> Iterator[tuple[Key, str]]:
        sampling = replace(spec.sampling, temperature=1.0, top_p=1.0)
        generate = partial(policy.generate, **sampling.options("test/best_of_n"))
        return ask_for_asserts(wanted, policy, generate, evaluation.templates, spec.num_tests, done)

    name = f"{benchmark.name}_best_of_{spec.sampling.samples}"
    with evaluation.folder(name, settings, FILES) as folder:
        texts = evaluation.ask_for_texts(folder, [key for key, *_ in wanted], ask)
        if missing := sum(key not in texts for key, *_ in wanted):
            evaluation.console.print(f"{missing} programs do not fit into the Test LLM's prompt and get no suite.")
        kept = folder.rows["choices"] if folder else {}
        left = [question for question in questions if not all(attempt.key in kept for attempt in attempts[question.id])]
        judged = _judged(left, attempts, texts, spec.num_tests, Grader(pool)) if folder and pool else ()
        evaluation.keep(folder, "choices", "programs to choose from", len(left), judged, before=len(kept))
        if folder and programs:
            passes = _passes_of_chosen(folder, programs)
            names = [question.id for question in benchmark.questions]
            metrics = {"pass_at_1": [math.nan if id in left_out else passes.get(id, math.nan) for id in names]}
            evaluation.publish(name, metrics, names, left_out)


def ask_for_asserts(
    wanted: Iterable[tuple[Key, str, Question, str | None]],
    policy: Policy,
    generate: Callable[[Sequence[Request]], Iterator[Sample]],
    templates: PromptTemplates,
    num_asserts: int,
    done: Collection[Key],
) -> Iterator[tuple[Key, str]]:
    """Asks for suites by the game's own prompt, which wants all asserts at once; yields answers by key as they come.

    To a program that does not fit into the prompt there is no answer. All hosts make the same call.

    Args:
      wanted: of each suite its key, the name by which it is drawn, the question, and the program to break that the
        prompt shows, None for none.
      policy: makes the prompts, and knows which fit.
      generate: draws its samples for requests.
      num_asserts: that are asked for.
      done: keys of answers that there are already; they are not asked for again.
    """
    keys: dict[str, Key] = {}
    requests = []
    for key, name, question, shown in wanted:
        prompt_ids = policy.prompt_ids(test_messages(templates, question, shown, num_asserts))
        if key not in done and policy.fits(prompt_ids):
            keys[name] = key
            requests.append(Request(name, prompt_ids, first_sample=0, num_samples=1))
    for sample in generate(requests):
        yield keys[sample.question_id], policy.tokenizer.decode(sample.token_ids)


def different_tests(texts: Sequence[str], entry_point: str, num_tests: int) -> list[CallTest]:
    """Returns the different tests that suites state, the first `num_tests` asserts of each."""
    parsed = [parse_suite(text, entry_point, all_forms=True).asserts[:num_tests] for text in texts]
    return list(dict.fromkeys(item.test for asserts in parsed for item in asserts if item.test is not None))


def count_passes(programs: Sequence[str], tests: Sequence[CallTest], judge: Judge) -> Awaiting[list[int | None]]:
    """Returns how many of the tests each program passes; None where the sandbox failed on any."""
    gradings = yield from every([judge.grade(program, tests) for program in programs])
    verdicts = [grading.verdicts for grading in gradings]
    return [None if Verdict.INFRA in part else part.count(Verdict.PASS) for part in verdicts]


def _judged(
    questions: Sequence[Question],
    attempts: Mapping[str, Sequence[Attempt]],
    texts: Mapping[Key, str],
    num_tests: int,
    grader: Grader,
) -> Iterator[Judged]:
    """Yields how many tests the programs of each question pass; no rows where the sandbox failed on one of them."""
    running = []
    for question in questions:
        samples = attempts[question.id]
        written = [texts[attempt.key] for attempt in samples if attempt.key in texts]
        tests = different_tests(written, question.entry_point, num_tests)
        programs = [attempt.program for attempt in samples]
        running.append((samples, len(tests), start(count_passes(programs, tests, Judge(question, grader)))))
    for samples, count, future in running:
        passed = future.result()
        pairs = () if None in passed else zip(samples, passed, strict=True)
        rows = {attempt.key: {"passed": passes, "tests": count} for attempt, passes in pairs}
        yield Judged(rows, [LOST if passes is None else "" for passes in passed])


def _passes_of_chosen(folder: EvaluationFolder, programs: EvaluationFolder) -> dict[str, float]:
    """Returns 1 for each question whose chosen program passes, else 0; NaN where it was not judged.

    Chosen is the program that passes most tests, the first of equals.
    """
    passes = {}
    for id, choices in itertools.groupby(sorted(folder.rows["choices"].items()), lambda item: item[0][0]):
        key, _ = max(choices, key=lambda item: item[1]["passed"])
        result = programs.rows["results"].get(key)
        passes[id] = math.nan if result is None else float(result["verdict"] == Verdict.PASS)
    return passes
