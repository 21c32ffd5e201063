"""What an SFT Test LLM is taught: the game's prompts, right suites, and of each chat the suite alone."""

import dataclasses
from itertools import islice

import pytest

from codea1.data import procedural
from codea1.data.corpus import Recipe, corpus_texts, golden_lessons, lesson_batch, worked_lessons
from codea1.data.loader import load_questions
from codea1.data.tokenizer import ChatTokenizer, make_tokenizer
from codea1.game import prompts
from codea1.game.answers import extract_program, parse_suite
from codea1.game.prompts import DEFAULT, TINY
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.values import decode_exact

QUESTION = Question(
    "q",
    None,
    "Add one.",
    "Add one.",
    "def f(n):\n    return n + 1",
    "f",
    golden_tests=("assert f(1) == 2", "assert f(2) == 3", "assert f(-1) == 0", "assert len([1]) == 1", "nonsense("),
)


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return make_tokenizer(corpus_texts(seed=0, num_chats=200), vocab_size=512)


def test_worked_lessons_are_right_expert_suites_on_the_questions_given(data_folder):
    questions = load_questions(procedural.NAME, "train", limit=6, data_folder=str(data_folder))
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


def test_the_suite_alone_is_learned_and_the_prompt_is_the_games(tokenizer):
    lessons = golden_lessons([QUESTION], TINY, 2)
    (chat,) = islice(lessons("0/1"), 1)
    ((ids, targets),) = lesson_batch(lessons("0/1"), 1, tokenizer, length=400)
    start = targets.index(1)
    assert ids[:start] == tokenizer.encode_chat(chat[:-1])
    assert tokenizer.decode(ids[start:]) == chat[-1]["content"]
    assert ids[-1] == tokenizer.end_id
    assert set(targets[start:]) == {1}
    with pytest.raises(BadInput, match="length 8 is too short"):
        lesson_batch(lessons("0/1"), 4, tokenizer, length=8)
