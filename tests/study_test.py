"""Declared studies: what runs, what is kept, and what the report says of it."""

import fcntl
import json
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codea1.evaluation.result_files import read_evaluation, write_evaluation
from codea1.lab.study.declaration import Study, Trial, read_study
from codea1.lab.study.layouts import Measure
from codea1.lab.study.report import place_run, write
from codea1.lab.study.results import Results
from codea1.lab.study.tables import tables
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from tests.conftest import ROOT
from tests.made_up_runs import evaluation

DECLARED = """
title = "Does it pay?"
config = "configs/tiny.py"
steps = 60
start.fields = {"sft.steps" = 9}
fields = {"validation.every" = 9}

[arms.ours]
title = "Ours"
fields = {"game.mutant_weight" = 0.5, "test.advantage" = "gdpo"}
[arms.frozen]
title = "Frozen"
fields = {frozen = "test"}
[arms.golden]
title = "Golden"
method = "golden"
steps = 70

[[stages]]
name = "recipes"
split = "validation"
arms = ["ours", "frozen", "golden"]
seeds = [100]

[[stages]]
name = "main"
split = "test"
arms = ["ours", "frozen", "golden"]
seeds = [0, 1, 2]
primary = [["ours", "frozen"], ["ours", "golden"]]
"""
RUN = Trial("test", "ours", 0)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return read_study(declared(tmp_path))


def declared(tmp_path: Path, text: str = DECLARED) -> str:
    (tmp_path / "study.toml").write_text(text)
    return str(tmp_path / "study.toml")


def measured(
    folder: Path, passes: float, steps: int = 2, questions: int = 40, seed: int = 0, before: float = 0.1
) -> RunFolder:
    """Writes a run's folder: before training a share of `before` passes, after it one of `passes`."""
    config = {"seed": seed, "steps": steps, "method": "code_a1", "code": {"model": "W/sft_0/model"}}
    run = RunFolder.open(str(folder), {**config, "data": {"test": {"source": "procedural"}}})
    for name, share in (("before", before), ("after", passes)):
        rng = np.random.default_rng(seed)
        values = (rng.random(questions) < share).astype(float).tolist()
        found = {"code_pass_at_1": values, "test_mul": [[0.8, share]] * questions}
        write_evaluation(run, name, evaluation(0 if name == "before" else steps, found))
    rows = [{"step": k, "code/reward": 0.25 * k, "perf/tokens": 100.0, "perf/cpu_seconds": 1.5} for k in (0, 1, 2)]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def test_runs_of_a_seed_share_their_warm_start_and_validation_runs_leave_the_test_split_alone(study: Study):
    jobs = {job.name: job for job in study.jobs(study.runs(study.stages[0]), "W")}
    assert list(jobs) == ["start_100", "ours_100_validation", "frozen_100_validation", "golden_100_validation"]
    config = "--config=configs/tiny.py:seed=100"
    words = ("codea1.sft", config, "--workdir=W/start_100", "--config.sft.steps=9")
    assert jobs["start_100"].arguments[1:] == words
    ours, golden = jobs["ours_100_validation"], jobs["golden_100_validation"]
    assert ours.needs == golden.needs == ("start_100",)
    assert ours.arguments[2] == f"{config},steps=60,method=code_a1,sft=W/start_100"
    assert golden.arguments[2] == f"{config},steps=70,method=golden,sft=W/start_100"
    given = {"--config.game.mutant_weight=0.5", "--config.data.test.split=validation", "--config.validation.every=9"}
    assert given < set(ours.arguments)
    (of_test,) = [job for job in study.jobs([RUN], "W") if job.kind == "train"]
    assert not any("data.test" in word for word in of_test.arguments)


