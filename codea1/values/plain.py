"""What plain data is, and the walk over it that both encodings of codea1.values share.

Standard library only: this runs inside the sandbox too.
"""

import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction

MAX_BYTES = 16 << 20  # of one encoded value
MAX_DEPTH = 64  # of nested containers
MAX_NODES = 1 << 21  # values inside one value
MAX_INT_BITS = 1 << 22
MAX_RATIO_BITS = 1 << 16  # of a Fraction's or Decimal's numerator and denominator: reducing them is quadratic


class NotPlainData(Exception):
    """The value holds something that is not plain data; the message names its type."""


class TooLarge(NotPlainData):
    """The value is plain data as far as it was read, but too big, too deep or cyclic."""


def contains_nan(value: object) -> bool:
    """Returns whether a NaN (float, complex or Decimal) is inside the plain value, so that ``==`` cannot judge it."""
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, (float, complex)):
        return value != value
    if isinstance(value, dict):
        return any(contains_nan(key) or contains_nan(item) for key, item in value.items())
    return isinstance(value, (list, tuple, set, frozenset, deque)) and any(contains_nan(item) for item in value)


# Types that travel as a tag and the tuple of their constructor's arguments: (tag, arguments of a value, their types).
RECORDS: dict[type, tuple[bytes, Callable[..., tuple], tuple]] = {
    complex: (b"c", lambda v: (v.real, v.imag), (float, float)),
    range: (b"r", lambda v: (v.start, v.stop, v.step), (int, int, int)),
    Fraction: (b"q", lambda v: (v.numerator, v.denominator), (int, int)),
    Decimal: (b"e", lambda v: (str(v),), (str,)),
    deque: (b"D", lambda v: (list(v), v.maxlen), (list, (int, type(None)))),
    date: (b"y", lambda v: (v.year, v.month, v.day), (int,) * 3),
    time: (b"h", lambda v: (v.hour, v.minute, v.second, v.microsecond, v.fold), (int,) * 5),
    datetime: (b"m", lambda v: (v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.fold), (int,) * 8),
    timedelta: (b"u", lambda v: (v.days, v.seconds, v.microseconds), (int,) * 3),
}

# How to see a subclass as its base without running any method the subclass defines.
_AS_BASE: dict[type, Callable] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: lambda v: bytearray(memoryview(v)),
    list: lambda v: list(list.__iter__(v)),
    tuple: lambda v: tuple(tuple.__iter__(v)),
    dict: lambda v: dict(dict.items(v)),
    set: lambda v: set(set.__iter__(v)),
    frozenset: lambda v: frozenset(frozenset.__iter__(v)),
    deque: lambda v: deque(deque.__iter__(v), deque.maxlen.__get__(v)),
}
_AS_DICT = (OrderedDict, Counter)
_DICT_KEYS = type({}.keys())


def _plain(value: object) -> object:
    """Returns `value`, of a type no encoder knows, as the plain data it equals. Raises NotPlainData."""
    kind = type(value)
    if kind in _AS_DICT:
        return dict(dict.items(value))
    if kind is _DICT_KEYS:
        return set(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.bool_, numpy.number, numpy.str_, numpy.bytes_)):
        scalar = value.item()
        if type(scalar) in (bool, int, float, complex, str, bytes):
            return scalar
    for base in kind.__mro__:
        if base in _AS_BASE:
            if kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__:
                return _AS_BASE[base](value)
            break
    raise NotPlainData(f"{kind.__module__}.{kind.__qualname__}")


def check_ratio(numerator: int, denominator: int) -> None:
    if max(numerator.bit_length(), denominator.bit_length()) > MAX_RATIO_BITS:
        raise TooLarge(f"a ratio of more than {MAX_RATIO_BITS} bits")


def check_record(value: object) -> None:
    """Raises for the values of record types that are not plain data or would be slow to normalise."""
    if isinstance(value, Fraction):
        check_ratio(value.numerator, value.denominator)
    elif isinstance(value, Decimal):
        parts = value.as_tuple()
        if isinstance(parts.exponent, int) and abs(parts.exponent) + len(parts.digits) > MAX_RATIO_BITS // 4:
            raise TooLarge("a Decimal of too many digits or too large an exponent")
    elif isinstance(value, (datetime, time)) and value.tzinfo is not None:
        raise NotPlainData("a date or time with a time zone")


class Encoder:
    """One walk over one value; each subclass has a table that says how each type is written."""

    writers: dict[type, Callable[..., bytes]]

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.max_nodes = min(MAX_NODES, max_bytes)  # each takes a byte or more
        self.nodes = 0
        self.bytes = 0  # a lower bound of the bytes written, to stop early

    def whole(self, value: object) -> bytes:
        data = self.encode(value, 0)
        if len(data) > self.max_bytes:
            raise TooLarge(f"more than {self.max_bytes} bytes")
        return data

    def encode(self, value: object, depth: int) -> bytes:
        self.nodes += 1
        if self.nodes > self.max_nodes:
            raise TooLarge(f"more than {self.max_nodes} values")
        writer = self.writers.get(type(value))
        if writer is None:
            value = _plain(value)
            writer = self.writers[type(value)]
        return writer(self, value, depth)

    def items(self, tag: bytes, values: Iterable[object], depth: int) -> bytes:
        parts = self.encode_all(values, depth)
        return tag + length_prefix(len(parts)) + b"".join(parts)

    def unordered(self, tag: bytes, values: Iterable[object], depth: int) -> bytes:
        parts = sorted(self.encode_all(values, depth))
        return tag + length_prefix(len(parts)) + b"".join(parts)

    def pairs(self, value: dict, depth: int) -> list[bytes]:
        keys, items = self.encode_all(value, depth), self.encode_all(value.values(), depth)
        return [key + item for key, item in zip(keys, items, strict=True)]

    def encode_all(self, values: Iterable[object], depth: int) -> list[bytes]:
        self.check_depth(depth)
        return [self.encode(value, depth + 1) for value in values]

    def check_depth(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise TooLarge(f"nested deeper than {MAX_DEPTH}")

    def count(self, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > self.max_nodes:
            raise TooLarge(f"more than {self.max_nodes} values")

    def none(self, _value: None, _depth: int) -> bytes:
        return b"N"

    def integer(self, value: int, _depth: int = 0) -> bytes:
        bits = value.bit_length()
        if bits > MAX_INT_BITS:
            raise TooLarge(f"an int of {bits} bits")
        return self.raw(b"i", value.to_bytes(bits // 8 + 1, "big", signed=True))

    def text(self, value: str, _depth: int) -> bytes:
        return self.raw(b"s", value.encode("utf-8", "surrogatepass"))

    def raw(self, tag: bytes, data: bytes) -> bytes:
        self.bytes += len(data) + 4
        if self.bytes > self.max_bytes:
            raise TooLarge(f"more than {self.max_bytes} bytes")
        return tag + length_prefix(len(data)) + data


def length_prefix(count: int) -> bytes:
    return count.to_bytes(4, "big")
