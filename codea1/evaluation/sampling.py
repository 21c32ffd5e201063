"""What a model is asked for in an evaluation, and the part of it that a folder does not hold yet."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from codea1.evaluation.attempts import Attempt
from codea1.evaluation.code_benchmark import CodeBenchmark
from codea1.evaluation.evaluation_folder import Key
from codea1.game.prompts import PromptTemplates
from codea1.game.question import Question
from codea1.players.policy import Policy
from codea1.rollout.engine import Request


@dataclass(frozen=True)
class Draw:
    """How answers are drawn."""

    samples: int = 32  # per question
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int = 0


def sampled(
    benchmark: CodeBenchmark,
    questions: Sequence[Question],
    policy: Policy,
    templates: PromptTemplates,
    draw: Draw,
    done: Collection[Key],
) -> Iterator[Attempt]:
    """The attempts at the questions that are not `done`, as they finish; empty where the prompt does not fit.

    All hosts make the same call. An attempt is the same whatever is done already.
    """
    by_id = {question.id: question for question in questions}
    requests = []
    for question in questions:
        indices = [index for index in range(draw.samples) if (question.id, index) not in done]
        prompt_ids = policy.prompt_ids(benchmark.messages(question, templates), benchmark.prefill)
        if policy.fits(prompt_ids):
            requests += [Request(question.id, prompt_ids, first, count) for first, count in _runs(indices)]
        else:
            yield from (Attempt(question.id, index, "") for index in indices)
    purpose = f"code/{benchmark.name}"
    options = {"seed": draw.seed, "purpose": purpose, "temperature": draw.temperature, "top_p": draw.top_p}
    for sample in policy.generate(requests, **options):
        answer = _until_stop(policy.tokenizer.decode(sample.token_ids), benchmark.stops)
        program = benchmark.program(by_id[sample.question_id], answer) if answer.strip() else ""
        yield Attempt(sample.question_id, sample.index, program)


def _runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, how many) of those in a row."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs


def _until_stop(answer: str, stops: Sequence[str]) -> str:
    ends = [answer.find(stop) for stop in stops]
    return answer[: min((end for end in ends if end >= 0), default=len(answer))]