def test_a_study_of_given_models_has_no_warm_start(tmp_path: Path):
    text = DECLARED.replace('start.fields = {"sft.steps" = 9}', 'validation = {"data.test.source" = "V.parquet"}')
    study = read_study(declared(tmp_path, text))
    (job,) = study.jobs([Trial("validation", "ours", 100)], "W")
    words = ("--config=configs/tiny.py:seed=100,steps=60,method=code_a1", "--workdir=W/ours_100_validation")
    assert job.arguments[1:4] == ("codea1.train", *words)
    assert job.arguments[-1] == "--config.data.test.source=V.parquet"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("start.fields = {", "start = {"), "start: 'sft.steps' is unknown; known are fields"),
        (('method = "golden"', 'method = "gold"'), "arms.golden.method: 'gold' is unknown"),
        (('["ours", "frozen"],', '["ours", "thawed"],'), "stage main, comparisons: 'thawed' is unknown"),
        (('title = "Ours"', 'title = "Ours"\nsuites_of = "golden"'), "arms.ours.suites_of: 'golden' is unknown"),
        (("seeds = [0, 1, 2]", "seeds = [0, 1, 0]"), "stage main, seeds: 0 comes twice"),
        (('"golden"]]', '"frozen"]]'), "stage main, primary: ('ours', 'frozen') comes twice"),
        (('title = "Ours"', 'titel = "Ours"'), "titel"),
        (("steps = 60", ""), "steps"),
        (("[arms.ours]", "[columns]\nmul = []\n[arms.ours]"), "study.toml: IndexError"),
        (
            ("[[stages]]", '[[figures]]\nname = "f"\narms = ["us"]\npanels = {}\n[[stages]]'),
            "figure f, arms: 'us' is unknown",
        ),
        (("[[stages]]", "[[stages"), "study.toml: TOMLDecodeError"),
    ],
)
def test_a_mistake_in_a_declaration_is_a_sentence(tmp_path: Path, change: tuple[str, str], said: str):
    with pytest.raises(BadInput, match=re.escape(said)):
        read_study(declared(tmp_path, DECLARED.replace(*change, 1)))


@pytest.mark.parametrize("name", ["paper", "real", "real_searched", "real_gpu", "coder"])
def test_every_arm_of_the_declared_studies_is_a_config(name):
    read_study(str(ROOT / "studies" / f"{name}.toml")).require_configs()


def test_an_arm_that_is_no_config_is_named_before_any_runs(tmp_path: Path):
    text = DECLARED.replace('method = "golden"', 'method = "golden"\nfields = {"game.trained_solutions" = 4}')
    with pytest.raises(BadInput, match=r"golden_100_validation: config\.game\.trained_solutions is 4"):
        read_study(declared(tmp_path, text)).require_configs()


def test_a_row_is_what_its_folder_was(tmp_path: Path):
    run = measured(tmp_path / "run", 0.5)
    write_evaluation(run, "humanevalplus_step_000002", evaluation(2, {"avg_at_1": [1.0, 0.0]}, "humanevalplus"))
    Results(str(tmp_path / "results.gz")).keep(RUN, {}, str(tmp_path / "run"))
    kept = Results(str(tmp_path / "results.gz"))
    (row,) = kept
    assert RUN in kept
    assert Trial("test", "ours", 1) not in kept
    assert (row.steps, row.tokens, row.cpu_seconds, row.size, row.version) == (
        2,
        300.0,
        4.5,
        "tiny",
        run.made_with["codea1"],
    )
    assert [step["code/reward"] for step in row.rows] == [0.0, 0.25, 0.5]
    for moment in ("before", "after"):
        found = read_evaluation(run, moment)["metrics"]
        for metric in ("code_pass_at_1", "test_mul"):
            (taken,) = row.measured(Measure(metric), moment)
            of_file = np.array(found[metric]["per_question"]).reshape(taken.scores.shape)
            np.testing.assert_array_equal(taken.scores, of_file)
    (benchmark,) = row.measured(Measure("avg_at_*", "humanevalplus"))
    assert (benchmark.scores.tolist(), benchmark.settings) == ([[1.0], [0.0]], {"samples": "1"})


