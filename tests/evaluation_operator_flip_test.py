import ast

import pytest

from codea1.evaluation.attempts import FLIPS, flip_one_operator

PROGRAM = "def f(a, b):\n    if a < b:\n        a += 1\n    return a * 2 == b\n"


def operators(program: str) -> list[str]:
    return [
        type(node).__name__
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.operator | ast.cmpop) and type(node) in FLIPS
    ]


@pytest.mark.parametrize("key", [str(n) for n in range(20)])
def test_exactly_one_operator_changes(key):
    before, after = operators(PROGRAM), operators(flip_one_operator(PROGRAM, key))
    assert len(before) == len(after)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_every_place_can_be_chosen():
    assert len({flip_one_operator(PROGRAM, str(n)) for n in range(200)}) >= 5


def test_the_choice_is_a_function_of_program_and_key():
    assert flip_one_operator(PROGRAM, "x") == flip_one_operator(PROGRAM, "x")


def test_a_program_without_operators_has_no_near_miss():
    assert flip_one_operator("def f(a):\n    return sorted(a)\n", "x") is None
