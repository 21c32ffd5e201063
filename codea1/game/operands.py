"""The operands of a test as data: its call, with the arguments encoded, and its answer."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from codea1.game.calls import MAX_VALUE_BYTES, Call
from codea1.values import NotPlainData, TooLarge, encode_exact
from codea1.values.checkers import PROGRAMS
from codea1.values.entry_points import tidied
from codea1.values.literals import NO_NAMES, Budget, Named, NotLiteral, call_arguments, literal_value

NOT_ENTRY_POINT = "not the entry point"
BAD_ARGUMENTS = "arguments are not plain data"
LARGE_ARGUMENTS = "arguments are too large"
BAD_ANSWER = "answer is not plain data"
LARGE_ANSWER = "answer is too large"


@dataclass(frozen=True)
class Rejected:
    """A source that is not one test."""

    reason: str


def read_call(
    node: ast.Call, entry_point: str, budget: Budget, names: Mapping[str, Named] = NO_NAMES
) -> Call | Rejected:
    """Reads a call of the entry point, whatever its function is called here."""
    try:
        positional, named = call_arguments(node, budget, names)
        if entry_point in PROGRAMS:
            positional = tuple(_ended(each) for each in positional)
        # By name: the order in which keywords are written makes no other test.
        return Call(entry_point, encode_exact((positional, dict(sorted(named.items()))), MAX_VALUE_BYTES))
    except TooLarge:
        return Rejected(LARGE_ARGUMENTS)
    except (NotLiteral, NotPlainData):
        return Rejected(BAD_ARGUMENTS)


def _ended(given: object) -> object:
    """Returns a standard input with its last line ended, so that written with or without that it is one input."""
    return f"{given}\n" if isinstance(given, str) and not given.endswith("\n") else given


def read_answer(
    node: ast.expr, entry_point: str, budget: Budget, names: Mapping[str, Named] = NO_NAMES
) -> bytes | Rejected:
    """Reads what a call must give."""
    try:
        answer = literal_value(node, budget, names)
        if entry_point in PROGRAMS and isinstance(answer, str):
            answer = tidied(answer)
        return encode_exact(answer, MAX_VALUE_BYTES)
    except TooLarge:
        return Rejected(LARGE_ANSWER)
    except (NotLiteral, NotPlainData):
        return Rejected(BAD_ANSWER)
