"""Which experiment of the paper a folder is of, and what it measured."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from codea1.lab.benchmarks.benchmarks import AnswerSampling, EvaluationSpec
from codea1.lab.benchmarks.evaluation import Attempt
from codea1.lab.benchmarks.programs import evaluate_code
from codea1.lab.study.experiments import ARMS, experiment_of, read_run
from codea1.lab.study.layouts import Measure
from codea1.lab.study.report import report_runs
from codea1.lab.study.results import size_of
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from tests.evalplus_files import humaneval_row, write_rows
from tests.made_up_runs import config, make_run


@pytest.mark.parametrize("experiment", ARMS.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("shape", ["", "qwen2.5-coder-7b"])
def test_every_experiment_is_recognised_by_the_config_that_its_command_gives(experiment, shape: str):
    fields = {name.replace(".", "__"): value for name, value in experiment.fields.items()}
    if experiment.suites_of:
        fields["data__static_tests"] = f"elsewhere/suites_{experiment.suites_of}.jsonl"
    made = config(3, experiment.method, shape, **fields)
    if experiment.taught:
        made["test"]["model"] = "elsewhere/sft_test_model_3/model"
    assert experiment_of(made) is experiment
    assert size_of(made) == ("7b" if shape else "tiny")


def test_configs_of_no_experiment_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert experiment_of(config(game__alpha=0.4)) is None
    assert experiment_of(config(method="golden", game__alpha=0.4)) is ARMS["golden"]
    old = config()
    del old["frozen"], old["data"]["static_tests"]
    assert experiment_of(old) is ARMS["code_a1"]
    assert size_of({"code": {"model": "models/Qwen2.5-Coder-0.5B-Instruct"}}) == "0.5b"
    for name, fields in (("own", {"game__alpha": 0.4}), ("a1", {})):
        make_run(tmp_path / name, config(**fields), after={"code_pass_at_1": [0.5, 1.0]})
    report_runs([str(tmp_path / "own"), str(tmp_path / "a1")], None)
    assert "In no table of the paper, by their config: `own`." in capsys.readouterr().out


@pytest.mark.parametrize(("tester", "expected"), [("Qwen2.5-Coder-3B-Instruct", "base"), ("code_a1_0/test", "code_a1")])
def test_a_choice_is_known_by_the_files_of_codea1_benchmark(
    tester: str, expected: str, tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    base = tmp_path / "Qwen2.5-Coder-3B-Instruct"
    (tmp_path / "code_a1_0").mkdir()
    for link in (base, tmp_path / "code_a1_0" / "test"):
        link.symlink_to(model_folder)
    write_rows(tmp_path / "he.jsonl", humaneval_row(0))
    programs = ["def f(x):\n    return x", "def f(x):\n    return x + 1"]
    attempts = [Attempt("HumanEval/0", index, program) for index, program in enumerate(programs)]
    monkeypatch.setattr("codea1.lab.benchmarks.evaluation.policy_of_folder", lambda *_: Mock())
    monkeypatch.setattr("codea1.lab.benchmarks.programs.sampled", lambda *_: iter(attempts))
    monkeypatch.setattr(
        "codea1.lab.benchmarks.best_of_n.ask_for_asserts",
        lambda *_, **__: ((("HumanEval/0", i), "assert f(1) == 2") for i in range(2)),
    )
    asked = EvaluationSpec(
        benchmark="humanevalplus",
        file=str(tmp_path / "he.jsonl"),
        model=str(base),
        output=str(tmp_path / "out"),
        sampling=AnswerSampling(samples=2),
        best_of=str(tmp_path / tester),
        num_tests=8,
    )
    evaluate_code(asked, Hosts())
    run, measure = read_run(asked.output), Measure("avg_at_*", "humanevalplus")
    assert (run.run.arm, run.size) == ("base", "3b")
    (by_choice,) = run.measured(measure, "before", expected)
    (plain,) = run.measured(measure, "before")
    assert (by_choice.scores, by_choice.settings["samples"], by_choice.question_ids) == ([[1.0]], "2", ("HumanEval/0",))
    assert (plain.scores, plain.settings["samples"], plain.question_ids) == ([[0.5]], "2", ("HumanEval/0",))


def test_run_read_names_a_folder_without_a_method(tmp_path: Path):
    make_run(tmp_path / "sft", {"seed": 0})
    with pytest.raises(BadInput, match="neither a training run nor an evaluation"):
        read_run(str(tmp_path / "sft"))
