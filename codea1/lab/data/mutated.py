"""Questions with mutants of their ground truths."""

import io
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


def mutated_rows(file: str, count: int) -> Iterator[Row]:
    """Yields the rows of a file of questions, with mutants. Raises BadInput: it is no such file."""
    rows = (row for _, row in rows_of(file, "", ""))
    for row, question in zip(rows, load_questions(file), strict=True):
        yield row | {"mutants": list(with_mutants(question, count).mutants)}


def write_rows(path: epath.Path, rows: Sequence[Row]) -> None:
    """Writes rows as one Parquet file, whole or not at all; one may lack columns that others have."""
    import pyarrow.parquet

    file, names = io.BytesIO(), dict.fromkeys(chain.from_iterable(rows))
    pyarrow.parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in names}), file)
    write_atomically(path, file.getvalue())
