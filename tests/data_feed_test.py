"""Which questions a step gets."""

import pytest

from codea1.data.feed import QuestionFeed
from codea1.game.question import Question
from codea1.runtime.errors import BadInput


def questions(number: int) -> list[Question]:
    return [Question(str(i), None, "p" * i, "", "", "f") for i in range(number)]


def flat(batches: list[list[str]]) -> list[str]:
    return [id for batch in batches for id in batch]


def ids(feed: QuestionFeed, steps: range) -> list[list[str]]:
    return [[question.id for question in feed.batch(step)] for step in steps]


def test_batch_is_a_function_of_seed_and_step_alone():
    feed = QuestionFeed(questions(10), 3, seed=1)
    in_order = ids(feed, range(9))
    again = QuestionFeed(questions(10), 3, seed=1)
    assert [ids(again, range(step, step + 1))[0] for step in reversed(range(9))] == in_order[::-1]
    assert ids(QuestionFeed(questions(10), 3, seed=2), range(9)) != in_order


def test_an_epoch_asks_each_question_once_in_an_order_of_its_own():
    feed = QuestionFeed(questions(12), 4, seed=0)
    epochs = [flat(ids(feed, range(3 * epoch, 3 * epoch + 3))) for epoch in range(4)]
    assert all(sorted(epoch, key=int) == [str(i) for i in range(12)] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_the_rest_of_an_epoch_is_left_out_and_differs():
    feed = QuestionFeed(questions(10), 4, seed=0)
    assert feed.batches_per_epoch == 2
    epochs = [flat(ids(feed, range(2 * epoch, 2 * epoch + 2))) for epoch in range(6)]
    assert all(len(set(epoch)) == 8 for epoch in epochs)
    assert set().union(*epochs) == {str(i) for i in range(10)}


def test_too_few_questions_are_refused():
    with pytest.raises(BadInput, match="3 questions are too few for batches of 4"):
        QuestionFeed(questions(3), 4, seed=0)