def test_processes_that_keep_rows_in_one_file_keep_all(tmp_path: Path):
    path, runs = str(tmp_path / "results.gz"), [Trial("test", "ours", seed) for seed in range(3)]
    measured(tmp_path / "run", 0.5)
    one, other = Results(path), Results(path)
    one.keep(runs[0], {}, str(tmp_path / "run"))
    other.keep(runs[1], {}, str(tmp_path / "run"))
    assert all(run in Results(path) for run in runs[:2])
    with open(f"{path}.lock") as file, ThreadPoolExecutor() as workers:
        fcntl.flock(file, fcntl.LOCK_EX)  # a third reads and writes
        kept = workers.submit(one.keep, runs[2], {}, str(tmp_path / "run"))
        assert not wait([kept], timeout=0.3).done
        assert runs[2] not in Results(path)
        fcntl.flock(file, fcntl.LOCK_UN)
        kept.result()
    assert all(run in Results(path) for run in runs)


def test_a_run_that_was_asked_other_questions_after_training_is_no_row(tmp_path: Path):
    folder = measured(tmp_path / "run", 0.5)
    after = read_evaluation(folder, "after")
    write_evaluation(folder, "after", {**after, "question_ids": after["question_ids"][::-1]})
    with pytest.raises(BadInput, match=r"run .*/run was not asked the same questions before and after training"):
        Results(str(tmp_path / "results.gz")).keep(RUN, {}, str(tmp_path / "run"))


def test_a_run_is_placed_among_other_seeds(tmp_path: Path, capsys: pytest.CaptureFixture):
    path = str(tmp_path / "results.gz")
    ends = []
    for seed, passes in enumerate((0.9, 0.2, 0.5)):
        run = measured(tmp_path / str(seed), passes, seed=seed)
        Results(path).keep(Trial("test", "ours", seed), {}, str(run.path))
        ends.append(f"{100 * read_evaluation(run, 'after')['metrics']['code_pass_at_1']['mean']:.0f}")
    place_run(str(tmp_path / "0"), path)
    said = capsys.readouterr().out
    assert "outside of their range in Code pass@1, Test Mul." in " ".join(said.split())
    (row,) = (line.split() for line in said.splitlines() if line.startswith("Code pass@1"))
    assert row[2:] == [row[2], "%", ends[0], "%", ends[1], "to", ends[2], "%"], "its own seed is not among the others"
    place_run(str(measured(tmp_path / "longer", 0.9, steps=3).path), path)
    assert "its config differs in steps." in capsys.readouterr().out
    with pytest.raises(BadInput, match="no run of another seed"):
        place_run(str(tmp_path / "0"), str(tmp_path / "none.gz"))


def test_damaged_results_are_refused(tmp_path: Path):
    (tmp_path / "results.gz").write_bytes(b"not gzip")
    with pytest.raises(BadInput, match=r"results .* are damaged"):
        Results(str(tmp_path / "results.gz"))


def test_the_report_of_a_stage_tests_its_primary_comparisons_once_all_runs_are_done(tmp_path: Path, study: Study):
    kept, shares = Results(str(tmp_path / "results.gz")), {"ours": 0.9, "frozen": 0.6, "golden": 0.58}

    spent: dict[str, list[str]] = {}

    def report() -> dict[str, list[str]]:
        write(study, list(kept), str(tmp_path / "report"))
        text = (tmp_path / "report" / "report.md").read_text()
        assert "recipes" not in text
        lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
        spent.update({line[0]: line[1:] for line in lines})  # the last table
        return {line[0]: line[1:] for line in reversed(lines)}

    for run in study.runs(study.stages[1]):
        seed = 10 * run.seed + len(run.arm)
        before = 0.3 if run.arm == "golden" else 0.1  # as on another machine
        measured(tmp_path / run.name, shares[run.arm], questions=400, seed=seed, before=before)
        kept.keep(run, study.recipe(run.arm), str(tmp_path / run.name))
        if run == Trial("test", "frozen", 2):
            lines = report()
            assert "Runs of this table that are not done: 1." in lines
            assert "p = " not in lines["Ours - Frozen"][0]
    lines = report()
    means = {arm: float(lines[arm.title()][1].split()[0]) for arm in ("frozen", "golden")}
    assert means == pytest.approx({arm: 100 * shares[arm] for arm in means}, abs=4)
    points, p_value = re.fullmatch(r"\**\+([\d.]+) .*, p [=<] ([\d.]+)", lines["Ours - Frozen"][0]).groups()
    assert float(points) == pytest.approx(30, abs=4)
    assert float(p_value) < 0.05
    for name, points in (("Ours", 80), ("Golden", 28)):  # to what its own runs began with
        found = lines[f"{name} - before training"][0]
        assert float(found.strip("*").split()[0]) == pytest.approx(points, abs=4)
    assert "p = " not in lines["Ours - before training"][0]  # no comparison that was declared
    assert spent["Ours"] == ["2", "300", "4"]  # steps, tokens and CPU seconds
    assert (
        "P-values are corrected for 2 primary comparisons of this table (Holm), and what is below 0.05 is bold."
        in lines
    )
    assert any("points from seed to seed. A paired t test finds so many points" in line for line in lines)
    assert (tmp_path / "report" / "compute_main.png").stat().st_size > 10_000


