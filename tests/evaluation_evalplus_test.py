"""EvalPlus's judgement: against its package where that can be imported, and against cases worked out by hand."""

import math
import os
import sys
import tracemalloc
import types
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codea1.game.question import Question
from codea1.lab.benchmarks import evalplus
from codea1.lab.benchmarks.benchmarks import semantics_of
from codea1.lab.benchmarks.evalplus import EvalPlus, Problem, deserialised, load_problems
from codea1.lab.benchmarks.evalplus_oracle import ANYTHING, NOT_NONE, Expected, Oracle, Recorder, is_close, is_floats
from codea1.lab.sandbox.benchmarks import BenchmarkPool, Description
from codea1.runtime.errors import BadInput
from codea1.sandbox.host import ScriptRun
from codea1.values import encode_exact
from codea1.values.verdict import Verdict
from tests.conftest import done
from tests.evalplus_files import TWO_ANSWERS, humaneval_row, mbpp_row, write_rows

# Site-packages of another environment that has evalplus; last on the path, for its numpy is not ours.
sys.path += filter(None, [os.environ.get("CODEA1_EVALPLUS")])


def problem(truth: str, inputs: Sequence, name: str = "f", atol: float = 0.0, plus: Sequence = ()) -> Problem:
    question = Question("q", None, "", "", truth, name)
    return Problem(question, inputs, plus, atol)


def judge(pool: BenchmarkPool, problem: Problem, program: str, benchmark: str = "humanevalplus") -> ScriptRun:
    return EvalPlus(benchmark, [problem], pool).judge(problem.question, program).result(60)


def returning(values: Sequence[Any], name: str = "f") -> str:
    """A program that returns the i-th value for the argument i."""
    return f"from math import inf, nan\nVALUES = {list(values)!r}\ndef {name}(i): return VALUES[i]"


def first_wrong(pool: BenchmarkPool, out: Sequence, expected: Sequence, atol: float) -> int | None:
    """The first of the values that our judgement does not accept."""
    run = judge(pool, problem(returning(expected), [[i] for i in range(len(out))], atol=atol), returning(out))
    if run.verdict is Verdict.PASS:
        return None
    assert run.verdict is Verdict.FAIL, run
    return int(run.detail.split("input ")[1].split(":")[0])


CASES = [  # value, expected, tolerance, whether it is right
    (1, 1.0, 0, True),
    (True, 1, 0, True),
    ((1, 2), [1, 2], 0, False),
    (1.0000005, 1.0, 0, True),
    (1.000002, 1.0, 0, False),
    (1.05, 1.0, 0.1, True),
    (1, 1.0000001, 0, False),  # close, but an int
    ([1.0, 2.0000001], [1.0, 2.0], 0, True),
    ([1.0, 2], [1.0, 2.0000001], 0, True),  # a list, as expected, and its numbers are close
    ([1.0, 2.0, 3.0], [1.0, 2.0], 0, False),
    ((1.0, 2.0000001), [1.0, 2.0], 0, False),
    ([], [], 0, True),
    ([1.0000001], [1], 0, False),  # expected are no floats
    ([1.0000001], [1], 1e-6, True),
    ([[1.0000001]], [[1.0]], 0, False),  # nested lists are not lists of floats
    ([[1.0000001]], [[1.0]], 1e-6, True),
    ({"a": 1.0}, {"a": 1}, 0, True),
    ({"a": 1.0000001}, {"a": 1.0}, 1e-6, False),
    ({1, 2}, {2, 1}, 0, True),
    (math.inf, math.inf, 0, True),
    (math.nan, 1.0, 0, False),
    (math.nan, math.nan, 0, False),
    ([math.nan], [math.nan], 0, False),
    ("a", "a", 0, True),
    ("a", 1.0, 0, False),
    (None, 0, 0, False),
    ([None], [1.0], 0, False),
]


@pytest.mark.parametrize(("out", "expected", "atol", "right"), CASES)
def test_cases_by_hand(pool, out, expected, atol, right):
    assert (first_wrong(pool, [out], [expected], atol) is None) == right


