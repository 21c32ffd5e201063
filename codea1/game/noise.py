"""Wrong labels on purpose, to measure what they do to training: ground truths, and single answers of theirs.

Which labels are wrong depends on the seed and on what they label alone: they are the same in every step and on every
host. Check scripts and golden tests stay true.
"""

import random
from dataclasses import replace

from codea1.game.asserts import golden_tests
from codea1.game.question import Question
from codea1.values.checkers import same_answer


def with_wrong_truth(question: Question, share: float, seed: int) -> Question:
    """Returns the question, with probability `share` with one of its paid mutants as its ground truth.

    A question without paid mutants keeps its own. The mutant stays among the paid ones, where no right test kills it.
    """
    draw = random.Random(f"wrong truth/{seed}/{question.id}")
    if draw.random() >= share or not question.paid_mutants:
        return question
    return replace(question, ground_truth=draw.choice(question.paid_mutants))


def noisy_answer(question: Question, given: bytes, answer: bytes, share: float, seed: int) -> bytes:
    """Returns the ground truth's answer to a call, with probability `share` another one, that of a golden test.

    An answer that all golden tests of the question share stays as it is.

    Args:
      given: to the call, by the question's signature.
      answer: exact encoding; so is what is returned.
    """
    draw = random.Random(f"wrong answer/{seed}/{question.id}/{given.hex()}")
    if draw.random() >= share:
        return answer
    stated = {test.expected for test in golden_tests(question) if not test.call.form}
    others = sorted(each for each in stated if not same_answer(question.entry_point, each, answer))
    return draw.choice(others) if others else answer
