"""Fixed tests of questions in a file of JSON lines, as `codea1.lab dump_tests` writes it: one question a line.

{"question_id": "mbpp/2", "truth": digest of the ground truth that answered, "tests": ["assert f(1) == 2", ...]}
"""

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from codea1.game.asserts import Rejected, parse_assert
from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.storage.objects import location, read


def with_static_tests(source: str, questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Splits questions into those with tests in the file, which become their golden tests, and those without.

    Raises:
      BadInput: there is no such file; or names the line that is not as above, has a question for the second time, a
        test that is no assert on its question's entry point, or tests that another ground truth answered.
    """
    by_id = {question.id: question for question in questions}
    tested: dict[str, Question] = {}
    for number, line in enumerate(_lines(source), start=1):
        where = f"{source}, line {number}"
        row = _row(line, where)
        if row["question_id"] in tested:
            raise BadInput(f"{where}: question {row['question_id']} comes twice.")
        if row["question_id"] in by_id:
            tested[row["question_id"]] = _with_tests(by_id[row["question_id"]], row, where)
    return [tested[id] for id in by_id if id in tested], [q for q in questions if q.id not in tested]


def _with_tests(question: Question, row: Mapping[str, Any], where: str) -> Question:
    if row["truth"] != question.ground_truth_digest:
        raise BadInput(
            f"{where}: question {question.id} has another ground truth than when its tests were written, or it "
            "is run otherwise; write them again."
        )
    for source in row["tests"]:
        parsed = parse_assert(source, question.entry_point)
        if isinstance(parsed, Rejected):
            raise BadInput(f"{where}: {source!r} is no test of {question.entry_point}: {parsed.reason}.")
    return dataclasses.replace(question, golden_tests=tuple(row["tests"]))


def _lines(source: str) -> list[bytes]:
    try:
        return read(location(source, "the file of static tests")).splitlines()
    except FileNotFoundError:
        raise BadInput(f"file of static tests {source} does not exist.") from None
    except IsADirectoryError:
        raise BadInput(f"file of static tests {source} is a folder.") from None


def _row(line: bytes, where: str) -> Mapping[str, Any]:
    with contextlib.suppress(ValueError):
        match row := json.loads(line):
            case {"question_id": str(), "truth": str(), "tests": [_, *_] as tests}:
                if all(isinstance(test, str) for test in tests):
                    return row
    raise BadInput(f"{where}: not an object with question_id, truth and a list of tests.")
