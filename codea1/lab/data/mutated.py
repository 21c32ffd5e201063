"""Questions with mutants of their ground truths, and with ground truths that are wrong on purpose."""

import io
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from etils import epath

from codea1.data.loader import load_questions, rows_of
from codea1.data.rows import Row
from codea1.game.question import Question
from codea1.lab.mutants import drawn_mutants
from codea1.storage.objects import write_atomically


def with_mutants(question: Question, count: int) -> Question:
    """Returns a question without mutants with so many made of its ground truth; they may be equivalent to it."""
    if question.mutants:
        return question
    return replace(question, mutants=drawn_mutants(question.ground_truth, count, question.id))


def with_wrong_truth(question: Question, share: float, seed: int) -> Question:
    """Returns the question, with probability `share` with one of its paid mutants as its ground truth.

    Which questions depends on the seed and their ids alone; one without paid mutants keeps its own. The mutant stays
    among the paid ones, where no right test kills it. Check script and golden tests stay true.
    """
    draw = random.Random(f"wrong truth/{seed}/{question.id}")
    if draw.random() >= share or not question.paid_mutants:
        return question
    return replace(question, ground_truth=draw.choice(question.paid_mutants))


def mutated_rows(source: str, split: str, folder: str, count: int, share: float, seed: int) -> Iterator[Row]:
    """Yields the rows of a dataset (see `load_questions`) with mutants, and a share of them with wrong truths."""
    rows = (row for _, row in rows_of(source, split, folder))
    for row, question in zip(rows, load_questions(source, split, data_folder=folder), strict=True):
        changed = with_wrong_truth(with_mutants(question, count), share, seed)
        truth = {} if changed.ground_truth == question.ground_truth else {"GT_code": changed.ground_truth}
        yield row | {"mutants": list(changed.mutants)} | truth


def write_rows(path: epath.Path, rows: Sequence[Row]) -> None:
    """Writes rows as one Parquet file, whole or not at all; one may lack columns that others have."""
    import pyarrow.parquet

    file, names = io.BytesIO(), dict.fromkeys(chain.from_iterable(rows))
    pyarrow.parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in names}), file)
    write_atomically(path, file.getvalue())
