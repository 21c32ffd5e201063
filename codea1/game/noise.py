"""Wrong answers of ground truths on purpose, to measure what they do to training.

Which are wrong depends on the seed and on the call alone: they are the same in every step and on every host. Check
scripts and golden tests stay true.
"""

import random

from codea1.game.asserts import golden_tests
from codea1.game.question import Question
from codea1.values.entry_points import same_answer


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
