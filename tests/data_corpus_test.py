"""The SFT corpora: what both players are taught, and what a Test LLM alone is."""

import dataclasses
import random
from functools import partial
from itertools import islice, product

import numpy as np
import pytest

from codea1.data.loader import load_questions
from codea1.data.sources import PROCEDURAL
from codea1.game import prompts
from codea1.game.answers import extract_program, parse_suite
from codea1.game.calls import CallTest
from codea1.game.prompts import DEFAULT, TINY
from codea1.game.question import Question
from codea1.lab.sft.corpus import (
    Document,
    Recipe,
    batch_of,
    chats,
    corpus_texts,
    golden_lessons,
    plant,
    suite_alone,
    worked_lessons,
)
from codea1.lab.sft.tokenizer import make_tokenizer
from codea1.lab.worlds.compositions import Task, behaviour, compositions, outcome
from codea1.runtime.errors import BadInput
from codea1.values import decode_exact

TOKENIZER = make_tokenizer(corpus_texts(seed=0, num_chats=1500), 512)


def games(recipe: Recipe, number: int = 400) -> list[tuple[str, str, list[CallTest]]]:
    """Problem, program and tests of some chats, as the game reads them."""
    contents = ([message["content"] for message in chat] for chat in islice(chats("0", recipe), number))
    return [
        (problem, unfenced(program), [item.test for item in parse_suite(suite, "f").asserts])
        for problem, program, _, suite in contents
    ]


def unfenced(text: str) -> str:
    assert text.startswith("```python\n")
    assert text.endswith("\n```")
    return text[len("```python\n") : -len("\n```")]


def arguments_and_answer(test: CallTest) -> tuple[tuple, object]:
    positional, named = decode_exact(test.call.arguments)
    assert not named
    return positional, decode_exact(test.expected)


def truths() -> dict[str, str]:
    tasks = (
        Task(composition, constants)
        for composition in compositions("train")
        for constants in product(*(k.constants if k.has_constant else (1,) for k in composition.components))
    )
    return {task.problem: task.program() for task in tasks}


TRUTH = truths()


def right_share(recipe: Recipe) -> float:
    """The share of right answers."""
    tests = [(TRUTH[problem], *arguments_and_answer(test)) for problem, _, suite in games(recipe) for test in suite]
    return float(np.mean([outcome(truth, arguments) == answer for truth, arguments, answer in tests]))


def batch(seed: int, step: int, size: int, length: int) -> list[Document]:
    return batch_of(chats(f"{seed}/{step}", Recipe()), TOKENIZER.encode_transcript, size, length)


def test_batch_is_a_pure_function():
    first = batch(0, 3, 8, 112)
    again = batch(0, 3, 8, 112)
    assert first == again
    assert len(first) == 8
    for other in (batch(0, 4, 8, 112), batch(1, 3, 8, 112)):
        assert first != other


def test_mask_covers_answers_and_their_ends_and_prompts_are_the_games():
    for tokens, mask in batch(0, 0, 16, 112):
        starts = [t for t in range(1, len(mask)) if mask[t] and not mask[t - 1]]
        ends = [t for t in range(len(mask)) if mask[t] and mask[t + 1 : t + 2] != [1]]
        assert len(starts) == len(ends) == 2
        assert [tokens[t] for t in ends] == [TOKENIZER.end_id] * 2
        program, suite = (TOKENIZER.decode(tokens[a:b]) for a, b in zip(starts, ends, strict=True))
        problem = TOKENIZER.decode(tokens[: starts[0]]).removeprefix("user\n").removesuffix("\nassistant\n")
        question = Question("", None, problem, "", "", "f")
        assert tokens[: starts[0]] == TOKENIZER.encode_chat(prompts.code_messages(prompts.TINY, question))
        assert tokens[: starts[1]] == TOKENIZER.encode_chat(
            prompts.test_messages(prompts.TINY, question, unfenced(program), 4)
        )
        assert tokens[starts[0] : ends[0]] == TOKENIZER.encode(program)
        assert tokens[starts[1] : ends[1]] == TOKENIZER.encode(suite)
        assert set(tokens[ends[1] + 2 :]) <= {TOKENIZER.pad_id}


def test_only_training_compositions_are_taught():
    assert {problem for problem, _, _ in games(Recipe(), 1500)} <= TRUTH.keys()


def test_suites_are_distinct_asserts_and_right():
    for _, _, suite in games(Recipe(), 100):
        assert len(suite) == len({test.identity for test in suite}) == 4
    assert len(games(Recipe(num_tests=7), 1)[0][2]) == 7
    assert right_share(Recipe()) == right_share(Recipe(expert_suites=1.0)) == 1.0


def test_lists_show_what_is_left_and_integers_whether_they_qualify():
    task = next(c for c in compositions("train") if c.names == ("gt", "double", "sum")).draw(random.Random(0))
    bound = task.constants[0]
    assert outcome(task.working(), ([bound, bound + 1],)) == [2 * (bound + 1)]
    odd = next(c for c in compositions("train") if c.family == "int" and c.names[0] == "odd").draw(random.Random(0))
    assert (outcome(odd.working(), (4,)), outcome(odd.working(), (5,))) == (False, True)


