"""Sweeps over config values: what runs, what is refused before, how it goes on, and the table."""

import os
import sys
from pathlib import Path

import pytest

from codea1.evaluation.result_files import read_evaluation, write_evaluation
from codea1.lab.study.declaration import Trial
from codea1.lab.study.report import write
from codea1.lab.study.results import Results, scores
from codea1.lab.study.sweep import sweep_study
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from tests.conftest import ROOT
from tests.study_test import STAND_IN, measured

TINY = f"--config={ROOT / 'configs' / 'tiny.py'}"
ALPHA = "config.game.alpha=0.1,0.5"


def test_a_sweep_runs_every_combination_over_seeds_on_validation_questions():
    config = [f"{TINY}:world=blind,steps=20", "--config.code.learning_rate=0.001", "--config.data.validation.limit=48"]
    study = sweep_study(config, [ALPHA, "config.code.row_lengths=(32,),(28,32)"], seeds=2)
    names = [f"game.alpha={alpha},code.row_lengths={rows}" for alpha in (0.1, 0.5) for rows in ("(32,)", "(28,32)")]
    (stage,) = study.stages
    assert stage.secondary == tuple((name, names[0]) for name in names[1:])
    jobs = study.jobs(study.runs(stage, stage.arms, stage.seeds), "W")
    trained = [job for job in jobs if job.kind == "train"]
    assert [job.name for job in trained] == [f"{name}_{seed}_validation" for seed in (0, 1) for name in names]
    start = next(job for job in jobs if job.name == "start_1")
    assert start.arguments[1:4] == ("codea1.sft", f"{config[0]},seed=1", "--workdir=W/start_1")
    assert start.arguments[4:] == tuple(config[1:])
    last = trained[-1]
    assert (last.needs, last.arguments[2]) == (("start_1",), f"{config[0]},seed=1,sft=W/start_1")
    own = ("--config.game.alpha=0.5", "--config.code.row_lengths=(28,32)")
    measured_on = ("source=procedural/blind", "split=validation", "limit=48")
    assert last.arguments[4:] == (*config[1:], *own, *(f"--config.data.test.{each}" for each in measured_on))
    assert study.left_over(names[0]) == ()


@pytest.mark.parametrize("config", [f"{TINY}:sft=runs/sft1", f"--config={ROOT / 'configs' / 'gpu.py'}"])
def test_policies_that_are_given_need_no_warm_start(config: str):
    study = sweep_study([config], [ALPHA], seeds=2)
    jobs = study.jobs(study.runs(study.stages[0], study.stages[0].arms, [1]), "W")
    assert [(job.kind, job.needs) for job in jobs] == [("train", ())] * 2
    assert jobs[0].arguments[2] in (f"{config},seed=1", f"{config}:seed=1")


@pytest.mark.parametrize(
    ("swept", "said"),
    [
        (["config.game.alpa=0.1"], "the config has no field game.alpa: do you mean game.alpha?"),
        (["config.game.alpha=0.1,1.5"], "config.game.alpha is 1.5; it must lie between 0 and 1"),
        (["config.game.alpha=0.1,high"], "config.game.alpha=high: could not convert"),
        (["config.code.surrogate=ppo,gpso"], "config.code.surrogate is 'gpso'"),
        (["config.game.alpha=0.1,0.1"], "config.game.alpha is swept over 0.1,0.1: a value comes twice"),
        ([ALPHA, "config.game.alpha=0.7"], "config.game.alpha is swept twice"),
        (["game.alpha=0.1"], "--sweep=game.alpha=0.1 is not of the form"),
        (["config.game.alpha"], "--sweep=config.game.alpha is not of the form"),
        (["config.seed=1,2"], "config.seed is the sweep's own: it runs seeds 0 to 2"),
        (
            ["config.data.train.source=procedural/r16,procedural_r16"],
            "data.train.source=procedural_r16 and data.train.source=procedural/r16 would have one folder",
        ),
        (["config.sft.steps=1,2"], "config.sft.steps cannot be swept"),
        ([], "give --sweep"),
    ],
)
def test_a_mistake_is_a_sentence_before_anything_runs(swept: list[str], said: str):
    with pytest.raises(BadInput) as refusal:
        sweep_study([TINY], swept, seeds=3)
    assert said in str(refusal.value)


