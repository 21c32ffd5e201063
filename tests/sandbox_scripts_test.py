"""Check scripts: the script and the program in two processes, with plain data and exceptions between them."""

import textwrap

import pytest

from codea1.data.loader import load_questions
from codea1.game.question import Question
from codea1.sandbox.host import Limits, ScriptRun
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.values.verdict import Verdict
from tests.conftest import SHARED
from tests.sandbox_calls import forging, pool_of

PARQUET = SHARED / "data" / "humanevalplus_mbppplus.parquet"


LIMITS = Limits(cpu_seconds_per_script=1.0, memory_bytes=256 << 20, script_memory_bytes=512 << 20)
pool = pool_of(SandboxPool, LIMITS)


def judge(pool: SandboxPool, script: str, program: str, entry_point: str = "f") -> ScriptRun:
    return pool.run_script(textwrap.dedent(script), textwrap.dedent(program), entry_point).result(60)


IDENTITY = "def f(x): return x"
CALLS = "def check(candidate): candidate(1)"
ENDS = "import os\ndef f(x): os._exit({})"
NO_FRAMES = "import os\ndef f(x): os.write(3, b'\\0' * 99)"
NO_VALUE = "import os, struct\ndef f(x): os.write(3, struct.pack('>IIc', 3, 0, b'V') + b'???')"
STOPS = "def f(x): raise StopIteration"
ZIPPED = "def check(candidate):\n  for out, x in zip(map(candidate, [1, 2]), [1, 2]): assert out == x"
MAPPED = "def check(candidate): assert all(map(lambda x: candidate(x) == x, [1, 2]))"
FORGIVING = "def check(candidate):\n  try: candidate(1)\n  except BaseException: pass"
FORGIVING_EACH = """
def check(candidate):
    for x in range(3):
        try: ok = candidate(x) == x
        except: ok = None
        assert ok is not False
"""
OVER_ASYNC = """
import asyncio
def check(candidate):
    async def run():
        async for x in A(): assert x
    class A:
        def __aiter__(s): return s
        async def __anext__(s): return candidate(1)
    asyncio.run(run())
"""


def test_values_keep_their_types_both_ways(pool):
    script = """
        import math
        def check(candidate):
            for value in [1, True, 1.0, None, 'é', b'x', [1, (2,)], {1: {2}}, frozenset(), range(3), 1j, math.inf]:
                result = candidate(value)
                assert result == value and type(result) is type(value)
            result = candidate([True, 2.5])
            assert type(result[0]) is bool
            assert candidate(x=3) == 3
    """
    assert judge(pool, script, IDENTITY).verdict is Verdict.PASS


def test_a_value_that_is_not_plain_data_is_inert(pool):
    script = """
        def check(candidate):
            result = candidate()
            assert result is not None and result
            assert result != 1 and not result == result and not result == [] and 1 != result
            assert 're.Match' in repr(result)
    """
    assert judge(pool, script, "import re\ndef f(): return re.match('a', 'a')").verdict is Verdict.PASS


def test_an_exception_of_the_program_surfaces_in_the_script(pool):
    script = """
        def check(candidate):
            for kind in ['ValueError', 'KeyError', 'Mine', 'UnicodeDecodeError', 'RecursionError', 'JSONDecodeError']:
                try:
                    candidate(kind)
                except ValueError:
                    assert kind in ('ValueError', 'JSONDecodeError')
                except KeyError:
                    assert kind == 'KeyError'
                except RecursionError:
                    assert kind == 'RecursionError'
                except Exception as error:
                    assert kind in ('Mine', 'UnicodeDecodeError'), error
                else:
                    assert False
    """
    program = """
        import json
        class Mine(Exception): pass
        def f(kind):
            if kind == 'RecursionError': return f(kind)
            if kind == 'JSONDecodeError': return json.loads('-')
            if kind == 'UnicodeDecodeError': return b'\\xff'.decode()
            raise {'ValueError': ValueError, 'KeyError': KeyError, 'Mine': Mine}[kind]('words')
    """
    run = judge(pool, script, program)
    assert run.verdict is Verdict.PASS, run


