"""What plain data is, and its two encodings: the exact one, and the one whose byte equality is Python's ``==``.

Standard library only: this runs inside the sandbox too.
"""

import contextlib
import operator
import struct
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any

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
_DICT_KEYS: type = type({}.keys())


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
            value = self.plain(value)
            writer = self.writers[type(value)]
        return writer(self, value, depth)

    def plain(self, value: Any) -> object:
        """Returns `value`, of a type no encoder knows, as the plain data it equals. Raises NotPlainData."""
        kind = type(value)
        if kind in _AS_DICT:
            return dict(dict.items(value))
        if kind is _DICT_KEYS:
            return set(value)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.bool_, numpy.number, numpy.str_, numpy.bytes_)):
            # In numpy 2 a number with fewer bits than Python's equals what is written as it: np.float32(0.1) == 0.1.
            is_narrow = isinstance(value, (numpy.float16, numpy.float32))
            scalar = float(str(value)) if is_narrow else value.item()
            if type(scalar) in (bool, int, float, complex, str, bytes):
                return scalar
        for base in kind.__mro__:
            if base in _AS_BASE:
                if kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__:
                    return _AS_BASE[base](value)
                break
        raise NotPlainData(f"{kind.__module__}.{kind.__qualname__}")

    def items(self, tag: bytes, values: Sequence[object], depth: int) -> bytes:
        return tag + counted(self.encode_all(values, depth))

    def unordered(self, tag: bytes, values: Iterable[object], depth: int) -> bytes:
        return tag + counted(sorted(self.encode_all(values, depth)))

    def pairs(self, value: dict, depth: int) -> list[bytes]:
        return [*map(operator.add, self.encode_all(value, depth), self.encode_all(value.values(), depth))]

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


def counted(parts: list[bytes]) -> bytes:
    return length_prefix(len(parts)) + b"".join(parts)


def sorted_once(parts: list[bytes]) -> list[bytes]:
    """Raises ValueError for parts that a set or the keys of a dict cannot have, since two are equal."""
    parts = sorted(parts)
    if any(first == second for first, second in pairwise(parts)):
        raise ValueError("members are repeated")
    return parts


class Members(list):
    """The members of a set, instead of it."""


class Pairs(list):
    """The keys and values of a dict, instead of it."""


def encode_exact(value: object, max_bytes: int = MAX_BYTES) -> bytes:
    """Returns type-exact, decodable bytes of `value`. Dicts keep their order, sets are sorted by encodings.

    namedtuples become tuples, subclasses their base, numpy scalars Python scalars.
    Raises NotPlainData, or TooLarge beyond `max_bytes`, MAX_DEPTH, MAX_NODES or MAX_INT_BITS, soon after the walk has
    come so far.
    """
    return ExactEncoder(max_bytes).whole(value)


def encode_canonical(value: object) -> bytes:
    """Returns bytes that are equal for two plain values exactly when the values are equal under ``==``.

    A value with NaN inside has an encoding too, but it must not be compared: see `contains_nan`.
    Raises NotPlainData, or TooLarge beyond MAX_BYTES, MAX_DEPTH, MAX_NODES or MAX_INT_BITS.
    """
    return CanonicalEncoder().whole(value)


_MIN_RUN = 16  # numbers of one type in a row from which they are packed
PACKED = {float: (b"x", "d"), int: (b"w", "q")}  # tag and struct code; both take 8 bytes


class ExactEncoder(Encoder):
    def items(self, tag: bytes, values: Sequence[object], depth: int) -> bytes:
        """Packs long runs of floats and of ints within 64 bits, of which large answers mostly consist."""
        kinds = set(map(type, values)) if len(values) >= _MIN_RUN else set()
        if kinds.isdisjoint(PACKED):
            return super().items(tag, values, depth)
        self.check_depth(depth)
        runs = [(kind, values) for kind in kinds] if len(kinds) == 1 else groupby(values, type)
        return tag + length_prefix(len(values)) + b"".join([self.run(kind, [*run], depth) for kind, run in runs])

    def run(self, kind: type, values: list, depth: int) -> bytes:
        if kind in PACKED and len(values) >= _MIN_RUN:
            tag, code = PACKED[kind]
            with contextlib.suppress(struct.error):  # an int beyond 64 bits
                packed = struct.pack(f">{len(values)}{code}", *values)
                self.count(len(values))
                return self.raw(tag, packed)
        return b"".join(self.encode_all(values, depth))

    def real(self, value: float, _depth: int) -> bytes:
        self.bytes += 8
        return b"f" + struct.pack(">d", value)

    def record(self, value: object, depth: int) -> bytes:
        check_record(value)
        tag, arguments, _ = RECORDS[type(value)]
        return tag + self.items(b"t", arguments(value), depth)


ExactEncoder.writers = {
    type(None): lambda self, value, depth: b"N",
    bool: lambda self, value, depth: b"T" if value else b"F",
    int: Encoder.integer,
    float: ExactEncoder.real,
    str: Encoder.text,
    bytes: lambda self, value, depth: self.raw(b"b", value),
    bytearray: lambda self, value, depth: self.raw(b"B", bytes(value)),
    list: lambda self, value, depth: self.items(b"l", value, depth),
    tuple: lambda self, value, depth: self.items(b"t", value, depth),
    set: lambda self, value, depth: self.unordered(b"S", value, depth),
    frozenset: lambda self, value, depth: self.unordered(b"Z", value, depth),
    dict: lambda self, value, depth: b"d" + counted(self.pairs(value, depth)),
    **dict.fromkeys(RECORDS, ExactEncoder.record),
}


