"""Coverage measured by our tracer in the sandbox, against the `coverage` library that runs the same itself."""

import math
import textwrap
from pathlib import Path

import coverage
import pytest

from codea1.lab.benchmarks.suite_scores import coverage_of
from codea1.values.verdict import Verdict

CASES = {
    "branches": ("def f(x):\n    if x > 1:\n        y = 1\n    elif x:\n        y = 2\n    return x", "f(2); f(0)"),
    "no else": (
        "def f(x):\n    for i in range(x):\n        if i:\n            break\n    else:\n        x = 9",
        "f(1)",
    ),
    "while": (
        "def f(x):\n    while x:\n        x -= 1\n        if x == 2:\n            continue\n    return (\n        x)",
        "f(4)",
    ),
    "never called": ("X = 1\ndef f(x):\n    if x:\n        return 1\n    return 2", "pass"),
    "raises": (
        "def f(x):\n    try:\n        if x:\n            raise KeyError\n    except KeyError as e:\n        x = 2\n"
        "    finally:\n        x = 3\n    return x",
        "f(0); f(1)",
    ),
    "lets through": (
        "def g(x):\n    if x:\n        raise ValueError\ndef f(x):\n    try:\n        g(x)\n    except ValueError:\n"
        "        return 0",
        "f(1)",
    ),
    "generator": (
        "def g(n):\n    for i in range(n):\n        if i % 2:\n            yield i\n        yield -i\n"
        "def f(n):\n    return [x for x in g(n) if x]",
        "f(3)",
    ),
    "half a generator": ("def f():\n    yield 1\n    if 1 > 2:\n        yield 2", "next(f())"),
    "nested": (
        "def f(x):\n    def h(y):\n        if y:\n            return lambda: y\n        return None\n    return h(x)",
        "f(3)()",
    ),
    "class": ("class A:\n    z = 1\n    def m(self):\n        with open('x') as q:\n            return q", "A()"),
    "with": (
        "import contextlib\ndef f(x):\n    with contextlib.suppress(KeyError):\n        if x:\n"
        "            raise KeyError\n        return 1\n    return 2",
        "f(1)",
    ),
    "match": (
        "def f(x):\n    match x:\n        case 1:\n            return 1\n        case _:\n            return 2",
        "f(1)",
    ),
    "docstring": ('def f(x):\n    """No line."""\n    return x  # pragma: no cover\n', "f(1)"),
    "recursion": ("def f(n):\n    if n < 2:\n        return n\n    return f(n - 1) + f(n - 2)", "f(5)"),
    "comprehension": ("def f(n):\n    return {\n        i: i\n        for i in range(n)\n        if i\n    }", "f(3)"),
}


def by_the_library(program: str, calls: str, path: Path) -> tuple[float, float]:
    path.write_text(program)
    library = coverage.Coverage(data_file=None, branch=True, config_file=False, include=[str(path)])
    namespace: dict = {}
    with library.collect():
        exec(compile(program, str(path), "exec", dont_inherit=True), namespace)
        exec(calls, namespace)
    _, lines, _, missing, _ = library.analysis2(str(path))
    exits = list(library.branch_stats(str(path)).values())
    all_exits = sum(total for total, _ in exits)
    return (
        (len(lines) - len(missing)) / len(lines),
        sum(taken for _, taken in exits) / all_exits if all_exits else math.nan,
    )


@pytest.mark.parametrize("name", CASES)
def test_equals_the_library(pool, tmp_path, name):
    program, calls = CASES[name]
    test = f"def test_it():\n{textwrap.indent(calls.replace('; ', chr(10)), '    ')}"
    run = pool.run_suite(program, [test], module="mod", traced=True, cpu_seconds=5.0).result(60)
    assert run.verdict is Verdict.PASS, run
    (covered,) = coverage_of(program, [run.arcs])
    assert covered == pytest.approx(by_the_library(program, calls, tmp_path / "p.py"), nan_ok=True)


def test_runs_add_up():
    program = "def f(x):\n    if x:\n        return 1\n    return 2"
    loaded, one = {(-1, 1), (1, -1)}, {(-1, 2), (2, 3), (3, -1)}
    other = {(-1, 2), (2, 4), (4, -1)}
    assert coverage_of(program, [set(), loaded, loaded | one, loaded | one | other]) == [
        (0.0, 0.0),
        (0.25, 0.0),
        (0.75, 0.5),
        (1.0, 1.0),
    ]


def test_nothing_to_cover():
    lines, branches = coverage_of("x = 1", [{(-1, 1), (1, -1)}])[0]
    assert lines == 1.0
    assert math.isnan(branches)
