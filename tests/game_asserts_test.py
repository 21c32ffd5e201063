"""Statements out of lines, and the fixed tests of a question."""

import dataclasses

import pytest

from codea1.game.answers import parse_suite
from codea1.game.asserts import Rejected, golden_tests, parse_assert, split_statements
from codea1.game.question import Question
from codea1.values.literals import MAX_SOURCE_BYTES


@pytest.mark.parametrize(
    "statements",
    [
        ["a = 1", "b = 2"],
        ["a = [\n1,\n\n2]", "b = {\n}", "c = (\n)"],
        ["a = 1)", "b = (\n1)"],  # what closes more than is open ends there
        ["a = (\n", "assert f(1) == (\n2)", "b = (\n1)"],  # an assert begins anew
        ["a = (\n", "assert(f(1) == 2)"],
        ["a \\\n= 1", "b"],
        ['a = """(\n\'\'\'["\n"""', "b = (\n1)"],
        ["a = '''\n)\n'''", "b"],
        ["a = '('", 'b = ")"', "c = (')'\n)"],
        ["a = '(", "b"],  # a string of one quote ends with its line
        ["a = '\\'('", "b"],
        ["a = \\'(\n)", "b"],  # outside of a string too
        ["a = 1  # (", "b = (  # )\n)", "c = '#' + (\n'')"],
    ],
)
def test_statements_are_whole_lines_joined_while_something_is_open(statements: list[str]):
    assert list(split_statements("\n".join(statements))) == statements


def test_blank_lines_between_statements_are_none():
    assert list(split_statements("\na\n\n  \nb\n")) == ["a", "b"]


@pytest.mark.parametrize(("before", "begin"), [([], "("), (["a = 1"], "("), (["a = ("], "assert (")])
def test_a_statement_ends_once_it_is_too_large_to_be_read(before: list[str], begin: str):
    exactly = begin.ljust(MAX_SOURCE_BYTES - 1, "x")  # with its newline; one byte more is too many
    text = "\n".join([*before, exactly, "", "b"])
    assert list(split_statements(text)) == [*before, exactly + "\n", "b"]


def test_golden_tests_are_the_plain_asserts():
    sources = ("assert f(1) == 2", "assert f(1) != 2", "assert g(1) == 2", "assert f(3) == 4")
    question = Question("q", None, "", "", "def f(n):\n    return n + 1", "f")
    found = golden_tests(dataclasses.replace(question, golden_tests=sources))
    assert [test.text for test in found] == ["assert f(1) == 2", "assert f(3) == 4"]


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("assert 2 == f(1)", "assert f(1) == 2"),
        ("assert set([2]) == f(1)", "assert f(1) == {2}"),
        ("assert f(1)", "assert f(1)"),
        ("assert not f(1), 'no'", "assert not f(1)"),
        ("assert f(1) is None", "assert f(1) == None"),
        ("assert True is f(k=1)", "assert f(k=1) is True"),
        ("r = f(1)\nassert r == 2", "assert f(1) == 2"),
        ("a = [1]\nwanted = 2\nassert f(a) == 2", "assert f([1]) == 2"),
        ("r = f(1)\nassert not r", "assert not f(1)"),
        ("assert f(1) is 1", None),  # says more than the value
        ("assert f(1) is []", None),
        ("assert f(1) == f(2)", None),
        ("assert f(1) == 2 == 2", None),
        ("assert f(1) != 2", None),
        ("assert 2 in f(1)", None),
        ("assert sorted(f(1)) == [2]", "assert sorted(f(1)) == [2]"),
        ("assert f(1)[0] == 2", None),
        ("assert isinstance(f(1), int)", None),
        ("assert f(1) and f(2)", None),
        ("assert not f(1) == 2", None),
        ("r = f(1)\nr += 1\nassert r == 2", None),
        ("r = s = f(1)\nassert r == 2", None),
        ("assert 2 == 2", None),
        ("", None),
        ("r = f(1)", None),
    ],
)
def test_fixed_tests_may_state_a_value_in_other_ways(source: str, test: str | None):
    parsed = parse_assert(source, "f")
    assert (None if isinstance(parsed, Rejected) else parsed.text) == test


def test_suites_are_read_as_the_paper_has_them():
    """What pays the Test LLM is no matter of what people write."""
    lines = ("assert f(1)", "assert 2 == f(1)", "assert f(1) is None", "assert not f(1)", "assert f(1) == 2")
    asserts = parse_suite("\n".join(["```python", *lines, "```"]), "f").asserts
    assert [each.test is not None for each in asserts] == [False, False, False, False, True]


def test_an_entry_point_may_be_a_method_of_a_new_object():
    lines = [f"assert {call}(1) == 2" for call in ("Solution().f", "Trial().f", "Solution().g", "A().f", "f")]
    asserts = parse_suite("\n".join(["```python", *lines, "```"]), "Solution().f").asserts
    assert [suggested.test is not None for suggested in asserts] == [True, False, False, False, False]
