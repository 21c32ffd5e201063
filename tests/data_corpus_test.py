"""The SFT corpus: what it teaches, what is masked, and how many tokens a game takes."""

import random
from itertools import islice, product

import numpy as np
import pytest

from codea1.data.compositions import Task, behaviour, compositions, outcome
from codea1.data.corpus import Recipe, chats, corpus_batch, corpus_texts, plant, planted_misconceptions
from codea1.data.tokenizer import make_tokenizer
from codea1.game import prompts
from codea1.game.answers import parse_suite
from codea1.game.question import Question
from codea1.game.tests import Test
from codea1.runtime.errors import BadInput
from codea1.values import decode_exact

TOKENIZER = make_tokenizer(corpus_texts(seed=0, num_chats=1500), 512)


def games(recipe: Recipe, number: int = 400) -> list[tuple[str, str, list[Test]]]:
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


def arguments_and_answer(test: Test) -> tuple[tuple, object]:
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


def right_share(recipe: Recipe) -> tuple[float, float]:
    """Shares of right answers, and of wrong programs that their suite exposes."""
    right, exposed = [], []
    for problem, program, suite in games(recipe):
        truth = TRUTH[problem]
        tests = [arguments_and_answer(test) for test in suite]
        right += [outcome(truth, arguments) == answer for arguments, answer in tests]
        if program != truth:
            exposed.append(any(outcome(program, arguments) != outcome(truth, arguments) for arguments, _ in tests))
    return float(np.mean(right)), float(np.mean(exposed))


def test_batch_is_a_pure_function():
    first = corpus_batch(0, 3, 8, TOKENIZER, 112, Recipe())
    again = corpus_batch(0, 3, 8, TOKENIZER, 112, Recipe())
    assert first == again
    assert len(first) == 8
    for other in (corpus_batch(0, 4, 8, TOKENIZER, 112, Recipe()), corpus_batch(1, 3, 8, TOKENIZER, 112, Recipe())):
        assert first != other


def test_mask_covers_answers_and_their_ends_and_prompts_are_the_games():
    for tokens, mask in corpus_batch(0, 0, 16, TOKENIZER, 112, Recipe()):
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
    assert right_share(Recipe())[0] == 1.0


def test_lists_show_what_is_left_and_integers_whether_they_qualify():
    task = next(c for c in compositions("train") if c.names == ("gt", "double", "sum")).draw(random.Random(0))
    bound = task.constants[0]
    assert outcome(task.working(), ([bound, bound + 1],)) == [2 * (bound + 1)]
    odd = next(c for c in compositions("train") if c.family == "int" and c.names[0] == "odd").draw(random.Random(0))
    assert (outcome(odd.working(), (4,)), outcome(odd.working(), (5,))) == (False, True)


def test_experts_expose_mistakes_and_sloppy_suites_share_them():
    _, exposed = right_share(Recipe())
    right, exposed_by_experts = right_share(Recipe(expert_suites=1.0))
    assert right == 1.0
    assert exposed + 0.1 < exposed_by_experts
    assert exposed_by_experts > 0.85
    assert right_share(Recipe(sloppy_suites=1.0))[0] < 0.8


def test_share_of_right_programs():
    rng = random.Random(0)
    right = []
    for _ in range(600):
        task = rng.choice(compositions("train")).draw(rng)
        inputs = task.hidden_inputs()
        program = task.program(plant(task, rng, 1.0))
        right.append(behaviour(program, inputs) == behaviour(task.program(), inputs))
    assert 0.25 < np.mean(right) < 0.37
    assert all(program == TRUTH[problem] for problem, program, _ in games(Recipe(misconceptions=0.0)))


def test_planted_rates_are_what_is_disclosed():
    rng = random.Random(0)
    table = {(row.correct, row.mistake): row.rate for row in planted_misconceptions()}
    composition = next(c for c in compositions("train") if c.names[0] == "ge")
    task = composition.draw(rng)
    first = [plant(task, rng, 1.0)[0] for _ in range(4000)]
    assert table["x >= c", "x > c"] == pytest.approx(0.65 * 5 / 6)
    assert np.mean([choice == 1 for choice in first]) == pytest.approx(table["x >= c", "x > c"], abs=0.04)
    assert np.mean([choice == 2 for choice in first]) == pytest.approx(table["x >= c", "x >= (c - 1)"], abs=0.04)


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
        corpus_batch(0, 0, 4, TOKENIZER, 20, Recipe())
