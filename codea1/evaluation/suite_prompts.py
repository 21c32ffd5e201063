"""How a Test LLM is asked for the suites of a benchmark of test generation."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from codea1.evaluation.evaluation_folder import Key
from codea1.evaluation.suite_tasks import SuiteBenchmark, SuiteTask
from codea1.game.answers import parse_suite
from codea1.game.prompts import Message, PromptTemplates, test_messages
from codea1.game.question import Question
from codea1.players.policy import Policy
from codea1.rollout.engine import Request, Sample

Generate = Callable[[Sequence[Request]], Iterator[Sample]]

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
    """The chat that asks for one more test after those that the Test LLM wrote so far."""
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
    generate: Generate,
    done: Mapping[Key, str],
) -> Iterator[tuple[Key, str]]:
    """Suites of one test per round, K rounds, each shown the tests before it, as both benchmarks do it.

    Where the chat is too long for the Test LLM its oldest tests are left out, never the program; to a program that does
    not fit by itself there is no answer. All hosts make the same call.

    Args:
      policy: who says what fits.
      generate: its samples for requests, drawn as the caller likes.
      done: answers that there are already; they are not asked for again.

    Yields:
      The others as they come, by task and round.
    """
    said = dict(done)
    for number in range(benchmark.num_tests):
        requests = []
        for task in tasks:
            before = [said[task.id, earlier] for earlier in range(number) if (task.id, earlier) in said]
            prompt_ids = None if (task.id, number) in done else _fitting(benchmark, task, before, policy)
            if prompt_ids is not None:
                requests.append(Request(task.id, prompt_ids, first_sample=number, num_samples=1))
        for sample in generate(requests):
            key = sample.question_id, number
            said[key] = policy.tokenizer.decode(sample.token_ids)
            yield key, said[key]


def ask_for_asserts(
    tasks: Sequence[SuiteTask],
    policy: Policy,
    generate: Generate,
    templates: PromptTemplates,
    num_asserts: int,
    done: Mapping[Key, str],
    *,
    sees_solution: bool,
) -> Iterator[tuple[Key, str]]:
    """Answers to the game's own prompt, which wants all asserts at once.

    It shows the program, as one to break, where the Test LLM `sees_solution`. For tasks that are functions;
    `suite_of_asserts` reads the answers. Otherwise as `ask_in_rounds`, with one round.
    """
    requests = []
    for task in tasks:
        shown = task.program if sees_solution else None
        question = Question(task.id, None, task.description, task.description, task.program, task.entry_point)
        prompt_ids = policy.prompt_ids(test_messages(templates, question, shown, num_asserts))
        if (task.id, 0) not in done and policy.fits(prompt_ids):
            requests.append(Request(task.id, prompt_ids, first_sample=0, num_samples=1))
    for sample in generate(requests):
        yield (sample.question_id, 0), policy.tokenizer.decode(sample.token_ids)


def suite_of_asserts(answer: str, entry_point: str) -> list[str]:
    """The tests in an answer of `ask_for_asserts`, each complete by itself."""
    return [each.test.text if each.test else each.source for each in parse_suite(answer, entry_point).asserts]


def _fitting(
    benchmark: SuiteBenchmark, task: SuiteTask, tests: Sequence[str], policy: Policy
) -> tuple[int, ...] | None:
    for oldest in range(len(tests) + 1):
        prompt_ids = policy.prompt_ids(round_messages(benchmark, task, tests[oldest:]))
        if policy.fits(prompt_ids):
            return prompt_ids
    return None
