"""The order in which questions are asked."""

from collections.abc import Sequence

import grain

from codea1.game.question import Question
from codea1.runtime.errors import BadInput


class QuestionFeed:
    """Batches of questions by number: a pure function of the seed and the number, which is all that a run saves.

    Each epoch is a fresh shuffle in which every question comes at most once; the questions that fill no whole batch are
    left out of that epoch.
    """

    def __init__(self, questions: Sequence[Question], batch_size: int, seed: int):
        """Declares the shuffles; a batch is drawn when it is asked for.

        Args:
          questions: what to ask, in an order that is the same in every process.
          batch_size: questions per batch.
          seed: of the shuffles.

        Raises:
          BadInput: there are too few questions for one batch.
        """
        if len(questions) < batch_size:
            raise BadInput(f"{len(questions)} questions are too few for batches of {batch_size}.")
        self._questions = questions
        self._batch_size = batch_size
        self.batches_per_epoch = len(questions) // batch_size
        self._shuffled = grain.MapDataset.range(len(questions)).seed(seed).shuffle().repeat()

    def batch(self, number: int) -> list[Question]:
        """Returns the questions of one batch, counted from 0."""
        epoch, place = divmod(number, self.batches_per_epoch)
        start = epoch * len(self._questions) + place * self._batch_size
        return [self._questions[self._shuffled[index]] for index in range(start, start + self._batch_size)]
