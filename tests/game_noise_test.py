"""What is changed of training questions: labels that are wrong on purpose, and mutants that are made."""

import math
from dataclasses import replace

import pytest

from codea1.game.mutants import drawn_mutants
from codea1.game.noise import noisy_answer, with_wrong_truth
from codea1.game.question import Question
from codea1.training import setup
from codea1.values import decode_exact, encode_exact

MUTANTS = ("paid 0", "hidden 0", "paid 1", "hidden 1")
QUESTIONS = [Question(f"q{n}", None, "", "", "truth", "f", "check", mutants=MUTANTS) for n in range(1000)]
GOLDEN = Question("q", None, "", "", "", "f", golden_tests=tuple(f"assert f({n}) == {n % 3}" for n in range(5)))


def is_a_share(count: int, total: int, share: float) -> bool:
    """Whether a count is within four standard deviations of a binomial's mean."""
    return abs(count - total * share) <= 4 * math.sqrt(total * share * (1 - share))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_share_of_ground_truths_becomes_a_paid_mutant(share):
    noisy = [with_wrong_truth(question, share, seed=3) for question in QUESTIONS]
    wrong = [question.ground_truth for question in noisy if question.ground_truth != "truth"]
    assert is_a_share(len(wrong), 1000, share)
    assert set(wrong) == (set(MUTANTS[::2]) if share else set())
    assert {question.check_script for question in noisy} == {"check"}
    assert noisy == [with_wrong_truth(question, share, seed=3) for question in reversed(QUESTIONS)][::-1]
    if 0 < share < 1:
        assert noisy != [with_wrong_truth(question, share, seed=4) for question in QUESTIONS]


def test_a_question_without_mutants_keeps_its_ground_truth():
    assert with_wrong_truth(GOLDEN, 1.0, seed=0) is GOLDEN


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_share_of_answers_becomes_that_of_a_golden_test(share):
    one = encode_exact(1)
    answers = [noisy_answer(GOLDEN, encode_exact(n), one, share, seed=3) for n in range(1000)]
    wrong = [decode_exact(answer) for answer in answers if answer != one]
    assert is_a_share(len(wrong), 1000, share)
    assert set(wrong) == ({0, 2} if share else set())
    again = [noisy_answer(GOLDEN, encode_exact(n), one, share, seed=3) for n in reversed(range(1000))][::-1]
    assert answers == again
    if 0 < share < 1:
        assert answers != [noisy_answer(GOLDEN, encode_exact(n), one, share, seed=4) for n in range(1000)]


def test_an_answer_stays_where_golden_tests_state_no_other():
    same = Question("q", None, "", "", "", "f", golden_tests=("assert f(1) == True",))
    assert noisy_answer(same, b"", encode_exact(1), 1.0, seed=0) == encode_exact(1)
    printed = Question("q", None, "", "", "", "stdout_tokens", golden_tests=("assert stdout_tokens('') == '0.50'",))
    assert noisy_answer(printed, b"", encode_exact("0.5"), 1.0, seed=0) == encode_exact("0.5")


def test_the_training_questions_alone_get_wrong_ground_truths(micro_config):
    clean = setup.assemble(micro_config)
    micro_config.noise.wrong_truths = 1.0
    noisy = setup.assemble(micro_config)
    assert all(q.ground_truth in before.paid_mutants for q, before in zip(noisy.train, clean.train, strict=True))
    assert {q.ground_truth for q in noisy.feed.batch(0)} <= {q.ground_truth for q in noisy.train}
    assert (noisy.validation, noisy.test) == (clean.validation, clean.test)


def test_training_questions_without_mutants_get_made_ones(micro_config, monkeypatch):
    load = setup.load_questions

    def without_mutants(source: str, split: str, *others: object, **named: object) -> list[Question]:
        """The second question of each split alone keeps its mutants."""
        return [
            replace(q, mutants=q.mutants if n == 1 else ()) for n, q in enumerate(load(source, split, *others, **named))
        ]

    monkeypatch.setattr(setup, "load_questions", without_mutants)
    bare = setup.assemble(micro_config)
    micro_config.game.made_mutants = 3
    made = setup.assemble(micro_config)
    for n, (question, before) in enumerate(zip(made.train, bare.train, strict=True)):
        drawn = drawn_mutants(question.ground_truth, 3, question.id)
        assert question == replace(before, mutants=before.mutants if n == 1 else drawn)
        assert n == 1 or (len(question.paid_mutants), len(question.hidden_mutants)) == (2, 1)
    assert (made.validation, made.test) == (bare.validation, bare.test)
    micro_config.noise.wrong_truths = 1.0
    noisy = setup.assemble(micro_config)
    assert all(q.ground_truth in before.paid_mutants for q, before in zip(noisy.train, made.train, strict=True))
