"""Mutants against what each operator must make of small programs, and against cosmic-ray's own counts."""

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from codea1.lab.mutants import drawn_mutants, mutants

GOLDEN = Path(__file__).parent / "golden" / "cosmic_ray_mutants.json"


def made(source: str, operator: str = "") -> list[str]:
    """The mutants by operators whose names begin so, each without the spaces at the ends of its lines."""
    return [mutant.source for mutant in mutants(source) if mutant.operator.startswith(operator)]


def test_a_binary_operator_becomes_each_other():
    expected = {f"a {other} b" for other in ["+", "-", "*", "/", "//", "%", "**", "<<", "|", "&", "^"]}
    assert set(made("a >> b")) == expected
    assert len(made("a >> b")) == 11


def test_text_is_changed_and_not_regrouped():
    assert "a << b * c" in made("a + b * c")  # a << (b * c)
    assert "a * b * c" in made("a + b * c")  # (a * b) * c


@pytest.mark.parametrize(
    "source",
    [
        "a += b",
        "f(*a, **b)",
        "def f(*a, **b): pass",
        "lambda *a, **b: a",
        "[*a]",
        "a, *b = c",
        "from a import *",
        "x: int | str | None",
        "a @ b",
        "def f() -> int: pass",
    ],
)
def test_what_is_no_binary_operator(source):
    assert made(source, "ReplaceBinary") == []


@pytest.mark.parametrize(("source", "count"), [("def f(*, a): pass", 11), ("def f(a, /): pass", 11), ("{**a}", 11)])
def test_what_cosmic_ray_takes_for_one(source, count):
    assert len(made(source, "ReplaceBinary")) == count


def test_a_comparison_becomes_each_other():
    assert set(made("a < b")) == {f"a {other} b" for other in ["==", "!=", "<=", ">", ">=", "is"]} | {"a is not b"}
    assert set(made("a is not b")) == {f"a {other} b" for other in ["==", "!=", "<", "<=", ">", ">=", "is"]}


def test_none_and_numbers_are_compared_by_what_suits_them():
    assert made("a == None") == ["a is not None"]
    assert made("a is None") == ["a is not None"]
    assert made("a is not None") == ["a is None"]
    assert made("a < None") == []
    assert len(made("a < 1", "ReplaceComparison")) == 5
    assert len(made("a is 1", "ReplaceComparison")) == 6
    assert len(made("a < (1)", "ReplaceComparison")) == 7  # in brackets it is no number
    assert len(made("a < -1", "ReplaceComparison")) == 7


def test_each_operator_of_a_chain():
    assert len(made("a < b <= c")) == 14
    assert {"a > b <= c", "a < b == c"} <= set(made("a < b <= c"))
    assert made("a in b") == made("a not in b") == []


def test_words_stay_apart():
    assert "a is b" in made("a==b")
    assert "return not x" in [line.strip() for source in made("def f(x):\n    return-x") for line in source.split("\n")]
    assert "def f(x):\n    return x" in made("def f(x):\n    return-x")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("-x", {"+x", "~x", "not x", "x"}),
        ("+x", {"-x", "~x", "not x"}),
        ("~x", {"+x", "-x", "not x", "x"}),
        ("not x", {" x"}),
    ],
)
def test_a_unary_operator(source, expected):
    assert set(made(source)) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if a and b: pass", "if not a and b: pass"),
        ("while(a): pass", "while not(a): pass"),
        ("assert a", "assert not a"),
        ("(a) if (b) else c", "(a) if not (b) else c"),
    ],
)
def test_not_is_added(source, expected):
    assert made(source, "AddNot") == [expected]


def test_not_is_added_nowhere_else():
    assert made("[a for a in b if c]", "AddNot") == []
    assert made("if a: pass\nelif b: pass\nelse: pass", "AddNot") == ["if not a: pass\nelif b: pass\nelse: pass"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = True", ["x = False"]),
        ("x = False", ["x = True"]),
        ("a and b", ["a or b"]),
        ("a or b or c", ["a and b or c", "a or b and c"]),
        ("while a: break", ["while a: continue"]),
        ("while a: continue", ["while a: break"]),
    ],
)
def test_keywords(source, expected):
    assert [each for each in made(source) if "not" not in each] == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1", ["2", "0"]),
        ("0", ["1", "-1"]),
        ("0x10", ["17", "15"]),
        ("4.5", ["5.5", "3.5"]),
        ("2j", ["(1+2j)", "(-1+2j)"]),
    ],
)
def test_a_number_is_one_more_and_one_less(source, expected):
    assert made(f"x = {source}") == [f"x = {value}" for value in expected]


def test_exception_handlers():
    one = "try: f()\nexcept ValueError as e: pass"
    assert made(one) == [one.replace("ValueError", "CosmicRayTestingException")]
    two = "try: f()\nexcept (A, B): pass"
    assert made(two) == [two.replace(name, "CosmicRayTestingException") for name in "AB"]
    assert made("try: f()\nexcept: pass") == []


def test_decorators_go():
    source = "@a\n@b(\n  c)\ndef f(): pass"
    assert made(source) == ["\n@b(\n  c)\ndef f(): pass", "@a\n\ndef f(): pass"]


def test_loops_go_round_nothing():
    assert made("for x in (a): pass") == ["for x in []: pass"]
    assert made("for x, y in f(lambda: a): pass") == ["for x, y in []: pass"]
    assert made("[x for x in a]") == []


def test_inside_an_f_string():
    assert len(made("f'{a + b:.2f} + {c}'", "ReplaceBinary")) == 11
    assert "f'{a[ 2]}'".replace(" ", "") in made("f'{a[1]}'")


def test_places_after_other_alphabets():
    assert "x = 'äöü' - y" in made("x = 'äöü' + y")
    assert [mutant.line for mutant in mutants("\n\nx = a + b")] == [3] * 11


def test_what_does_not_parse_is_said():
    with pytest.raises(SyntaxError):
        mutants("def f(:")


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text()), ids=lambda case: case["name"])
def test_counts_are_those_of_cosmic_ray(case):
    """Stored by `bench/ult.py` of commit 767ef1a, which asks cosmic-ray 8.7.0."""
    counts = Counter(mutant.operator for mutant in mutants(case["source"]))
    assert dict(counts) == case["counts"]


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text()), ids=lambda case: case["name"])
def test_each_mutant_is_another_program(case):
    sources = made(case["source"])
    assert case["source"] not in sources
    parsed = [source for source in sources if _parses(source)]
    assert len(parsed) > 0.6 * len(sources)  # most of those that do not are of `*`, `/` and `**` in odd places
    original = ast.dump(ast.parse(case["source"]))
    assert all(ast.dump(ast.parse(source)) != original for source in parsed)


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


PROGRAM = "def f(a, b):\n    if a < b:\n        a += 1\n    return a * 2 == b\n"


def test_drawn_mutants_parse_differ_and_depend_on_their_key_alone():
    programs = "def f(a, *, b=1):\n    return a * b < 3\n", PROGRAM
    assert any(not _parses(mutant.source) for mutant in mutants(programs[0]))
    for program in programs:
        possible = {mutant.source for mutant in mutants(program) if _parses(mutant.source)}
        drawn = [drawn_mutants(program, 4, str(key)) for key in range(50)]
        assert all(len(set(each)) == 4 and set(each) <= possible for each in drawn)
        assert len(set(drawn)) > 40
        assert drawn == [drawn_mutants(program, 4, str(key)) for key in range(50)]
        assert set(drawn_mutants(program, 1000, "x")) == possible
