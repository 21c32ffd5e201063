"""What a test compares: a call's answer as it is, or in one of these forms.

A form stands before the entry point, with a space between:

  sorted f            what Python's `sorted` makes of the answer, and so for list, tuple and set
  round 2 f           the answer rounded to two places
  within < 1e-06 f    the distance between two answers, which are numbers; or <=
  raises ValueError f that the call raises it; the answer is True

The process that runs a program is told of the first two, which it must apply since what a program returns may be no
data, such as a generator. The others say what would pass, and so it gets the call alone.

Standard library only: this runs inside the sandbox too.
"""

import builtins
import re
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

WRAPPERS: dict[str, Callable] = {"list": list, "tuple": tuple, "set": set, "sorted": sorted, "round": round}
WITHIN, RAISES = "within", "raises"
_MAX_NUMBER_BYTES = 1 << 14  # of a canonical number; a ratio's are at most that long


def form_of(entry_point: str) -> str:
    """Returns the form; empty for the answer as it is."""
    return entry_point.rpartition(" ")[0]


def function_of(entry_point: str) -> str:
    """Returns the entry point without a form."""
    return entry_point.rpartition(" ")[2]


def asked_of(entry_point: str) -> str:
    """Returns what the process that runs a program is asked for."""
    return function_of(entry_point) if entry_point.startswith((WITHIN, RAISES)) else entry_point


def apply_form(form: str, answer: object) -> object:
    """Returns what a form makes of an answer, inside of the sandbox. Raises what Python does."""
    name, *digits = form.split(" ")
    return WRAPPERS[name](answer, *map(int, digits))


def agree(form: str, one: bytes, other: bytes) -> bool:
    """Returns whether two answers, in canonical encoding, are equal or, with `within`, close enough."""
    if one == other or not form.startswith(WITHIN):
        return one == other
    _, sign, written = form.split(" ")
    tolerance = float(written)
    try:
        distance = abs(_number(one) - _number(other))
    except (ValueError, ArithmeticError, struct.error):  # not a number; or one too large beside a float
        return False
    return bool(distance < tolerance or (sign == "<=" and distance == tolerance))


def _number(canonical: bytes) -> Any:
    """Returns the real number that canonical bytes encode: an int, float or Fraction.

    They may be what a program wrote itself. Raises ValueError, ArithmeticError or struct.error for anything else.
    """
    if len(canonical) > _MAX_NUMBER_BYTES:
        raise ValueError("too large a number")
    if canonical[:1] == b"f":
        return struct.unpack(">d", canonical[1:])[0]
    if canonical[:1] == b"i":
        return int.from_bytes(canonical[5:], "big", signed=True)
    if canonical[:2] == b"qi":
        end = 6 + int.from_bytes(canonical[2:6], "big")
        parts = canonical[6:end], canonical[end + 5 :]
        return Fraction(*(int.from_bytes(part, "big", signed=True) for part in parts))
    raise ValueError("not a real number")


def is_raised(form: str, words: str) -> bool:
    """Returns whether an error that a child describes, as `Type: message`, is what a call should raise.

    It is one of Python's own that is a kind of it, or has its name.
    """
    wanted, name = form.split(" ")[1], raised(words)
    kind, of = (vars(builtins).get(each) for each in (name, wanted))
    return name == wanted or (isinstance(kind, type) and isinstance(of, type) and issubclass(kind, of))


def raised(words: str) -> str:
    """Returns the name of the exception that a child describes."""
    return words.partition(":")[0]


def raises_on_purpose(program: str, name: str) -> bool:
    """Returns whether a program's source has a statement that raises an exception of this name.

    Calls that no program could answer, with too few arguments for one, raise in every program and are no tests.
    """
    return re.search(rf"\braise\s+(?:\w+\.)*{re.escape(name)}\b", program) is not None
