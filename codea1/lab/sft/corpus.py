"""The SFT corpora: chats that teach both players the game, and chats that teach a Test LLM alone.

Of the first, one chat teaches both players: a problem, a program with planted misconceptions, "test", and a suite of
asserts. In those of a black box the program is missing. All are made of the game's own prompts, so that players meet in
the game what they were trained on, whatever the method. Of the second, `Lessons`, only the suite is learned: the game's
prompt about a training question, answered by right tests.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from codea1.data.sources import CLASSIC
from codea1.data.tokenizer import ChatTokenizer
from codea1.game.asserts import golden_tests
from codea1.game.prompts import TINY, Message, PromptTemplates, test_messages
from codea1.game.question import Question
from codea1.lab.worlds import procedural
from codea1.lab.worlds.compositions import (
    ENTRY_POINT,
    Choices,
    Task,
    behaviour,
    compositions,
    outcome,
    random_input,
)
from codea1.lab.worlds.worlds import LIST, WORLDS, Component, World
from codea1.runtime.errors import BadInput

_EXPERT_DRAWS = 24  # inputs among which an expert looks for those that expose the program

Document = tuple[list[int], list[int]]  # token ids, and 1 for each that is a target, else 0
Chat = list[Message]
Lessons = Callable[[str], Iterator[Chat]]  # chats without end, whose last message is the suite: a function of a seed


@dataclass(frozen=True)
class Recipe:
    """How well the corpus is written."""

    expert_suites: float = 0.0  # share of suites whose inputs expose the program's mistake, where they can
    black_box: float = 0.0  # share of chats whose suite is written without a program in sight
    num_tests: int = 4  # asserts per suite
    world: World = WORLDS[CLASSIC]


def batch_of(chats: Iterator[Chat], encode: Callable[[Chat], Document], batch_size: int, length: int) -> list[Document]:
    """Returns the next `batch_size` chats of at most `length` tokens. Raises BadInput: hardly any is that short.

    Args:
      encode: of the chats of both players `ChatTokenizer.encode_transcript`; of lessons `suite_alone`.
    """
    tried = map(encode, islice(chats, 20 * batch_size))
    documents = list(islice((document for document in tried if len(document[0]) <= length), batch_size))
    if len(documents) < batch_size:
        raise BadInput(f"length {length} is too short: fewer than one in twenty chats fit.")
    return documents


def corpus_texts(seed: int, num_chats: int, world: World = WORLDS[CLASSIC]) -> Iterator[str]:
    """Yields the contents of the messages of some chats, for a tokenizer to be made of."""
    for chat in islice(chats(f"texts/{seed}", Recipe(world=world)), num_chats):
        yield from (message["content"] for message in chat)


def chats(seed: str, recipe: Recipe, tasks: Sequence[Task] = ()) -> Iterator[Chat]:
    """Yields chats without end: problem, program unless the suite is a black box's, "test", suite.

    They are of `tasks`, or of any training task.
    """
    rng = random.Random(f"corpus/{seed}")
    while True:
        task = rng.choice(tasks) if tasks else rng.choice(compositions("train", recipe.world)).draw(rng)
        program = task.program(plant(task, rng), rng)
        question = Question(task.id, None, task.problem, task.description, task.program(), ENTRY_POINT)
        shown = None if rng.random() < recipe.black_box else program
        prompt = test_messages(TINY, question, shown, recipe.num_tests)
        suite = "\n".join(_suite(task, program, shown is not None, rng, recipe))
        yield [*prompt, {"role": "assistant", "content": f"```python\n{suite}\n```"}]


def plant(task: Task, rng: random.Random) -> Choices:
    """Draws which components a program of the corpus gets wrong, and how."""
    preference = task.composition.world.preference
    first, second, third = (_choice(component, preference, rng) for component in task.composition.components)
    return first, second, third


def _choice(component: Component, preference: Sequence[int], rng: random.Random) -> int:
    if rng.random() >= component.rate:
        return 0
    weights = preference[: len(component.mistakes)]
    shares = [weight / sum(weights) for weight in weights]
    return rng.choices(range(1, len(component.mistakes) + 1), shares)[0]


def _suite(task: Task, program: str, is_shown: bool, rng: random.Random, recipe: Recipe) -> list[str]:
    expert = rng.random() < recipe.expert_suites
    rng.random()  # decides nothing: without it the corpus of the published runs would be another
    if expert and recipe.world.name != CLASSIC:
        inputs = task.aimed_inputs(program if is_shown else task.problem, rng)
    else:
        inputs = usual_inputs(task, _EXPERT_DRAWS if expert else recipe.num_tests, rng)
    truths, shown = behaviour(task.program(), inputs), behaviour(program, inputs)
    answers = list(zip(inputs, truths, shown, strict=True))
    if expert:  # a stable sort: what exposes the program goes first and nothing else is moved
        answers.sort(key=lambda answer: answer[1] == answer[2])
    slips = recipe.world.slips
    return [  # without slips nothing is drawn for them: the classic corpus stays what it was
        _worked_test(task, arguments, _slip(truth) if slips and rng.random() < slips else truth)
        for arguments, truth, _ in answers[: recipe.num_tests]
    ]


def _slip(truth: Any) -> Any:
    """Returns the wrong answer that is stated for a right one, true or false, a number or a list, by a slip."""
    if isinstance(truth, list):
        return truth[:-1] if truth else [0]
    return not truth if isinstance(truth, bool) else truth - 1


def _worked_test(task: Task, arguments: tuple, answer: Any) -> str:
    """Returns a test with its working in a comment: a policy this small answers better in two steps than in one."""
    name = task.signature[-2]
    working = outcome(task.working(), arguments)
    return f"{name} = {arguments[0]!r}  # {working!r}\nassert {ENTRY_POINT}({name}) == {answer!r}"


def usual_inputs(task: Task, number: int, rng: random.Random) -> list[tuple]:
    """Returns different random inputs, at most so many."""
    world = task.composition.world
    if task.composition.family != LIST:
        return [(x,) for x in rng.sample(world.integers, min(number, len(world.integers)))]
    inputs: list[tuple] = []
    while len(inputs) < number:
        arguments = random_input(task.composition, world.suite_lengths, rng)
        if arguments not in inputs:
            inputs.append(arguments)
    return inputs


def worked_lessons(questions: Sequence[Question], recipe: Recipe) -> Lessons:
    """Returns lessons of procedural questions in the tiny prompts: the warm start's chats about them.

    Programs have planted misconceptions, and suites show their working; so many are an expert's as the recipe says.
    """
    by_id = {task.id: task for task, _ in procedural.tasks("train", recipe.world)}
    tasks = [by_id[question.id] for question in questions]
    return lambda seed: chats(seed, recipe, tasks)


def golden_lessons(questions: Sequence[Question], templates: PromptTemplates, num_tests: int) -> Lessons:
    """Returns lessons of any questions: suites of `num_tests` of their golden tests, or of all, drawn at random.

    Those are of the form that the prompt asks for, `f(x) == v`. The program that is shown is one of the question's
    mutants, or the ground truth where it has none. Raises BadInput: no question has a golden test of that form.
    """
    known = [(question, [test.text for test in golden_tests(question) if not test.call.form]) for question in questions]
    tested = [(question, tests) for question, tests in known if tests]
    if not tested:
        raise BadInput(f"none of the {len(questions)} training questions has a golden test that is an assert.")

    def lessons(seed: str) -> Iterator[Chat]:
        rng = random.Random(f"lessons/{seed}")
        while True:
            question, tests = rng.choice(tested)
            program = rng.choice(question.mutants or (question.ground_truth,))
            suite = "\n".join(rng.sample(tests, min(num_tests, len(tests))))
            prompt = test_messages(templates, question, program, num_tests)
            yield [*prompt, {"role": "assistant", "content": f"```python\n{suite}\n```"}]

    return lessons


def suite_alone(tokenizer: ChatTokenizer, chat: Chat) -> Document:
    """Returns a chat whose targets are its last message with what ends it."""
    prompt = tokenizer.encode_chat(chat[:-1])
    answer = [*tokenizer.encode(chat[-1]["content"]), tokenizer.end_id]
    return prompt + answer, [0] * len(prompt) + [1] * len(answer)
