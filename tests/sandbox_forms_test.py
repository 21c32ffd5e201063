"""Tests in each form, against programs that the written test would accept or reject."""

from types import SimpleNamespace

import numpy as np
import pytest

from codea1.game.answers import parse_suite
from codea1.game.asserts import Mark, Rejected, parse_assert
from codea1.game.grading import Judge, grade_suites
from codea1.game.question import Question, read_signature
from codea1.game.rewards import REWARDS
from codea1.runtime.futures import start
from codea1.sandbox.host import Limits
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.values import encode_canonical, encode_exact
from codea1.values.entry_points import agree, is_raised, raises_on_purpose, same_answer
from codea1.values.verdict import Verdict


@pytest.fixture(scope="module")
def grader():
    with SandboxPool(2, Limits(cpu_seconds_per_test=1.0, cpu_seconds_per_suite=3.0), isolation="auto") as pool:
        yield Grader(pool)


GUARDED = "if n < 0: raise ValueError('negative')\n  return n"
VERDICTS = [  # test, body of the ground truth, of a program, and the verdict on it
    ("assert list(f(2)) == [0, 1]", "yield from range(n)", "return range(n)", "pass"),
    ("assert list(f(2)) == [0, 1]", "yield from range(n)", "return (0, 1)", "pass"),
    ("assert list(f(2)) == [0, 1]", "yield from range(n)", "return [1, 0]", "fail"),
    ("assert list(f(2)) == [0, 1]", "yield from range(n)", "return n", "error"),
    ("assert tuple(f(2)) == (0, 1)", "return [0, 1]", "return [0, 1]", "pass"),
    ("assert set(f(2)) == {0, 1}", "return [0, 1]", "return [1, 0, 0]", "pass"),
    ("assert set(f(2)) == {0, 1}", "return [0, 1]", "return [0, 1, 2]", "fail"),
    ("assert set(f(2)) == {0, 1}", "return [0, 1]", "return [[0], [1]]", "error"),
    ("assert sorted(f(2)) == [0, 1]", "return [0, 1]", "return {1, 0}", "pass"),
    ("assert sorted(f(2)) == [0, 1]", "return [0, 1]", "return [0, 1, 1]", "fail"),
    ("assert round(f(3), 2) == 0.33", "return 1 / n", "return 0.3301", "pass"),
    ("assert round(f(3), 2) == 0.33", "return 1 / n", "return 0.34", "fail"),
    ("assert abs(f(3) - 0.3333333) < 1e-6", "return 1 / n", "return 0.33333300", "pass"),
    ("assert abs(f(3) - 0.3333333) < 1e-6", "return 1 / n", "return 0.3334", "fail"),
    ("assert abs(f(3) - 0.3333333) < 1e-6", "return 1 / n", "return [1 / n]", "fail"),
    ("assert abs(f(3) - 0.3333333) < 1e-6", "return 1 / n", "return float('nan')", "fail"),
    ("assert abs(f(3) - 0.3333333) < 1e-6", "return 1 / n", "return 10 ** 400", "fail"),
    (
        "assert abs(f(3) - 0.3333333) < 1e-6",
        "return 1 / n",
        "from fractions import Fraction as F; return F(1, n)",
        "pass",
    ),
    ("assert f(1)", "return [n]", "return True", "pass"),
    ("assert f(1)", "return [n]", "return []", "fail"),
    ("assert not f(1)", "return []", "return None", "pass"),
    ("assert f(1) is True", "return True", "return n == 1", "pass"),
    ("assert f(1) is True", "return True", "return 1", "fail"),
    ("assert f(1) is False", "return False", "return None", "fail"),
    ("assert f(1) == True", "return True", "return 1.0", "pass"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "raise ValueError", "pass"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "return int('x')", "pass"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "raise UnicodeError", "pass"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "import json; json.loads('-')", "pass"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "class Mine(ValueError): pass\n  raise Mine('a: (b)')", "pass"),
    ("with pytest.raises(Exception): f(-1)", GUARDED, "class Mine(Exception): pass\n  raise Mine", "pass"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "class Mine(KeyError): pass\n  raise Mine", "error"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "class All(KeyError, ValueError): pass\n  raise All", "error"),
    (
        "with pytest.raises(Mine): f(-1)",
        "class Mine(Exception): pass\n  raise Mine",
        "class Mine(Exception): pass\n  class Less(Mine): pass\n  raise Less",
        "pass",
    ),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "raise KeyError", "error"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "return True", "fail"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "return (i for i in ())", "fail"),
    ("with pytest.raises(ValueError): f(-1)", GUARDED, "import os; os._exit(1)", "error"),
    ("with pytest.raises(Exception): f(-1)", GUARDED, "raise KeyError", "pass"),
]


