"""Rows of KodCode-V1 as training questions; see `codea1.lab.data.conversion`.

A row of huggingface.co/datasets/KodCode/KodCode-V1 brings a question, a solution, a pytest file that imports it, and
the share of GPT-4o's trials that passed their own tests. The paper trains on the hard ones, less than a third, that ask
for a single function; which further filter it used is not known. Shares are rounded to three places in the files, and
a third itself, 0.333 there, is labelled medium.
"""

import ast
import math
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from codea1.data.loader import entry_point, parsed
from codea1.data.rows import rows_or_errors
from codea1.game.asserts import Rejected, read_fixed_tests
from codea1.game.calls import CallTest
from codea1.game.question import Question
from codea1.lab.data.conversion import Format, Row, Rows, declared
from codea1.runtime.errors import BadInput

HARD = 1 / 3  # KodCode's own bound: below this share of trials that pass, a question is called hard
_ROUNDING = 0.0005  # of the shares in its files
DATA_SOURCE = "kodcode_light"  # the tag of the official file
COLUMNS = ("question_id", "question", "solution", "test", "test_info", "gpt_pass_percentage")


class Dropped(StrEnum):
    """Why a row is no training question, in the order in which it is found out."""

    INCOMPLETE = "a field is empty"
    NOT_ONE_FUNCTION = "its tests are not of one function"
    NO_SHARE = "its share of trials that passed is NaN"
    NOT_HARD = "not hard: too many trials passed"
    UNPARSED = "its solution does not parse as Python"
    UNPARSED_TESTS = "its tests do not parse as Python"
    NO_FUNCTION = "its solution does not define the function"
    NO_ASSERT = "no plain assert on a call with plain data"


def read_row(row: Row, where: str, max_pass_rate: float) -> Question | Dropped:
    """Returns a row as a question, or why it cannot be one.

    Args:
      row: with COLUMNS.
      where: names the row in errors.
      max_pass_rate: share of trials below which a question is hard.

    Raises:
      BadInput: a column is missing or of another type.
    """
    _check(row, where)
    if any(row[name] is None for name in COLUMNS if name != "test_info"):
        return Dropped.INCOMPLETE
    if not row["test_info"]:  # of a class, it is None
        return Dropped.NOT_ONE_FUNCTION
    share = row["gpt_pass_percentage"]
    if isinstance(share, float) and math.isnan(share):
        return Dropped.NO_SHARE
    if share >= max_pass_rate - _ROUNDING:
        return Dropped.NOT_HARD
    if parsed(row["solution"]) is None:
        return Dropped.UNPARSED
    if parsed(row["test"]) is None:
        return Dropped.UNPARSED_TESTS
    tested = [(info, asserts_of(row["test"], str(info.get("function_name")))) for info in row["test_info"]]
    if len(tested) > 1:  # the function asked for and others, which the tests may leave out
        tested = [(info, tests) for info, tests in tested if tests]
        if len(tested) != 1:
            return Dropped.NOT_ONE_FUNCTION
    ((info, tests),) = tested
    name, asked, solution = str(info.get("function_name")), row["question"], row["solution"]
    try:
        entry_point(solution, None, None, name)
    except (ValueError, RecursionError):
        return Dropped.NO_FUNCTION
    if not tests:
        return Dropped.NO_ASSERT
    problem = declared(asked, str(info.get("function_declaration") or f"def {name}(...):"))
    texts = tuple(test.text for test in tests)
    return Question(
        str(row["question_id"]), None, problem, asked, solution, name, golden_tests=texts, data_source=DATA_SOURCE
    )


def kodcode(max_pass_rate: float) -> Format:
    """Returns the format of KodCode's files, of whose questions those below a pass rate are kept."""
    read = partial(read_row, max_pass_rate=max_pass_rate)
    return Format(_rows, read, "CC-BY-NC-4.0", "KodCode/KodCode-V1", settings=f"max_pass_rate={max_pass_rate}")


def _rows(path: str) -> Rows:
    """Yields the rows of a file; those of KodCode's own pipeline call the tests `test_code`."""
    columns = COLUMNS if path.endswith(".parquet") else None
    for where, row in rows_or_errors(path, columns=columns):
        if not isinstance(row, BadInput) and "test_code" in row:
            row = {"test": row["test_code"], **row}
        yield where, row


def asserts_of(pytest_file: str, function_name: str) -> tuple[CallTest, ...]:
    """Returns what the test functions of a file assert about calls of a function with plain data, each call once.

    See `read_fixed_tests`; what needs more running than that, such as loops, fixtures and parametrised tests, is left
    out.
    """
    module = parsed(pytest_file)
    tests: dict[tuple[str, bytes], CallTest] = {}
    for node in module.body if module else ():
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and not node.args.args:
            for test in read_fixed_tests(node.body, function_name):
                if not isinstance(test, Rejected):
                    tests.setdefault(test.identity, test)
    return tuple(tests.values())


def _check(row: Mapping[str, Any], where: str) -> None:
    for name in COLUMNS:
        if name not in row:
            raise BadInput(f"{where}: the column {name!r} is missing.")
    where = f"{where} ({row['question_id']})"
    for name in ("question", "solution", "test"):
        if not isinstance(row[name], str | None):
            raise BadInput(f"{where}: {name} is not text.")
    if not isinstance(row["gpt_pass_percentage"], int | float | None):
        raise BadInput(f"{where}: gpt_pass_percentage is not a number.")
    info = row["test_info"]
    if not isinstance(info, list | None) or not all(isinstance(each, Mapping) for each in info or ()):
        raise BadInput(f"{where}: test_info is not a list of records.")