def test_the_tolerance_for_floats_stays_from_the_first_float_on(pool):
    # [1, 2.5] is no list of floats, but after a float was expected its numbers are compared by the tolerance, too.
    assert first_wrong(pool, [[1, 2.5000001], 1.0], [[1, 2.5], 1.0], 0) == 0
    assert first_wrong(pool, [1.0, [1, 2.5000001]], [1.0, [1, 2.5]], 0) is None


numbers = st.one_of(
    st.integers(-3, 3), st.booleans(), st.floats(-3, 3), st.sampled_from([0.5, 1.0, 1.0 + 5e-7, 1.00001, math.inf])
)
values = st.one_of(
    numbers,
    st.none(),
    st.sampled_from(["", "a"]),
    st.lists(numbers, max_size=3),
    st.lists(numbers, max_size=3).map(tuple),
    st.lists(st.lists(numbers, max_size=2), max_size=2),
    st.dictionaries(st.sampled_from("ab"), numbers, max_size=2),
    st.frozensets(st.integers(0, 2), max_size=2).map(set),
)
nudges = st.sampled_from([0.0, 0.0, 1e-9, 5e-7, 1e-5, 1.0])


def nudged(value: Any, by: float) -> Any:
    if isinstance(value, float) and by:
        return value + by
    if isinstance(value, list | tuple):
        return type(value)(nudged(each, by) for each in value)
    return value


pairs = st.one_of(st.tuples(values, values), st.tuples(values, nudges).map(lambda x: (nudged(*x), x[0])))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(pairs, min_size=1, max_size=8), atol=st.sampled_from([0, 1e-6, 1e-4]))
def test_the_first_wrong_value_is_the_one_that_the_package_names(pool, pairs, atol):
    package = pytest.importorskip("evalplus.eval", reason="evalplus is not installed; see CODEA1_EVALPLUS")
    out, expected = [list(each) for each in zip(*pairs, strict=True)]
    inputs = [[i] for i in range(len(out))]
    _, details = package.untrusted_check(
        "humaneval", returning(out), inputs, "f", expected, atol, [0.1] * len(out), fast_check=False
    )
    details = list(details)
    assert len(details) == len(out)
    assert first_wrong(pool, out, expected, atol) == (details.index(False) if False in details else None)


def test_the_inputs_that_json_cannot_hold_are_the_package_s(monkeypatch):
    # The package imports this to download, which is not done here.
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=None))
    mbpp = pytest.importorskip("evalplus.data.mbpp", reason="evalplus is not installed; see CODEA1_EVALPLUS")
    shapes = [
        [[[1, [2, 3]], [[4], 5]], [[6]], [7, 8]],
        [[[[1, 2]]], [3]],
        [[[1, 2], [3]], 4],
        [[1], [2, 3]],
        [[1, [2]], 3, 4],
    ]
    shapes += [[{"a": [1, 2]}, 3, 4], ["1", "2j"], ["3j"], [[[1, 2], []]]]
    compared = 0
    for number in range(1, 810):
        for row in shapes:
            try:
                wanted = mbpp.mbpp_deserialize_inputs(f"Mbpp/{number}", [row])
            except (TypeError, ValueError, AttributeError, IndexError):
                continue
            if len(wanted[0]) == len(row):  # else the package drops arguments that the task does not have
                assert repr(list(deserialised(f"Mbpp/{number}", [row]))) == repr(list(wanted)), (number, row)
                compared += 1
    assert compared > 2000


def test_is_floats():
    assert [is_floats(each) for each in (1.0, [1.0], (1.0, 2.0))] == [True] * 3
    assert [is_floats(each) for each in ([], 1, [1.0, 1], {1.0})] == [False] * 4


def test_is_close_never_raises():
    for out in ([[1.0], [1.0, 2.0]], ["a"], [None], [10**400], [1j]):
        assert not is_close(out, [1.0], atol=1e-6)