@pytest.mark.parametrize(
    ("script", "program", "detail"),
    [
        (CALLS, "def f(x): raise ValueError('no')", "candidate raised ValueError: no"),
        (CALLS, "def f(x): assert False", "candidate raised AssertionError"),
        (CALLS, "def f(x): raise SystemExit", "candidate raised SystemExit"),
        (CALLS, "x = 1", "candidate raised NameError: name 'f' is not defined"),
        (CALLS, "def f(:", "candidate raised on load: SyntaxError"),
        (CALLS, ENDS.format(3), "candidate exited with status 3"),
        (CALLS, "import os\ndef f(x): os.close(3)", "candidate "),
        ("def check(candidate): print(*candidate(1))", IDENTITY, "script raised TypeError"),
        ("def check(candidate): candidate(object())", IDENTITY, "script raised NotPlainData: builtins.object"),
        ("def check(candidate): raise SystemExit", IDENTITY, "script raised SystemExit"),
        ("def other(candidate): pass", IDENTITY, "script raised KeyError: 'check'"),
        ("1 / 0", IDENTITY, "script raised ZeroDivisionError"),
        ("def check(:", IDENTITY, "script raised SyntaxError"),
        ("import os\ndef check(candidate): os._exit(0)", IDENTITY, "script exited with status 0"),
        ("import os\nos.write(3, b'\\0\\0\\0\\1' + b'\\0' * 99)", IDENTITY, "script broke the protocol"),
        ("import os\nos.write(3, b'x' * 99999)", IDENTITY, "script broke the protocol"),
        (CALLS, NO_FRAMES, "candidate broke the protocol"),
        (CALLS, NO_VALUE, "candidate broke the protocol"),
        # No exception of a program ends a script early.
        (ZIPPED, STOPS, "candidate raised StopIteration"),
        (MAPPED, f"{STOPS}('done')", "candidate raised StopIteration: done"),
        (OVER_ASYNC, "def f(x): raise StopAsyncIteration", "candidate raised StopAsyncIteration"),
        (FORGIVING_EACH, ENDS.format(0), "candidate exited with status 0"),
        (FORGIVING, NO_FRAMES, "candidate broke the protocol"),
    ],
)
def test_errors_tell_whose_they_are(pool, script, program, detail):
    run = judge(pool, script, program)
    assert run.verdict is Verdict.ERROR
    assert run.detail.startswith(detail), run


@pytest.mark.parametrize(
    ("script", "program"),
    [
        (CALLS, "def f(x):\n  while True: pass"),
        (CALLS, "while True: pass"),
        ("def check(candidate):\n  while True: pass", IDENTITY),
        ("def check(candidate):\n  while True: candidate(1)", IDENTITY),
    ],
)
def test_the_two_processes_share_one_time_limit(pool, script, program):
    run = judge(pool, script, program)
    assert run.verdict is Verdict.TIMEOUT
    assert 0.7 < run.cpu_seconds < 2


def test_the_program_cannot_see_the_script(pool):
    secret = "the secret answer 8231"
    script = f"def check(candidate):\n  answer = '{secret}'\n  assert candidate() == answer"
    program = """
        import gc, sys
        def f():
            frame = sys._getframe()
            while frame:
                for text in (repr(frame.f_locals), repr(frame.f_globals)):
                    if 'the secret' + ' answer' in text: return text
                frame = frame.f_back
            return 'answer' if any('secret' + ' answer 8' in repr(x) for x in gc.get_objects()) else sorted(sys.modules)
    """
    run = judge(pool, script, program)
    assert run.verdict is Verdict.FAIL, run
    assert "check_script" not in judge(pool, "def check(c): assert not c(), c()", program).detail


def test_always_equal_objects_and_patched_builtins_stay_on_their_side(pool):
    program = """
        import builtins
        class Equal:
            def __eq__(self, other): return True
        builtins.AssertionError = builtins.isinstance = None
        def f(x): return Equal()
    """
    assert judge(pool, "def check(candidate): assert candidate(1) == 2", program).verdict is Verdict.FAIL


def test_how_a_script_names_the_function(pool):
    for name in ("candidate", "check"):
        script = f"def check({name}): assert {name}(2) == 4"
        assert judge(pool, script, "def check(x): return x * x", "check").verdict is Verdict.PASS
    assert judge(pool, "def check(helper): assert f(1) == 1", IDENTITY).verdict is Verdict.PASS


