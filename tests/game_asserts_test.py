"""Statements out of lines, and the fixed tests of a question."""

import dataclasses

import pytest

from codea1.game.asserts import golden_tests, split_statements
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
