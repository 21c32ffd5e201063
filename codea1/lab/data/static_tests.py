"""Writes the files of fixed tests that `codea1.data.static_tests` reads."""

import json
from collections.abc import Iterable, Sequence

from etils import epath

from codea1.game.asserts import parse_assert
from codea1.game.calls import CallTest
from codea1.game.question import Question
from codea1.storage.objects import write_atomically


def writable(tests: Iterable[CallTest]) -> list[CallTest]:
    """Returns those that a line of the file can state: read again, their source is the same test."""
    return [test for test in tests if parse_assert(test.text, test.call.function) == test]


def write_static_tests(path: epath.Path, tests: Iterable[tuple[Question, Sequence[CallTest]]]) -> None:
    """Writes the file, whole or not at all; questions without tests get no line."""
    rows = [
        {"question_id": question.id, "truth": question.ground_truth_digest, "tests": [test.text for test in tests_of]}
        for question, tests_of in tests
        if tests_of
    ]
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))
