"""How what a program prints is compared, where that is not as text; the entry point says how.

A checker takes two texts, in any order, and time about linear in them. Standard library only: this runs inside the
sandbox too.
"""

import math
import re
from collections.abc import Callable

from codea1.values.decoding import answers_equal, canonical_of, decode_exact
from codea1.values.entry_points import STDOUT
from codea1.values.forms import agree, form_of

STDOUT_TOKENS, STDOUT_ANY_ORDER = f"{STDOUT}_tokens", f"{STDOUT}_any_order"
ACCEPTS = "accepts"  # the function of a data set's own checker, which is a program: see `Question.checker`
TOLERANCE = 1e-5  # relative or absolute: APPS' judge has the one, CodeContests' the other

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?")
_TEXT = b"s"  # with which the encodings of texts begin


def same_tokens(one: str, other: str) -> bool:
    """Returns whether two texts have the same tokens between white space, whatever the case of their letters.

    Numbers, one of which at least is written with a point or an exponent, are the same within TOLERANCE.
    """
    return _as_many_tokens(one, other) and all(map(_same_token, one.lower().split(), other.lower().split()))


def _as_many_tokens(one: str, other: str) -> bool:
    """Looks at no more of the longer text, which is a program's that prints without end, than it must."""
    number = len(min(one, other, key=len).split())
    return len(max(one, other, key=len).split(maxsplit=number)) == number


def _same_token(one: str, other: str) -> bool:
    if one == other:
        return True
    if not (has_decimals(one) or has_decimals(other)) or not (_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)):
        return False
    number = float(one)
    return math.isfinite(number) and math.isclose(number, float(other), rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def has_decimals(printed: str) -> bool:
    """Returns whether one of the tokens of a text is a number with a point or an exponent."""
    return any(_NUMBER.fullmatch(each) and not {".", "e"}.isdisjoint(each) for each in printed.lower().split())


def same_in_any_order(one: str, other: str) -> bool:
    """Returns whether two texts have the same lines as often, in any order; so too the tokens of a line."""
    return _as_many_tokens(one, other) and _in_order(one) == _in_order(other)


def _in_order(printed: str) -> list[list[str]]:
    return sorted(sorted(tokens) for line in printed.split("\n") if (tokens := line.split()))


CHECKERS: dict[str, Callable[[str, str], bool]] = {STDOUT_TOKENS: same_tokens, STDOUT_ANY_ORDER: same_in_any_order}
PROGRAMS = (STDOUT, *CHECKERS)  # the entry points that are a whole program's


def same_answer(entry_point: str, first: bytes, second: bytes) -> bool:
    """Returns whether two answers of an entry point, in its form, are the same; they are in their exact encodings."""
    if form := form_of(entry_point):
        one, other = canonical_of(first), canonical_of(second)
        return one is not None and other is not None and agree(form, one, other)
    return answers_equal(first, second) or same_printed(entry_point, first, second)


def same_printed(entry_point: str, first: bytes, second: bytes) -> bool:
    """Returns whether an entry point has a checker, and two encodings are of texts that it takes for the same."""
    checker = CHECKERS.get(entry_point)
    if checker is None:
        return False
    one, other = text_of(first), text_of(second)
    return one is not None and other is not None and checker(one, other)


def text_of(encoding: bytes) -> str | None:
    """Returns the text that is encoded, exactly or canonically; None where it is another value, or no encoding."""
    try:
        return decode_exact(encoding) if encoding.startswith(_TEXT) else None
    except ValueError:  # not what an honest process says
        return None
