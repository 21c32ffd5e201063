"""Columns of published sets, of some name and in one of several notations: their programs, and pairs for tests."""

import ast
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeGuard

from codea1.data.rows import Row
from codea1.game.answers import extract_program
from codea1.runtime.errors import BadInput

UNPAIRED = "it has more inputs than outputs, or fewer"
NOT_TEXTS = "its {} is not a list of texts"

_PYTHON = ("3", "python3", "py3", "python")  # in lower case: what sets call it; CodeContests counts its languages


@dataclass(frozen=True)
class Columns:
    """What the columns of a set hold; a point stands before a field of a column. Empty: there is no such column."""

    problem: tuple[str, ...]  # the task as text, or a chat that ends with it: the first of these that a row has
    tests: tuple[str, ...]
    solutions: str = ""
    wrong: str = ""  # programs with a mistake
    starter: str = ""  # what a program begins with
    function: str = ""  # what is under test, where tests do not say
    id: tuple[str, ...] = ()  # the first of these that a row has


class LeftOut(Exception):
    """A row has no question, for the reason that it says."""


def require(holds: object, reason: str) -> None:
    """Raises LeftOut, with the reason, unless something holds."""
    if not holds:
        raise LeftOut(reason)


def are_texts(value: object) -> TypeGuard[list[str]]:
    """Returns whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def value_of(row: Row, name: str, where: str) -> Any:
    """Returns what a column holds; None where the set has no such column. Raises BadInput: the row lacks it."""
    value: Any = row
    for part in [name] if name in row else filter(None, name.split(".")):
        value = unpacked(value, f"{where}: {name}") if isinstance(value, str) else value
        if not isinstance(value, Mapping) or part not in value:
            raise BadInput(f"{where}: the field {name!r} is missing.")
        value = value[part]
    return value if name else None


def unpacked(value: Any, where: str) -> Any:
    """Returns what a text in JSON or in Python's own notation stands for; asserts stay text.

    Raises BadInput: it is none of these.
    """
    if not isinstance(value, str) or not value.strip():
        return value or []
    try:
        return json.loads(value)
    except RecursionError:
        raise BadInput(f"{where} is JSON nested too deeply.") from None
    except ValueError as error:
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            if "assert" in value or "raises(" in value:
                return value
            raise BadInput(f"{where} is not JSON: {error}.") from None


def _records(value: dict | list) -> list[dict[str, Any]]:
    """Returns a list of records, which Parquet may hold as a record of lists. Raises ValueError: of unequal lengths."""
    if isinstance(value, dict):
        columns = {name: column for name, column in value.items() if isinstance(column, list)}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return value if all(isinstance(item, dict) for item in value) else []


def programs_of(value: Any, where: str, *, passing: bool) -> list[str]:
    """Returns the Python programs of a column: a text, a list of texts, or records with their language or pass rate.

    Args:
      passing: those of records that passed all of their tests, or the others.

    Raises BadInput: it is neither, or a record of lists of unequal lengths.
    """
    if isinstance(value, str):
        value = unpacked(value, where) if value.lstrip().startswith("[") else [value] if value.strip() else []
    if are_texts(value := value or []):
        return [extract_program(answer).source if "```" in answer else answer for answer in value]
    try:
        records = _records(value) if isinstance(value, list | dict) else []
    except ValueError:
        raise BadInput(f"{where} has lists of unequal lengths.") from None
    if not records and value and not isinstance(value, dict):
        raise BadInput(f"{where} is not a list of texts.")
    rates = (record.get("pass_rate", float(passing)) for record in records)
    fitting = (r for r, rate in zip(records, rates, strict=True) if (rate == 1) is passing and _is_python(r))
    names = ("code", "solution", "completion")
    texts = [next((record[name] for name in names if name in record), None) for record in fitting]
    return programs_of([text for text in texts if isinstance(text, str)], where, passing=passing)


def _is_python(record: Mapping[str, Any]) -> bool:
    return str(record.get("language", "python")).lower() in _PYTHON


class IOPairs:
    """Inputs and outputs of a row, each as its set has them."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.function = ""
        self.by_line = False  # an input is a text with an argument on each line

    def add(self, value: Any, where: str) -> None:
        """Adds what a column holds. Raises BadInput or LeftOut."""
        if isinstance(value, dict) and not isinstance(value.get("fn_name"), list):
            self.function = self.function or str(value.get("fn_name") or "")
        if isinstance(value, dict) and ("inputs" in value or "outputs" in value):
            for key in ("inputs", "outputs") if value.get("inputs") else ():
                require(isinstance(value.get(key), list), NOT_TEXTS.format(key))
                getattr(self, key).extend(value[key])
            return
        try:
            records = _records(value) if isinstance(value, dict | list) else [{}]
        except ValueError:
            raise LeftOut(UNPAIRED) from None
        is_known = records or not value or (isinstance(value, dict) and "input" in value)  # there, lists without items
        if not is_known or not all({"input", "output"} <= record.keys() for record in records):
            raise BadInput(f"{where} has no tests in a form that is known.")
        for record in records:
            about = unpacked(record.get("metadata") or {}, where)
            named = record.get("fn_name") or (about.get("func_name") if isinstance(about, dict) else "")
            self.function = self.function or str(named or "")
            self.by_line |= record.get("testtype") == "functional"
            self.inputs.append(record["input"])
            self.outputs.append(record["output"])

    def calls(self) -> Iterator[tuple[list, Any]]:
        """Yields arguments and answer of each test of a function. Raises ValueError: they are not written as such."""
        for given, answer in zip(self.inputs, self.outputs, strict=True):
            if not isinstance(given, str):
                arguments = given
            elif self.by_line:
                arguments, answer = [json.loads(line) for line in given.split("\n") if line.strip()], json.loads(answer)
            else:
                arguments = json.loads(given)
                with suppress(ValueError):
                    answer = json.loads(answer) if isinstance(answer, str) else answer
            if not isinstance(arguments, list):
                raise ValueError("no list")
            yield arguments, answer
