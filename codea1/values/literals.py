"""Operands of a test as values, found by reading the syntax tree and never by running it.

A Test LLM's operands are adversarial: ``9**9**9``, ``'x' * 10**12`` or a tree of shared lists that would take for ever
to hash must cost nothing. Every value made on the way is charged, by what a full walk over it and its encoding take, to
one budget per operand and to one that all operands of a suite share; an operation is refused before it runs when its
result would not fit.
"""

import ast
import math
import operator
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from codea1.values.encoding import MAX_RANGE

MAX_SOURCE_BYTES = 16 << 10
MAX_WEIGHT = 1 << 20  # of all values made while reading one operand; a unit takes about 0.1 microseconds
MAX_SUITE_WEIGHT = 1 << 23  # of all operands of one suite
MAX_LITERAL_INT_BITS = 1 << 15
MAX_RANGE_BOUND = 1 << 60  # below it all ints hash apart, so that no range can make a set quadratically slow

_WEIGHT = 8  # of one value, without what it holds
_CONTAINER_WEIGHT = 32
_RECORD_WEIGHT = 64  # of a Decimal, Fraction, complex, range or deque, which are the slowest to encode


class NotLiteral(Exception):
    """The source or operand is not a literal within the limits; the message says why."""


def parse_source(source: str, max_bytes: int = MAX_SOURCE_BYTES) -> ast.Module:
    """Returns the syntax tree of `source`. Raises NotLiteral for what is not Python or larger than `max_bytes`."""
    try:
        if len(source.encode("utf-8")) > max_bytes:
            raise NotLiteral(f"longer than {max_bytes} bytes")
        return ast.parse(source.removeprefix("\ufeff"))
    except SyntaxError as error:
        raise NotLiteral(f"not Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes, lone surrogates, absurd nesting
        raise NotLiteral(f"not Python: {type(error).__name__}") from error


class Budget:
    """What the operands of one suite may still weigh together."""

    def __init__(self) -> None:
        self.left = MAX_SUITE_WEIGHT


@dataclass(frozen=True)
class Named:
    """A value that a name stands for."""

    value: object
    weight: int  # is charged at each use, without another walk over the value


NO_NAMES: Mapping[str, Named] = {}


def literal_value(node: ast.expr, budget: Budget, names: Mapping[str, Named] = NO_NAMES) -> object:
    """Returns the value of one operand. Raises NotLiteral when it is not a literal or breaks a limit."""
    return _guarded(lambda reader: reader.value(node), budget, names)


def named(node: ast.expr, budget: Budget, names: Mapping[str, Named]) -> Named:
    """Returns the value of an operand for a name to stand for. Raises NotLiteral as `literal_value` does."""
    value = literal_value(node, budget, names)
    return names[node.id] if isinstance(node, ast.Name) else Named(value, _weight(value))


def call_arguments(
    call: ast.Call, budget: Budget, names: Mapping[str, Named] = NO_NAMES
) -> tuple[tuple, dict[str, object]]:
    """Returns the positional and keyword arguments of a call whose operands are literals, ``*`` and ``**`` included.

    Raises NotLiteral as `literal_value` does, and for a keyword given twice.
    """
    return _guarded(lambda reader: (tuple(reader.elements(call.args)), reader.keywords(call.keywords)), budget, names)


def _guarded(read: Callable[["_Reader"], object], budget: Budget, names: Mapping[str, Named]):
    reader = _Reader(min(MAX_WEIGHT, budget.left), names)
    budget.left -= reader.left
    try:
        return read(reader)
    except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise NotLiteral(f"cannot be evaluated: {type(error).__name__}") from error
    finally:
        budget.left += reader.left


def _same(*types: type) -> Callable[[tuple], bool]:
    return lambda arguments: all(isinstance(argument, types) for argument in arguments)


_SCALARS = (bool, int, float, str, bytes)
_NUMBERS = (int, float, complex, Decimal, Fraction)
_ITERABLES = (str, bytes, bytearray, list, tuple, dict, set, frozenset, range, deque)
_iterable, _scalar, _integer, _real = _same(*_ITERABLES), _same(*_SCALARS), _same(int), _same(int, float, str)


def _ordered(arguments: tuple) -> bool:
    """Returns whether containers have the same order in every process: of sets those of numbers, and of one member.

    The hashes of texts differ from one process to another.
    """
    return _iterable(arguments) and not any(
        isinstance(argument, (set, frozenset))
        and len(argument) > 1
        and not all(isinstance(item, (int, float)) and item == item for item in argument)
        for argument in arguments
    )


def _sortable(arguments: tuple) -> bool:
    """Returns whether containers are sorted alike in every process: sets of sets are not, whose order is partial."""
    return _iterable(arguments) and not any(
        isinstance(argument, (set, frozenset)) and any(isinstance(item, frozenset) for item in argument)
        for argument in arguments
    )


def _range_bounds(arguments: tuple) -> bool:
    return _integer(arguments) and all(abs(bound) < MAX_RANGE_BOUND for bound in arguments)


# Callables an operand may use without keywords: (what runs, at most how many arguments, which arguments are accepted).
_CALLS: dict[str, tuple[Callable, int, Callable[[tuple], bool]]] = {
    "set": (set, 1, _iterable),
    "frozenset": (frozenset, 1, _iterable),
    "list": (list, 1, _ordered),
    "tuple": (tuple, 1, _ordered),
    "dict": (dict, 1, _ordered),
    "sorted": (sorted, 1, _sortable),
    "deque": (deque, 1, _ordered),
    "collections.deque": (deque, 1, _ordered),
    "bytes": (bytes, 1, _same(list, tuple, bytes)),
    "bytearray": (bytearray, 1, _same(list, tuple, bytes)),
    "range": (range, 3, _range_bounds),
    "bool": (bool, 1, _scalar),
    "int": (int, 2, _scalar),
    "float": (float, 1, _scalar),
    "complex": (complex, 2, _real),
    "str": (str, 1, _scalar),
    "Decimal": (Decimal, 1, _real),
    "decimal.Decimal": (Decimal, 1, _real),
    "Fraction": (Fraction, 2, _integer),
    "fractions.Fraction": (Fraction, 2, _integer),
}
_CONSTANTS = {f"math.{name}": getattr(math, name) for name in ("inf", "nan", "pi", "e", "tau")}
_UNARY: dict[type, Callable] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
# How many bits the result of two ints may have where it can be far larger than they are.
_BITS: dict[type, Callable[[int, int], int]] = {
    ast.Pow: lambda left, right: left.bit_length() * right if abs(left) > 1 else 0,
    ast.LShift: lambda left, right: left.bit_length() + right,
    ast.Mult: lambda left, right: left.bit_length() + right.bit_length(),
}


class _Reader:
    """Reads the operands of one call or one comparison side."""

    def __init__(self, left: int, names: Mapping[str, Named]) -> None:
        self.left = left  # of what they may weigh
        self.names = names

    def value(self, node: ast.expr) -> object:
        match node:
            case ast.Constant(value=constant) if constant is not Ellipsis:
                return self.charged(constant)
            case ast.List(elts=elements):
                return self.elements(elements)
            case ast.Tuple(elts=elements):
                return tuple(self.elements(elements))
            case ast.Set(elts=elements):
                return set(self.elements(elements, accepts=_iterable))
            case ast.Dict():
                return self.dictionary(node)
            case ast.UnaryOp(op=op, operand=operand):
                return self.charged(_UNARY[type(op)](self.value(operand)))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self.binary(op, self.value(left), self.value(right))
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self.call(_dotted(function), tuple(self.elements(arguments)))
            case ast.Attribute() if (name := _dotted(node)) in _CONSTANTS:
                self.charge(_CONTAINER_WEIGHT)  # finding its name takes longer than encoding it
                return self.charged(_CONSTANTS[name])
            case ast.Name(id=name) if name in self.names:
                self.charge(self.names[name].weight)
                return self.names[name].value
        raise NotLiteral(f"{type(node).__name__} is not a literal")

    def elements(self, nodes: list[ast.expr], accepts: Callable[[tuple], bool] = _ordered) -> list:
        values: list = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                values.append(self.value(node))
                continue
            items: Any = self.value(node.value)
            if not accepts((items,)):
                raise NotLiteral("* over something that is not a container, or over a set, whose order is no one's")
            self.charge(_WEIGHT * len(items))
            values.extend(self.charged(list(items)))
        self.charge(_CONTAINER_WEIGHT)
        return values

    def dictionary(self, node: ast.Dict) -> dict:
        result: dict = {}
        for key, item in zip(node.keys, node.values, strict=True):
            if key is None:
                result.update(self.charged(self.mapping(item)))
            else:
                result[self.value(key)] = self.value(item)
        self.charge(_CONTAINER_WEIGHT)
        return result

    def mapping(self, node: ast.expr) -> dict:
        value = self.value(node)
        if not isinstance(value, dict):
            raise NotLiteral("** over something that is not a dict")
        return value

    def keywords(self, nodes: list[ast.keyword]) -> dict[str, object]:
        result: dict[str, object] = {}
        for node in nodes:
            given = self.mapping(node.value) if node.arg is None else {node.arg: self.value(node.value)}
            if not all(isinstance(name, str) for name in given) or given.keys() & result.keys():
                raise NotLiteral("a keyword is not a string or is given twice")
            result.update(given)
        return result

    def call(self, name: str, arguments: tuple) -> object:
        function, most, accepts = _CALLS.get(name, (None, 0, _scalar))
        if function is None or len(arguments) > most or not accepts(arguments):
            raise NotLiteral("a call that is not a plain constructor")
        for argument in arguments:
            if isinstance(argument, range):
                self.charge(_WEIGHT * len(argument))
        return self.charged(function(*arguments))

    def binary(self, op: ast.operator, left: object, right: object) -> object:
        if (isinstance(left, (str, bytes, bytearray)) and isinstance(op, ast.Mod)) or Fraction in (
            type(left),
            type(right),
        ):
            raise NotLiteral("string formatting and arithmetic of fractions are not literals")
        if isinstance(left, int) and isinstance(right, int):
            if type(op) in _BITS and _BITS[type(op)](left, right) > MAX_LITERAL_INT_BITS:
                raise NotLiteral(f"an int of more than {MAX_LITERAL_INT_BITS} bits")
        elif isinstance(op, ast.Mult):
            self.check_repetition(left, right)
        elif isinstance(op, ast.Pow) and not (_scalar((left, right)) or isinstance(left, complex)):
            raise NotLiteral("a power of something other than an int or float")
        return self.charged(_BINARY[type(op)](left, right))

    def check_repetition(self, left: object, right: object) -> None:
        for sequence, count in ((left, right), (right, left)):
            if isinstance(count, int) and not isinstance(sequence, _NUMBERS):
                empty = _weight(type(sequence)())
                self.charge(empty + (_weight(sequence) - empty) * max(count, 0), spend=False)

    def charged(self, value):
        if isinstance(value, int) and value.bit_length() > MAX_LITERAL_INT_BITS:
            raise NotLiteral(f"an int of more than {MAX_LITERAL_INT_BITS} bits")
        self.charge(_weight(value))
        return value

    def charge(self, weight: int, *, spend: bool = True) -> None:
        if weight > self.left:
            raise NotLiteral("too large a literal")
        if spend:
            self.left -= weight


def _dotted(node: ast.expr) -> str:
    """Returns a name, with its module where it has one; empty for everything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}"
    return ""


def _weight(value: object) -> int:
    """Returns what a full walk over the value and its encoding take, shared parts counted each time they appear."""
    if isinstance(value, (str, bytes, bytearray)):
        return _WEIGHT + len(value)
    if isinstance(value, int):
        return _WEIGHT + value.bit_length() // 2  # dear, since those of more than 61 bits may collide in a set
    if isinstance(value, dict):
        return _CONTAINER_WEIGHT + sum(_weight(key) + _weight(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return _CONTAINER_WEIGHT + sum(map(_weight, value))
    if isinstance(value, deque):
        return _RECORD_WEIGHT + sum(map(_weight, value))
    if isinstance(value, float):  # one that is a whole number is written as that
        return _WEIGHT + max(0, math.frexp(value)[1]) // 4
    if isinstance(value, complex):
        return _RECORD_WEIGHT + _weight(value.real) + _weight(value.imag)
    if isinstance(value, Fraction):
        return _RECORD_WEIGHT + _weight(value.numerator) + _weight(value.denominator)
    if isinstance(value, Decimal):  # it is written as the ratio of two ints with so many digits
        _, digits, exponent = value.as_tuple()
        return _RECORD_WEIGHT + len(digits) + (abs(exponent) if isinstance(exponent, int) else 0)
    if isinstance(value, range):  # up to that length `encode_input` writes its elements
        return _RECORD_WEIGHT + (0 if value[MAX_RANGE:] else 2 * _WEIGHT * len(value))
    return _WEIGHT if value is None else _RECORD_WEIGHT
