"""A test as data: which call, with which arguments, must give which value. It is read from source and written as it."""

import ast
import keyword
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from codea1.values import NotPlainData, TooLarge, decode_exact, encode_exact
from codea1.values.entry_points import PROGRAMS, form_of, function_of, tidied
from codea1.values.literals import NO_NAMES, Budget, Named, NotLiteral, call_arguments, literal_value

# Most bytes of a test's encoded arguments, and of its answer: the Mistake Book and every checkpoint keep them. What is
# written out in the source of a test fits; what is only described there, such as [0] * 100000, may not.
MAX_VALUE_BYTES = 1 << 16

NOT_ENTRY_POINT = "not the entry point"
BAD_ARGUMENTS = "arguments are not plain data"
LARGE_ARGUMENTS = "arguments are too large"
BAD_ANSWER = "answer is not plain data"
LARGE_ANSWER = "answer is too large"


@dataclass(frozen=True)
class Call:
    """A call of the function under test."""

    entry_point: str  # with the form in which answers are compared before it: see `codea1.values.entry_points`
    arguments: bytes  # encode_exact((positional arguments as a tuple, named arguments as a dict))

    @property
    def function(self) -> str:
        """The entry point alone."""
        return function_of(self.entry_point)

    @property
    def form(self) -> str:
        """How answers are compared; empty for `==`."""
        return form_of(self.entry_point)

    @property
    def text(self) -> str:
        """The call as Python source, e.g. `f([1, 2], k=3)`, without its form."""
        positional, named = decode_exact(self.arguments)
        parts = [*map(source_of, positional)]
        parts += [_write_keyword(name, value) for name, value in named.items()]
        return f"{self.function}({', '.join(parts)})"


@dataclass(frozen=True)
class CallTest:
    """A call and the value that it must give."""

    call: Call
    expected: bytes  # encode_exact(value)

    @property
    def identity(self) -> tuple[str, bytes]:
        """What makes it this test and no other: two tests of one call are one test, whatever they expect."""
        return self.call.entry_point, self.call.arguments

    @property
    def text(self) -> str:
        """The test as Python source, e.g. `assert f([1, 2]) == 3`."""
        return write_test(self.call.text, source_of(decode_exact(self.expected)), self.call.form)


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
            positional = tuple(_ended(value) for value in positional)
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


def write_test(call: str, answer: str, form: str = "") -> str:
    """Returns the Python source of a test, of that of its call and answer."""
    match form.split():
        case ["within", sign, tolerance]:
            return f"assert abs({call} - {answer}) {sign} {tolerance}"
        case ["raises", error]:
            return f"with pytest.raises({error}): {call}"
        case ["is"]:
            return f"assert {call} is {answer}"
        case ["bool"] if answer in ("True", "False"):
            return f"assert {call}" if answer == "True" else f"assert not {call}"
        case [wrapper, *digits]:
            return f"assert {wrapper}({', '.join([call, *digits])}) == {answer}"
    return f"assert {call} == {answer}"


def source_of(value: object) -> str:
    """Returns Python source of plain data; read again, it gives the same value wherever literals can write it."""
    match value:
        case int() if value.bit_length() >= 4_000:
            return hex(value)  # Python refuses to write or read integers of more than 4,300 decimal digits in decimal
        case float() if not math.isfinite(value):
            return f"float('{value!r}')"
        case complex():
            return f"complex({source_of(value.real)}, {source_of(value.imag)})"
        case list():
            return f"[{_items(value)}]"
        case tuple():
            return f"({_items(value)},)" if len(value) == 1 else f"({_items(value)})"
        case set() if value:
            # Set order depends on the process for text; the order of encodings does not.
            return "{" + _items(sorted(value, key=encode_exact)) + "}"
        case frozenset():
            return f"frozenset({source_of(set(value)) if value else ''})"
        case dict():
            return "{" + ", ".join(f"{source_of(key)}: {source_of(item)}" for key, item in value.items()) + "}"
        case deque():
            return f"deque([{_items(value)}])"
    return repr(value)


def _items(values: Iterable) -> str:
    return ", ".join(map(source_of, values))


def _write_keyword(name: str, value: object) -> str:
    writable = name.isidentifier() and not keyword.iskeyword(name)
    return f"{name}={source_of(value)}" if writable else f"**{{{name!r}: {source_of(value)}}}"
