"""How texts are compared: verdicts by hand, what every comparison keeps to, and that none takes long or raises."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.values import encode_exact
from codea1.values.entry_points import CHECKERS, has_decimals, same_answer, same_printed

TOKENS, ANY_ORDER = "stdout_tokens", "stdout_any_order"


@pytest.mark.parametrize(
    ("one", "other", "checkers"),
    [
        ("", "", (TOKENS, ANY_ORDER)),
        ("", "0", ()),
        ("1 2\n3", "1  2\n\n  3", (TOKENS, ANY_ORDER)),
        ("1 2 3", "1 2\n3", (TOKENS,)),
        ("1 2", "1 2 2", ()),
        ("1 2", "12", ()),
        ("YES", "yes", (TOKENS,)),
        ("YES", "YE", ()),
        # Numbers with a point or an exponent.
        ("0.5", ".5", (TOKENS,)),
        ("2", "2.0", (TOKENS,)),
        ("2", "2.", (TOKENS,)),
        ("0.00001", "1E-05", (TOKENS,)),
        ("+0.5", "0.5", (TOKENS,)),
        ("-0.0", "0", (TOKENS,)),
        ("0.5", "-0.5", ()),
        ("0.333333", "0.3333333333", (TOKENS,)),
        ("0.333331", "0.33334", (TOKENS,)),
        ("0.33333", "0.33335", ()),
        ("1000000.0", "1000009", (TOKENS,)),
        ("1000000.0", "1000011", ()),
        ("x=0.5", "x=0.50", ()),
        # Integers, however large, are words.
        ("1000000", "1000001", ()),
        ("7", "07", ()),
        ("9" * 400, "9" * 399 + "8", ()),
        ("9" * 400, "9" * 400 + ".0", ()),
        ("9" * 400 + ".0", "9" * 400 + ".1", ()),
        ("1e400", "1e500", ()),
        # What else float() reads is no number.
        ("nan", "nan", (TOKENS, ANY_ORDER)),
        ("nan", "0.5", ()),
        ("nan", "-nan", ()),
        ("inf", "1e400", ()),
        ("inf", "infinity", ()),
        ("1_0.0", "10.0", ()),
        ("٣.0", "3.0", ()),
        # Order.
        ("1 2\n3 4", "4 3\n2 1", (ANY_ORDER,)),
        ("1 2\n3 4", "1 3\n2 4", ()),
        ("a\nb\na", "a\na\nb", (ANY_ORDER,)),
        ("a\nb\na", "a\nb\nb", ()),
        ("YES\nNO\nYES", "NO\nYES", ()),
        ("0.5 1", "1 0.50", ()),
    ],
)
def test_two_texts(one, other, checkers):
    for name in CHECKERS:
        assert CHECKERS[name](one, other) is CHECKERS[name](other, one) is (name in checkers), name
        assert same_answer(name, encode_exact(one), encode_exact(other)) is (name in checkers)
    assert same_answer("stdout", encode_exact(one), encode_exact(other)) is (one == other)


TEXTS = st.text() | st.lists(st.sampled_from(["1", "1.0", "1e0", ".", "a", "A", "nan", " ", "\n", "\x85", "ß"])).map(
    "".join
)


@given(TEXTS, TEXTS)
def test_each_comparison_is_reflexive_and_symmetric_and_may_only_equate_more_than_text(one, other):
    for same in CHECKERS.values():
        assert same(one, one)
        assert same(one, other) is same(other, one)


@given(st.binary(max_size=20).map(lambda data: b"s" + data) | st.binary(max_size=20))
def test_what_is_no_encoding_of_a_text_equals_none(claim):
    assert not same_printed(TOKENS, encode_exact("0.5 x"), claim)


def test_values_that_are_no_texts_are_compared_as_ever():
    for name in CHECKERS:
        assert same_answer(name, encode_exact(1), encode_exact(1.0))
        assert not same_answer(name, encode_exact("1.0"), encode_exact(1.0))


MANY = 1 << 21
HOSTILE = {
    "a number": "1" * MANY,
    "a fraction": "0." + "3" * MANY,
    "an exponent": "1e" + "9" * MANY,
    "nearly a number": "1" * MANY + "x",
    "nearly decimals": "1e." * (MANY // 3),
    "numbers": "1.5 " * (MANY // 4),
    "lines": "1.5\n" * (MANY // 4),
    "empty lines": "1.5" + "\n" * MANY,
    "spaces": " " * MANY,
    "long prefixes": "\n".join("a" * 4000 + str(n) for n in range(MANY // 4000)),
}


@pytest.mark.parametrize("printed", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", CHECKERS)
def test_two_mebibytes_take_no_time(name, printed):
    began = time.process_time()
    CHECKERS[name]("1.5", printed)
    CHECKERS[name](printed, "1.5 x")
    CHECKERS[name](printed[: 1 << 16], printed[1 : 1 + (1 << 16)])
    assert time.process_time() - began < 2


def test_decimals_are_numbers_with_a_point_or_an_exponent():
    assert all(map(has_decimals, ["0.5", "x -.5", "1\n2.", "3E8"]))
    assert not any(map(has_decimals, ["", "1 2", "1.2.3", "x.5", ".", "e", "1e", "inf nan", "1_0.5", "٣.5"]))
