"""The paper's tables filled from runs, against numbers worked out by hand; and as Markdown and CSV."""

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from codea1.evaluation.result_files import write_evaluation
from codea1.lab.study import rendering, report, results
from codea1.lab.study.experiments import PAPER, collected, read_run
from codea1.lab.study.tables import Table, detectable
from codea1.lab.study.tables import tables as tables_of
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter
from codea1.runtime.errors import BadInput, StorageFailed
from tests.made_up_runs import config, evaluation, make_run

LOW, HIGH = [0.0, 0.25, 0.25, 0.5], [0.5, 0.75, 0.75, 1.0]


def filled(*folders: Path) -> dict[str, Table]:
    runs = collected([read_run(str(folder)) for folder in folders])
    return {table.name: table for table in tables_of(PAPER, runs)}


def cell(table: Table, row: str, column: str):
    place = [each.key for each in table.columns].index(column)
    return next(each for each in table.rows if each.key == row).cells[place]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three seeds of Code-A1 and of Golden Tests, on four questions."""
    for seed, lower in ((0, 0.0), (1, 0.25), (2, 0.125)):
        measured = {
            "code_pass_at_1": [value - lower for value in HIGH],
            "test_mul": [[0.5, 0.5], [1.0, 0.5], [0.0, 0.5], [0.5, 0.5]],
        }
        make_run(tmp_path / f"code_a1_{seed}", config(seed), {"code_pass_at_1": LOW}, measured)
        golden = {"code_pass_at_1": [value - lower - 0.25 for value in HIGH]}
        make_run(tmp_path / f"golden_{seed}", config(seed, "golden"), {"code_pass_at_1": LOW}, golden)
    return tmp_path


ALL = tuple(f"{name}_{seed}" for name in ("code_a1", "golden") for seed in range(3))


def test_means_differences_and_seeds_are_those_computed_by_hand(runs: Path):
    table = filled(*(runs / name for name in ALL))["code_generation_tiny"]
    ours = cell(table, "code_a1", "tiny_pass")
    assert ours.ours.mean == pytest.approx(0.625)  # 0.75, 0.5 and 0.625
    assert ours.seeds == (0, 1, 2)
    base = cell(table, "base", "tiny_pass")
    assert base.ours.mean == pytest.approx(0.25)
    assert base.comparisons == ()
    # Every question is higher by 0.5, 0.25 and 0.375: t over three seeds alone, whose p-value at two degrees of freedom
    # is 1 - t / sqrt(t^2 + 2), here with t^2 = 27.
    against_base, compared = ours.comparisons
    assert against_base.against == "Base"
    half = 4.302653 * (0.015625 / 3) ** 0.5
    assert against_base.difference[:3] == pytest.approx((0.375, 0.375 - half, 0.375 + half), rel=1e-6)
    assert against_base.difference.p_value == pytest.approx(1 - (27 / 29) ** 0.5)
    assert against_base.p_holm == pytest.approx(2 * against_base.difference.p_value)  # the second of three
    # Above Golden Tests each question is higher by 0.25 with each seed.
    assert compared.against == "Golden Tests"
    assert compared.difference[:3] == pytest.approx((0.25, 0.25, 0.25))
    assert compared.is_clear
    (golden,) = cell(table, "golden", "tiny_pass").comparisons
    assert golden.against == "Base"
    assert golden.difference.mean == pytest.approx(0.125)


def test_rows_and_comparisons_are_of_the_seeds_that_all_rows_have(runs: Path):
    table = filled(*(runs / name for name in ALL if name not in ("golden_1", "golden_2")))["code_generation_tiny"]
    assert [row.cells[0].seeds for row in table.rows] == [(0,), (0,), (), (0,)]
    _, compared = cell(table, "code_a1", "tiny_pass").comparisons
    assert compared.difference[:3] == pytest.approx((0.25, 0.25, 0.25))
    assert math.isnan(compared.difference.p_value)
    assert math.isnan(compared.p_holm)
    assert not compared.is_clear
    assert "without a p-value is over fewer than 3 seeds" in rendering.markdown(table)


def test_a_row_that_does_not_start_where_base_is_says_from_where(runs: Path):
    start, end = {"code_pass_at_1": LOW, "test_validity": LOW}, {"code_pass_at_1": HIGH, "test_validity": HIGH}
    make_run(runs / "code_a1_3", config(3), {**start, "test_validity": HIGH}, end)
    make_run(runs / "self_play_3", config(3, "self_play"), start, end)
    tables = filled(runs / "code_a1_3", runs / "self_play_3")
    assert (
        "Self-Play starts from Validity 25.0 (Base 75.0), over the same seeds." in tables["test_generation_tiny"].notes
    )
    assert not any("starts from" in note for note in tables["code_generation_tiny"].notes)


def test_a_product_is_of_means_for_each_seed(runs: Path):
    table = filled(*(runs / name for name in ALL))["test_generation_tiny"]
    assert cell(table, "code_a1", "tiny_mul").ours.mean == pytest.approx(0.5 * 0.5)


def test_the_markdown_of_a_table_is_golden(runs: Path):
    table = filled(*(runs / name for name in ALL))["code_generation_tiny"]
    text = rendering.markdown(table)
    rows = [[each.strip() for each in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    # Of the squares of both half-widths, t over seeds has 4.302653^2 * 0.015625 / 3 and t over questions, in all rows,
    # 3.182446^2 * (0.125 / 3) / 4.
    assert [row[:3] for row in rows] == [
        ["", "seeds", "pass@1"],
        [":--", "--:", "--:"],
        ["Base", "0, 1, 2", "25.0 [-7.5, 57.5]"],
        ["Golden Tests", "0, 1, 2", "37.5 [-7.4, 82.4]"],
        ["Self-Play", "", "-"],
        ["Code-A1", "0, 1, 2", "62.5 [17.6, 107.4]"],
        ["difference", "pass@1", "pass@1, greedy"],
        [":--", "--:", "--:"],
        ["Golden Tests - Base", "+12.5 [-18.6, +43.6], p = 0.225", "-"],
        ["Code-A1 - Base", "+37.5 [+6.4, +68.6], p = 0.070", "-"],
        ["Code-A1 - Golden Tests", "**+25.0**, p < 0.001", "-"],
    ]
    assert "P-values are corrected for 3 comparisons of this table (Holm), and what is below 0.05 is bold." in text


def test_published_numbers_stand_beside_runs_of_their_size_only(tmp_path: Path):
    run = make_run(tmp_path / "code_a1_0", config(0, shape="qwen2.5-coder-1.5b"))
    write_evaluation(run, "humanevalplus_step_000111", evaluation(111, {"avg_at_32": HIGH}, "humanevalplus"))
    write_evaluation(run, "humanevalplus_step_000050", evaluation(50, {"avg_at_32": LOW}, "humanevalplus"))
    write_evaluation(run, "humanevalplus_step_000000", evaluation(0, {"avg_at_32": LOW}, "humanevalplus"))
    tables = filled(run.path)
    table = tables["code_generation_1.5b"]
    assert table.notes == ("humanevalplus, samples: Base 32, Code-A1 32.",)
    ours = cell(table, "code_a1", "humanevalplus")
    assert ours.ours.mean == pytest.approx(0.75)  # of the last step
    assert ours.published == 72.69
    assert cell(table, "base", "humanevalplus").ours.mean == pytest.approx(0.25)
    assert "75.0 [56.2, 93.8], paper 72.69" in rendering.markdown(table)
    missing = cell(table, "code_a1", "mbppplus")
    assert missing.ours is None
    assert missing.published == 63.33
    assert "paper: Table 1, avg@32, as printed." in rendering.markdown(table)
    assert "paper: figure of the alpha sweep (alpha.png), read off the figure." in rendering.markdown(
        tables["alpha_1.5b"]
    )


def test_an_average_needs_all_its_benchmarks(tmp_path: Path):
    run = make_run(tmp_path / "a1", config(0, shape="qwen2.5-coder-3b"))
    for benchmark, values in (("humanevalplus", HIGH), ("mbppplus", LOW)):
        write_evaluation(run, f"{benchmark}_step_000111", evaluation(111, {"avg_at_32": values}, benchmark))
    assert cell(filled(tmp_path / "a1")["code_generation_3b"], "code_a1", "average").ours is None
    name, values = "bigcodebench_complete", [0.0] * 9
    write_evaluation(run, f"{name}_step_000111", evaluation(111, {"avg_at_32": values}, name))
    assert cell(filled(tmp_path / "a1")["code_generation_3b"], "code_a1", "average").ours.mean == pytest.approx(1 / 3)


def test_curves_end_with_the_mean_of_the_last_tenth(tmp_path: Path):
    run = make_run(tmp_path / "a1", config(0, steps=20), after={"code_pass_at_1": LOW})
    with MetricsWriter(run) as writer:
        for step in range(1, 21):
            writer.write(step, {"code/pass_rate_new": step / 20})
    table = filled(tmp_path / "a1")["mistake_book_tiny"]
    assert cell(table, "code_a1", "pass_rate_new").ours.mean == pytest.approx((19 + 20) / 40)
    assert "| 97.5 |" in rendering.markdown(table)  # one seed's curve has no interval


def test_a_curve_that_goes_on_has_no_end_yet(tmp_path: Path):
    run = make_run(tmp_path / "a1", config(0, steps=40))
    with MetricsWriter(run) as writer:
        for step in range(1, 6):
            writer.write(step, {"code/pass_rate_new": 0.5})
    found = cell(filled(tmp_path / "a1")["mistake_book_tiny"], "code_a1", "pass_rate_new")
    assert found.ours is None


def test_rows_that_are_read_beside_each_other_are_of_the_same_seeds(tmp_path: Path):
    for seed, values in ((0, LOW), (1, HIGH)):
        make_run(tmp_path / f"a1_{seed}", config(seed), after={"code_pass_at_1": values})
    make_run(tmp_path / "alpha_1", config(0, game__alpha=1.0), after={"code_pass_at_1": LOW})
    found = filled(*(tmp_path / name for name in ("a1_0", "a1_1", "alpha_1")))
    shared, all_seeds = (cell(found[f"{name}_tiny"], "code_a1", "tiny_pass") for name in ("alpha", "code_generation"))
    assert (shared.seeds, shared.ours.mean) == ((0,), np.mean(LOW))
    assert (all_seeds.seeds, all_seeds.ours.mean) == ((0, 1), np.mean(LOW + HIGH))


def test_rows_whose_runs_differ_in_more_say_so(tmp_path: Path):
    make_run(tmp_path / "a1", config(), after={"code_pass_at_1": HIGH})
    make_run(tmp_path / "golden", config(method="golden", steps=100), after={"code_pass_at_1": HIGH})
    notes = filled(tmp_path / "a1", tmp_path / "golden")["code_generation_tiny"].notes
    assert "of the 576 near misses of the training questions 85 (14.8 %) pass all of them" in notes[0]
    assert notes[1:] == ("Code-A1 differs from Golden Tests also in steps.", "golden was measured at step 40 of 100.")


def test_runs_that_do_not_belong_together_are_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture):
    make_run(tmp_path / "one", config(0), after={"code_pass_at_1": HIGH})
    make_run(tmp_path / "again", config(0), after={"code_pass_at_1": HIGH})
    make_run(tmp_path / "longer", config(1, steps=100), after={"code_pass_at_1": HIGH})
    make_run(tmp_path / "fewer", config(1), after={"code_pass_at_1": HIGH[:3]})
    make_run(tmp_path / "golden", config(0, "golden"), after={"code_pass_at_1": HIGH[:3]})
    make_run(tmp_path / "warm_start", {"seed": 0, "sft": {}})
    (tmp_path / "empty").mkdir()

    def said(*names: str) -> str:
        with pytest.raises(BadInput) as error:
            report.report_runs([str(tmp_path / name) for name in names], None)
        assert capsys.readouterr().out == ""
        return str(error.value)

    assert "are both Code-A1 with seed 0" in said("one", "again")
    assert "their configs differ in steps" in said("one", "longer")
    assert "was not measured on the same questions for every seed" in said("one", "fewer")
    assert "were not measured on the same questions" in said("one", "golden")
    for name, made in (("two", config(1)), ("asked_golden", config(0, "golden"))):
        others = {**evaluation(40, {"code_pass_at_1": HIGH}), "question_ids": ["q/1", "q/0", "q/2", "q/3"]}
        write_evaluation(make_run(tmp_path / name, made), "after", others)
    assert "was not measured on the same questions for every seed" in said("one", "two")
    assert "were not measured on the same questions" in said("one", "asked_golden")
    assert "is neither a training run nor an evaluation" in said("one", "warm_start")
    assert "is not a run folder" in said("one", "empty")
    (tmp_path / "one" / "evaluations" / "after.json").write_text("{}")
    assert "after.json is not an evaluation" in said("one", "golden")


def chosen(folder: RunFolder, values: list[float], model: str, test_model: str, step: int, samples: int = 32) -> None:
    """Writes what `codea1.benchmark --best_of` does: the result, and in two folders how it was measured."""
    name = f"humanevalplus_best_of_{samples}"
    write_evaluation(folder, f"{name}_step_{step:06d}", evaluation(step, {"pass_at_1": values}, name))
    drawn = {"benchmark": "humanevalplus", "model": model, "step": step, "samples": 32, "seed": 0}
    RunFolder.open(str(folder.evaluations / f"humanevalplus_step_{step:06d}"), drawn)
    settings = {"test_model": test_model, "num_tests": 8, "seed": 0}
    RunFolder.open(str(folder.evaluations / f"{name}_step_{step:06d}"), settings)


def test_a_row_is_of_one_number_of_samples(tmp_path: Path):
    run = make_run(tmp_path / "code_a1_0", config(0, shape="qwen2.5-coder-3b"))
    other = make_run(tmp_path / "golden_0", config(0, "golden", "qwen2.5-coder-3b"))
    write_evaluation(run, "humanevalplus_step_000111", evaluation(111, {"avg_at_32": HIGH}, "humanevalplus"))
    write_evaluation(other, "humanevalplus_step_000111", evaluation(111, {"avg_at_1": LOW}, "humanevalplus"))
    table = filled(run.path, other.path)["code_generation_3b"]
    assert "humanevalplus, samples: Golden Tests 1, Code-A1 32." in table.notes
    for count in (4, 32):
        chosen(run, HIGH, str(run.path), str(run.path), 111, samples=count)
    with pytest.raises(BadInput, match="humanevalplus, seed 0, was measured with more than one samples"):
        filled(run.path)


def measured(folder: RunFolder, values: list[float], **settings: object) -> None:
    """Writes what `codea1.benchmark` does: the result, and in a folder how it was measured."""
    name = "humanevalplus_step_000111"
    write_evaluation(folder, name, evaluation(111, {"avg_at_32": values}, "humanevalplus"))
    RunFolder.open(str(folder.evaluations / name), {"temperature": 0.7, "weights": str(folder.path), **settings})


def test_rows_that_were_measured_differently_say_so(tmp_path: Path):
    shape = "qwen2.5-coder-3b"
    run, other = (make_run(tmp_path / name, config(0, name, shape)) for name in ("code_a1", "golden"))
    measured(run, HIGH, max_response_length=256, seed=0)
    measured(other, [float("nan"), *LOW[1:]], max_response_length=4096, seed=1)
    table = filled(run.path, other.path)["code_generation_3b"]
    assert table.notes[1:] == (
        "humanevalplus, max_response_length: Golden Tests 4096, Code-A1 256.",
        "Golden Tests, humanevalplus: 3 of 4 tasks.",
    )
    again = RunFolder.open(str(tmp_path / "again"), {"evaluated": {"run": str(run.path)}})
    measured(again, LOW, max_response_length=256, temperature=0.0)
    said = "Code-A1, humanevalplus, seed 0, was measured with more than one temperature: use one evaluation."
    with pytest.raises(BadInput, match=said):
        filled(run.path, again.path)


def test_an_evaluation_of_another_run_is_refused(tmp_path: Path):
    run, old = (make_run(tmp_path / name, config(0, shape="qwen2.5-coder-3b")) for name in ("new", "old"))
    evaluated = RunFolder.open(str(tmp_path / "out"), {"evaluated": {"run": str(old.path)}})
    measured(evaluated, HIGH)
    with pytest.raises(BadInput, match=r"out is an evaluation of \S*/old, and not of \S*/new\."):
        filled(run.path, evaluated.path)
    assert cell(filled(old.path, evaluated.path)["code_generation_3b"], "code_a1", "humanevalplus").ours.mean == 0.75


def test_everything_is_written_to_a_folder(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    with MetricsWriter(RunFolder.existing(str(runs / "code_a1_0"))) as writer:
        for step in range(1, 9):
            writer.write(step, {"code/reward": step / 8, "book/size": step})
    for name, fields in (("alpha_0", {"game__alpha": 0.0}), ("no_book_0", {"game__mistake_book": False})):
        make_run(runs / name, config(0, **fields), after={"code_pass_at_1": LOW})
    output = tmp_path / "report"
    report.report_runs([str(runs / name) for name in (*ALL, "alpha_0", "no_book_0")], str(output))
    written = {path.name for path in output.iterdir()}
    tables = {f"{each.name}_tiny.csv" for each in PAPER.tables() if each.tiny_columns}
    assert tables == {name for name in written if name.endswith(".csv")}
    assert {"training_tiny.png", "mistake_book_tiny.pdf", "alpha_tiny.png", "alpha_tiny.pdf"} <= written
    text = (output / "report.md").read_text()
    assert "![alpha tiny](alpha_tiny.png)" in text
    assert "| metric | code_a1_0 |" in text
    assert (output / "alpha_tiny.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "alpha_tiny.pdf").read_bytes().startswith(b"%PDF")
    assert str(output) in capsys.readouterr().out


def test_the_csv_has_a_line_per_cell_and_reads_back(runs: Path):
    table = filled(*(runs / name for name in ALL))["code_generation_tiny"]
    rows = list(csv.DictReader(io.StringIO(rendering.comma_separated(table))))
    assert len(rows) == len(table.rows) * len(table.columns) + 1  # one cell has two comparisons
    ours = next(row for row in rows if row["row"] == "Code-A1" and row["column"] == "pass@1")
    assert float(ours["mean"]) == pytest.approx(62.5)
    assert ours["seeds"] == "0 1 2"
    assert ours["against"] == "Base"
    assert float(ours["difference"]) == pytest.approx(37.5)
    greedy = next(row for row in rows if row["row"] == "Code-A1" and row["column"] == "pass@1, greedy")
    assert greedy["mean"] == greedy["p"] == ""


def test_an_undefined_metric_is_said_and_not_compared(tmp_path: Path):
    nan = float("nan")
    make_run(tmp_path / "a1", config(), after={"code_pass_at_1": [nan] * 4})
    make_run(tmp_path / "golden", config(method="golden"), after={"code_pass_at_1": LOW})
    table = filled(tmp_path / "a1", tmp_path / "golden")["code_generation_tiny"]
    assert np.isnan(cell(table, "code_a1", "tiny_pass").ours.mean)
    assert cell(table, "code_a1", "tiny_pass").comparisons == ()
    assert "undefined" in rendering.markdown(table)


def test_a_folder_that_cannot_be_written_is_a_sentence(runs: Path):
    (runs / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        report.report_runs([str(runs / name) for name in ALL], str(runs / "file" / "report"))


def test_a_disk_that_fails_while_runs_are_read_is_a_sentence(runs: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise StorageFailed("reading after.json failed: the disk does not work.")

    monkeypatch.setattr(results, "read_evaluation", broken)
    for output in (None, str(runs / "report")):
        with pytest.raises(StorageFailed, match=r"^reading after\.json failed: the disk does not work\.$"):
            report.report_runs([str(runs / name) for name in ALL], output)


def test_samples_that_tests_chose_stand_in_the_row_of_both_models(tmp_path: Path):
    own = make_run(tmp_path / "code_a1_0", config(0, shape="qwen2.5-coder-3b"))
    write_evaluation(own, "humanevalplus_step_000111", evaluation(111, {"avg_at_32": LOW}, "humanevalplus"))
    run, base = str(own.path), "models/Qwen2.5-Coder-3B-Instruct"
    for name, evaluated, model, test_model, step, values in (
        ("both", {"run": run}, run, run, 111, HIGH),
        ("with_base", {"run": run}, run, base, 111, LOW),
        ("base", {"model": base, "completions": ""}, base, "exported/code_a1_0/test", 0, [0.0, 0.0, 0.0, 1.0]),
    ):
        chosen(RunFolder.open(str(tmp_path / name), {"evaluated": evaluated}), values, model, test_model, step)
    table = filled(own.path, *(tmp_path / name for name in ("both", "with_base", "base")))["collaboration_3b"]
    means = {row.key: row.cells[0].ours and row.cells[0].ours.mean for row in table.rows}
    assert means == {
        "base": None,
        "code_a1": 0.25,
        "base+base": None,
        "code_a1+base": 0.25,
        "base+code_a1": 0.25,
        "code_a1+code_a1": 0.75,
    }
    assert [each.against for each in cell(table, "code_a1+code_a1", "humanevalplus").comparisons] == [
        "Code-A1",
        "Code-A1 with tests of Base",
    ]
    chosen(own, HIGH, str(own.path), "models/Qwen2.5-Coder-7B-Instruct", 111)  # of another size
    assert cell(filled(own.path)["collaboration_3b"], "code_a1+base", "humanevalplus").ours is None


def test_a_model_of_the_published_name_is_the_base(tmp_path: Path):
    evaluated = {"evaluated": {"model": "gs://bucket/Qwen2.5-Coder-7B-Instruct", "completions": ""}}
    folder = RunFolder.open(str(tmp_path / "base"), evaluated)
    write_evaluation(folder, "mbppplus_step_000000", evaluation(0, {"avg_at_32": HIGH}, "mbppplus"))
    found = cell(filled(folder.path)["code_generation_7b"], "base", "mbppplus")
    assert (found.ours.mean, found.published) == (0.75, 71.95)
    exported = RunFolder.open(str(tmp_path / "own"), {"evaluated": {"model": "exported/code", "completions": ""}})
    assert read_run(str(exported.path)).run.arm == ""


def test_the_detectable_difference_is_found_with_its_chance():
    rng = np.random.default_rng(0)
    points = detectable(4.0, seeds=5, tests=2)
    drawn = rng.normal(points, 4.0, size=(20_000, 5))
    p_values = stats.ttest_1samp(drawn, 0.0, axis=1).pvalue
    assert np.mean((p_values < 0.025) & (drawn.mean(axis=1) > 0)) == pytest.approx(0.8, abs=0.01)
    assert detectable(0.0, seeds=5, tests=2) == 0.0  # arms that differ by the same at every seed
