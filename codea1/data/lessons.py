"""Chats that teach a Test LLM alone: the game's prompt about a training question, answered by right tests."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from codea1.data import procedural
from codea1.data.corpus import Document, Recipe, chats
from codea1.data.tokenizer import ChatTokenizer
from codea1.game.asserts import golden_tests
from codea1.game.prompts import Message, PromptTemplates, test_messages
from codea1.game.question import Question
from codea1.runtime.errors import BadInput

Chat = list[Message]
Lessons = Callable[[str], Iterator[Chat]]  # chats without end, whose last message is the suite: a function of a seed


def worked_lessons(questions: Sequence[Question], recipe: Recipe) -> Lessons:
    """Of procedural questions in the tiny prompts: the warm start's chats about them.

    Programs have planted misconceptions, and suites show their working; so many are an expert's as the recipe says.
    """
    tasks = procedural.tasks_of([question.id for question in questions])
    return lambda seed: chats(seed, recipe, tasks)


def golden_lessons(questions: Sequence[Question], templates: PromptTemplates, num_tests: int) -> Lessons:
    """Of any questions: suites of `num_tests` of their golden tests, or as many as there are, drawn at random.

    The program that is shown is one of the question's mutants, or the ground truth where it has none. Raises BadInput:
    no question has a golden test that is an assert.
    """
    known = [(question, [test.text for test in golden_tests(question)]) for question in questions]
    tested = [(question, tests) for question, tests in known if tests]
    if not tested:
        raise BadInput(f"none of the {len(questions)} training questions has a golden test that is an assert.")
    return lambda seed: _golden_chats(tested, templates, num_tests, seed)


def lesson_batch(chats: Iterator[Chat], batch_size: int, tokenizer: ChatTokenizer, length: int) -> list[Document]:
    """The next chats that fit: token ids, and 1 for each of the last message with what ends it, else 0.

    Raises BadInput: hardly any chat is that short.
    """
    encoded = (_document(chat, tokenizer) for chat in islice(chats, 20 * batch_size))
    documents = list(islice((document for document in encoded if len(document[0]) <= length), batch_size))
    if len(documents) < batch_size:
        raise BadInput(f"length {length} is too short: fewer than one in twenty suites fit with their prompts.")
    return documents


def _document(chat: Chat, tokenizer: ChatTokenizer) -> Document:
    prompt = tokenizer.encode_chat(chat[:-1])
    answer = [*tokenizer.encode(chat[-1]["content"]), tokenizer.end_id]
    return prompt + answer, [0] * len(prompt) + [1] * len(answer)


def _golden_chats(
    tested: Sequence[tuple[Question, list[str]]], templates: PromptTemplates, num_tests: int, seed: str
) -> Iterator[Chat]:
    rng = random.Random(f"lessons/{seed}")
    while True:
        question, tests = rng.choice(tested)
        program = rng.choice(question.mutants or (question.ground_truth,))
        suite = "\n".join(rng.sample(tests, min(num_tests, len(tests))))
        prompt = test_messages(templates, question, program, num_tests)
        yield [*prompt, {"role": "assistant", "content": f"```python\n{suite}\n```"}]
