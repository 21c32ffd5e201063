"""Verdicts from values: which ground truth answers can be relied on, and how a program's answers compare with them."""

import math
import os
import signal
from concurrent.futures import Future, wait

import pytest

from codea1.game.calls import Call, CallTest
from codea1.sandbox.host import Limits
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.values import decode_exact, encode_exact
from codea1.values.verdict import Verdict
from tests.sandbox_calls import pool_of

LIMITS = Limits(cpu_seconds_per_test=1.0, cpu_seconds_per_suite=3.0)
pool = pool_of(SandboxPool, LIMITS)


@pytest.fixture
def grader(pool):
    return Grader(pool)


def call(*args: object, name: str = "f") -> Call:
    return Call(name, encode_exact((args, {})))


def check(expected: object, *args: object) -> CallTest:
    return CallTest(call(*args), encode_exact(expected))


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f(x): return x", ""),
        ("def f(x): return {1, 'a', x}", ""),
        ("def f(x): return {c: 1 for c in {'a', 'b', 'c', 'd', 'e'}}", ""),
        ("def f(x): return float('inf')", ""),
        ("def f(x): raise ValueError", "raises"),
        ("def g(x): return x", "raises"),
        ("def f(:", "raises"),
        ("import os\ndef f(x): os._exit(0)", "raises"),
        ("def f(x): return (i for i in range(3))", "not plain data"),
        ("def f(x): return 'x' * 10**8", "not plain data"),
        ("class P: pass\ndef f(x): return P()", "not plain data"),
        ("def f(x): return [float('nan')]", "nan"),
        ("def f(x): return list({'a', 'b', 'c', 'd', 'e', 'g'})", "disagrees"),
        ("def f(x): return id([])", "disagrees"),
        ("def f(x): return list({40, 10, x})", "set order"),
        ("def f(x): return list({x, x})", ""),
        ("def f(x): return [n % 10 for n in set(map(abs, [40, 10, 7, x]))]", "set order"),
        ("def f(x): return next(iter(set.union({40}, [x])))", "set order"),
        ("def f(x): return str({40, 10})", "set order"),
        ("def f(x): return max({40, 10} - {x}, key=lambda n: 0)", "set order"),
        ("def f(x): return list({4: 0, 2: 0, x: 0}.keys() - {4})", "set order"),
        ("def f(x): return 'abcdefgh'[max(frozenset([5, 9]), key=lambda n: 0) % 8]", "set order"),
        ("def f(x):\n  s = {40, 10}\n  return s.pop()", "set order"),
        ("def f(x):\n  s = set(range(99999))\n  while s: s.pop()\n  return len(s)", ""),
        ("def f(x): return [isinstance({x}, set), type({x}) == set, str(set()), {x} == {1}, {frozenset({x}): 2}]", ""),
        ("def f(x):\n  match {x}:\n    case set(): return {1: {2, x}, 3: ({4, 5} | {x}).copy()}", ""),
        ("def set(x): return [1, 2]\ndef f(x): return set(x)", ""),
        ("from __future__ import annotations\nimport copy\ndef f(x: set[int]): return copy.deepcopy({3, x})", ""),
        ("import pickle\ndef f(x): return sorted(pickle.loads(pickle.dumps({3, x})))", ""),
        ("import copy\nclass S(set): pass\ndef f(x): return type(copy.deepcopy(S([x]))).__name__", ""),
        ("def f(x):\n  k, l = {4: 0, 2: 0, x: 0}.keys(), {4: 1, 2: 1}\n  return list(k & l)", "set order"),
        ("def f(x):\n  k = {4: 0, 2: 0}.items()\n  return list(k - {x})", "set order"),
        ("def f(x): return hash('a')", "disagrees"),
        ("import random\ndef f(x): return random.random()", "disagrees"),
        ("import time\ndef f(x): return time.time_ns()", "disagrees"),
        ("def f(x):\n  while True: pass", "timeout"),
    ],
)
def test_ground_truth_answers(grader, program, reason):
    (answer,) = grader.ground_truth(program, [call(1)]).result(60)
    assert answer.reason == reason
    assert answer.usable == (reason == "")
    assert bool(answer.value) == answer.usable


@pytest.mark.parametrize(
    ("expression", "members", "reason"),
    [
        ("list(x)", {12, 13, 14, 15, 16}, "set order"),
        ("list(x)", {0, 8}, "set order"),  # collide in a table of eight
        ("max(x, key=lambda n: n % 8)", {0, 8}, "set order"),
        ("next(iter(x[0]))", [frozenset({0, 8})], "set order"),
        ("list(x)", {1, 2, 3}, "set order"),
        ("sorted(x)", {12, 13, 14, 15, 16}, ""),
        ("x", {12, 13, 14, 15, 16}, ""),
    ],
)
def test_answers_that_depend_on_the_order_of_an_arguments_members(grader, expression, members, reason):
    (answer,) = grader.ground_truth(f"def f(x): return {expression}", [call(members)]).result(60)
    assert answer.reason == reason