def test_a_sweep_goes_on_where_it_stopped_also_with_more_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    measured(tmp_path / "run", 0.5, mul=0.4)
    (tmp_path / "run" / "checkpoints").mkdir()
    log, workdir, full = tmp_path / "log", tmp_path / "runs", tmp_path / "the disk is full"
    stand_in = STAND_IN.format(python=f"{sys.executable} -S", run=str(tmp_path / "run"), log=str(log))
    fails = f"import os\nif os.path.exists({str(full)!r}) and 'alpha=0.5' in workdir:\n    sys.exit(1)\n"
    (tmp_path / "python").write_text(stand_in.replace('if "codea1', fails + 'if "codea1', 1))
    os.chmod(tmp_path / "python", 0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    def ran(seeds: int) -> tuple[bool, list[str]]:
        log.write_text("")
        went_well = Results(f"{workdir}/results.gz").complete(sweep_study([TINY], [ALPHA], seeds), str(workdir), 1)
        return went_well, log.read_text().split()

    full.touch()
    assert ran(1) == (False, ["start_0", "game.alpha=0.1_0_validation"])
    full.unlink()
    assert ran(1) == (True, ["game.alpha=0.5_0_validation"])
    assert ran(1) == (True, [])
    assert ran(2) == (True, ["start_1", "game.alpha=0.1_1_validation", "game.alpha=0.5_1_validation"])
    assert (workdir / "game.alpha=0.1_0_validation" / "checkpoints").exists()


def test_the_table_has_mean_and_interval_over_seeds(tmp_path: Path):
    study = sweep_study([TINY], [ALPHA], seeds=3)
    results = Results(str(tmp_path / "results.gz"))
    for arm, passes in (("game.alpha=0.1", (0.0, 1.0, 0.0)), ("game.alpha=0.5", (1.0, 1.0, 1.0))):
        for seed, share in enumerate(passes):
            measured(tmp_path / f"{arm}_{seed}", share, mul=0.4)
            results.keep(Trial("validation", "", arm, seed), {}, str(tmp_path / f"{arm}_{seed}"))
    report = write(study, results, str(tmp_path / "report"))
    rows = [line.strip("| ").split(" | ") for line in report.splitlines() if line.startswith("| game")]
    # Student's t with two degrees of freedom, 4.303, times the deviation over seeds, 57.7, by the root of three.
    assert rows[0][:3] == ["game.alpha=0.1", "3", "33.3 [-110.1, 176.8]"]
    assert rows[1][:3] == ["game.alpha=0.5", "3", "100.0 [100.0, 100.0]"]
    assert rows[0][7] == "32.0 [32.0, 32.0]"
    assert rows[2][:2] == ["game.alpha=0.5 less game.alpha=0.1", "+66.7 [-76.8, +210.1]"]


def test_questions_of_other_data_are_values_of_their_own(tmp_path: Path):
    measured(tmp_path / "run", 0.5, mul=0.4, questions=3)
    folder = RunFolder.existing(str(tmp_path / "run"))
    for moment in ("before", "after"):
        found = read_evaluation(folder, moment)
        write_evaluation(folder, moment, {**found, "question_ids": ["mbpp/1", "mbpp/2", "mbpp/3"]})
    run, results = Trial("validation", "", "a", 0), Results(str(tmp_path / "results.gz"))
    results.keep(run, {}, str(tmp_path / "run"))
    assert scores([results[run]], "code_pass_at_1").shape == (1, 3, 1)
