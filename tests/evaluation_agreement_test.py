"""Programs and suites from files that judge each other, against values worked out by hand."""

import json
import math
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.game.answers import stated_tests
from codea1.game.asserts import Rejected, parse_assert
from codea1.game.question import Question
from codea1.lab.benchmarks.agreement import Crossing, _crossed, _run, given_suites
from codea1.lab.benchmarks.evaluation import Attempt, EvaluationFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.futures import start
from codea1.sandbox.host.grading import LOST, Grading, GroundTruthAnswer
from codea1.values.verdict import Verdict
from tests.conftest import ROOT
from tests.evalplus_files import humaneval_row, write_rows

# Five programs and four tests; the third test was written three times, the last one is wrong.
PASSES = [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]]
SOLVED = [0, 0, 1, 0, 0]


def crossing(passes=PASSES, times=(1, 1, 3, 1), right=(1, 1, 1, 0), solved=SOLVED) -> Crossing:
    return Crossing(np.array(passes, bool), np.array(times, int), np.array(right, bool), np.array(solved, bool))


def test_scores_are_those_worked_out_by_hand():
    scores = crossing().scores()
    assert scores["output_accuracy"] == pytest.approx(5 / 6)
    assert scores["attack_rate"] == 1.0  # the third test exposes all wrong programs
    assert scores["pass_at_1"] == 0.2
    # Passed with repetitions: 2, 2, 5, 2, 0; agreements: sqrt(2) 2, the same, 5, 2, 0.
    assert crossing().agreement == pytest.approx([2 * math.sqrt(2), 2 * math.sqrt(2), 5, 2, 0])
    assert (scores["pass_at_1_first_best"], scores["pass_at_1_max_pass"], scores["pass_at_1_agreement"]) == (1, 1, 1)
    # Ranks 3, 3, 5, 3, 1 against 2.5, 2.5, 5, 2.5, 2.5: covariance 5, over sqrt(8 * 5).
    assert scores["fidelity"] == pytest.approx(5 / math.sqrt(40))


def test_agreement_prefers_what_many_programs_agree_on_and_counting_does_not():
    # Three programs pass two tests, one passes three; 2 sqrt(3) > 3.
    scores = crossing([[1, 1, 0]] * 3 + [[0, 1, 1]], (1, 1, 2), (1, 1, 1), [1, 1, 0, 0]).scores()
    assert scores["pass_at_1_agreement"] == pytest.approx(2 / 3)
    assert scores["agreement_gain"] == pytest.approx(2 / 3 - 1 / 2)
    assert scores["pass_at_1_max_pass"] == 0
    # With repetitions 2, 2, 2, 3: ranks 2, 2, 2, 4 against 3.5, 3.5, 1.5, 1.5 have covariance -2, over sqrt(3 * 4).
    assert scores["fidelity"] == pytest.approx(-1 / math.sqrt(3))
    assert (
        scores["pass_at_1_first_best"] == 1
    )  # of different tests all pass two, and the first of the programs is right


def test_where_nothing_is_passed_the_choice_is_at_random():
    scores = crossing([[0], [0]], (1,), (0,), [1, 0]).scores()
    assert scores["pass_at_1_max_pass"] == scores["pass_at_1_agreement"] == 0.5
    assert scores["pass_at_1_first_best"] == 1.0
    assert (scores["attack_rate"], scores["fidelity"]) == (0, 0)


@pytest.mark.parametrize("solved", [[1, 1], [0, 0]])
def test_what_cannot_be_measured_is_nan(solved):
    scores = crossing(np.zeros((2, 0)), (), (), solved).scores()
    assert math.isnan(scores["output_accuracy"])
    assert math.isnan(scores["fidelity"])
    assert math.isnan(scores["attack_rate"]) == all(solved)


@given(st.data())
def test_order_of_programs_and_tests_changes_nothing_but_the_first(data):
    n, k = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 5))
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    parts = draw.random((n, k)) < 0.5, draw.integers(1, 4, k), draw.random(k) < 0.5, draw.random(n) < 0.5
    rows, columns = draw.permutation(n), draw.permutation(k)
    other = parts[0][rows][:, columns], parts[1][columns], parts[2][columns], parts[3][rows]
    before, after = (Crossing(*each).scores() for each in (parts, other))
    for name in before:
        if "first_best" not in name:
            assert after[name] == pytest.approx(before[name], nan_ok=True), name


def test_forms_that_people_write_are_read_in_an_answer():
    lines = [
        "r = f(2)",
        "assert r == 3, 'message'",
        "assert not f(0)",
        "assert 4 == f(3)",
        "assert f(1) > 0",
        "assert (",
    ]
    text = "\n".join(["```python", *lines, "```"])
    found = stated_tests(text, "f")
    assert [test.reason if isinstance(test, Rejected) else test.text for test in found] == [
        "assert f(2) == 3",
        "assert f(0) == False",
        "assert f(3) == 4",
        "operator >",
    ]
    assert stated_tests("so:\nassert f(1) == 2\nnot assert", "f")[0].text == "assert f(1) == 2"


