"""The type-exact, decodable encoding of plain data.

Standard library only: this runs inside the sandbox too.
"""

import contextlib
import struct
from collections.abc import Callable
from datetime import datetime, time
from fractions import Fraction
from itertools import groupby

from codea1.values.plain import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    RECORDS,
    Encoder,
    NotPlainData,
    check_ratio,
    check_record,
    length_prefix,
)


def encode_exact(value: object, max_bytes: int = MAX_BYTES) -> bytes:
    """Returns type-exact, decodable bytes of `value`. Dicts keep their order, sets are sorted by encodings.

    namedtuples become tuples, subclasses their base, numpy scalars Python scalars.
    Raises NotPlainData, or TooLarge beyond `max_bytes`, MAX_DEPTH, MAX_NODES or MAX_INT_BITS, soon after the walk has
    come so far.
    """
    return ExactEncoder(max_bytes).whole(value)


class Members(list):
    """The members of a set, in place of it."""


class Pairs(list):
    """The keys and values of a dict, in place of it."""


def decode_exact(data: bytes, *, hashed: bool = True) -> object:
    """Returns the value `encode_exact` encoded, types and all. Raises ValueError for what is not such an encoding.

    Building a set or dict takes time quadratic in members that were chosen for that. Without `hashed` none is built:
    there are `Members` and `Pairs` instead, whose members nothing has compared.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"an encoded value has {len(data)} bytes, the limit is {MAX_BYTES}")
    decoder = _Decoder(data, hashed)
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


_MIN_RUN = 16  # numbers of one type in a row from which they are packed
_PACKED = {float: (b"x", "d"), int: (b"w", "q")}  # tag and struct code; both take 8 bytes
_PACKED_CODES = dict(_PACKED.values())


class ExactEncoder(Encoder):
    def items(self, tag: bytes, values: list | tuple, depth: int) -> bytes:
        """Packs long runs of floats and of ints within 64 bits, of which large answers mostly consist."""
        kinds = set(map(type, values)) if len(values) >= _MIN_RUN else set()
        if kinds.isdisjoint(_PACKED):
            return super().items(tag, values, depth)
        self.check_depth(depth)
        runs = [(kind, values) for kind in kinds] if len(kinds) == 1 else groupby(values, type)
        return tag + length_prefix(len(values)) + b"".join([self.run(kind, [*run], depth) for kind, run in runs])

    def run(self, kind: type, values: list, depth: int) -> bytes:
        if kind in _PACKED and len(values) >= _MIN_RUN:
            tag, code = _PACKED[kind]
            with contextlib.suppress(struct.error):  # an int beyond 64 bits
                packed = struct.pack(f">{len(values)}{code}", *values)
                self.count(len(values))
                return self.raw(tag, packed)
        return b"".join(self.encode_all(values, depth))

    def boolean(self, value: bool, _depth: int) -> bytes:
        return b"T" if value else b"F"

    def real(self, value: float, _depth: int) -> bytes:
        self.bytes += 8
        return b"f" + struct.pack(">d", value)

    def dictionary(self, value: dict, depth: int) -> bytes:
        parts = self.pairs(value, depth)
        return b"d" + length_prefix(len(parts)) + b"".join(parts)

    def record(self, value: object, depth: int) -> bytes:
        check_record(value)
        tag, arguments, _ = RECORDS[type(value)]
        return tag + self.items(b"t", arguments(value), depth)


ExactEncoder.writers = {
    type(None): Encoder.none,
    bool: ExactEncoder.boolean,
    int: Encoder.integer,
    float: ExactEncoder.real,
    str: Encoder.text,
    bytes: lambda self, value, depth: self.raw(b"b", value),
    bytearray: lambda self, value, depth: self.raw(b"B", bytes(value)),
    list: lambda self, value, depth: self.items(b"l", value, depth),
    tuple: lambda self, value, depth: self.items(b"t", value, depth),
    set: lambda self, value, depth: self.unordered(b"S", value, depth),
    frozenset: lambda self, value, depth: self.unordered(b"Z", value, depth),
    dict: ExactEncoder.dictionary,
    **dict.fromkeys(RECORDS, ExactEncoder.record),
}


class _Decoder:
    """Reads one exact encoding, never allocating more than the bytes at hand can justify."""

    def __init__(self, data: bytes, hashed: bool) -> None:
        self.data = data
        self.hashed = hashed
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
        if not self.hashed:
            kind = _UNHASHED.get(kind, kind)
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
        if self.data[self.position : self.position + 1] != b"t":  # nor another record, and so on for ever
            raise ValueError(f"malformed value encoding: not the arguments of {kind.__name__}")
        arguments = self.value(depth)
        types = RECORDS[kind][2]
        if type(arguments) is not tuple or len(arguments) != len(types):
            raise ValueError(f"malformed value encoding: not the arguments of {kind.__name__}")
        if not all(isinstance(argument, expected) for argument, expected in zip(arguments, types, strict=True)):
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
_UNHASHED = {set: Members, frozenset: Members, dict: Pairs}
_RECORD_TYPES = {tag: kind for kind, (tag, _, _) in RECORDS.items()}
