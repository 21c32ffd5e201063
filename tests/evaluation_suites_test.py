"""Whole evaluations of suites: given ones, a model's, resumed, refused."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from codea1.game.methods import METHODS
from codea1.lab.benchmarks import evaluation, suites
from codea1.lab.benchmarks.benchmarks import AnswerSampling, EvaluationSpec
from codea1.lab.benchmarks.suites import evaluate_suites
from codea1.lab.sandbox.benchmarks import BenchmarkPool, TracedRun
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.values.verdict import Verdict
from tests.conftest import done

PROGRAM = "def f(x):\n    if x < 0:\n        return 1\n    return 2"
GOOD = [f"assert f({x}) == {1 if x < 0 else 2}" for x in (-2, -1, 0, 1, 2)]


def asked(tmp_path: Path, **changes: Any) -> EvaluationSpec:
    """Asks for the suites of suites.jsonl on two functions."""
    usual = EvaluationSpec(
        benchmark="ult",
        file=str(tmp_path / "ULT.jsonl"),
        completions=str(tmp_path / "suites.jsonl"),
        output=str(tmp_path / "out"),
        sampling=AnswerSampling(temperature=0.0),
        lengths=(600, 8, 8),
    )
    return dataclasses.replace(usual, **changes)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    tasks = [{"task_id": id, "func_name": "f", "code": PROGRAM, "prompt": ""} for id in "ab"]
    (tmp_path / "ULT.jsonl").write_text(json.dumps(tasks))
    suites = [{"task_id": "b", "tests": GOOD}, {"task_id": "a", "tests": ["assert f(1) == 1", "assert f(1) == 2"]}]
    (tmp_path / "suites.jsonl").write_text("\n".join(map(json.dumps, suites)))
    return tmp_path


def result(folder: Path) -> dict:
    return json.loads((folder / "out" / "evaluations" / "ult_step_000000.json").read_text())


def test_programs_that_cannot_be_imported_are_left_out_until_the_package_is_there(files, capsys, monkeypatch):
    tasks = json.loads((files / "ULT.jsonl").read_text())
    tasks[0]["code"] = f"import not_there_yet\n{PROGRAM}"
    (files / "ULT.jsonl").write_text(json.dumps(tasks))
    evaluate_suites(asked(files), Hosts())
    assert result(files)["left_out"] == {"a": "this Python has no module not_there_yet"}
    assert result(files)["metrics"]["pass_at_5"]["per_question"] == [None, 1.0]
    assert result(files)["metrics"]["mul"]["mean"] == pytest.approx(1.0)
    assert "a is left out: this Python has no module not_there_yet" in capsys.readouterr().err
    monkeypatch.setattr(suites, "missing_modules", lambda source: [])  # as if it were installed now
    evaluate_suites(asked(files), Hosts())
    assert result(files)["left_out"] == {}
    assert result(files)["metrics"]["pass_at_5"]["per_question"] == [0.0, 1.0]


def test_a_benchmark_of_which_nothing_can_be_imported_is_refused(files):
    tasks = json.loads((files / "ULT.jsonl").read_text())
    (files / "ULT.jsonl").write_text(json.dumps([{**task, "code": f"import absent\n{PROGRAM}"} for task in tasks]))
    with pytest.raises(BadInput, match=r"no program of ult can be imported here: 2 of 2 import absent, "):
        evaluate_suites(asked(files), Hosts())
    assert not (files / "out").exists()


def test_a_part_is_scored_where_that_is_asked_for(files):
    (files / "suites.jsonl").write_text(json.dumps({"task_id": "b", "tests": GOOD}))
    evaluate_suites(asked(files, part=True), Hosts())
    assert result(files)["left_out"] == {"a": "no suite was given"}
    assert result(files)["metrics"]["pass_at_5"]["per_question"] == [None, 1.0]


def test_suites_are_scored_and_kept(files, capsys):
    evaluate_suites(asked(files), Hosts())
    whole = result(files)
    assert (whole["split"], whole["question_ids"]) == ("ult", ["a", "b"])
    metrics = whole["metrics"]
    assert metrics["pass_at_5"]["per_question"] == [0.2, 1.0]
    assert metrics["mut_at_5"]["per_question"] == [None, 1.0]
    assert metrics["mul"]["mean"] == pytest.approx(0.6)
    assert "pass_at_5" in capsys.readouterr().out


def test_an_evaluation_goes_on_where_it_was_killed(files):
    evaluate_suites(asked(files), Hosts())
    whole = result(files)
    rows = files / "out" / "evaluations" / "ult_step_000000" / "results.jsonl"
    first, second = rows.read_text().splitlines()
    rows.write_text(f"{first}\n{second[:20]}")
    with patch.object(suites, "score_suites", side_effect=suites.score_suites) as score:
        evaluate_suites(asked(files), Hosts())
    assert [task.id for call in score.call_args_list for task in call.args[1]] == [json.loads(second)["question_id"]]
    assert result(files) == whole


def test_suites_none_of_which_is_judged_stop_the_evaluation_which_can_go_on(tmp_path):
    tasks = [{"task_id": id, "func_name": "f", "code": PROGRAM, "prompt": ""} for id in "abcde"]
    (tmp_path / "ULT.jsonl").write_text(json.dumps(tasks))
    suites = [{"task_id": id, "tests": GOOD[:1] if id != "e" else []} for id in "abcde"]
    (tmp_path / "suites.jsonl").write_text("\n".join(map(json.dumps, suites)))
    lost = done(TracedRun(Verdict.INFRA, "gone", 0.0, frozenset()))
    told = "all 4 suites for ult failed for a reason that is not theirs: gone;"
    with patch.object(BenchmarkPool, "run_suite", return_value=lost), pytest.raises(BadInput, match=told):
        evaluate_suites(asked(tmp_path), Hosts())
    evaluate_suites(asked(tmp_path), Hosts())
    assert result(tmp_path)["metrics"]["pass_at_5"]["per_question"] == [0.2] * 4 + [0.0]


def test_a_model_is_asked(files, model_folder):
    model = {"completions": "", "model": str(model_folder)}
    evaluate_suites(asked(files, **model), Hosts())
    rows = (files / "out" / "evaluations" / "ult_step_000000" / "suites.jsonl").read_text().splitlines()
    assert sorted((row["question_id"], row["index"]) for row in map(json.loads, rows)) == [
        (id, number) for id in "ab" for number in range(5)
    ]
    assert result(files)["metrics"]["pass_at_5"]["per_question"] == [0.0, 0.0]
    with pytest.raises(BadInput, match="in_rounds is"):
        evaluate_suites(asked(files, **model, num_tests=3), Hosts())


def test_what_cannot_be_asked_is_said(files):
    task = {"task_num": 1, "func_name": "f", "python_solution": "class Solution: pass", "description": ""}
    (files / "te.jsonl").write_text(json.dumps(task))
    testeval = {"benchmark": "testeval", "file": str(files / "te.jsonl"), "completions": ""}
    with pytest.raises(BadInput, match="--num_tests is for functions: testeval has classes"):
        evaluate_suites(asked(files, **testeval, num_tests=8), Hosts())


def test_the_test_llm_of_a_run_is_asked(files, run, monkeypatch):
    of_run = {"run": str(run.path), "step": "best", "completions": "", "output": ""}
    evaluate_suites(asked(files, **of_run), Hosts())
    whole = json.loads((run.path / "evaluations" / "ult_step_000003.json").read_text())
    assert (whole["step"], whole["questions"]) == (3, 2)
    # How many programs are drawn has no part in it: the same evaluation, and all of it is done.
    monkeypatch.setattr(evaluation, "policy_of_run", None)
    evaluate_suites(asked(files, **of_run, sampling=AnswerSampling(samples=1, temperature=0.0)), Hosts())


@pytest.mark.parametrize("method", ["code_a1", "black_box"])
def test_a_run_is_shown_what_it_learned_with(files, run, monkeypatch, method):
    (run.path / "config.json").write_text(json.dumps(dict(run.config, method=method)))
    seen = []
    monkeypatch.setattr(
        evaluation, "policy_of_run", lambda *_: SimpleNamespace(generate=iter, call_between_chunks=lambda _: None)
    )
    monkeypatch.setattr(suites, "ask_for_asserts", lambda wanted, *_: seen.extend(wanted) or iter(()))
    evaluate_suites(asked(files, run=str(run.path), completions="", num_tests=8), Hosts())
    assert [shown for *_, shown in seen] == [PROGRAM if METHODS[method].sees_solution else None] * 2


def test_a_run_without_a_test_llm(files, run):
    (run.path / "config.json").write_text(json.dumps(dict(run.config, method="golden")))
    with pytest.raises(BadInput, match=r"has no Test LLM\."):
        evaluate_suites(asked(files, run=str(run.path), completions=""), Hosts())