@pytest.mark.parametrize(("source", "truth", "body", "verdict"), VERDICTS)
def test_a_program_passes_what_it_would_pass_as_written(grader, source, truth, body, verdict):
    test = parse_assert(source, "f")
    (answer,) = grader.ground_truth(f"def f(n):\n  {truth}", [test.call]).result(60)
    assert answer.usable
    assert same_answer(test.call.entry_point, test.expected, answer.value)
    assert grader.grade(f"def f(n):\n  {body}", [test]).result(60).verdicts == [verdict]


def test_a_program_that_does_not_load_raises_nothing_that_counts(grader):
    test = parse_assert("with pytest.raises(ValueError): f(1)", "f")
    grading = grader.grade("raise ValueError", [test]).result(60)
    assert (grading.program_valid, grading.verdicts) == (False, ["error"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return True", "does not raise"),
        ("return n + 'a'", "raises"),  # a TypeError, of which the source says nothing
        ("raise KeyError", "raises"),
        ("raise TypeError", ""),
    ],
)
def test_an_exception_counts_where_the_ground_truth_raises_it_on_purpose(grader, body, reason):
    """Otherwise calls without sense would be right tests: f() raises a TypeError in every program."""
    test = parse_assert("with pytest.raises(TypeError): f(1)", "f")
    (answer,) = grader.ground_truth(f"def f(n):\n  {body}", [test.call]).result(60)
    assert (answer.usable, answer.reason) == (not reason, reason)


def test_calls_that_differ_in_what_is_compared_alone_run_once(grader):
    """The program is not told of a tolerance or an exception."""
    sources = ("assert f(1) == 1", "assert abs(f(1) - 1) < 1e-3", "with pytest.raises(ValueError): f(1)")
    tests = [parse_assert(source, "f") for source in sources]
    program = "calls = []\ndef f(n):\n  calls.append(n)\n  return len(calls)"
    assert grader.grade(program, tests).result(60).verdicts == ["pass", "pass", "fail"]


def test_the_ground_truths_answer_is_the_middle_of_a_tolerance(grader):
    """As it replaces the stated one in every test: who writes the test cannot shift the bounds."""
    parsed = parse_suite("assert abs(f(1) - 2.009) < 0.01", "f", all_forms=True)
    (call,) = [item.call for item in parsed.asserts]
    answers = {call: grader.ground_truth("def f(n): return 2.0", [call]).result(60)[0]}
    (marked,) = REWARDS["official"](0.5, 1).mark(parsed, answers, read_signature("def f(n): return 2.0", "f"))
    assert (marked.mark, marked.test.text) == (Mark.RIGHT, "assert abs(f(1) - 2.0) < 0.01")
    for returned, verdict in (("1.995", "pass"), ("2.015", "fail")):
        assert grader.grade(f"def f(n): return {returned}", [marked.test]).result(60).verdicts == [verdict]
    # A wrong answer's tolerance is of its own size: around the right one anything would pass.
    parsed = parse_suite("assert abs(f(1) - 1e9) < 1e6", "f", all_forms=True)
    answers = {item.call: answers[call] for item in parsed.asserts}
    (marked,) = REWARDS["official"](0.5, 1).mark(parsed, answers, read_signature("def f(n): return 2.0", "f"))
    assert (marked.mark, marked.test) == (Mark.WRONG_ANSWER, None)


@pytest.mark.parametrize("source", dict.fromkeys(row[0] for row in VERDICTS))
@pytest.mark.parametrize("entry_point", ["f", "Solution().f"])
def test_the_text_of_a_test_reads_back(source, entry_point):
    test = parse_assert(source.replace("f(", f"{entry_point}("), entry_point)
    assert not isinstance(test, Rejected)
    assert parse_assert(test.text, test.call.function) == test
    assert (test.call.function, test.identity) == (entry_point, (test.call.entry_point, test.call.arguments))


def test_a_method_is_wrapped_too(grader):
    question = Question("q", None, "", "", "class Solution:\n  def f(self, n): return (n, n)", "Solution().f")
    test = parse_assert("s = Solution()\nassert list(s.f(3)) == [3, 3]", "Solution().f")
    assert grader.grade(question.module(question.ground_truth), [test]).result(60).verdicts == ["pass"]


