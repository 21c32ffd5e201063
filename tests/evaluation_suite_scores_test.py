"""Suites scored on programs made by hand, against numbers counted by hand."""

import json
import math
from concurrent.futures import Future
from dataclasses import asdict, replace

import pytest

from codea1.evaluation.result_files import summary
from codea1.lab.benchmarks.benchmarks import TESTEVAL, ULT, SuiteTask
from codea1.lab.benchmarks.suite_scores import SuiteScore, metrics, score_suite, score_suites
from codea1.lab.mutants import mutants
from codea1.lab.sandbox.benchmarks import TracedRun
from codea1.storage import json_lines
from codea1.values.verdict import Verdict
from tests.conftest import done

# Mutants: AddNot 1; `<` becomes any of 5 others, for the other side is a number; 0, 1 and 2 plus and minus one are 6.
PROGRAM = "def f(x):\n    if x < 0:\n        return 1\n    return 2"
TASK = SuiteTask("a", "f", PROGRAM, "One for what is negative, else two.")
NUM_MUTANTS = 12


def test_the_mutants_counted_by_hand():
    assert len(mutants(PROGRAM)) == NUM_MUTANTS


def test_all_pass(pool):
    tests = [f"assert f({x}) == {1 if x < 0 else 2}" for x in (-2, -1, 0, 1, 2)]
    score = score_suite(ULT, TASK, [*tests, "assert f(3) == 1"], pool)  # the first five count
    assert score.verdicts == [Verdict.PASS] * 5
    assert (score.mutants, score.killed) == (NUM_MUTANTS, NUM_MUTANTS)
    assert score.coverage == {"1": [0.75, 0.5], "2": [0.75, 0.5], "5": [1.0, 1.0]}
    measured = metrics(ULT, [score])
    assert (measured["pass_at_5"], measured["mut_at_5"], measured["mul"]) == ([1.0], [1.0], [[1.0, 1.0]])


def test_some_fail(pool):
    # f(-2) == 1 survives what leaves -2 negative: `<` as `<=` and `!=`, 0 as 1 and as -1, and 2 as 3 and as 1.
    score = score_suite(ULT, TASK, ["assert f(-2) == 1", "assert f(5) == 1", "f(", "assert f() == 2"], pool)
    assert score.verdicts == [Verdict.PASS, Verdict.FAIL, Verdict.ERROR, Verdict.ERROR]
    assert score.parses == [True, True, False, True]
    assert (score.mutants, score.killed) == (NUM_MUTANTS, 6)
    measured = metrics(ULT, [score])
    assert measured["pass_at_1"] == [1.0]
    assert measured["pass_at_5"] == [0.2]
    assert math.isnan(measured["mut_at_5"][0])
    assert measured["mut_at_5_of_passing"] == [0.5]
    assert (measured["test_syntax"], measured["test_executable"]) == ([0.6], [0.4])
    assert (measured["line_coverage_at_1"], measured["line_coverage_at_5"]) == ([0.75], [1.0])  # a failing test covers


def test_upstreams_shadowed_names_and_other_shapes(pool):
    first = "```python\ndef test_f():\n    assert f(-2) == 7\n```"
    rest = ["  def test_f():\n      assert f(1) == 2", *["def test_f():\n    assert f(1) == 2"] * 3]
    score = score_suite(ULT, TASK, [first, *rest], pool)
    assert score.verdicts == [Verdict.FAIL] + [Verdict.PASS] * 4


def test_one_that_hangs_or_exits_costs_itself(pool, monkeypatch):
    monkeypatch.setattr("codea1.lab.benchmarks.suite_scores.TEST_SECONDS", 0.5)
    suite = ["assert f(1) == 2\nwhile True: pass", "import os\nos._exit(0)\nassert 1", "assert f(1) == 2"]
    score = score_suite(ULT, TASK, suite, pool)
    assert score.verdicts == [Verdict.TIMEOUT, Verdict.ERROR, Verdict.PASS]


def test_a_mutant_that_hangs_is_killed(pool):
    task = SuiteTask("w", "f", "def f(x):\n    while x > 0:\n        x -= 1\n    return x", "")
    score = score_suite(replace(ULT, num_tests=1), task, ["assert f(3) == 0"], pool)
    assert (score.mutants, score.killed) == (10, 9)  # `!=` survives, x -= 0 never ends


def test_tests_that_pass_alone_and_fail_together_kill_nothing(pool):
    task = SuiteTask("s", "f", "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen) + 0", "")
    score = score_suite(replace(ULT, num_tests=2), task, ["assert f(1) == 1", "assert f(2) == 1"], pool)
    assert score.verdicts == [Verdict.PASS, Verdict.PASS]
    assert score.killed is None
    measured = metrics(replace(ULT, num_tests=2), [score])
    assert math.isnan(measured["mut_at_2"][0])
    assert measured["mut_at_2_of_passing"] == [0.0]


def test_a_program_without_mutants_has_no_mutation_score(pool):
    task = SuiteTask("n", "f", "def f(x):\n    return x", "")
    one = replace(ULT, num_tests=1)
    for suite in (["assert f('a') == 'a'"], ["assert f('a') == 'b'"]):
        score = score_suite(one, task, suite, pool)
        assert (score.mutants, score.lost) == (0, False)
        measured = metrics(one, [score])
        assert math.isnan(measured["mut_at_1"][0])
        assert math.isnan(measured["mut_at_1_of_passing"][0])


