"""Entry points: what the tests of a question call, and when two answers to them are the same.

An entry point is a function `f`, a method of a new object `Solution().twoSum`, or a whole program by what it prints. A
program's answers are compared as text, or by the checker that its entry point names. Before a function or a method may
stand the form in which its answers are compared, with a space between:

  sorted f            what Python's `sorted` makes of the answer, and so for list, tuple and set
  round 2 f           the answer rounded to two places
  bool f              whether the answer counts as true
  is f                the answer if it is True or False itself, which 1 and 0 equal but are not; None otherwise
  within < 1e-06 f    the distance between two answers, which are numbers; or <=
  raises ValueError f that the call raises it; the answer is True

The process that runs a program is told of the first four, which it must apply since what a program returns may be no
data, such as a generator. The others say what would pass, and so it gets the call alone.

Standard library only: this runs inside the sandbox too.
"""

import builtins
import math
import re
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from codea1.values.decoding import answers_equal, canonical_of, decode_exact

STDOUT = "stdout"  # stdout(text): what the program prints that gets `text` as its standard input
STDOUT_TOKENS, STDOUT_ANY_ORDER = f"{STDOUT}_tokens", f"{STDOUT}_any_order"
ACCEPTS = "accepts"  # the function of a data set's own checker, which is a program: see `Question.checker`
TOLERANCE = 1e-5  # relative or absolute: APPS' judge has the one, CodeContests' the other
LINKED, TREE, MANY_LINKED, MANY_TREES = "linked", "tree", "linked, many", "tree, many"  # kinds of node; "" is none
WITHIN, RAISES, TRUTH, IS = "within", "raises", "bool", "is"
WRAPPERS: dict[str, Callable] = {
    **{wrapper.__name__: wrapper for wrapper in (list, tuple, set, sorted, round, bool)},
    IS: lambda answer: answer if answer is True or answer is False else None,
}

_METHOD = re.compile(r"([A-Za-z_]\w*)\(\)\.([A-Za-z_]\w*)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?")
_TEXT = b"s"  # with which the encodings of texts begin
_MAX_NUMBER_BYTES = 1 << 14  # of a canonical number; a ratio's are at most that long


def class_and_method(entry_point: str) -> tuple[str, str] | None:
    """Returns ("Solution", "twoSum") of an entry point such as `Solution().twoSum`; None for any other."""
    found = _METHOD.fullmatch(entry_point)
    return found and (found[1], found[2])


def tidied(printed: str) -> str:
    """Returns what a program prints without what judges ignore: spaces at the ends of lines, empty lines at the end."""
    return "\n".join(line.rstrip() for line in printed.split("\n")).rstrip("\n")


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
    return re.search(rf"(?:\b|\\t)raise\s+(?:\w+\.)*{re.escape(name)}\b", program) is not None


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


# By entry point. They take two texts, in any order, and time about linear in them.
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