STAND_IN = """#!{python}
import shutil, sys
words = sys.argv[1:]
workdir = next(word.partition("=")[2] for word in words if word.startswith("--workdir="))
if "codea1.train" in words:
    shutil.copytree({run!r}, workdir, dirs_exist_ok=True)
with open({log!r}, "a") as file:
    print(workdir.rpartition("/")[2], file=file)
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(tmp_path / "run", 0.5)
    words = STAND_IN.format(python=f"{sys.executable} -S", run=str(tmp_path / "run"), log=str(tmp_path / "log"))
    (tmp_path / "python").write_text(words)
    os.chmod(tmp_path / "python", 0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


def test_runs_of_several_versions_are_named(tmp_path: Path, study: Study):
    kept = Results(str(tmp_path / "results.gz"))
    measured(tmp_path / "run", 0.5)
    for arm in study.arms:
        kept.keep(Trial("test", arm, 0), {}, str(tmp_path / "run"))
    versions = {"ours": "1 a", "frozen": "1 b", "golden": ""}
    (table,) = tables(study, [replace(row, version=versions[row.run.arm]) for row in kept])
    assert "Runs were begun by different versions: 1 a (Ours); 1 b (Frozen); unknown (Golden)." in table.notes


def test_a_study_goes_on_from_its_results_alone(tmp_path: Path, stand_in: None):
    path, workdir, log = declared(tmp_path), str(tmp_path / "runs"), tmp_path / "log"
    file = tmp_path / "study.results.gz"
    assert Results(str(file)).complete(read_study(path), workdir, at_once=2, hours=1)
    ran = log.read_text().split()
    starts = {f"start_{seed}" for seed in (0, 1, 2, 100)}
    assert sorted(name for name in ran if name.startswith("start_")) == sorted(starts)
    assert len(ran) == len(starts) + 3 + 3 * 3
    log.unlink()
    Path(workdir).rename(tmp_path / "gone")
    assert Results(str(file)).complete(read_study(path), workdir, at_once=2, hours=1)
    assert not log.exists()
    shutil.rmtree(workdir, ignore_errors=True)
    (tmp_path / "gone").rename(workdir)
    shutil.rmtree(tmp_path / "runs" / "ours_0_test")
    file.rename(tmp_path / "kept.gz")
    assert Results(str(file)).complete(read_study(path), workdir, at_once=2, hours=1)
    assert log.read_text().split() == ["ours_0_test"]  # all others are read from their folders
    benchmark = evaluation(2, {"avg_at_1": [1.0]}, "humanevalplus")
    write_evaluation(RunFolder.existing(f"{workdir}/golden_1_test"), "humanevalplus_step_000002", benchmark)
    again = Results(str(file))
    assert again.complete(read_study(path), workdir, at_once=2, hours=1)
    (row,) = (row for row in again if row.run == Trial("test", "golden", 1))
    assert len(row.evaluations) == 3
    changed = read_study(declared(tmp_path, DECLARED.replace('mutant_weight" = 0.5', 'mutant_weight" = 0.6')))
    with pytest.raises(BadInput, match=r"ours_100_validation was made as .*0\.5.* declares .*0\.6"):
        Results(str(file)).complete(changed, workdir, at_once=2, hours=1)