class CanonicalEncoder(Encoder):
    """Every number is the first of: an int; a non-integral or infinite double; an exact ratio; a true complex."""

    def real(self, value: float, _depth: int = 0) -> bytes:
        if value != value:
            return b"n"
        if value.is_integer():
            return self.integer(int(value))
        return b"f" + struct.pack(">d", value)

    def rational(self, value: Fraction | Decimal, _depth: int) -> bytes:
        check_record(value)
        if isinstance(value, Decimal) and not value.is_finite():
            return b"n" if value.is_nan() else self.real(float(value))
        numerator, denominator = value.as_integer_ratio()
        if denominator == 1:
            return self.integer(numerator)
        try:
            nearest = numerator / denominator
        except OverflowError:
            nearest = 0.0
        if nearest.as_integer_ratio() == (numerator, denominator):
            return self.real(nearest)
        return b"q" + self.integer(numerator) + self.integer(denominator)

    def complex(self, value: complex, _depth: int) -> bytes:
        if value.imag == 0:
            return self.real(value.real)
        return b"c" + self.real(value.real) + self.real(value.imag)

    def paired(self, value: Pairs, depth: int) -> bytes:
        keys = self.encode_all([key for key, _ in value], depth)
        sorted_once(keys)
        items = self.encode_all([item for _, item in value], depth)
        return b"d" + counted(sorted(map(operator.add, keys, items)))

    def range(self, value: range, depth: int) -> bytes:
        count = max(0, (value.stop - value.start + value.step + (-1 if value.step > 0 else 1)) // value.step)
        return self.items(b"r", (count, value.start, value.step)[: min(count, 2) + 1], depth)

    def moment(self, value: date | time, depth: int) -> bytes:
        check_record(value)
        tag, arguments, _ = RECORDS[type(value)]
        fields = arguments(value)
        return self.items(tag, fields[:-1] if isinstance(value, (datetime, time)) else fields, depth)  # no fold


CanonicalEncoder.writers = {
    type(None): lambda self, value, depth: b"N",
    bool: lambda self, value, depth: self.integer(int(value)),
    int: Encoder.integer,
    float: CanonicalEncoder.real,
    complex: CanonicalEncoder.complex,
    **dict.fromkeys((Fraction, Decimal), CanonicalEncoder.rational),
    str: Encoder.text,
    bytes: lambda self, value, depth: self.raw(b"b", value),
    bytearray: lambda self, value, depth: self.raw(b"b", bytes(value)),
    list: lambda self, value, depth: self.items(b"l", value, depth),
    tuple: lambda self, value, depth: self.items(b"t", value, depth),
    deque: lambda self, value, depth: self.items(b"D", value, depth),
    set: lambda self, value, depth: self.unordered(b"S", value, depth),
    frozenset: lambda self, value, depth: self.unordered(b"S", value, depth),
    dict: lambda self, value, depth: b"d" + counted(sorted(self.pairs(value, depth))),
    Members: lambda self, value, depth: b"S" + counted(sorted_once(self.encode_all(value, depth))),
    Pairs: CanonicalEncoder.paired,
    range: CanonicalEncoder.range,
    **dict.fromkeys((date, time, datetime, timedelta), CanonicalEncoder.moment),
}


SINGLE = b"k"  # the tag of what is not written as the same number in 32 bits and in 64


class _Single(float):
    """A number of 32 bits."""


class AnswerEncoder(CanonicalEncoder):
    """Keeps numbers of 32 bits, which equal more than one of 64: see `codea1.values.entry_points.agree`."""

    def plain(self, value: Any) -> object:
        number = super().plain(value)
        is_single = type(value).__name__ == "float32" and isinstance(number, float)
        return _Single(value) if is_single and number == number != value.item() else number


AnswerEncoder.writers = {
    **CanonicalEncoder.writers,
    _Single: lambda self, value, depth: SINGLE + struct.pack(">f", value),
}


def encode_answer(value: object) -> bytes:
    """Returns what `encode_canonical` does, where numbers of 32 bits may be kept as such. Raises the same."""
    return AnswerEncoder().whole(value)


MAX_RANGE = 1 << 13  # elements up to which a range is an input like its list: as many as a test's arguments can hold
_BYTES = [CanonicalEncoder().integer(byte) for byte in range(256)]


class InputEncoder(CanonicalEncoder):
    """Every sequence that is no text is one kind."""

    def range(self, value: range, depth: int) -> bytes:
        return super().range(value, depth) if value[MAX_RANGE:] else self.items(b"l", value, depth)


InputEncoder.writers = {
    **CanonicalEncoder.writers,
    **dict.fromkeys((tuple, deque), CanonicalEncoder.writers[list]),
    **dict.fromkeys(
        (bytes, bytearray),
        lambda self, value, depth: b"l" + length_prefix(len(value)) + b"".join(map(_BYTES.__getitem__, value)),
    ),
    range: InputEncoder.range,
}


def encode_input(value: object) -> bytes:
    """Returns bytes that are equal for what a function can hardly tell apart: equal numbers, sequences of equal items.

    So `[2, 1]`, `(2.0, True)`, `deque([2, 1])` and `b"\\2\\1"` are one. What is too large for this encoding, and for no
    test, has the exact one. Raises what `encode_exact` raises.
    """
    try:
        return InputEncoder().whole(value)
    except TooLarge:
        return encode_exact(value)