@pytest.mark.parametrize(
    ("stated", "returned", "verdict"),
    [
        ("0.1", "f4(0.1)", "pass"),
        ("0.1", "f2(0.1)", "pass"),
        ("0.10000000149011612", "f4(0.1)", "pass"),
        ("1 / 3", "f4(1) / f4(3)", "pass"),
        ("100000000000000000000", "f4(1e20)", "pass"),
        ("0.10000001", "f4(0.1)", "fail"),
        ("0.1", "float(f4(0.1))", "fail"),
        ("0.1", "np.float64(f4(0.1))", "fail"),
        ("[0.1, ('k', {'k': 2.5})]", "[f4(0.1), ('k', {'k': f4(2.5)})]", "pass"),
        ("[0.1, ('k', {'k': 2.5})]", "[f4(0.1), ('l', {'k': f4(2.5)})]", "fail"),
        ("[0.1, 0.2]", "[f4(0.1)]", "fail"),
        ("[0.1]", "[f4(0.1), f4(0.1)]", "fail"),
        ("'0.1'", "f4(0.1)", "fail"),
        ("1e30", "f4(0.1)", "fail"),
    ],
)
def test_numbers_of_numpy_with_fewer_bits_equal_what_numpy_says(grader, stated, returned, verdict):
    imports = "import numpy as np\nfrom numpy import float16 as f2, float32 as f4\n"
    test = parse_assert(f"assert f() == {stated}", "f")
    assert grader.grade(f"{imports}def f(): return {returned}", [test]).result(60).verdicts == [verdict]
    assert (eval(returned, {"np": np, "f2": np.float16, "f4": np.float32}) == eval(stated)) == (verdict == "pass")


def test_a_ground_truths_narrow_number_is_the_one_that_people_write(grader):
    test = parse_assert("assert f() == [0.1]", "f")
    truth = "import numpy\ndef f(): return [numpy.float32(0.1)]"
    (answer,) = grader.ground_truth(truth, [test.call]).result(60)
    assert (answer.usable, answer.value) == (True, test.expected)


@pytest.mark.parametrize(
    "claimed", [b"k", b"kk", b"k123", b"l\xff\xff\xff\xffk1234", b"s\xff\xff\xff\xff1k", b"?" * 99 + b"k"]
)
def test_what_a_program_claims_to_equal_an_answer_may_be_anything(claimed):
    assert not any(agree("", claimed, encode_canonical(value)) for value in (2, [0.5], "k", 10**400, {1: "k"}))


@pytest.mark.parametrize("claimed", [b"", b"f", b"f1234567", b"qi", b"qq" * 9000, b"q" * 100, b"i" + b"\xff" * 99_999])
def test_what_a_program_claims_to_be_a_number_may_be_anything(claimed):
    assert not agree("within < 0.01", claimed, encode_canonical(2))
    assert not agree("within <= 0.01", b"qi\0\0\0\1\1i\0\0\0\1\0", encode_canonical(2))  # 1 / 0


@pytest.mark.parametrize(
    ("form", "one", "other", "close"),
    [
        ("within < 0.5", 1, 1.5, False),
        ("within <= 0.5", 1, 1.5, True),
        ("within <= 0.5", 1, 1.51, False),
        ("within <= 0.0", 1, True, True),
        ("within < 0.5", -1, 1, False),
        ("within < 0.5", "1", 1, False),
        ("within < 0.5", float("inf"), float("inf"), True),
        ("within < 0.5", float("inf"), 1, False),
        ("list", 1, 1.4, False),
        ("", 1, 1.0, True),
    ],
)
def test_how_close_answers_are(form, one, other, close):
    assert same_answer(f"{form} f", encode_exact(one), encode_exact(other)) == close


def test_exceptions_are_known_by_name():
    assert is_raised("raises LookupError", "KeyError: 1")
    assert is_raised("raises Broken", "Broken")
    for words in ("Broken: ValueError", "the process was killed", "print", "", "int: 1"):
        assert not is_raised("raises ValueError", words)
    assert raises_on_purpose("  if n: raise errors.Broken(n)", "Broken")
    assert not raises_on_purpose("raise BrokenPipeError", "Broken")


def test_a_bare_assert_of_a_suite_is_a_test_where_the_answer_is_a_bool(grader):
    question = Question("q", None, "", "", "def f(n):\n    return n if n > 1 else n == 1", "f")
    rules = SimpleNamespace(reward=REWARDS["strict"](0.5, 4), all_forms=True)
    suite = "```python\nassert f(1)\nassert not f(0)\nassert f(2)\nassert f(3) == 3\n```"
    signature = read_signature(question.ground_truth, "f")
    grading = grade_suites(Judge(question, grader), question.ground_truth, [suite], signature, rules)
    (graded,) = start(grading).result(60)
    assert [item.detail or item.mark.value for item in graded.marked] == ["right", "right", "no bool", "right"]
    assert graded.verdicts == [Verdict.PASS] * 3