def oracle(dataset: str, name: str, arguments: Sequence, value: object, atol: float = 0.5) -> Oracle:
    expected = Expected(bytes(16), 0.0, f"builtins.{type(value).__name__}", b"x", True, value)
    return Oracle(dataset, name, atol, [arguments], [expected])


ORACLES = [
    *(oracle("mbpp", name, [2], "some") for name in (*NOT_NONE, *ANYTHING, "sum_div")),
    *(oracle("mbpp", name, [3, 4], 33) for name in ("surface_Area", "digit_distance_nums")),
    oracle("mbpp", "digit_distance_nums", [-12, 10**5000], 8),
    oracle("mbpp", "surface_Area", [10**400, 4], 8.0),
    oracle("humaneval", "find_zero", [[-1, 0, 1]], 1.0),
    *(
        oracle("humaneval", "f", [0], value)
        for value in (1.5, 7, 2j, [1.0, 2.0], (1.0,), [[1.0], [2.0]], range(9), [range(3)], [True, None])
    ),
]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**4000), 1 << 63]),
    st.floats(),
    st.complex_numbers(),
    st.decimals() | st.sampled_from([Decimal("sNaN"), Decimal("1e16000")]),
    st.fractions() | st.just(Fraction(10**400, 3)),
    st.builds(range, st.integers(), st.integers() | st.just(10**18), st.integers(1)),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.datetimes(),
    st.timedeltas(),
)
claimed = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(deque),
        st.dictionaries(st.text(max_size=2), inner, max_size=2),
    ),
    max_leaves=6,
)
NO_ENCODING = [
    b"",
    b"\xff",
    b"q" + encode_exact((1 << 70000, 1)),  # too large to be reduced
    b"e" + encode_exact(("many",)),
    range(1 << 70),
    Decimal("sNaN"),
    [None],
]
descriptions = st.builds(
    Description,
    st.sampled_from(["builtins.float", "builtins.list", "builtins.bool", "builtins.range", ""]) | claimed,
    st.sampled_from([b"", b"x", b"y"]) | claimed,
    claimed.map(encode_exact) | st.binary(max_size=8) | st.sampled_from(NO_ENCODING),
)


@settings(max_examples=100)
@given(description=descriptions)
def test_whatever_a_process_claims_is_right_or_wrong_and_never_an_exception(description):
    for judge in ORACLES:
        assert judge.accepts(0, description) in (True, False)
    recorder = Recorder(0.0)
    recorder.agrees(0, bytes(16), 0.0)
    assert recorder.accepts(0, description) in (True, False)


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        (range(3_000_000), range(9)),
        ([range(3_000_000)], [1.0]),
        ([[1.0, (range(3_000_000),)]], [1.0]),
        ([[[1.0]] * 300] * 300, [1.0] * 300),  # numpy would compare each of 300 x 300 with each of 300
    ],
)
def test_a_small_claim_takes_little_memory(out, expected):
    tracemalloc.start()
    try:
        assert not is_close(out, expected, atol=1e-6)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_plus_inputs_run_in_a_process_of_their_own(pool):
    counted = "CALLS = []\ndef f(x):\n    CALLS.append(x)\n    return x + 1 if len(CALLS) < 4 else None"
    truth = "def f(x): return x + 1"
    assert judge(pool, problem(truth, [[0], [1], [2]], plus=[[3], [4]]), counted).verdict is Verdict.PASS
    run = judge(pool, problem(truth, [[0], [1], [2]], plus=[[3]] * 4), counted)
    assert (run.verdict, run.detail) == (Verdict.FAIL, "plus: input 3: another value than expected")


def test_an_input_has_its_own_time_limit(pool, monkeypatch):
    monkeypatch.setattr(evalplus, "MIN_SECONDS", 0.3)
    slow = "def f(x):\n    while x == 2: pass\n    return x + 1"
    run = judge(pool, problem("def f(x): return x + 1", [[0], [1], [2], [3]]), slow)
    assert run.verdict is Verdict.TIMEOUT
    assert run.detail == "base: input 0 or a later one took more than 0.4 CPU seconds, or slept"