@pytest.mark.parametrize("count", [2, 5])
def test_answers_that_depend_on_earlier_calls_disagree(grader, count):
    program = "count = 0\ndef f(x):\n  global count\n  count += 1\n  return count"
    answers = grader.ground_truth(program, [call(x) for x in range(count)]).result(60)
    assert {answer.reason for answer in answers} == {"disagrees"}
    raising = program.replace("return", "if x == 0: raise ValueError\n  return")
    first, *others = grader.ground_truth(raising, [call(x) for x in range(count + 1)]).result(60)
    assert (first.reason, {answer.reason for answer in others}) == ("raises", {"disagrees"})


def test_a_cache_is_no_dependence(grader):
    program = "import functools\n@functools.lru_cache\ndef f(x): return x * 2"
    answers = grader.ground_truth(program, [call(x) for x in (1, 2, 1)]).result(60)
    assert [decode_exact(answer.value) for answer in answers] == [2, 4, 2]


def test_ground_truth_hangs_starve_no_other_call():
    program = "def f(x):\n  while x: pass\n  return x"
    with SandboxPool(1, Limits(cpu_seconds_per_test=0.3, cpu_seconds_per_suite=0.8), isolation="auto") as pool:
        answers = Grader(pool).ground_truth(program, [call(x) for x in (1, 2, 3, 4, 5, 0)]).result(120)
    assert [answer.reason for answer in answers] == ["timeout"] * 5 + [""]


def test_ground_truth_is_remembered_per_call(grader):
    program = "def f(x): return x + 1"
    first = grader.ground_truth(program, [call(1), call(2)]).result(60)
    gradings = grader.take_stats()["gradings"]
    assert gradings >= 2
    again = grader.ground_truth(program, [call(2), call(1)]).result(60)
    assert again == first[::-1]
    assert grader.take_stats()["gradings"] == 0
    assert grader.ground_truth(program, []).result(60) == []


PAIRS = [
    # returned, expected, verdict
    ("4", 4, Verdict.PASS),
    ("4.0", 4, Verdict.PASS),
    ("True", 1, Verdict.PASS),
    ("-0.0", 0.0, Verdict.PASS),
    ("(1, [2.0])", (1, [2]), Verdict.PASS),
    ("{1, 2}", frozenset([2, 1]), Verdict.PASS),
    ("{'b': 1, 'a': 2}", {"a": 2, "b": 1}, Verdict.PASS),
    ("__import__('collections').OrderedDict(a=1)", {"a": 1}, Verdict.PASS),
    ("__import__('collections').namedtuple('P', 'x y')(1, 2)", (1, 2), Verdict.PASS),
    ("10 ** 5000", 10**5000, Verdict.PASS),
    ("'4'", 4, Verdict.FAIL),
    ("[1, 2]", (1, 2), Verdict.FAIL),
    ("0.1 + 0.2", 0.3, Verdict.FAIL),
    ("None", 0, Verdict.FAIL),
    ("float('nan')", 1.0, Verdict.FAIL),
    ("f", 1, Verdict.FAIL),
    ("1 / 0", 1, Verdict.ERROR),
    ("exit()", 1, Verdict.ERROR),
]


@pytest.mark.parametrize(("returned", "expected", "verdict"), PAIRS, ids=[returned for returned, _, _ in PAIRS])
def test_comparison_is_equality_of_plain_data(grader, returned, expected, verdict):
    grading = grader.grade(f"def f(): return {returned}", [check(expected)]).result(60)
    assert grading.verdicts == [verdict]
    assert grading.program_valid is True


def test_no_answer_equals_nan_or_nonsense(grader):
    tests = [check(math.nan), check([math.nan]), CallTest(call(), b"nonsense"), check(1)]
    grading = grader.grade("def f(): return 1", tests).result(60)
    assert grading.verdicts == ["invalid", "invalid", "invalid", "pass"]


@pytest.mark.parametrize(
    ("program", "valid"),
    [
        ("", True),
        ("def f(): raise ValueError", True),
        ("def f(:", False),
        ("raise ValueError", False),
        ("exit()", False),
    ],
)
def test_validity_of_programs_even_without_tests(grader, program, valid):
    assert grader.grade(program, []).result(60).program_valid is valid


