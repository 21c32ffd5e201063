"""unittest classes that share a process with the program: every required test must be reported as passed."""

import textwrap

import pytest

from codea1.lab.sandbox.benchmarks import BenchmarkPool, required_tests
from codea1.sandbox.host import Limits, ScriptRun
from codea1.values.verdict import Verdict
from tests.sandbox_calls import forging, pool_of

pool = pool_of(BenchmarkPool, Limits(cpu_seconds_per_script=1.0, script_memory_bytes=512 << 20))


TESTS = """
    import unittest
    from unittest.mock import patch
    class TestCases(unittest.TestCase):
        def setUp(self): self.three = 3
        def test_value(self): self.assertEqual(f(self.three), 4)
        def test_object(self): self.assertIsInstance(f(1.5), float)
        def test_patched(self):
            with patch('builtins.abs', return_value=9): self.assertEqual(f(-1), 0)
        def test_parts(self):
            for x in range(3):
                with self.subTest(x=x): self.assertEqual(f(x), x + 1)
    class Other(unittest.TestCase):
        def test_not_asked_for(self): self.fail()
"""
RIGHT = "def f(x): return x + 1"
NAMES = "NAMES = ['test_object', 'test_parts', 'test_patched', 'test_value']\n"
OTHERS_RAN = "the tests that ran are not those"
FEWER_NAMES = """
import unittest
unittest.TestLoader.getTestCaseNames = lambda *a: ['test_value']
def f(x): return 4
"""


def judge(pool: BenchmarkPool, program: str, tests: str = TESTS) -> ScriptRun:
    return pool.run_unittest(textwrap.dedent(program), textwrap.dedent(tests)).result(60)


@pytest.mark.parametrize(
    ("program", "verdict", "detail"),
    [
        (RIGHT, Verdict.PASS, ""),
        ("def f(x): return x", Verdict.FAIL, "test_"),
        ("def f(x): return x + 1 if x != 2 else 0", Verdict.FAIL, "test_parts: AssertionError: 0 != 3"),
        ("def f(x): return x + 1 if x == x // 1 else None", Verdict.FAIL, "test_object: AssertionError: None is not"),
        ("def f(x): raise KeyError(x)", Verdict.ERROR, "test_"),
        ("def f(", Verdict.ERROR, "raised on load: SyntaxError"),
        ("import no_such", Verdict.ERROR, "raised on load: ModuleNotFoundError"),
        ("import os\ndef f(x): os._exit(0)", Verdict.ERROR, "the process exited with status 0"),
        ("def f(x): raise SystemExit(0)", Verdict.ERROR, "test_"),
        ("def f(x):\n  while True: pass", Verdict.TIMEOUT, "more than 1 CPU seconds"),
        ("import unittest\ndef f(x): raise unittest.SkipTest('x')", Verdict.FAIL, "test_object: skipped: x"),
        ("import unittest\nunittest.TestCase.run = lambda *a: None", Verdict.ERROR, OTHERS_RAN),
        ("import unittest\nunittest.TestSuite.run = lambda *a: None", Verdict.ERROR, OTHERS_RAN),
        (FEWER_NAMES, Verdict.ERROR, OTHERS_RAN),
        ("import os\nos.write(3, b'x' * 99)", Verdict.ERROR, "the process broke the protocol"),
        ("import os\nos.close(3)\ndef f(x): return x + 1", Verdict.ERROR, ""),
    ],
)
def test_a_program_passes_where_every_test_does(pool, program, verdict, detail):
    run = judge(pool, program)
    assert run.verdict is verdict, run
    assert run.detail.startswith(detail), run


@pytest.mark.parametrize(
    "report",
    [
        "('', {name: ('passed', '') for name in NAMES})",  # of which a large one takes for ever to hash
        "('', {n * (2**61 - 1): ('passed', '') for n in range(300)})",
        "({n * (2**61 - 1) for n in range(300)}, ())",
        "('', 1)",
        "('', [(name, 'passed') for name in NAMES])",
    ],
)
def test_reports_that_no_honest_child_writes_are_refused(pool, report):
    run = judge(pool, NAMES + forging(report))
    assert (run.verdict, run.detail) == (Verdict.ERROR, "the process broke the protocol")


def test_what_a_shared_process_allows(pool):
    """A program that writes a report of passes itself has them: known and written down."""
    assert judge(pool, NAMES + forging("('', [(name, 'passed', '') for name in NAMES])")).verdict is Verdict.PASS


def test_a_set_up_that_fails(pool):
    tests = """
        import unittest
        class TestCases(unittest.TestCase):
            @classmethod
            def setUpClass(cls): raise OSError('no')
            def test_it(self): pass
    """
    assert judge(pool, RIGHT, tests).verdict is Verdict.ERROR


@pytest.mark.parametrize(
    "tests", ["x = 1", "class TestCases: pass", "class TestCases(", "class T:\n  def test(self): 0"]
)
def test_tests_that_are_none_are_refused(pool, tests):
    with pytest.raises((ValueError, SyntaxError)):
        pool.run_unittest(RIGHT, tests)


def test_required_tests():
    tests = "class TestCases:\n  x = 1\n  def test_b(self): 0\n  async def test_a(self): 0\n  def helper(self): 0"
    assert required_tests(tests) == ["test_a", "test_b"]
