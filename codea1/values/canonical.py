"""The one-way encoding whose byte equality is Python's ``==`` on plain data.

Standard library only: this runs inside the sandbox too.
"""

import struct
from collections import deque
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from codea1.values.exact import Members, Pairs, decode_exact
from codea1.values.plain import RECORDS, Encoder, NotPlainData, check_record, contains_nan, length_prefix


def encode_canonical(value: object) -> bytes:
    """Returns bytes that are equal for two plain values exactly when the values are equal under ``==``.

    A value with NaN inside has an encoding too, but it must not be compared: see `contains_nan`.
    Raises NotPlainData, or TooLarge beyond MAX_BYTES, MAX_DEPTH, MAX_NODES or MAX_INT_BITS.
    """
    return CanonicalEncoder().whole(value)


def canonical_of(exact: bytes) -> bytes | None:
    """Returns the canonical bytes of an exact encoding, in time linear in it; None for what nothing can be equal to.

    That is what holds a NaN, and what no `encode_exact` wrote or no `encode_canonical` can write.
    """
    try:
        value = decode_exact(exact, hashed=False)
        return None if contains_nan(value) else encode_canonical(value)
    except (ValueError, NotPlainData):
        return None


class CanonicalEncoder(Encoder):
    """Every number is the first of: an int; a non-integral or infinite double; an exact ratio; a true complex."""

    def real(self, value: float, _depth: int = 0) -> bytes:
        if value != value:
            return b"n"
        if value.is_integer():
            return self.integer(int(value))
        return b"f" + struct.pack(">d", value)

    def ratio(self, numerator: int, denominator: int) -> bytes:
        if denominator == 1:
            return self.integer(numerator)
        try:
            nearest = numerator / denominator
        except OverflowError:
            nearest = 0.0
        if nearest.as_integer_ratio() == (numerator, denominator):
            return self.real(nearest)
        return b"q" + self.integer(numerator) + self.integer(denominator)

    def fraction(self, value: Fraction, _depth: int) -> bytes:
        check_record(value)
        return self.ratio(value.numerator, value.denominator)

    def decimal(self, value: Decimal, _depth: int) -> bytes:
        check_record(value)
        if value.is_nan():
            return b"n"
        return self.real(float(value)) if value.is_infinite() else self.ratio(*value.as_integer_ratio())

    def complex(self, value: complex, _depth: int) -> bytes:
        if value.imag == 0:
            return self.real(value.real)
        return b"c" + self.real(value.real) + self.real(value.imag)

    def dictionary(self, value: dict, depth: int) -> bytes:
        parts = sorted(self.pairs(value, depth))
        return b"d" + length_prefix(len(parts)) + b"".join(parts)

    def members(self, value: Members, depth: int) -> bytes:
        return self.once(b"S", self.encode_all(value, depth))

    def paired(self, value: Pairs, depth: int) -> bytes:
        keys, items = ([*part] for part in zip(*value, strict=True)) if value else ([], [])
        keys = self.encode_all(keys, depth)
        self.once(b"", keys)
        pairs = zip(keys, self.encode_all(items, depth), strict=True)
        return b"d" + length_prefix(len(keys)) + b"".join(sorted(key + item for key, item in pairs))

    def once(self, tag: bytes, parts: list[bytes]) -> bytes:
        """Raises ValueError for parts that a set or the keys of a dict cannot have, since two are equal."""
        parts = sorted(parts)
        if any(first == second for first, second in pairwise(parts)):
            raise ValueError("members are repeated")
        return tag + length_prefix(len(parts)) + b"".join(parts)

    def range(self, value: range, depth: int) -> bytes:
        count = max(0, (value.stop - value.start + value.step + (-1 if value.step > 0 else 1)) // value.step)
        return self.items(b"r", (count, value.start, value.step)[: min(count, 2) + 1], depth)

    def moment(self, value: date | time, depth: int) -> bytes:
        check_record(value)
        tag, arguments, _ = RECORDS[type(value)]
        fields = arguments(value)
        return self.items(tag, fields[:-1] if isinstance(value, (datetime, time)) else fields, depth)  # no fold


CanonicalEncoder.writers = {
    type(None): Encoder.none,
    bool: lambda self, value, depth: self.integer(int(value)),
    int: Encoder.integer,
    float: CanonicalEncoder.real,
    complex: CanonicalEncoder.complex,
    Fraction: CanonicalEncoder.fraction,
    Decimal: CanonicalEncoder.decimal,
    str: Encoder.text,
    bytes: lambda self, value, depth: self.raw(b"b", value),
    bytearray: lambda self, value, depth: self.raw(b"b", bytes(value)),
    list: lambda self, value, depth: self.items(b"l", value, depth),
    tuple: lambda self, value, depth: self.items(b"t", value, depth),
    deque: lambda self, value, depth: self.items(b"D", value, depth),
    set: lambda self, value, depth: self.unordered(b"S", value, depth),
    frozenset: lambda self, value, depth: self.unordered(b"S", value, depth),
    dict: CanonicalEncoder.dictionary,
    Members: CanonicalEncoder.members,
    Pairs: CanonicalEncoder.paired,
    range: CanonicalEncoder.range,
    **dict.fromkeys((date, time, datetime, timedelta), CanonicalEncoder.moment),
}
