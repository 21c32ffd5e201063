"""A test as data, as text and back."""

import json
import os
from collections import deque
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1.game.asserts import UNREADABLE, Rejected, parse_assert
from codea1.game.calls import Call, CallTest
from codea1.values import encode_exact


def make(*arguments: object, expected: object, **named: object) -> CallTest:
    return CallTest(Call("f", encode_exact((arguments, named))), encode_exact(expected))


def test_text_of_a_test():
    assert make([1, 2], expected=3).text == "assert f([1, 2]) == 3"
    assert make("a", k=(1,), expected={"x": None}).text == "assert f('a', k=(1,)) == {'x': None}"
    assert make(expected=set()).text == "assert f() == set()"


def test_identity_is_type_exact_and_ignores_the_answer_and_keyword_order():
    def identity(source: str) -> tuple[str, bytes]:
        return parse_assert(source, "f").identity

    assert len({identity(f"assert f({value}) == 0") for value in ("True", "1", "1.0", "[1]", "(1,)", "'1'")}) == 6
    assert identity("assert f(0) == 1") == identity("assert f(0 + 0) == 2")
    assert identity("assert f(a=1, b=2) == 3") == identity("assert f(b=2, a=1) == 3")


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(3990, 4010).map(lambda bits: 2**bits)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9))
    | st.decimals(allow_nan=False)
    | st.fractions()
)
HASHABLE = st.recursive(LEAVES, lambda s: st.lists(s, max_size=3).map(tuple), max_leaves=3)
PLAIN = st.recursive(
    LEAVES | st.binary().map(bytearray) | st.sets(HASHABLE, max_size=3) | st.frozensets(HASHABLE, max_size=3),
    lambda s: st.lists(s) | st.lists(s).map(tuple) | st.dictionaries(HASHABLE, s, max_size=3) | st.lists(s).map(deque),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    st.lists(PLAIN, max_size=2),
    st.dictionaries(st.sampled_from(["a", "b", "lambda", "not a name"]), PLAIN, max_size=2),
    PLAIN,
)
def test_text_reads_back_as_the_same_test(arguments, named, expected):
    test = make(*arguments, expected=expected, **dict(sorted(named.items())))
    assert parse_assert(test.text, "f") == test


def test_awkward_values_read_back():
    infinite = float("inf")
    for value in (float("nan"), -0.0, complex(-0.0, infinite), Decimal("-Infinity"), 2**20_000, -(2**20_000), "\ud800"):
        test = make(value, expected=value)
        assert parse_assert(test.text, "f") == test


def test_one_assert_is_one_statement():
    assert parse_assert("assert f(\n    3\n) == (\n    4\n)  # four", "f").text == "assert f(3) == 4"
    assert parse_assert("assert f(*[1, 2], **{'k': 3}) == 4, 'message'", "f").text == "assert f(1, 2, k=3) == 4"
    for source in (
        "",
        "assert f(3) == 4; f = None",
        "import os\nassert f(3) == 4",
        "f(3) == 4",
        "assert (f := 1) == 4",
    ):
        assert isinstance(parse_assert(source, "f"), Rejected)
    assert parse_assert("assert f(", "f") == Rejected(UNREADABLE)


CASES = Path(os.environ.get("CODEA1_SHARED", Path(__file__).parents[2] / "shared")) / "cases" / "grading_cases.jsonl"


@pytest.mark.skipif(not CASES.is_file(), reason="the shared grading cases are not there")
def test_shared_grading_cases():
    """Whatever a case expects of the grader, reading its test must not stand in the way."""
    for case in map(json.loads, CASES.read_text().splitlines()):
        accepted = {case["expected_verdict"], *case["also_ok"]}
        parsed = parse_assert(case["test"], case["entry_point"])
        if "invalid" not in accepted:
            assert isinstance(parsed, CallTest), case["name"]
        if case["category"] == "test-hack":
            assert isinstance(parsed, Rejected) or case["name"] == "assert_message_side_effect", case["name"]
