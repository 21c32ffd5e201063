"""Best-of-N without a ground truth: of a question's programs, the one that passes most of the tests that were written.

The Test LLM writes a suite for each program, which it is shown unless it was trained without. What its tests state is
taken at its word; all different tests of a question run on all its programs.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from codea1.evaluation.attempts import Attempt
from codea1.evaluation.evaluation_folder import Key
from codea1.game.answers import parse_suite
from codea1.game.prompts import PromptTemplates, test_messages
from codea1.game.question import Question
from codea1.game.tests import Test
from codea1.players.policy import Policy
from codea1.rollout.engine import Request
from codea1.runtime.futures import Steps, every
from codea1.sandbox.host.grading import Grader
from codea1.values.verdict import Verdict


def suites(
    questions: Sequence[Question],
    attempts: Mapping[str, Sequence[Attempt]],
    policy: Policy,
    templates: PromptTemplates,
    num_tests: int,
    *,
    sees_solution: bool,
    seed: int,
    done: Collection[Key],
) -> Iterator[tuple[Key, str]]:
    """What the Test LLM writes for each attempt that is not `done`, at temperature 1, as it finishes.

    An attempt that is empty, or does not fit into the prompt, gets no suite. All hosts make the same call.
    """
    keys: dict[str, Key] = {}
    requests = []
    for question in questions:
        for attempt in attempts[question.id]:
            key = question.id, attempt.index
            if key in done or not attempt.program:
                continue
            shown = attempt.program if sees_solution else None
            prompt_ids = policy.prompt_ids(test_messages(templates, question, shown, num_tests))
            if policy.fits(prompt_ids):
                name = f"{question.id}#{attempt.index}"
                keys[name] = key
                requests.append(Request(name, prompt_ids, first_sample=0, num_samples=1))
    for sample in policy.generate(requests, seed=seed, purpose="test/best_of_n", temperature=1.0, top_p=1.0):
        yield keys[sample.question_id], policy.tokenizer.decode(sample.token_ids)


def stated_tests(texts: Sequence[str], entry_point: str, num_tests: int) -> list[Test]:
    """The different tests that suites state, the first `num_tests` asserts of each."""
    parsed = [parse_suite(text, entry_point).asserts[:num_tests] for text in texts]
    return list(dict.fromkeys(each.test for asserts in parsed for each in asserts if each.test is not None))


def count_passes(attempts: Sequence[Attempt], tests: Sequence[Test], grader: Grader) -> Steps[list[int | None]]:
    """How many of the tests each attempt passes; None where the sandbox failed on any."""
    gradings = yield from every([grader.grade(attempt.program, tests) for attempt in attempts])
    return [_count(grading.verdicts) for grading in gradings]


def chosen(passed: Mapping[int, int]) -> int:
    """The index with the highest count; of several, the lowest."""
    return min(passed, key=lambda index: (-passed[index], index))


def _count(verdicts: Sequence[Verdict]) -> int | None:
    return None if Verdict.INFRA in verdicts else verdicts.count(Verdict.PASS)