def test_a_script_that_calls_other_functions_of_the_program(pool):
    program = "def f(x): return x + 1\n\ndef inverse(x): return x - 1\n\ndef twice(x): return 2 * x"
    script = """
        def twice(x): return 3 * x
        def check(candidate):
            assert candidate(inverse(3)) == 3 and inverse(x=candidate(3)) == 3
            assert twice(1) == 3
    """
    assert judge(pool, script, program).verdict is Verdict.PASS
    behind = Question("q", None, "", "", program, "f", preamble="from typing import *").module(program)
    assert judge(pool, script, behind).verdict is Verdict.PASS
    run = judge(pool, "def check(candidate): assert inverse(candidate(3)) == 3", IDENTITY)
    assert (run.verdict, run.detail) == (Verdict.ERROR, "script raised NameError: name 'inverse' is not defined")


def test_a_program_takes_no_name_from_a_script_that_is_not_its_own(pool):
    program = """
        def f(x): return 0
        def len(x): return 0
        def sorted(x): return 0
        def isclose(a, b): return True
        def check(candidate): pass
    """
    script = """
        from math import isclose
        def check(candidate):
            assert len([1]) == 1 and sorted([2, 1]) == [1, 2] and not isclose(1, 2)
            assert candidate(1) == 1
    """
    run = judge(pool, script, program)
    assert (run.verdict, run.detail) == (Verdict.FAIL, "AssertionError")


@pytest.mark.parametrize(
    ("expected", "verdict"),
    [
        ("[(i % 7, x) for i in range(n)]", Verdict.PASS),
        ("[(i % 7 * 1.0, x) for i in range(n)]", Verdict.PASS),
        ("[(i % 7, x) for i in range(n - 1)] + [(8, x)]", Verdict.FAIL),
        ("[(i % 7, x) for i in range(n - 1)]", Verdict.FAIL),
        ("tuple((i % 7, x) for i in range(n))", Verdict.FAIL),
        ("None", Verdict.FAIL),
    ],
)
def test_answers_too_large_to_send_are_compared_in_pieces(pool, expected, verdict):
    program = "x = 'x' * 1000\ndef f(n): return [(i % 7, x) for i in range(n)]"
    script = f"""
        def check(candidate):
            n, x = 17_000, 'x' * 1000
            out = candidate(n)
            assert len(out) == n
            expected = {expected}
            assert not out != expected
            assert out == expected
    """
    run = judge(pool, script, program)
    assert run.verdict is verdict, run


def test_checks_are_remembered(pool):
    grader = Grader(pool)
    script = "def check(candidate): assert candidate(1) == 1"
    runs = [grader.check(IDENTITY, script, "f") for _ in range(3)]  # the first may end before the others are asked for
    assert {run.result(60).verdict for run in runs} == {Verdict.PASS}
    stats = grader.take_stats()
    assert (stats["check_misses"], stats["check_hits"]) == (1, 2)


@pytest.mark.skipif(not PARQUET.exists(), reason="the validation parquet is not here")
def test_ground_truths_of_the_benchmarks_pass_their_own_scripts():
    questions = {question.id: question for question in load_questions(str(PARQUET))}
    tricky = ["HumanEval/32", "MBPP/123", "MBPP/301", "MBPP/592", "MBPP/751", "MBPP/797"]
    chosen = tricky + [id for id in list(questions)[::40] if id not in tricky]
    with SandboxPool(isolation="auto") as pool:
        grader = Grader(pool)
        futures = {
            id: grader.check(questions[id].ground_truth, questions[id].check_script, questions[id].entry_point)
            for id in chosen
        }
        runs = {id: future.result(300) for id, future in futures.items()}
    assert len(runs) >= 12
    broken = runs.pop("HumanEval/32")
    assert broken.verdict is Verdict.ERROR
    assert broken.detail.startswith("script raised TypeError")
    assert {id: run for id, run in runs.items() if run.verdict is not Verdict.PASS} == {}


@pytest.mark.parametrize("verdict", ["infra", "invalid", "not_run", "timeout", "nonsense"])
def test_a_script_says_no_more_than_it_can_know(pool, verdict):
    run = judge(pool, forging(f"({verdict!r}, 'x' * 9)") + "import time; time.sleep(9)", IDENTITY)
    assert (run.verdict, run.detail) == (Verdict.ERROR, "script broke the protocol")
