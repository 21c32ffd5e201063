"""Tests that are Python source, in a process with their program."""

import textwrap

import pytest

from codea1.lab.sandbox.benchmarks import BenchmarkPool, TracedRun
from codea1.sandbox.host import Limits
from codea1.values.verdict import Verdict
from tests.sandbox_calls import forging, pool_of

PROGRAM = """
count = 0
def f(x):
    global count
    count += 1
    if x < 0:
        raise ValueError('negative')
    return x + 1
def _hidden(): return 7
class Box: pass
"""


pool = pool_of(BenchmarkPool, Limits())


def run(pool: BenchmarkPool, *tests: str, program: str = PROGRAM, **settings) -> TracedRun:
    settings = {"module": "mod", "cpu_seconds": 1.0, **settings}
    return pool.run_suite(program, [textwrap.dedent(test) for test in tests], **settings).result(60)


@pytest.mark.parametrize(
    "test",
    [
        "assert f(1) == 2",
        "def test_f():\n    assert f(1) == 2",
        "import mod\nfrom mod import f as g\ndef test_f():\n    assert mod.f is g",
        "def test_a(): assert _hidden() == 7\ndef test_b(): assert isinstance(Box(), Box)",
        """
        def test_f():
            try: f(-1)
            except ValueError as error: assert 'negative' in str(error)
            else: assert False
        """,
        """
        import mod
        from unittest.mock import patch
        def test_f():
            with patch('mod.f', lambda x: 9): assert mod.f(1) == 9
        """,
        "import pytest\ndef test_f():\n    with pytest.raises(ValueError, match='negative'): f(-1)",
        "def test_f(): pass",  # it holds, like upstream's
    ],
)
def test_what_passes(pool, test):
    outcome = run(pool, test)
    assert (outcome.verdict, outcome.detail) == (Verdict.PASS, "")


@pytest.mark.parametrize(
    ("test", "verdict", "detail"),
    [
        ("assert f(1) == 3", Verdict.FAIL, "AssertionError"),
        ("def test_f(): assert f(1) == 3, 'no'", Verdict.FAIL, "AssertionError: no"),
        ("def test_f(): f(-1)", Verdict.ERROR, "ValueError: negative"),
        ("assert f(1) ==", Verdict.ERROR, "SyntaxError"),
        ("", Verdict.ERROR, "ValueError: neither a function named test... nor an assert"),
        ("def check(): assert f(1) == 2", Verdict.ERROR, "ValueError: neither"),
        ("def test_f(tmp_path): assert f(1) == 2", Verdict.ERROR, "TypeError"),
        ("async def test_f(): assert f(1) == 3", Verdict.ERROR, "TypeError: test_f is a generator"),
        ("def test_f(): raise SystemExit(0)", Verdict.ERROR, "SystemExit: 0"),
        ("import os\ndef test_f(): os._exit(0)", Verdict.ERROR, "the process exited with status 0"),
        ("def test_f():\n  while True: pass", Verdict.TIMEOUT, "more than 1 CPU seconds"),
        ("import os\ndef test_f(): os.write(3, b'x' * 99)", Verdict.ERROR, "the process broke the protocol"),
        ("def test_f(): open('/etc/passwd')", Verdict.ERROR, ""),
    ],
)
def test_everything_else_does_not(pool, test, verdict, detail):
    outcome = run(pool, test)
    assert outcome.verdict is verdict, outcome
    assert outcome.detail.startswith(detail), outcome


def test_a_program_that_does_not_load(pool):
    outcome = run(pool, "assert True", program="import no_such")
    assert outcome.verdict is Verdict.ERROR
    assert outcome.detail.startswith("the program raised on load: ModuleNotFoundError")


def test_the_first_that_does_not_pass_ends_it(pool):
    assert run(pool, "assert f(1) == 2", "assert f(2) == 2, 'second'", "assert 0, 'third'").detail.endswith("second")


def test_tests_have_namespaces_of_their_own_and_share_the_program(pool):
    first = "import mod\ndef test_f():\n    assert f(1) == 2 and mod.count == 1\nx = 1"
    second = "import mod\ndef test_f():\n    assert f(1) == 2 and mod.count == 2 and 'x' not in globals()"
    assert run(pool, first, second).verdict is Verdict.PASS


def test_imports_are_at_hand(pool):
    source = "def f(x): return math.floor(x)"
    assert run(pool, "assert f(math.pi) == 3", program=source, imports="import math").verdict is Verdict.PASS
    assert run(pool, "assert f(3.1) == 3", program=source).verdict is Verdict.ERROR


def test_arcs_are_those_of_the_program_alone(pool):
    source = "def f(x):\n    if x:\n        return 1\n    return 2"
    test = "def test_f():\n    for x in range(3):\n        assert f(1) == 1"
    assert run(pool, test, program=source).arcs == frozenset()
    assert run(pool, test, program=source, traced=True).arcs == {(-1, 1), (1, -1), (-1, 2), (2, 3), (3, -1)}


@pytest.mark.parametrize(
    "report",
    [
        "('pass', '', [(1, 10**9)])",
        "('infra', '', [])",  # only the trusted side knows
        "('invalid', '', [])",
        "('timeout', '', [])",
        "('pass', {n * (2**61 - 1) for n in range(300)}, [])",  # many more take for ever to hash
        "('pass', {n * (2**61 - 1): 0 for n in range(300)}, [])",
        "('pass', '', {(1, 2)})",
    ],
)
def test_what_no_honest_child_reports_is_refused(pool, report):
    outcome = run(pool, f"{forging(report)}assert False", traced=True)
    assert (outcome.verdict, outcome.detail) == (Verdict.ERROR, "the process broke the protocol")
    assert outcome.arcs == frozenset()


def test_what_a_shared_process_allows(pool):
    """A test can say that it passed, and tell programs apart by their code: known and written down."""
    assert run(pool, forging("('pass', '', [])") + "assert False").verdict is Verdict.PASS
    assert run(pool, "assert len(f.__code__.co_code) > 0").verdict is Verdict.PASS