@pytest.mark.parametrize(
    ("truth", "first", "second"),
    [("x % 3 == 0", "True", "False"), ("x % 2 + 7", "7", "8"), ("'ab'[x % 2]", "'a'", "'b'")],
)
def test_a_small_value_is_what_the_process_describes_and_has_no_second_guess(pool, truth, first, second):
    task = problem(f"def f(x): return {truth}", [[i] for i in range(50)])
    assert judge(pool, task, f"def f(x): return {truth}").verdict is Verdict.PASS
    run = judge(pool, task, f"{TWO_ANSWERS}def f(x):\n    answer({second})\n    return {first}")
    assert (run.verdict, run.detail.partition(" ")[0]) == (Verdict.FAIL, "base:")
    assert "another value than expected" in run.detail


SPECIAL = [  # entry point, truth, inputs, program, whether it is right
    ("similar_elements", "return (1, 2)", [[0]], "return [2, 1, 1]", True),
    ("similar_elements", "return (1, 2)", [[0]], "return (x for x in (2, 1))", True),
    ("similar_elements", "return (1, 2)", [[0]], "return [1]", False),
    ("similar_elements", "return (1, 2)", [[0]], "return 3", False),
    ("check_str", "return 'some' if x else None", [[0], [1]], "return [] if x else None", True),
    ("check_str", "return 'some' if x else None", [[0], [1]], "return bool(x)", True),
    ("check_str", "return 'some' if x else None", [[0], [1]], "return 0", False),
    ("check_str", "return False", [[0]], "return False", False),  # a bool must be whether there is something
    ("check_str", "import re; return re.match('a', 'a')", [[0]], "return object()", True),
    ("are_equivalent", "return 1", [[0]], "return 2", True),
    ("sum_div", "return 7", [[0]], "return 0", True),
    ("sum_div", "return 7", [[0]], "return 6", False),
    ("digit_distance_nums", "return 8", [[123, 7]], "return 7", True),  # |1-0| + |2-0| + |3-7|
    ("digit_distance_nums", "return 8", [[123, 7]], "return 6", False),
    ("surface_Area", "return 33", [[3, 4]], "return 35", True),  # 9 + 2 * 3 * sqrt(1.5**2 + 16) = 34.6...
    ("surface_Area", "return 33", [[3, 4]], "return '35'", False),
    ("other", "return (1, 2)", [[0]], "return [2, 1]", False),
]


@pytest.mark.parametrize(("name", "truth", "inputs", "program", "right"), SPECIAL)
def test_problems_with_rules_of_their_own(pool, name, truth, inputs, program, right):
    head = f"def {name}(x, y=0):\n    "
    run = judge(pool, problem(head + truth, inputs, name), head + program, "mbppplus")
    assert (run.verdict is Verdict.PASS) == right, run


def test_any_root_will_do(pool):
    truth = "def find_zero(xs): return 1.0"  # of x**2 - 1
    asked = problem(truth, [[[-1, 0, 1]]], "find_zero", 1e-4)
    for answer in ("-1.00001", "0.9", "None", "[1.0]"):
        run = judge(pool, asked, f"def find_zero(xs): return {answer}")
        assert run.verdict is (Verdict.PASS if answer == "-1.00001" else Verdict.FAIL)


def test_a_ground_truth_that_fails_says_so(pool):
    run = judge(pool, problem("def f(x): return 1 / x", [[1], [0]]), "def f(x): return 1")
    assert run.verdict is Verdict.INVALID
    assert "its own solution error: raised on input 1: ZeroDivisionError" in run.detail


class _LosingOnce:
    """A pool that loses the first run."""

    def __init__(self, pool: BenchmarkPool):
        self.pool, self.lost = pool, False

    def run_batch(self, *arguments: object) -> Future[ScriptRun]:
        if self.lost:
            return self.pool.run_batch(*arguments)
        self.lost = True
        return done(ScriptRun(Verdict.INFRA, "the sandbox failed", 0.0))


