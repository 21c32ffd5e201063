"""The two encodings: canonical bytes are equal exactly when == holds; exact bytes keep every type and come back."""

import contextlib
import datetime as dt
import enum
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codea1.values import (
    NotPlainData,
    TooLarge,
    canonical_of,
    contains_nan,
    decode_exact,
    encode_canonical,
    encode_exact,
)
from codea1.values.encoding import ExactEncoder

REALS = [0, 1, -1, 2, 255, 256, -256, 2**53, 10**30, True, False, 0.0, -0.0, 1.0, 0.5, 1e30, 0.1, math.inf, -math.inf]
RATIOS = [Fraction(1, 2), Fraction(2), Fraction(1, 3), Fraction(1, 10), Decimal("0.5"), Decimal("0.1"), Decimal("2.00")]
SMALL_NUMBERS = st.sampled_from([*REALS, *RATIOS, Decimal("-0"), Decimal("Infinity"), 1j, 0j, complex(1, 0)])
NUMBERS = (
    SMALL_NUMBERS
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.fractions()
    | st.decimals(allow_nan=False, places=3)
)
MOMENTS = (
    st.dates()
    | st.datetimes()
    | st.times()
    | st.timedeltas()
    | st.just(dt.datetime(2020, 1, 1))
    | st.just(dt.date(2020, 1, 1))
)
RANGES = st.builds(range, st.integers(-3, 3), st.integers(-3, 3), st.sampled_from([-3, -1, 1, 2, 5]))
TEXTS = st.sampled_from(["", "a", "ab", "\ud800", "é"]) | st.text(max_size=5)
BYTES = st.binary(max_size=3)
HASHABLE = st.recursive(
    st.none() | NUMBERS | TEXTS | BYTES | RANGES | MOMENTS,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
PLAIN = st.recursive(
    HASHABLE | BYTES.map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.builds(deque, st.lists(inner, max_size=3), st.sampled_from([None, 2, 9]))
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=8,
)
# Long enough for runs of numbers to be packed, with what interrupts a run.
RUNS = st.lists(
    st.sampled_from(
        [[0] * 16, [1.5] * 17, [-1] * 15, [2**63] * 16, [-(2**63)] * 16, [True], [-0.0] * 20, ["a"], [[1]]]
    ),
    max_size=6,
).map(lambda runs: [number for run in runs for number in run])


def typed(value: object) -> object:
    """A structure that is equal for two values only when their types and bits agree everywhere."""
    kind = type(value)
    if kind in (set, frozenset):
        return kind, sorted(repr(typed(item)) for item in value)
    if kind in (list, tuple):
        return kind, [typed(item) for item in value]
    if kind is deque:
        return kind, value.maxlen, [typed(item) for item in value]
    if kind is dict:
        return kind, [(typed(key), typed(item)) for key, item in value.items()]
    if kind is float:
        return kind, struct.pack(">d", value)
    if kind is complex:
        return kind, struct.pack(">dd", value.real, value.imag)
    if kind in (dt.datetime, dt.time):
        return kind, value.isoformat(), value.fold
    return kind, str(value)


@given(PLAIN, PLAIN)
@settings(max_examples=100)
@example({1, 2}, frozenset([2.0, True]))
@example({1: [True]}, {1.0: [1]})
@example(range(0), range(5, 5))
@example(range(0, 4, 3), range(0, 5, 3))
@example(bytearray(b"a"), b"a")
@example(dt.datetime(2020, 1, 1), dt.date(2020, 1, 1))
@example([1], (1,))
def test_canonical_bytes_are_equal_exactly_when_values_are(left, right):
    assert (encode_canonical(left) == encode_canonical(right)) == (left == right)


def test_all_pairs_of_small_numbers_agree_with_equality():
    numbers = [0, 1, 2, True, False, 0.0, -0.0, 1.0, 0.5, 0.1, 2.0**70, 2**70, math.inf, -math.inf, 1e-320]
    numbers += [Fraction(1, 2), Fraction(2), Fraction(1, 10), Fraction(2**70), Fraction(1, 3), Fraction(1, 2**1074)]
    numbers += [Decimal("0.5"), Decimal("0.1"), Decimal("2.00"), Decimal("-0"), Decimal("Infinity"), Decimal(2**70)]
    numbers += [0j, 1j, complex(2, 0), complex(0.5, 0), complex(0.5, 1), complex(math.inf, 0), 5e-324]
    for left in numbers:
        for right in numbers:
            assert (encode_canonical(left) == encode_canonical(right)) == (left == right), (left, right)


@given(PLAIN | RUNS | RUNS.map(tuple))
@settings(max_examples=100)
def test_exact_round_trip_keeps_types(value):
    data = encode_exact(value)
    back = decode_exact(data)
    assert typed(back) == typed(value)
    assert encode_exact(back) == data


@given(PLAIN)
@settings(max_examples=100)
def test_what_is_exactly_equal_is_canonically_equal(value):
    assert encode_canonical(decode_exact(encode_exact(value))) == encode_canonical(value)
    assert canonical_of(encode_exact(value)) == encode_canonical(value)  # which builds no set and no dict


def test_exact_nan_survives():
    assert math.isnan(decode_exact(encode_exact(math.nan)))
    assert decode_exact(encode_exact(Decimal("NaN"))).is_nan()


def test_subclasses_that_keep_equality_count_as_their_base():
    point = namedtuple("point", "x y")(1, 2)
    colour = enum.IntEnum("Colour", "RED BLUE")
    for encode in (encode_exact, encode_canonical):
        assert encode(point) == encode((1, 2))
        assert encode(colour.BLUE) == encode(2)
        assert encode(OrderedDict(b=1, a=2)) == encode({"b": 1, "a": 2})
        assert encode(Counter("aab")) == encode({"a": 2, "b": 1})
        assert encode(defaultdict(list, {1: [2]})) == encode({1: [2]})
        assert encode({1: 2}.keys()) == encode({1})
        assert encode(np.float64(0.5)) == encode(0.5)
        assert encode([np.int64(3), np.bool_(True), np.str_("x")]) == encode([3, True, "x"])


class Liar(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


class SilentLiar(str):
    """Keeps str's equality and lies everywhere else: it must be read through str's own slots."""

    def __str__(self):
        return "lie"

    def encode(self, *_):
        return b"lie"


class ListLiar(list):
    def __iter__(self):
        return iter([42])


@pytest.mark.parametrize(
    "value",
    [
        Liar("x"),
        [Liar("x")],
        {Liar("x"): 1},
        type("AlwaysEqual", (), {"__eq__": lambda self, other: True, "__hash__": None})(),
        type("Int", (int,), {"__eq__": lambda self, other: True, "__hash__": int.__hash__})(3),
        type("Hash", (int,), {"__hash__": lambda self: 0})(3),
        object(),
        iter([1]),
        {1: 2}.values(),
        np.array([1, 2]),
        len,
        int,
        dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("encode", [encode_exact, encode_canonical])
def test_what_could_answer_equality_itself_is_not_plain(encode, value):
    with pytest.raises(NotPlainData):
        encode(value)


@pytest.mark.parametrize("encode", [encode_exact, encode_canonical])
def test_overridden_methods_are_never_consulted(encode):
    assert encode(SilentLiar("truth")) == encode("truth")
    assert encode(ListLiar([1, 2])) == encode([1, 2])


def nest(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


CYCLE: list = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [
        CYCLE,
        nest(100_000),
        1 << (1 << 23),
        "x" * (17 << 20),
        [None] * (3 << 20),
        Decimal("1e999999"),
        ["x" * 1000] * 17000,
    ],
    ids=["cycle", "deep", "int", "string", "many", "decimal", "shared"],
)
@pytest.mark.parametrize("encode", [encode_exact, encode_canonical])
def test_sizes_are_bounded(encode, value):
    with pytest.raises(TooLarge):
        encode(value)


def test_large_plain_data_is_fine():
    for value in (10**5000, -(10**5000), "x" * (1 << 20), nest(60), Decimal("1e5000")):
        assert decode_exact(encode_exact(value)) == value
        encode_canonical(value)


@given(PLAIN | RUNS, st.integers(0, 200))
def test_an_encoding_is_no_longer_than_was_asked_for(value, max_bytes):
    data = encode_exact(value)
    if len(data) <= max_bytes:
        assert encode_exact(value, max_bytes) == data
    else:
        with pytest.raises(TooLarge):
            encode_exact(value, max_bytes)


@pytest.mark.parametrize("item", [None, 1, 1.5, "", Decimal(1), []])
def test_encoding_stops_where_it_is_too_long(item):
    encoder = ExactEncoder(1000)
    with pytest.raises(TooLarge):
        encoder.whole([item, None] * 10**5)
    assert encoder.nodes < 1010


@given(st.binary(max_size=40))
@settings(max_examples=100)
@example(b"l\xff\xff\xff\xff")
@example(b"i\xff\xff\xff\xff")
@example(b"l\0\0\0\1" * 500)
@example(b"S\0\0\0\1l\0\0\0\0")
@example(b"S\0\0\0\2TT")
@example(b"d\0\0\0\1l\0\0\0\0N")
@example(b"q" + encode_exact((1, 0)))
@example(b"r" + encode_exact((0, 1, 0)))
@example(b"e" + encode_exact(("not a number",)))
@example(b"y" + encode_exact((2020, 13, 1)))
@example(b"y" + encode_exact((2020, 10**30, 1)))
@example(b"u" + encode_exact((10**12, 0, 0)))
@example(b"D" + encode_exact(([1], -1)))
@example(b"s\0\0\0\1\xff")
@example(b"l\0\0\0\1x\0\0\0\0")
@example(b"l\0\0\0\1x\0\0\0\x10" + bytes(16))
@example(b"l\0\0\0\1w\0\0\0\x09" + bytes(9))
@example(b"S\0\0\0\1w\0\0\0\x08" + bytes(8))
@example(b"x\0\0\0\x08" + bytes(8))
@example(b"NN")
@example(b"D" * 5000)
@example(b"")
def test_decoding_garbage_raises_value_error_or_gives_plain_data(data):
    try:
        value = decode_exact(data)
    except ValueError:
        return
    encode_exact(value)


@given(PLAIN, st.data())
@settings(max_examples=100)
def test_decoding_damaged_encodings_is_safe(value, data):
    encoding = bytearray(encode_exact(value))
    encoding[data.draw(st.integers(0, len(encoding) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ValueError):
        decode_exact(bytes(encoding))
    canonical_of(bytes(encoding))


NANS = (encode_exact(value) for value in ({math.nan}, {1: {math.nan: 2}}, [{2: (math.nan,)}]))
REPEATED_MEMBERS = (b"S\0\0\0\2TT", b"d\0\0\0\2TNTN", b"S\0\0\0\2Ti\0\0\0\1\1")


@pytest.mark.parametrize("payload", [*NANS, *REPEATED_MEMBERS])
def test_nothing_equals_what_holds_a_nan_or_repeats_a_member(payload):
    assert canonical_of(payload) is None


def test_nan_is_found_wherever_it_hides():
    nan = math.nan
    for value in (nan, [nan], {1: (nan,)}, {nan}, deque([nan]), complex(0, nan), Decimal("nan"), {nan: 1}):
        assert contains_nan(value)
    for value in (1.0, math.inf, [1, {2: "nan"}], None, Decimal("Infinity"), range(3)):
        assert not contains_nan(value)