def test_gradings_are_remembered_by_program_and_tests(grader):
    program = "def f(x): return x"
    tests = [check(1, 1), check(2, 2)]
    grader.take_stats()
    first = grader.grade(program, tests)
    assert grader.grade(program, tests).result(60) is first.result(60) is grader.grade(program, tests).result(60)
    assert grader.take_stats()["gradings"] == 1
    grader.grade(program, tests[:1]).result(60)
    grader.grade(program, [check(1, True)]).result(60)
    stats = grader.take_stats()
    assert (stats["gradings"], stats["grading_hits"], stats["grading_misses"]) == (2, 0, 2)


def test_time_limit_follows_the_ground_truth(grader):
    truth = "def f(x): return x"
    burn = (
        "import time\ndef f(x):\n  end = time.process_time() + 0.85\n"
        "  while time.process_time() < end: pass\n  return x"
    )
    grader.ground_truth(truth, [call(6)]).result(60)
    assert grader.grade(burn, [check(6, 6)]).result(60).verdicts == ["pass"]  # within the limit per test
    assert grader.grade(burn, [check(6, 6)], "", truth).result(60).verdicts == ["timeout"]  # ten times the truth's time
    assert grader.grade(burn.replace("0.85", "0.2"), [check(6, 6)], "", truth).result(60).verdicts == ["pass"]
    wrong = [check(6, 6), check(7, 6)]  # a wrong answer to the call gives it no more time
    assert grader.grade(burn, wrong, "", truth).result(60).verdicts == ["timeout", "timeout"]


def test_infrastructure_failures_are_not_remembered():
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        grader = Grader(pool)

        def kill_until(future: Future) -> None:
            while not wait([future], timeout=0.3).done:
                for zygote in list(pool._dispatcher._zygotes.values()):
                    os.kill(zygote._process.pid, signal.SIGKILL)

        program = "import time\ntime.sleep(3)\ndef f(x): return x"
        future = grader.grade(program, [check(1, 1)])
        kill_until(future)
        assert future.result().program_valid is None
        assert future.result().verdicts == ["infra"]
        answers = grader.ground_truth(program, [call(1)])
        kill_until(answers)
        assert answers.result()[0].reason == "infra"
        assert grader.grade(program, [check(1, 1)]).result(60).verdicts == ["pass"]
        assert grader.ground_truth(program, [call(1)]).result(60)[0].usable


def test_a_closed_pool_fails_futures_instead_of_leaving_them_waiting():
    pool = SandboxPool(1, LIMITS, isolation="auto")
    grader = Grader(pool)
    pool.close()
    for future in (grader.grade("", []), grader.ground_truth("", [call()]), grader.check("", "", "f")):
        assert isinstance(future.exception(5), RuntimeError)


CLAIM = """
import os, struct
def length(n): return n.to_bytes(4, 'big')
def number(n):
    data = n.to_bytes(n.bit_length() // 8 + 1, 'big', signed=True)
    return b'i' + length(len(data)) + data
def f(x):
    payload = {payload}
    view = memoryview(struct.pack('>IIc', len(payload), 0, b'V') + payload)
    while view: view = view[os.write(3, view):]
    os._exit(0)
"""


@pytest.mark.parametrize(
    "payload",
    [
        "b'q' + b't' + length(2) + number(1 << 70000) + number(1)",
        "b'e' + b's' + length(9) + b'1E+999999'",
        "number(1 << 5_000_000)",
        "(b'l' + length(1)) * 64 + b'l' + length(0)",
        "b'S' + length(2) + number(1) + number(1)",
        "b'd' + length(2) + (number(1) + b'N') * 2",
    ],
    ids=["ratio", "decimal", "int", "depth", "set", "dict"],
)
def test_a_ground_truths_claim_is_no_answer_and_no_failure(grader, payload):
    (answer,) = grader.ground_truth(CLAIM.format(payload=payload), [call(1)]).result(60)
    assert (answer.usable, answer.reason, answer.value) == (False, "not plain data", b"")


@pytest.mark.parametrize("tag", ["b'S'", "b'd'"])
def test_a_set_of_a_ground_truth_is_compared_member_by_member(grader, tag):
    """Its members have equal hashes: to build it would take time quadratic in them, for all gradings."""
    item = "number(n * (2**61 - 1))" + " + b'N'" * (tag == "b'd'")
    payload = f"{tag} + length(30000) + b''.join({item} for n in range(1, 30001))"
    (answer,) = grader.ground_truth(CLAIM.format(payload=payload), [call(1)]).result(60)
    assert answer.usable
    tests = [CallTest(call(1), answer.value), check(4, 2)]
    assert grader.grade("def f(x): return 4", tests).result(60).verdicts == ["fail", "pass"]
