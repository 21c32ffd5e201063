import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from codea1.evaluation.result_files import read_evaluation, write_evaluation
from codea1.lab.report import figures
from codea1.lab.report.run_report import compare, comparison_table, report_run, show_report
from codea1.lab.report.tables import evaluation_table, percents
from codea1.lab.study.report import report_runs
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter
from codea1.runtime.errors import BadInput
from tests import made_up_runs
from tests.made_up_runs import config, make_run

ALL_METRICS = [series.metric for panel in figures.PANELS if not panel.needs for series in panel.series]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.open(str(tmp_path / "tiny"), {"seed": 0})


def write_metrics(folder: RunFolder, steps: int, metrics: list[str]) -> None:
    rng = np.random.default_rng(0)
    with MetricsWriter(folder) as writer:
        for step in range(1, steps + 1):
            writer.write(step, {"time/total": 2.0, **{metric: rng.random() for metric in metrics}})


def evaluation(step: int, **metrics: list[float]) -> dict[str, Any]:
    made = made_up_runs.evaluation(step, metrics)
    for metric in made["metrics"].values():
        metric |= {"low": 0.0, "high": 1.0}
    return made


def cells(markdown: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines() if line[:1] == "|"]


def test_a_whole_report(folder: RunFolder, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    write_metrics(folder, 30, ALL_METRICS)
    write_evaluation(folder, "before", evaluation(0, code_pass_at_1=[0.5, 0.0, 0.25, 0.25], test_mul=[[0.5, 0.0]] * 4))
    write_evaluation(folder, "after", evaluation(30, code_pass_at_1=[1.0, 0.5, 0.75, 0.75], test_mul=[[0.5, 0.5]] * 4))
    report_run(str(folder.path))

    markdown = folder.report.read_text()
    assert cells(markdown) == [
        ["metric", "before", "after", "difference"],
        [":--", "--:", "--:", "--:"],
        ["Code pass@1", "25.0 [0.0, 100.0]", "75.0 [0.0, 100.0]", "**+50.0 [+50.0, +50.0]**"],
        ["Test Mul", "0.0 [0.0, 100.0]", "25.0 [0.0, 100.0]", "**+25.0 [+25.0, +25.0]**"],
    ]
    assert "4 questions of the test split, before at step 0 and after at step 30" in markdown
    assert "intervals over questions, taken as independent" in markdown
    assert "report.png" in markdown
    assert "Not recorded" not in markdown
    printed = capsys.readouterr().out
    assert "+50.0 [+50.0, +50.0]" in printed
    assert str(folder.report) in printed


def test_the_picture_shows_what_is_there_and_names_what_is_not(folder: RunFolder):
    write_metrics(folder, 12, ["code/reward", "test/reward", "code/pass_rate_new", "validation/test_validity"])
    show_report(folder, print)
    markdown = folder.report.read_text()
    missing = set(ALL_METRICS) - {"code/reward", "test/reward", "code/pass_rate_new", "validation/test_validity"}
    assert all(f"`{metric}`" in markdown for metric in missing)
    assert "`code/reward`" not in markdown
    picture = imread(io.BytesIO(folder.figure.read_bytes()))
    assert picture.std() > 0.05


def write_sides(folder: RunFolder, hidden_pass_rate: np.ndarray) -> None:
    """Writes 60 steps of a Code LLM that passes more and more generated tests."""
    paid = np.repeat(np.linspace(0.80, 0.87, 10), 6)
    with MetricsWriter(folder) as writer:
        for step, (pays, measures) in enumerate(zip(paid, hidden_pass_rate, strict=True), start=1):
            writer.write(step, {"code/pass_rate_new": pays, "code/hidden_pass_rate": measures})


def test_a_rise_that_the_hidden_side_does_not_show_is_warned_of(folder: RunFolder, capsys: pytest.CaptureFixture):
    write_sides(folder, np.full(60, 0.18))
    report_run(str(folder.path))
    markdown = folder.report.read_text()
    assert cells(markdown.partition("## Paid and hidden")[2]) == [
        ["player", "", "first → last tenth", "change"],
        [":--", ":--", "--:", "--:"],
        ["Code LLM", "pass rate on generated tests", "0.800 → 0.870", "+0.070 [+0.070, +0.070]"],
        ["Code LLM", "hidden pass rate", "0.180 → 0.180", "+0.000 [+0.000, +0.000]"],
        ["Code LLM", "gap", "0.620 → 0.690", "+0.070 [+0.070, +0.070]"],
    ]
    assert markdown.count("**Warning.** Code LLM: its pass rate on generated tests rises") == 1
    assert "No warning" not in markdown
    assert "`code/hidden_pass_rate`" not in markdown
    assert capsys.readouterr().out.count("warning: Code LLM: its pass rate on generated tests rises") == 1


def test_a_run_whose_hidden_side_rises_too_gets_no_warning(folder: RunFolder, capsys: pytest.CaptureFixture):
    write_sides(folder, np.linspace(0.18, 0.3, 60))
    report_run(str(folder.path))
    assert "No warning: for no player" in folder.report.read_text()
    assert "**Warning.**" not in folder.report.read_text()
    assert "warning" not in capsys.readouterr().out


@pytest.mark.parametrize("rows", [[], [{"step": 1}], [{"step": 1, "code/reward": None}], [{"step": 5, "book/size": 3}]])
def test_short_runs_are_drawn(rows: list[dict[str, Any]]):
    assert figures.draw(rows, "run").startswith(b"\x89PNG")


def test_a_run_without_results_yet(folder: RunFolder):
    show_report(folder, print)
    assert "No evaluation has been made yet." in folder.report.read_text()
    assert not folder.figure.exists()


def test_one_sided_and_unknown_metrics_are_shown_too(folder: RunFolder):
    write_evaluation(folder, "before", evaluation(0, own_metric=[0.5] * 4, test_validity=[0.5] * 4))
    assert comparison_table(compare(folder)).rows == [
        ["own_metric", "50.0 [0.0, 100.0]", "-", "-"],
        ["Test validity", "50.0 [0.0, 100.0]", "-", "-"],
    ]


def test_a_narrow_terminal_loses_no_number(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setenv("COLUMNS", "60")
    for name in ("before", "after"):
        write_evaluation(folder, name, evaluation(0, test_mutation_score_at_1=[0.125] * 4, code_pass_at_4=[0.5] * 4))
    report_run(str(folder.path))
    printed = capsys.readouterr().out
    assert printed.count("12.5") == printed.count("50.0") == 2
    assert [text in printed for text in ("pass@4", "…")] == [True, False]


def test_questions_without_a_value_are_left_out_of_the_difference(folder: RunFolder):
    nan = float("nan")
    write_evaluation(folder, "before", evaluation(0, test_strict_kill=[0.5, nan, 0.0, 0.0]))
    write_evaluation(folder, "after", evaluation(9, test_strict_kill=[0.5, 1.0, nan, 0.5]))
    (row,) = compare(folder)
    assert row.difference.mean == 0.25
    assert comparison_table([row]).rows[0][0] == "Test strict kill (2 left out)"
    shown = io.StringIO()
    Console(file=shown).print(evaluation_table(read_evaluation(folder, "after"), ""))
    assert "Test strict kill (1 left out)" in shown.getvalue()
    assert read_evaluation(folder, "before")["metrics"]["test_strict_kill"]["per_question"][1] is None


def test_evaluations_of_other_questions_are_not_compared(folder: RunFolder):
    write_evaluation(folder, "before", evaluation(0, test_mul=[0.5] * 4))
    write_evaluation(folder, "after", {**evaluation(9, test_mul=[0.5] * 4), "split": "validation"})
    with pytest.raises(BadInput, match="same questions"):
        compare(folder)
    for name, ids in (("before", "abcd"), ("after", "abdc")):
        write_evaluation(folder, name, {**evaluation(9, test_mul=[0.5] * 4), "question_ids": list(ids)})
    with pytest.raises(BadInput, match="same questions"):
        compare(folder)


DAMAGED = '{"step": 1, "split": "test", "questions": 1, "question_ids": ["a"], "metrics": {"a": 3}}'
SHORT = (
    '{"step": 1, "split": "test", "questions": 2, "question_ids": ["a", "b"], '
    '"metrics": {"a": {"mean": 1, "low": 1, "high": 1, "per_question": [1]}}}'
)


@pytest.mark.parametrize("content", ["", "[]", "{}", DAMAGED, SHORT])
def test_a_damaged_evaluation_is_named_and_nothing_written(folder: RunFolder, content: str):
    folder.evaluations.mkdir()
    (folder.evaluations / "before.json").write_text(content)
    with pytest.raises(BadInput, match=r"before\.json is not an evaluation"):
        show_report(folder, print)
    assert not folder.report.exists()


def test_smoothing_keeps_means_and_ends():
    values = np.array([0.0, 3.0, 6.0, 0.0])
    np.testing.assert_allclose(figures.smoothed(values, 3), [1.5, 3.0, 3.0, 3.0])
    np.testing.assert_allclose(figures.smoothed(values, 1), values)
    np.testing.assert_allclose(figures.smoothed(values[:2], 9), [1.5, 1.5])


def test_the_program_refuses_a_folder_that_is_no_run_without_jax(tmp_path: Path):
    script = "import runpy, sys; sys.argv = ['report', *sys.argv[1:]]; sys.modules['jax'] = None\nrunpy.run_module"
    command = [sys.executable, "-c", f"{script}('codea1.report', run_name='__main__')", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"error: {tmp_path} is not a run folder: it has no config.json.\n")
    assert list(tmp_path.iterdir()) == []


def test_several_runs_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture):
    names = {"a1_0": "code_a1", "golden_0": "golden"}
    for name, metrics in zip(names, [{"test_validity": [0.0, 0.5]}, {"code_pass_at_1": [0.25, 0.25]}], strict=True):
        before = {metric: [0.0, 0.0] for metric in metrics}
        make_run(tmp_path / name, config(method=names[name]), before, metrics)
    report_runs([str(tmp_path / name) for name in names], None)
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "| metric | a1_0 | golden_0 |",
        "| :-- | --: | --: |",
        "| Test validity | 0.0 → 25.0, +25.0 [+0.0, +50.0] | - |",
        "| Code pass@1 | - | 0.0 → 25.0, **+25.0 [+25.0, +25.0]** |",
    ]


def test_a_table_says_the_same_of_sums_in_any_order():
    assert percents([-1e-17, 0.1 + 0.2 - 0.3, -0.18749999999999997, -0.0003], "+") == ["+0.0", "+0.0", "-18.8", "-0.0"]
