# ruff: noqa: E501  tables of literals
"""Operands are read, never run: the value of every literal, and a quick refusal of everything else."""

import ast
import contextlib
import math
from collections import deque
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1.values import TooLarge, encode_canonical, encode_exact, encode_input
from codea1.values.literals import (
    MAX_SOURCE_BYTES,
    MAX_SUITE_WEIGHT,
    Budget,
    NotLiteral,
    call_arguments,
    literal_value,
    parse_source,
)


def read(source: str) -> object:
    return literal_value(parse_source(source).body[0].value, Budget())


@pytest.mark.parametrize(
    "source",
    [
        "None", "True", "-3", "+2.5", "~5", "not 1", "1e400", "3j", "1 + 2j", "-1 - 2j", "2 ** 31 - 1", "10 ** 5000",
        "2 ** -1", "7 // 2 % 3", "1 << 10 | 3 & 2 ^ 1", "'a' 'b'", "b'a' * 3", "'ab' * 3 + 'c'", "0 * 'x'", "'x' * -1",
        "[1, [2, (3,)], {4}, {5: 6}]", "()", "{}", "{**{1: 2}, 3: 4}", "[*range(3), *'ab']", "(*[1], 2)", "{*[1, 2]}",
        "[0] * 1000", "[[0] * 10] * 10", "{1} | {2}", "{1: 2} | {3: 4}", "set()", "set([1, 2])", "list('abc')",
        "tuple([1])", "dict()", "dict([(1, 2)])", "frozenset({1})", "sorted([3, 1, 2])", "range(3)", "range(1, 10, 2)",
        "list(range(1000))", "list({3, 1, 2.5})", "list({'a'})", "{*{'a', 'b'}}", "sorted({'b', 'a'})", "float('inf')", "-float('inf')", "float(3)", "int('12')", "int('ff', 16)", "str(12)",
        "bytes([1, 2])", "bytearray(b'x')", "complex(1, 2)", "complex('1+2j')", "bool(0)", "'\\\\' + '\\''",
        "'\\u00e9'",
    ],
)  # fmt: skip
def test_literals_have_the_value_python_gives_them(source):
    assert encode_exact(read(source)) == encode_exact(eval(source))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("math.inf", math.inf),
        ("-math.pi", -math.pi),
        ("Decimal('0.1')", Decimal("0.1")),
        ("decimal.Decimal(3)", Decimal(3)),
        ("Fraction(1, 3)", Fraction(1, 3)),
        ("deque([1, 2])", deque([1, 2])),
    ],
)
def test_names_that_need_an_import_in_python(source, value):
    assert encode_exact(read(source)) == encode_exact(value)


@pytest.mark.parametrize(
    "source",
    [
        "x", "f(1)", "__import__('os')", "open('/etc/passwd')", "(lambda: 1)()", "lambda: 1", "[i for i in [1]]", "...",
        "(x := 3)", "f'{1}'", "1 if 1 else 2", "1 < 2", "1 and 2", "[1][0]", "'a'.upper()", "math.sqrt", "math.sqrt(2)",
        "os.path", "set(1)", "set([1], [2])", "list(key=1)", "int(1, 2, 3)", "int('x')", "float('x')", "bytes(10)",
        "str([1, 2])", "{[1]: 2}", "{[1]}", "'a' + 1", "1 / 0", "0 ** -1", "[1] @ [2]", "-'a'", "'%s' % 3",
        "'%999999999d' % 3", "bytearray(b'%999999999d') % 3",
        "list({'a', 'b'})", "tuple(frozenset('ab'))", "deque({None, 1})", "[*{'a', 'b'}]", "list({math.nan, 1})",
        "sorted({frozenset('a'), frozenset('b')})",
        "[*3]", "{**[1]}", "range('a')", "range(1, 2, 0)", "sorted([1, 'a'])", "().__class__", "type(1)", "eval('1')",
        "Fraction(1, 0)", "Decimal('x')",
    ],
)  # fmt: skip
def test_everything_else_is_refused(source):
    with pytest.raises(NotLiteral):
        read(source)


@pytest.mark.parametrize(
    "source",
    [
        "9 ** 9 ** 9", "2 ** (2 ** 40)", "1 << 10 ** 12", "'x' * 10 ** 12", "10 ** 12 * 'x'", "[0] * 10 ** 10",
        "list(range(10 ** 12))", "set(range(10 ** 9))", "range(10 ** 30)", "[*range(10 ** 10)]", "{**{}, 1: 'x' * 10 ** 9}",
        "((((((0,) * 99) * 99,) * 99) * 99,) * 99)", "{" + "(" * 40 + "0" + ",) * 2" * 40 + "}", "-" * 3000 + "1",
        "*".join(["10 ** 3000"] * 100), "int('1' * 1000000, 2)", "set(range(0, 10 ** 5 * (2 ** 61 - 1), 2 ** 61 - 1))",
        "+".join(["'x' * 1000000"] * 3), "[" * 300 + "]" * 300, "[Decimal('1E-16000')] * 2500", "[1e308] * 100000",
        "Decimal('1e999999') ** 9",
        "Fraction(1, 3 ** 5000) * Fraction(1, 7 ** 5000)", "'x' * 16000000 * 0",
    ],
)  # fmt: skip
def test_bombs_are_refused_before_they_go_off(source):
    with pytest.raises(NotLiteral):
        read(source)


