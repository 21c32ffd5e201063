"""Decoding of what an untrusted process or a file says, and comparison of values without a look inside them.

Standard library only: this runs inside the sandbox too.
"""

import struct
from collections.abc import Callable, Mapping
from datetime import datetime, time
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from codea1.values.encoding import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    PACKED,
    RECORDS,
    Members,
    NotPlainData,
    Pairs,
    check_ratio,
    contains_nan,
    encode_canonical,
)


def decode_exact(data: bytes, *, hashed: bool = True, sets: Mapping[type, type] = MappingProxyType({})) -> Any:
    """Returns the value `encode_exact` encoded, types and all. Raises ValueError for what is not such an encoding.

    Building a set or dict takes time quadratic in members that were chosen for that. Without `hashed` none is built:
    there are `Members` and `Pairs` instead, whose members nothing has compared.

    Args:
      sets: the classes to make instead of `set` and `frozenset`.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"an encoded value has {len(data)} bytes, the limit is {MAX_BYTES}")
    decoder = _Decoder(data, sets if hashed else _UNHASHED)
    try:
        value = decoder.value(0)
    except (struct.error, LookupError, TypeError, ArithmeticError, NotPlainData) as error:
        raise ValueError(f"malformed value encoding: {error!r}") from error
    if decoder.position != len(data):
        raise ValueError("malformed value encoding: bytes are left over")
    return value


def decode_fields(data: bytes, *types: type) -> tuple:
    """Returns the tuple that `data` holds, of exactly these types. Raises ValueError for anything else.

    For what an untrusted process claims: no set or dict is built.
    """
    fields = decode_exact(data, hashed=False)
    if type(fields) is not tuple or [type(field) for field in fields] != list(types):
        raise ValueError(f"not a tuple of {', '.join(kind.__name__ for kind in types)}")
    return fields


def canonical_of(exact: bytes) -> bytes | None:
    """Returns the canonical bytes of an exact encoding, in time linear in it; None for what nothing can be equal to.

    That is what holds a NaN, and what no `encode_exact` wrote or no `encode_canonical` can write.
    """
    try:
        value = decode_exact(exact, hashed=False)
        return None if contains_nan(value) else encode_canonical(value)
    except (ValueError, NotPlainData):
        return None


def answers_equal(first: bytes, second: bytes) -> bool:
    """Returns whether two exact encodings hold values that are equal under Python's `==`."""
    return first == second or canonical_of(first) == canonical_of(second) is not None


_PACKED_CODES = dict(PACKED.values())


class _Decoder:
    """Reads one exact encoding, never allocating more than the given bytes can justify."""

    def __init__(self, data: bytes, kinds: Mapping[type, type]) -> None:
        """Takes an encoding, and the classes to make instead of others."""
        self.data = data
        self.kinds = kinds
        self.position = 0
        self.nodes = 0

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > len(self.data):
            raise ValueError("malformed value encoding: it ends too early")
        return self.data[start : self.position]

    def count(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def value(self, depth: int) -> object:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise ValueError("an encoded value is nested too deeply or has too many parts")
        tag = self.take(1)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag == b"f":
            return struct.unpack(">d", self.take(8))[0]
        if tag in _FROM_BYTES:
            return _FROM_BYTES[tag](self.take(self.count()))
        if tag in _RECORD_TYPES:
            return self.record(_RECORD_TYPES[tag], depth)
        return self.container(tag, depth)

    def container(self, tag: bytes, depth: int) -> object:
        kind, count = _CONTAINERS[tag], self.count()
        kind = self.kinds.get(kind, kind)
        if kind in (list, tuple, Members):
            value = kind(self.sequence(count, depth))
        elif kind in (dict, Pairs):
            value = kind([(self.value(depth + 1), self.value(depth + 1)) for _ in range(count)])
        else:
            value = kind([self.value(depth + 1) for _ in range(count)])
        if len(value) != count:
            raise ValueError("malformed value encoding: members are repeated or miscounted")
        return value

    def sequence(self, count: int, depth: int) -> list:
        values: list = []
        while len(values) < count:
            code = _PACKED_CODES.get(self.data[self.position : self.position + 1])
            if code is None:
                values.append(self.value(depth + 1))
            else:
                values += self.run(code)
        return values

    def run(self, code: str) -> tuple:
        self.position += 1
        data = self.take(self.count())
        self.nodes += len(data) // 8
        if not data or self.nodes > MAX_NODES:
            raise ValueError("an encoded value has too many parts, or an empty run of numbers")
        return struct.unpack(f">{len(data) // 8}{code}", data)

    def record(self, kind: type, depth: int) -> object:
        is_tuple = self.data[self.position : self.position + 1] == b"t"  # not another record, and so on for ever
        arguments: Any = self.value(depth) if is_tuple else ()
        types = RECORDS[kind][2]
        if len(arguments) != len(types) or not all(map(isinstance, arguments, types)):
            raise ValueError(f"malformed value encoding: not the arguments of {kind.__name__}")
        if kind is Fraction:
            check_ratio(*arguments)
        if kind in (datetime, time):
            return kind(*arguments[:-1], fold=arguments[-1])
        return kind(*arguments)


_CONSTANTS = {b"N": None, b"T": True, b"F": False}
_FROM_BYTES: dict[bytes, Callable[[bytes], object]] = {
    b"i": lambda data: int.from_bytes(data, "big", signed=True),
    b"s": lambda data: data.decode("utf-8", "surrogatepass"),
    b"b": bytes,
    b"B": bytearray,
}
_CONTAINERS = {b"l": list, b"t": tuple, b"S": set, b"Z": frozenset, b"d": dict}
_UNHASHED: Mapping[type, type] = {set: Members, frozenset: Members, dict: Pairs}
_RECORD_TYPES = {tag: kind for kind, (tag, _, _) in RECORDS.items()}