class Loses:
    """A grader whose sandbox fails on the ground truth."""

    def ground_truth(self, program: str, calls: list) -> Future:
        return self._done([GroundTruthAnswer(False, b"", "infra", 0.0) for _ in calls])

    def grade(self, program: str, tests: list, checker: str, ground_truth: str) -> Future:
        return self._done(Grading(True, [Verdict.PASS for _ in tests], ["" for _ in tests], 0.0))

    def _done(self, result: object) -> Future:
        future: Future = Future()
        future.set_result(result)
        return future


def test_a_question_whose_ground_truth_was_lost_has_no_scores():
    suite = Counter([parse_assert("assert f(1) == 2", "f")])
    asked = _run(QUESTIONS[0], [Attempt("HumanEval/0", 0, "x")], {"": np.array([True])}, suite, Loses())
    judged = start(asked).result()
    assert (judged.rows, judged.reasons) == ({}, [LOST])


@pytest.mark.parametrize(("judged", "crossings"), [([], 0), ([1], 0), ([0, 1], 1)])
def test_a_question_is_crossed_once_all_of_its_programs_are_judged(judged, crossings):
    attempts = {("HumanEval/0", number): {"program": "x"} for number in (0, 1)}
    results = {("HumanEval/0", number): {} for number in judged}
    programs = EvaluationFolder({}, {}, {"attempts": attempts, "results": results})
    benchmark = SimpleNamespace(judgements={"": lambda row: True})
    suites = {"HumanEval/0": Counter([parse_assert("assert f(1) == 2", "f")])}
    assert len(list(_crossed(benchmark, QUESTIONS, suites, programs, Loses()))) == crossings


QUESTIONS = [Question("HumanEval/0", None, "", "", "def f(x):\n    return x + 1", "f")]


def test_suites_of_a_file_are_counted(tmp_path):
    tests = ["assert f(1) == 2", "assert f(1) in (2, 3)", "assert f(2) == 3", "assert f(3) == 4"]
    path = write_rows(
        tmp_path / "s.jsonl",
        {"task_id": "humaneval/0", "tests": tests},
        {"task_id": "HumanEval/0", "suite": "```python\nassert f(1) == 2\n```"},
    )
    suites, rejected = given_suites(path, QUESTIONS, num_tests=2)
    assert {test.text: times for test, times in suites["HumanEval/0"].items()} == {tests[0]: 2, tests[2]: 1}
    assert rejected == {"operator in": 1}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"task_id": "HumanEval/7", "tests": []}, "line 1: the task HumanEval/7 is not in the benchmark"),
        ({"tests": []}, "the task None is not in the benchmark"),
        ({"task_id": "HumanEval/0", "tests": "assert f(1) == 2"}, "it has neither tests, a list of texts, nor suite"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, told):
    with pytest.raises(BadInput, match=re.escape(told)):
        given_suites(write_rows(tmp_path / "s.jsonl", row), QUESTIONS, 2)


def judge(folder: Path, *flags: str) -> subprocess.CompletedProcess:
    command = "codea1.benchmark", "given", "--benchmark=humanevalplus", "--file=he.jsonl", *flags
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True)


def test_programs_and_suites_of_files_judge_each_other(tmp_path):
    write_rows(tmp_path / "he.jsonl", humaneval_row(0), humaneval_row(1))
    right, wrong, other = "    return x + 1", "    return x + (x < 9)", "    return 7"
    programs = {0: [right, wrong, other], 1: [wrong, right]}
    rows = [{"task_id": f"HumanEval/{n}", "completion": text} for n, own in programs.items() for text in own]
    write_rows(tmp_path / "c.jsonl", *rows)
    write_rows(
        tmp_path / "s.jsonl",
        {"task_id": "HumanEval/0", "tests": ["assert f(3) == 4", "assert f(20) == 21", "assert f(5) == 7"]},
    )
    given = "--completions=c.jsonl", "--output=out"
    done = judge(tmp_path, *given, "--suites=s.jsonl", "--num_tests=3")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out/evaluations/humanevalplus_suites_step_000000.json").read_text())
    means = {name: metric["mean"] for name, metric in result["metrics"].items()}
    assert means["output_accuracy"] == pytest.approx(2 / 3)
    assert means["attack_rate"] == 1
    assert means["pass_at_1"] == pytest.approx(1 / 3)
    # Two of three tests are passed by the right program and one by each of the others: one by the input, one by 7.
    assert means["pass_at_1_max_pass"] == means["pass_at_1_agreement"] == 1
    assert means["base_pass_at_1"] == pytest.approx(2 / 3)  # x < 9 is no matter to the base inputs
    assert result["left_out"] == {"HumanEval/1": "it has no suite"}
    crossings = tmp_path / "out/evaluations/humanevalplus_suites_step_000000/crossings.jsonl"
    assert len(crossings.read_text().splitlines()) == 1
    again = judge(tmp_path, *given, "--suites=s.jsonl", "--num_tests=3")  # nothing is run again
    assert (again.returncode, again.stdout) == (0, done.stdout)
    write_rows(tmp_path / "s.jsonl", {"task_id": "HumanEval/0", "tests": ["assert f(3) == 4"]})
    changed = judge(tmp_path, *given, "--suites=s.jsonl")
    assert changed.returncode == 2
    assert changed.stderr.strip().splitlines()[-1].startswith("error: ")