def test_a_test_cannot_kill_by_writing_that_it_failed(pool):
    """Whatever state it wants to keep from one run to the next is gone."""
    hostile = """
        import os
        def test_f():
            path = os.path.join(os.environ['HOME'], 'seen')
            assert not os.path.exists(path)
            try: open(path, 'w').close()
            except OSError: pass
            import sys; sys.modules['builtins'].seen = getattr(sys.modules['builtins'], 'seen', 0) + 1
            assert sys.modules['builtins'].seen == 1
    """
    score = score_suite(replace(ULT, num_tests=1), TASK, [hostile], pool)
    assert (score.verdicts, score.killed) == ([Verdict.PASS], 0)


def test_a_test_cannot_change_anothers_verdict(pool):
    forge = """
        import os, struct
        from codea1.values import encode_exact
        for _ in range(5):
            payload = encode_exact(('pass', '', []))
            os.write(3, struct.pack('>IIc', len(payload), 0, b'R') + payload)
        assert False
    """
    score = score_suite(ULT, TASK, [forge, "assert f(1) == 1", "assert f(1) == 1"], pool)
    assert score.verdicts == [Verdict.PASS, Verdict.FAIL, Verdict.FAIL]
    assert score.killed == 0


def test_testeval_wants_the_solution_called(pool):
    program = "class Solution:\n    def g(self, x):\n        if x:\n            return 1\n        return 2"
    task = SuiteTask("4", "g", program, "")
    suite = [
        "def test_g():\n    solution = Solution()\n    assert solution.g(0) == 2",
        "from under_test import Solution\ndef test_g():\n    solution = Solution()\n    assert solution.g(1) == 2",
        "def test_g():\n    assert Solution().g(1) == 1",
        "def test_g():\n    solution = Solution()\n    solution.g()",
    ]
    score = score_suite(TESTEVAL, task, suite, pool)
    assert score.verdicts == [Verdict.PASS, Verdict.FAIL, Verdict.INVALID, Verdict.ERROR]
    measured = metrics(TESTEVAL, [score])
    assert (measured["test_syntax"], measured["test_executable"]) == ([0.2], [0.1])
    assert measured["branch_coverage_at_1"] == [0.5]
    assert measured["branch_coverage_at_2"] == measured["branch_coverage_at_20"] == [1.0]


def test_many_tasks_and_none_missing(pool):
    tasks = [replace(TASK, id=name) for name in "abc"]
    scores = {score.task_id: score for score in score_suites(ULT, tasks, {"b": ["assert f(1) == 2"]}, pool)}
    assert {name: score.verdicts for name, score in scores.items()} == {"a": [], "b": [Verdict.PASS], "c": []}
    assert metrics(ULT, [scores["a"]])["pass_at_5"] == [0.0]
    assert scores["a"].coverage["5"] == [0.0, 0.0]


def test_mul_is_the_product_of_means_over_different_questions():
    whole = SuiteScore("a", [Verdict.PASS] * 5, [""] * 5, [True] * 5, {k: [1.0, 1.0] for k in "125"}, 4, 1, False, 0.1)
    half = replace(whole, task_id="b", verdicts=[Verdict.PASS] * 2 + [Verdict.FAIL] * 3, killed=4)
    lost = replace(whole, task_id="c", verdicts=[Verdict.INFRA], lost=True)
    values = summary(metrics(ULT, [whole, half, lost]), 0, "ult", ["a", "b", "c"])["metrics"]
    assert values["pass_at_5"]["mean"] == pytest.approx(0.7)
    assert values["mut_at_5"]["mean"] == pytest.approx(0.25)  # only where all five pass
    assert values["mul"]["mean"] == pytest.approx(0.7 * 0.25)
    assert values["mut_at_5_of_passing"]["mean"] == pytest.approx(0.625)


def test_a_score_survives_its_file():
    score = SuiteScore("a", [Verdict.PASS], [""], [True], {"1": [0.5, math.nan]}, 3, 2, False, 0.25)
    again = SuiteScore.from_row(json.loads(json_lines.encode(asdict(score))))
    assert str(again) == str(score)


class _Losing:
    """A pool whose sandbox passes every run but fails on some, counted from 0."""

    def __init__(self, *lost: int):
        self.lost, self.count = lost, 0

    def run_suite(self, *_: object, **__: object) -> Future:
        verdict = Verdict.INFRA if self.count in self.lost else Verdict.PASS
        self.count += 1
        return done(TracedRun(verdict, "", 0.0, frozenset()))


# The only test alone; it on the program; each mutant; and it on the program again.
@pytest.mark.parametrize("lost", [(0,), (1,), (2,), (NUM_MUTANTS + 1,), (NUM_MUTANTS + 2,), tuple(range(99))])
def test_what_the_sandbox_loses_is_not_counted(lost):
    score = score_suite(ULT, TASK, ["assert f(1) == 2"], _Losing(*lost))
    assert score.lost
    assert all(math.isnan(value) for name, (value,) in metrics(ULT, [score]).items() if name != "mul")


def test_what_the_sandbox_does_not_lose_is_counted():
    score = score_suite(ULT, TASK, ["assert f(1) == 2"], _Losing(NUM_MUTANTS + 3))
    assert (score.lost, score.mutants, score.killed) == (False, NUM_MUTANTS, 0)
