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

The process that runs a program receives the first four, which it must apply since what a program returns may be no
data, such as a generator. The others say what would pass, and so it gets the call alone.

Standard library only: this runs inside the sandbox too.
"""

import builtins
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import starmap, zip_longest
from typing import Any

from codea1.values.decoding import answers_equal, canonical_of, decode_exact
from codea1.values.encoding import SINGLE

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
_SIZES = {b"N": 0, b"n": 0, b"q": 0, b"c": 0, b"f": 8, SINGLE: 4}  # of what follows tags in canonical encodings
_MAX_NUMBER_BYTES = 1 << 14  # of a canonical number; a ratio's are at most that long


def class_and_method(entry_point: str) -> tuple[str, str] | None:
    """Returns ("Solution", "twoSum") of an entry point such as `Solution().twoSum`; None for any other."""
    match = _METHOD.fullmatch(entry_point)
    return match and (match[1], match[2])


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
    """Returns whether two answers, in canonical encoding, are equal or, with `within`, close enough.

    The first may be from a program, with numbers of 32 bits. They equal what numpy 2 says: what rounds to them.
    """
    if one == other or not form.startswith(WITHIN):
        return one == other or (SINGLE in one and all(starmap(_same_part, zip_longest(_parts(one), _parts(other)))))
    _, sign, written = form.split(" ")
    tolerance = float(written)
    try:
        distance = abs(_number(one) - _number(other))
    except (ValueError, ArithmeticError, struct.error):  # not a number; or one too large to compare with a float
        return False
    return bool(distance < tolerance or (sign == "<=" and distance == tolerance))


def _parts(canonical: bytes) -> Iterator[bytes]:
    """Yields what an encoding consists of: numbers, texts and other plain values, and the tags of what holds them."""
    position = 0
    while position < len(canonical):
        tag, count = canonical[position : position + 1], canonical[position + 1 : position + 5]
        size = _SIZES.get(tag, 4 + (int.from_bytes(count, "big") if tag in b"isb" else 0))
        yield canonical[position : position + 1 + size]
        position += 1 + size


def _same_part(one: bytes | None, other: bytes | None) -> bool:
    if one == other or one is None or other is None or one[:1] != SINGLE or other[:1] not in (b"f", b"i"):
        return one == other
    try:
        return struct.pack(">f", _number(other)) == one[1:]
    except (ValueError, ArithmeticError, struct.error):
        return False


def _number(canonical: bytes) -> Any:
    """Returns the real number that canonical bytes encode: an int, float or Fraction.

    They may be what a program wrote itself. Raises ValueError, ArithmeticError or struct.error for anything else.
    """
    if len(canonical) > _MAX_NUMBER_BYTES:
        raise ValueError("too large a number")
    if canonical[:1] == b"f":
        return struct.unpack(">d", canonical[1:])[0]
    if canonical[:1] == SINGLE:
        return struct.unpack(">f", canonical[1:])[0]
    if canonical[:1] == b"i":
        return int.from_bytes(canonical[5:], "big", signed=True)
    if canonical[:2] == b"qi":
        end = 6 + int.from_bytes(canonical[2:6], "big")
        parts = canonical[6:end], canonical[end + 5 :]
        return Fraction(*(int.from_bytes(part, "big", signed=True) for part in parts))
    raise ValueError("not a real number")


def is_raised(form: str, words: str) -> bool:
    """Returns whether an error that a child describes, as `Type: message`, is what a call should raise.

    It or a class that it is derived from has its name, or the first of Python's own among those is a kind of it: a
    program that claims to raise all of them at once gets one.
    """
    wanted, names = form.split(" ")[1], kinds_raised(words)
    kind, of = builtin_among(names), vars(builtins).get(wanted)
    return wanted in names or (kind is not None and isinstance(of, type) and issubclass(kind, of))


def kinds_raised(words: str) -> list[str]:
    """Returns the names of the exception that a child describes, as `Type: message` or `Type(Base): message`.

    The bases are those up to Python's first, which no second one of Python's may follow.
    """
    name, _, bases = words.partition(":")[0].partition("(")
    names = [name, *filter(None, bases.rstrip(")").split(", "))]
    first = next((number for number, name in enumerate(names) if builtin_among([name])), len(names))
    return names[: first + 1]


def builtin_among(names: Iterable[str]) -> type | None:
    """Returns the first of Python's own classes that has one of the names."""
    return next((kind for name in names if isinstance(kind := vars(builtins).get(name), type)), None)


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
    return any(_NUMBER.fullmatch(word) and not {".", "e"}.isdisjoint(word) for word in printed.lower().split())


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