def test_share_of_right_programs():
    rng = random.Random(0)
    right = []
    for _ in range(600):
        task = rng.choice(compositions("train")).draw(rng)
        inputs = task.hidden_inputs
        program = task.program(plant(task, rng))
        right.append(behaviour(program, inputs) == behaviour(task.program(), inputs))
    assert 0.25 < np.mean(right) < 0.37


def test_token_budgets_of_the_tiny_game():
    for problem, program, request, suite in islice(chats("1", Recipe(expert_suites=0.5)), 500):
        assert len(TOKENIZER.encode_chat([problem])) <= 20
        assert len(TOKENIZER.encode(program["content"])) + 1 <= 24
        assert len(TOKENIZER.encode_chat([problem, program, request])) <= 48
        assert len(TOKENIZER.encode(suite["content"])) + 1 <= 88


def test_every_component_expression_is_in_the_vocabulary():
    # A mutant that falls apart into bytes would be a riddle of its own for the Test LLM.
    rng = random.Random(2)
    for composition in rng.sample(compositions("test"), 200):
        task = composition.draw(rng)
        for choices in task.near_misses(1):
            assert len(TOKENIZER.encode(f"```python\n{task.program(choices)}\n```")) <= 24


def test_length_that_fits_no_chat_is_refused():
    with pytest.raises(BadInput, match="length 20 is too short"):
        batch(0, 0, 4, 20)


QUESTION = Question(
    "q",
    None,
    "Add one.",
    "Add one.",
    "def f(n):\n    return n + 1",
    "f",
    golden_tests=("assert f(1) == 2", "assert f(2) == 3", "assert f(-1) == 0", "assert len([1]) == 1", "nonsense("),
)


def test_worked_lessons_are_right_expert_suites_on_the_questions_given(data_folder):
    questions = load_questions(PROCEDURAL, "train", limit=6, data_folder=str(data_folder))
    by_problem = {question.problem: question for question in questions}
    chats = list(islice(worked_lessons(questions, Recipe(expert_suites=1.0))("0/1"), 60))
    assert {chat[0]["content"] for chat in chats} == set(by_problem)
    breaks = 0
    for chat in chats:
        question = by_problem[chat[0]["content"]]
        program = extract_program(chat[1]["content"]).source
        assert chat[:-1] == prompts.test_messages(TINY, question, program, 4)
        truth, shown = ({}, {})
        exec(question.ground_truth, truth)
        exec(program, shown)
        suite = parse_suite(chat[-1]["content"], "f").asserts
        assert len(suite) == 4
        for item in suite:
            (positional, named), stated = decode_exact(item.call.arguments), decode_exact(item.answer)
            assert truth["f"](*positional, **named) == stated
        (positional, _) = decode_exact(suite[0].call.arguments)
        breaks += program != question.ground_truth and _answer(shown["f"], positional) != decode_exact(suite[0].answer)
    assert breaks > 20  # most programs are wrong, and the first test shows it where any can


def _answer(function, arguments: tuple):
    try:
        return function(*arguments)
    except Exception as error:
        return error


def test_golden_lessons_are_golden_tests_that_are_asserts():
    mutants = ("def f(n):\n    return n", "def f(n):\n    return n + 2")
    questions = [QUESTION, Question("r", None, "p", "d", "g", "f")]
    chats = list(islice(golden_lessons(questions, DEFAULT, 2)("0/1"), 30))
    suites = set()
    for chat in chats:
        assert chat[:-1] == prompts.test_messages(DEFAULT, QUESTION, QUESTION.ground_truth, 2)
        suites.add(tuple(chat[-1]["content"].splitlines()))
    assert {len(suite) for suite in suites} == {4}  # two asserts in a code block
    assert {line for suite in suites for line in suite[1:-1]} == set(QUESTION.golden_tests[:3])
    wrong = dataclasses.replace(QUESTION, mutants=mutants)
    shown = {chat[-2]["content"] for chat in islice(golden_lessons([wrong], DEFAULT, 2)("0/1"), 30)}
    assert shown == {prompts.test_messages(DEFAULT, wrong, mutant, 2)[-1]["content"] for mutant in mutants}
    with pytest.raises(BadInput, match="none of the 1 training questions has a golden test"):
        golden_lessons(questions[1:], DEFAULT, 2)


def test_the_suite_alone_is_learned_and_the_prompt_is_the_games():
    lessons = golden_lessons([QUESTION], TINY, 2)
    (chat,) = islice(lessons("0/1"), 1)
    ((ids, targets),) = batch_of(lessons("0/1"), partial(suite_alone, TOKENIZER), 1, length=400)
    start = targets.index(1)
    assert ids[:start] == TOKENIZER.encode_chat(chat[:-1])
    assert TOKENIZER.decode(ids[start:]) == chat[-1]["content"]
    assert ids[-1] == TOKENIZER.end_id
    assert set(targets[start:]) == {1}
    with pytest.raises(BadInput, match="length 8 is too short"):
        batch_of(lessons("0/1"), partial(suite_alone, TOKENIZER), 4, length=8)