@pytest.mark.parametrize(
    "source",
    ["[None] * 65000", "'x' * 65000", "[0] * 8000", "[Decimal(1)] * 4000", "list(range(8000))", "[[]] * 13000"],
)
def test_what_a_test_may_hold_can_be_described(source):
    assert len(encode_exact(read(source))) <= 1 << 16


@pytest.mark.parametrize(
    "item", ["0", "-1", "[]", "{}", "()", "{0}", "1.5", "''", "None", "set()", "Decimal(1)", "1j", "math.inf"]
)
def test_what_is_written_out_in_a_source_can_be_read(item):
    source = f"[{','.join([item] * ((MAX_SOURCE_BYTES - 2) // (len(item) + 1)))}]"
    assert len(read(source)) >= 1000


@pytest.mark.parametrize("item", ["Decimal(1)", "Fraction(1, 3)", "1j", "range(3)", "deque()"])
def test_what_is_slow_to_encode_is_charged_for_it(item):
    with pytest.raises(NotLiteral, match="too large"):
        read(f"[{item}] * 20000")


_SIZES = st.one_of(st.integers(0, 40), st.integers(0, 20_000))
_PARTS = st.one_of(
    _SIZES.map(lambda n: f"Decimal('1E{n}')"),
    _SIZES.map(lambda n: f"Decimal('1E-{n}')"),
    _SIZES.map(lambda n: f"Decimal('{'7' * min(n, 4000)}')"),
    _SIZES.map(lambda n: f"Fraction(1, 1 << {n})"),
    st.floats().map(lambda x: repr(x) if math.isfinite(x) else "math.inf"),
    st.integers(0, 308).map(lambda n: f"1e{n}"),
    st.integers(0, 308).map(lambda n: f"complex(1, 1e{n})"),
    _SIZES.map(lambda n: f"1 << {n}"),
    _SIZES.map(lambda n: f"'\U0001f600' * {n}"),
    _SIZES.map(lambda n: f"b'x' * {n}"),
    _SIZES.map(lambda n: f"range({n})"),
    st.sampled_from(
        ["None", "True", "0", "deque([1])", "{1: 2}", "{3, 4}", "frozenset([5])", "(6,)", "bytearray([7])"]
    ),
)


@given(st.lists(_PARTS, min_size=1, max_size=4), _SIZES)
def test_no_form_takes_more_than_it_is_charged(parts, count):
    """[Decimal('1E-16000')] * 2500 weighed as much as 2,500 small ones, and took two seconds to compare."""
    budget = Budget()
    try:
        value = literal_value(parse_source(f"[{', '.join(parts)}] * {count}").body[0].value, budget)
    except NotLiteral:
        return
    with contextlib.suppress(TooLarge):
        written = len(encode_exact(value)) + len(encode_canonical(value)) + len(encode_input(value))
        assert written <= 16 * (MAX_SUITE_WEIGHT - budget.left)


def test_a_suite_has_one_budget():
    budget, node = Budget(), parse_source("[0] * 8000").body[0].value
    assert [len(literal_value(node, budget)) for _ in range(128)] == [8000] * 128
    with pytest.raises(NotLiteral, match="too large"):
        [literal_value(node, budget) for _ in range(128)]
    assert literal_value(parse_source("[1, 'x']").body[0].value, budget) == [1, "x"]


@pytest.mark.parametrize(
    "source", ["x" * (MAX_SOURCE_BYTES + 1), "'é'" * 6000, "1 +", "a\0b", "'\ud800'", "(" * 5000, "\tx"]
)
def test_sources_that_cannot_be_parsed(source):
    with pytest.raises(NotLiteral):
        parse_source(source)


def arguments(source: str) -> tuple[tuple, dict[str, object]]:
    call = parse_source(source).body[0].value
    assert isinstance(call, ast.Call)
    return call_arguments(call, Budget())


def test_call_arguments():
    assert arguments("f()") == ((), {})
    assert arguments("f(1, [2], k=3)") == ((1, [2]), {"k": 3})
    assert arguments("f(*[1, 2], 3, **{'a': 4}, b=5)") == ((1, 2, 3), {"a": 4, "b": 5})
    assert arguments("f(**{})") == ((), {})
    first, second = arguments("f([], [])")[0]
    assert first is not second


@pytest.mark.parametrize("source", ["f(x)", "f(k=x)", "f(*3)", "f(**{1: 2})", "f(a=1, **{'a': 2})", "f(*range(10**9))"])
def test_call_arguments_that_are_not_literals(source):
    with pytest.raises(NotLiteral):
        arguments(source)


LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(LITERALS)
@settings(max_examples=100)
def test_the_repr_of_a_value_reads_as_the_value(value):
    try:
        module = parse_source(repr(value))
    except NotLiteral:
        assert len(repr(value).encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES or max(repr(value)) >= "\ud800"
        return
    assert encode_exact(literal_value(module.body[0].value, Budget())) == encode_exact(value)
