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


def each_of(form: str, *words: str) -> list[str]:
    return [form.format(word) for word in words]


TWO_HANDLERS = "try: f()\nexcept (A, B): pass"
IF_ELIF = "if a: pass\nelif b: pass\nelse: pass"
DECORATED = "@a\n@b(\n  c)\ndef f(): pass"
NONE_BINARY = "a += b;f(*a, **b);lambda *a, **b: a;[*a];a, *b = c;from a import *;x: int | str | None;a @ b"
MADE = [  # a source, how the names of operators begin, and all their mutants
    ("a >> b", "", each_of("a {} b", "+", "-", "*", "/", "//", "%", "**", "<<", "|", "&", "^")),
    ("a < b", "", each_of("a {} b", "==", "!=", "<=", ">", ">=", "is", "is not")),
    ("a is not b", "", each_of("a {} b", "==", "!=", "<", "<=", ">", ">=", "is")),
    *((source, "ReplaceBinary", []) for source in NONE_BINARY.split(";")),
    *((source, "ReplaceBinary", []) for source in ("def f(*a, **b): pass", "def f() -> int: pass")),
    # None and numbers are compared by what suits them.
    ("a == None", "", ["a is not None"]),
    ("a is None", "", ["a is not None"]),
    ("a is not None", "", ["a is None"]),
    ("a < None", "", []),
    ("a in b", "", []),
    ("a not in b", "", []),
    ("-x", "", ["+x", "~x", "not x", "x"]),
    ("+x", "", ["-x", "~x", "not x"]),
    ("~x", "", ["+x", "-x", "not x", "x"]),
    ("not x", "", [" x"]),
    ("if a and b: pass", "AddNot", ["if not a and b: pass"]),
    ("while(a): pass", "AddNot", ["while not(a): pass"]),
    ("assert a", "AddNot", ["assert not a"]),
    ("(a) if (b) else c", "AddNot", ["(a) if not (b) else c"]),
    ("[a for a in b if c]", "AddNot", []),
    (IF_ELIF, "AddNot", ["if not a: pass\nelif b: pass\nelse: pass"]),
    ("x = True", "", ["x = False"]),
    ("x = False", "", ["x = True"]),
    ("a and b", "", ["a or b"]),
    ("a or b or c", "", ["a and b or c", "a or b and c"]),
    ("while a: break", "ReplaceBreak", ["while a: continue"]),
    ("while a: continue", "ReplaceContinue", ["while a: break"]),
    # A number is one more and one less.
    *(
        (f"x = {number}", "", [f"x = {more}", f"x = {less}"])
        for number, more, less in (
            ("1", "2", "0"),
            ("0", "1", "-1"),
            ("0x10", "17", "15"),
            ("4.5", "5.5", "3.5"),
            ("2j", "(1+2j)", "(-1+2j)"),
        )
    ),
    ("try: f()\nexcept E as e: pass", "", ["try: f()\nexcept CosmicRayTestingException as e: pass"]),
    (TWO_HANDLERS, "", [TWO_HANDLERS.replace(name, "CosmicRayTestingException") for name in "AB"]),
    ("try: f()\nexcept: pass", "", []),
    (DECORATED, "", ["\n@b(\n  c)\ndef f(): pass", "@a\n\ndef f(): pass"]),
    ("for x in (a): pass", "", ["for x in []: pass"]),
    ("for x, y in f(lambda: a): pass", "", ["for x, y in []: pass"]),
    ("[x for x in a]", "", []),
]
COUNTS = [
    # What cosmic-ray takes for a binary operator.
    *((source, "ReplaceBinary", 11) for source in ("def f(*, a): pass", "def f(a, /): pass", "{**a}")),
    ("f'{a + b:.2f} + {c}'", "ReplaceBinary", 11),
    ("a < 1", "ReplaceComparison", 5),
    ("a is 1", "ReplaceComparison", 6),
    ("a < (1)", "ReplaceComparison", 7),  # in brackets it is no number
    ("a < -1", "ReplaceComparison", 7),
    ("a < b <= c", "", 14),
]
AMONG = [
    ("a + b * c", {"a << b * c", "a * b * c"}),  # text is changed and not regrouped
    ("a < b <= c", {"a > b <= c", "a < b == c"}),
    ("a==b", {"a is b"}),  # words stay apart
    ("def f(x):\n    return-x", {"def f(x):\n    return not x", "def f(x):\n    return x"}),
    ("f'{a[1]}'", {"f'{a[2]}'"}),
    ("x = 'äöü' + y", {"x = 'äöü' - y"}),
]


@pytest.mark.parametrize(("source", "operator", "expected"), MADE)
def test_the_mutants_of_an_operator(source, operator, expected):
    assert sorted(made(source, operator)) == sorted(expected)


@pytest.mark.parametrize(("source", "operator", "count"), COUNTS)
def test_how_many_mutants_an_operator_makes(source, operator, count):
    assert len(made(source, operator)) == count


@pytest.mark.parametrize(("source", "expected"), AMONG)
def test_what_is_among_the_mutants(source, expected):
    assert expected <= {mutant.replace("[ ", "[") for mutant in made(source)}


def test_a_mutant_has_the_line_of_its_change():
    assert [mutant.line for mutant in mutants("\n\nx = a + b")] == [3] * 11


def test_what_does_not_parse_is_said():
    with pytest.raises(SyntaxError):
        mutants("def f(:")


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text()), ids=lambda case: case["name"])
def test_counts_are_those_of_cosmic_ray_and_each_mutant_is_another_program(case):
    """Stored by `bench/ult.py` of commit 767ef1a, which asks cosmic-ray 8.7.0."""
    counts = Counter(mutant.operator for mutant in mutants(case["source"]))
    assert dict(counts) == case["counts"]
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