def test_a_lost_ground_truth_is_nobodys_failure_and_runs_again(pool):
    program = "def f(x): return x + 1"
    asked = problem(program, [[0]])
    benchmark = EvalPlus("humanevalplus", [asked], _LosingOnce(pool))
    assert benchmark.judge(asked.question, program).result(60).verdict is Verdict.INFRA
    assert benchmark.judge(asked.question, program).result(60).verdict is Verdict.PASS


def test_official_files(pool, tmp_path):
    path = write_rows(tmp_path / "he.jsonl", humaneval_row(), humaneval_row(1, atol=1e-6))
    problems = load_problems("humanevalplus", path)
    assert [(each.question.id, each.atol) for each in problems] == [("HumanEval/0", 0), ("HumanEval/1", 1e-6)]
    assert judge(pool, problems[0], "def f(x): return x + 1").verdict is Verdict.PASS
    wrong = judge(pool, problems[0], "def f(x): return abs(x) + 1")
    assert wrong.detail == "plus: input 1: another value than expected"


def test_mbpp_inputs_are_tuples_where_its_programs_need_them(pool, tmp_path):
    row = mbpp_row(116, "to_int", "def to_int(t):\n    return int(''.join(map(str, t))) + hash(t) * 0", [[[1, 2]]])
    problems = load_problems("mbppplus", write_rows(tmp_path / "m.jsonl", row))
    assert problems[0].base == [[(1, 2)]]
    assert judge(pool, problems[0], "def to_int(t): return 12 + hash(t) * 0", "mbppplus").verdict is Verdict.PASS


def test_an_empty_object_in_the_place_of_a_list_means_no_inputs(tmp_path):
    row = {**mbpp_row(793, "last", "def last(a):\n    return a[-1]", [[[1, 2]]]), "plus_input": {}}
    (problem,) = load_problems("mbppplus", write_rows(tmp_path / "m.jsonl", row))
    assert (problem.base, problem.plus) == ([[[1, 2]]], [])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{}], r"line 1: the field 'task_id' is missing"),
        ([humaneval_row(prompt=3)], r"line 1: the field 'prompt' is not text"),
        ([humaneval_row(), humaneval_row(1, base_input=3)], r"line 2: the field 'base_input' is not a list of lists"),
        ([humaneval_row(plus_input={"a": []})], r"'plus_input' is not a list of lists"),
        ([humaneval_row(plus_input=[3])], r"'plus_input' is not a list of lists"),
        ([humaneval_row(canonical_solution="    return (")], r"line 1 \(HumanEval/0\): its canonical_solution does"),
        ([humaneval_row(atol=None)], r"'atol' is not a number"),
        ([humaneval_row(), humaneval_row()], r"question HumanEval/0 comes twice"),
        ([], r"holds no question"),
        ([mbpp_row(124, "f", "", [[1]])], r"line 1: its inputs are not those of Mbpp/124"),
    ],
)
def test_bad_files(tmp_path, rows, told):
    with pytest.raises(BadInput, match=told):
        load_problems("humanevalplus", write_rows(tmp_path / "he.jsonl", *rows))


def test_a_missing_file_tells_where_to_get_it(tmp_path):
    with pytest.raises(BadInput, match=r"none\.jsonl does not exist.*HumanEvalPlus\.jsonl\.gz from https://"):
        load_problems("humanevalplus", str(tmp_path / "none.jsonl"))


def test_a_parquet_file_is_judged_by_its_check_scripts():
    assert [semantics_of(file, None) for file in ("he.jsonl.gz", "he.parquet")] == ["evalplus", "scripts"]
    assert [semantics_of(file, "scripts") for file in ("he.jsonl", "he.parquet")] == ["scripts", "scripts"]
    with pytest.raises(BadInput, match=r"as JSON lines; he\.parquet has check scripts"):
        semantics_of("he.parquet", "evalplus")
