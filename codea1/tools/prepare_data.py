"""Makes the training set of the paper's kind from files of KodCode-V1.

  python -m codea1.data train-*.parquet --output=data/kodcode_hard.parquet --exclude humanevalplus_mbppplus.parquet

The files are those of huggingface.co/datasets/KodCode/KodCode-V1 (CC BY-NC 4.0), Parquet or JSON lines, local or on
gs://. Kept are questions that ask for one function, are hard by the published pass rate, are nearly none of the
evaluation sets', and whose ground truth, run twice in the sandbox, passes at least one of their asserts. The official
file of Code-A1 needs none of this: --config.data.train.source reads it as it is.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from codea1.data.kodcode import Dropped, kodcode_rows, training_questions, write_training_set
from codea1.data.loader import load_questions
from codea1.data.near_duplicates import NearDuplicates
from codea1.runtime.errors import BadInput, with_exit_code
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation.levels import AUTO
from codea1.storage.objects import exists, location

HARD = 1 / 3  # KodCode's own bound: below it a question is called hard


@with_exit_code
def main(arguments: Sequence[str] | None = None) -> None:
    """Does what the words of a command line ask for."""
    _make(_parser().parse_args(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m codea1.data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="file of KodCode-V1")
    parser.add_argument("--output", required=True, metavar="FILE.parquet", help="the training set")
    parser.add_argument("--exclude", nargs="+", default=[], metavar="FILE", help="evaluation sets to stay away from")
    parser.add_argument("--max_pass_rate", type=float, default=HARD, help="hard is below it (default: 1/3)")
    return parser


def _make(options: argparse.Namespace) -> None:
    output = location(options.output, "output")
    if output.suffix != ".parquet":
        raise BadInput(f"output {output} does not end in .parquet.")
    if exists(output):
        raise BadInput(f"output {output} is there already.")
    for file in options.files:
        next(kodcode_rows(file), None)  # a file that cannot be read is told before the first is worked on
    evaluations = NearDuplicates(question for file in options.exclude for question in load_questions(file))
    console = Console(stderr=True)
    read: Counter[str] = Counter()
    with SandboxPool(isolation=AUTO) as pool, Progress(console=console) as progress:
        progress.console.print(pool.isolation_note)
        task = progress.add_task("rows", total=None)

        def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
            for file in options.files:
                yield from _unrepeated(kodcode_rows(file), read)

        kept, dropped = training_questions(
            rows(), evaluations, Grader(pool), options.max_pass_rate, lambda: progress.advance(task)
        )
    _tell(read.total(), dropped, len(kept), sum(len(question.tests) for question in kept))
    if not kept:
        raise BadInput("no question is left, so nothing was written.")
    write_training_set(epath.Path(output), kept)
    print(f"wrote {output}")


def _unrepeated(
    rows: Iterator[tuple[str, Mapping[str, Any]]], read: Counter[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where, row in rows:
        read[str(row.get("question_id"))] += 1
        if read[str(row.get("question_id"))] > 1:
            raise BadInput(f"{where}: question {row['question_id']} comes twice.")
        yield where, row


def _tell(rows: int, dropped: Mapping[Dropped, int], kept: int, tests: int) -> None:
    table = Table("", "questions", "left", box=None)
    table.add_row("rows read", "", f"{rows:,}")
    left = rows
    for reason in Dropped:
        left -= dropped[reason]
        table.add_row(f"dropped: {reason.value}", f"{dropped[reason]:,}", f"{left:,}")
    table.add_row(f"kept, with {tests:,} golden tests", f"{kept:,}", f"{left:,}")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
