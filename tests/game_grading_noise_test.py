"""Answers of ground truths that are wrong on purpose."""

import math

import pytest

from codea1.game.grading import noisy_answer
from codea1.game.question import Question
from codea1.values import decode_exact, encode_exact

GOLDEN = Question("q", None, "", "", "", "f", golden_tests=tuple(f"assert f({n}) == {n % 3}" for n in range(5)))


def is_a_share(count: int, total: int, share: float) -> bool:
    """Whether a count is within four standard deviations of a binomial's mean."""
    return abs(count - total * share) <= 4 * math.sqrt(total * share * (1 - share))


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
