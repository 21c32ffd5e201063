"""Declared studies: what runs, what is kept, and what the report says of it."""

import fcntl
import gzip
import hashlib
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
from scipy import stats

from codea1.evaluation.result_files import read_evaluation, write_evaluation
from codea1.lab.study import results
from codea1.lab.study.declaration import Study, Trial, read_study, with_config
from codea1.lab.study.report import detectable, write
from codea1.lab.study.results import Result, Results, code_digest, of_one_code, scores
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from tests.conftest import ROOT

DECLARED = """
title = "Does it pay?"
config = "configs/tiny.py"
steps = 60
start.fields = {"sft.steps" = 9}

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
worlds = ["classic", "blind"]
arms = ["ours", "frozen", "golden"]
seeds = [100, 101, 102]
rungs = [1, 2]

[[stages]]
name = "main"
split = "test"
worlds = ["classic", "blind"]
arms = ["ours", "frozen", "golden"]
seeds = [0, 1, 2]
primary = [["ours", "frozen"], ["ours", "golden"]]
"""

LETTERS = str.maketrans("0123456789", "abcdefghij")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return read_study(declared(tmp_path))


def declared(tmp_path: Path, text: str = DECLARED) -> str:
    (tmp_path / "study.toml").write_text(text)
    return str(tmp_path / "study.toml")


def measured(folder: Path, passes: float, mul: float, steps: int = 2, questions: int = 40, seed: int = 0) -> None:
    """Writes a run's folder: before training nothing passes, after it a share of `passes`."""
    run = RunFolder.open(str(folder), {"steps": steps})
    rng = np.random.default_rng(seed)
    for name, share in (("before", 0.1), ("after", passes)):
        values = (rng.random(questions) < share).astype(float).tolist()
        pairs = [[0.8, 0.2 if name == "before" else mul]] * questions
        found = {"code_pass_at_1": values, "test_validity": [0.8] * questions, "test_mul": pairs}
        found |= {"test_mutation_score": [pair[1] for pair in pairs]}
        metrics = {
            metric: {"mean": 0.0, "low": 0.0, "high": 0.0, "per_question": each} for metric, each in found.items()
        }
        ids = [f"list/{i}".translate(LETTERS) for i in range(questions)]  # of different compositions
        about = {"step": 0 if name == "before" else steps, "split": "test", "questions": questions, "question_ids": ids}
        write_evaluation(run, name, {**about, "metrics": metrics})
    rows = [
        {"step": step, "code/reward": 0.25 * step, "perf/tokens": 100.0, "perf/cpu_seconds": 1.5} for step in (0, 1, 2)
    ]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_runs_of_a_seed_share_their_warm_start_and_validation_runs_leave_the_test_split_alone(study: Study):
    stage = study.stages[0]
    jobs = {job.name: job for job in study.jobs(study.runs(stage, ["ours", "golden"], [100]), "W")}
    assert list(jobs) == [
        "start_classic_100",
        "ours_classic_100_validation",
        "golden_classic_100_validation",
        "start_blind_100",
        "ours_blind_100_validation",
        "golden_blind_100_validation",
    ]
    config = "--config=configs/tiny.py:world=classic,seed=100"
    assert jobs["start_classic_100"].arguments[1:] == (
        "codea1.sft",
        config,
        "--workdir=W/start_classic_100",
        "--config.sft.steps=9",
    )
    ours, golden = jobs["ours_classic_100_validation"], jobs["golden_classic_100_validation"]
    assert ours.needs == golden.needs == ("start_classic_100",)
    assert ours.arguments[2] == f"{config},steps=60,method=code_a1,sft=W/start_classic_100"
    assert golden.arguments[2] == f"{config},steps=70,method=golden,sft=W/start_classic_100"
    assert {"--config.game.mutant_weight=0.5", "--config.data.test.split=validation"} < set(ours.arguments)
    (of_test, *_) = [job for job in study.jobs(study.runs(study.stages[1], ["ours"], [0]), "W") if job.kind == "train"]
    assert not any("data.test" in word for word in of_test.arguments)


def test_a_study_of_given_models_and_questions_has_no_warm_start_and_no_world(tmp_path: Path):
    text = DECLARED.replace('start.fields = {"sft.steps" = 9}', 'validation = {"data.test.source" = "V.parquet"}')
    study = read_study(declared(tmp_path, text.replace('worlds = ["classic", "blind"]\n', "")))
    (run,) = study.runs(study.stages[0], ["ours"], [100])
    (job,) = study.jobs([run], "W")
    assert job.arguments[1:4] == (
        "codea1.train",
        "--config=configs/tiny.py:seed=100,steps=60,method=code_a1",
        "--workdir=W/ours_100_validation",
    )
    assert job.arguments[-1] == "--config.data.test.source=V.parquet"


def test_an_opponent_is_trained_and_exported_before_the_arm_that_plays_it(tmp_path: Path):
    late = '[arms.late]\ntitle = "Late"\nopponent = "ours"\n[[stages]]'
    study = read_study(declared(tmp_path, DECLARED.replace("[[stages]]", late, 1)))
    jobs = study.jobs([Trial("test", "classic", "late", 3)], "W")
    order = [job.name for job in jobs]
    assert order == ["start_classic_3", "ours_classic_3_test", "ours_classic_3_test_export", "late_classic_3_test"]
    export, run = jobs[2:]
    assert (export.needs, run.needs) == (("ours_classic_3_test",), ("start_classic_3", "ours_classic_3_test_export"))
    model = "W/ours_classic_3_test/test_model"
    assert {"--run=W/ours_classic_3_test", "--player=test", f"--output={model}"} < set(export.arguments)
    assert {f"--config.test.model={model}", "--config.frozen=test"} < set(run.arguments)
    assert study.recipe("late")["opponent"] == study.recipe("ours")
    assert study.left_over("ours") == ("samples", "tensorboard")
    assert "checkpoints" in study.left_over("late")


def test_the_better_half_goes_on(study: Study):
    scores = {"ours": 0.5, "frozen": 0.7, "golden": 0.6}
    asked: list[Trial] = []

    def score(run: Trial) -> float:
        asked.append(run)
        return scores[run.arm]

    first, second = study.rungs(study.stages[0], score)
    assert {(run.arm, run.seed) for run in first} == {(arm, 100) for arm in scores}
    assert {(run.arm, run.seed) for run in second} == {
        (arm, seed) for arm in ("frozen", "golden") for seed in (101, 102)
    }
    assert {run.world for run in first} == {run.world for run in second} == {"classic", "blind"}
    assert len(list(study.rungs(study.stages[1], score))) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("classic", "r17"), "stage recipes, worlds: 'r17' is unknown; known are classic"),
        (("start.fields = {", "start = {"), "start: 'sft.steps' is unknown; known are fields"),
        (('method = "golden"', 'method = "gold"'), "arms.golden.method: 'gold' is unknown"),
        (('["ours", "frozen"],', '["ours", "thawed"],'), "stage main, comparisons: 'thawed' is unknown"),
        (
            ("seeds = [0, 1, 2]", 'seeds = [0]\nclaims = [["it pays", "ours"]]'),
            "stage main: claim ('it pays', 'ours') is no",
        ),
        (("seeds = [0, 1, 2]", 'seeds = [0]\nclaims = [["", "ours", "us"]]'), "stage main, claims: 'us' is unknown"),
        (('title = "Ours"', 'title = "Ours"\nopponent = "ours"'), "arms.ours.opponent: 'ours' is unknown"),
        (('title = "Ours"', 'title = "Ours"\nsuites_of = "golden"'), "arms.ours.suites_of: 'golden' is unknown"),
        (("rungs = [1, 2]", "rungs = [1, 3]"), "its rungs take 4 seeds of 3"),
        (("seeds = [0, 1, 2]", "seeds = [0, 1, 0]"), "stage main, seeds: 0 comes twice"),
        (
            ('worlds = ["classic", "blind"]', 'worlds = ["classic", "classic"]'),
            "stage recipes, worlds: 'classic' comes twice",
        ),
        (('"frozen", "golden"]', '"frozen", "ours"]'), "stage recipes, arms: 'ours' comes twice"),
        (('"golden"]]', '"frozen"]]'), "stage main, primary: ('ours', 'frozen') comes twice"),
        (
            ("primary = ", 'secondary = [["ours", "golden"], ["ours", "golden"]]\nprimary = '),
            "stage main, secondary: ('ours', 'golden') comes twice",
        ),
        (('title = "Ours"', 'titel = "Ours"'), "titel"),
        (("steps = 60", ""), "steps"),
        (("[[stages]]", "[[stages"), "study.toml: TOMLDecodeError"),
    ],
)
def test_a_mistake_in_a_declaration_is_a_sentence(tmp_path: Path, change: tuple[str, str], said: str):
    with pytest.raises(BadInput, match=re.escape(said)):
        read_study(declared(tmp_path, DECLARED.replace(*change, 1)))


def test_what_dumped_suites_are_read_from_is_left(tmp_path: Path):
    suites = '[arms.taught]\ntitle = "T"\ntaught = true\n[arms.fixed]\ntitle = "F"\nmethod = "static_tests"\n'
    for source in ("base", "taught", "ours"):  # the programs are those of the first arm, whoever wrote the tests
        text = DECLARED.replace("[[stages]]", f'{suites}suites_of = "{source}"\n[[stages]]', 1)
        study = read_study(declared(tmp_path, text))
        jobs = study.jobs([Trial("test", "classic", "fixed", 3)], "W")
        (dump,) = [job for job in jobs if "dump_tests" in job.arguments]
        assert "--run=W/ours_classic_100_test" in dump.arguments
        assert study.left_over("ours") == ("samples", "tensorboard")
        assert "checkpoints" in study.left_over("fixed")


def test_a_world_is_a_configs_argument_where_no_stage_names_one(tmp_path: Path, study: Study):
    given = f"{ROOT / 'configs' / 'tiny.py'}:world=blind"
    with pytest.raises(BadInput, match="config argument world is the study's own: leave it out"):
        with_config(study, given)
    of_config = read_study(declared(tmp_path, DECLARED.replace('worlds = ["classic", "blind"]\n', "")))
    assert with_config(of_config, given).config == given


@pytest.mark.parametrize("name", ["paper", "real", "real_searched", "real_gpu"])
def test_so_is_every_arm_of_the_studies_without_a_world(name):
    read_study(str(ROOT / "studies" / f"{name}.toml")).require_configs()


def test_an_arm_that_is_no_config_is_named_before_any_runs(tmp_path: Path):
    text = DECLARED.replace('method = "golden"', 'method = "golden"\nfields = {"game.trained_solutions" = 4}')
    with pytest.raises(BadInput, match=r"golden_classic_100_validation: config\.game\.trained_solutions is 4"):
        read_study(declared(tmp_path, text)).require_configs()


def test_an_arm_trains_on_the_tests_of_a_rule(tmp_path: Path):
    ruled = '[arms.ruled]\ntitle = "Ruled"\nmethod = "static_tests"\ntests = "statement 7"\n[[stages]]'
    changed = DECLARED.replace("[[stages]]", ruled, 1).replace(
        "steps = ", 'fields = {"validation.every" = 9}\nsteps = ', 1
    )
    study = read_study(declared(tmp_path, changed))
    rule, run = study.jobs([Trial("test", "classic", "ruled", 3)], "W")[1:]
    written = "W/tests_statement_7_classic.jsonl"
    assert rule.arguments == (
        "-m",
        "codea1.lab",
        "worlds",
        "classic",
        "--rule=statement",
        "--count=7",
        f"--output={written}",
    )
    assert run.needs == ("start_classic_3", rule.name)
    assert f"static_tests={written}" in run.command
    assert "--config.validation.every=9" in run.arguments
    assert (study.recipe("ruled")["tests"], study.recipe("ruled")["fields"]) == ("statement 7", {"validation.every": 9})
    for wrong in ("statement", "best 7", "statement seven"):
        with pytest.raises(BadInput, match=f"arms.ruled.tests is '{wrong}', not a rule and a number of tests"):
            read_study(declared(tmp_path, changed.replace("statement 7", wrong)))


def test_a_row_outlives_its_run(tmp_path: Path, study: Study):
    run = study.runs(study.stages[1], ["ours"], [0])[0]
    measured(tmp_path / "run", 0.5, mul=0.4)
    (tmp_path / "run" / "checkpoints").mkdir()
    path = str(tmp_path / "results.gz")
    Results(path).keep(run, {}, str(tmp_path / "run"), study.left_over("ours"))
    assert not (tmp_path / "run" / "checkpoints").exists()
    kept = Results(path)
    other = replace(run, seed=1)
    assert run in kept
    assert other not in kept
    row = kept[run]
    assert (row.steps, row.tokens, row.cpu_seconds) == (2, 300.0, 4.5)
    assert [each["code/reward"] for each in row.rows] == [0.0, 0.25, 0.5]
    passed = row.metrics("after")["code_pass_at_1"]["per_question"]
    assert kept.score(run) == pytest.approx(np.mean(passed) + 0.8 * 0.4)
    measured(tmp_path / "other", 0.5, mul=0.4, seed=1)
    kept.keep(other, {}, str(tmp_path / "other"))
    assert scores([Results(path)[each] for each in (run, other)], "test_mul").shape == (2, 40, 2)
    assert scores([Results(path)[each] for each in (run, other)], "code_pass_at_1")[0, :, 0].tolist() == passed
    measured(tmp_path / "third", 0.5, mul=0.4, questions=39)
    kept.keep(replace(run, seed=2), {}, str(tmp_path / "third"))
    with pytest.raises(BadInput, match="not measured on the same questions"):
        scores([Results(path)[each] for each in (run, replace(run, seed=2))], "code_pass_at_1")
    measured(tmp_path / "fourth", 0.5, mul=0.4, steps=3)
    kept.keep(replace(run, seed=3), {}, str(tmp_path / "fourth"))
    with pytest.raises(BadInput, match="their configs differ in steps"):
        scores([Results(path)[each] for each in (run, replace(run, seed=3))], "code_pass_at_1")


def test_processes_that_keep_rows_in_one_file_keep_all(tmp_path: Path):
    path, runs = str(tmp_path / "results.gz"), [Trial("test", "classic", "ours", seed) for seed in range(3)]
    measured(tmp_path / "run", 0.5, mul=0.4)
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
    measured(tmp_path / "run", 0.5, mul=0.4)
    folder = RunFolder.existing(str(tmp_path / "run"))
    after = read_evaluation(folder, "after")
    write_evaluation(folder, "after", {**after, "question_ids": after["question_ids"][::-1]})
    results = Results(str(tmp_path / "results.gz"))
    with pytest.raises(BadInput, match=r"run .*/run was not asked the same questions before and after training"):
        results.keep(Trial("test", "classic", "ours", 0), {}, str(tmp_path / "run"))


def test_questions_of_one_composition_are_one_value(tmp_path: Path, study: Study):
    run = study.runs(study.stages[1], ["ours"], [0])[0]
    measured(tmp_path / "run", 0.5, mul=0.4, questions=5)
    folder = RunFolder.existing(str(tmp_path / "run"))
    for name in ("before", "after"):
        found = read_evaluation(folder, name)
        found["question_ids"] = ["int/ge7/ten/same", "int/ge12/ten/same", "int/lt7/ten/same", "list/x", "list/y"]
        found["metrics"]["code_pass_at_1"]["per_question"] = [1.0, 0.5, 0.25, None, 0.0]
        write_evaluation(folder, name, found)
    results = Results(str(tmp_path / "results.gz"))
    results.keep(run, {}, str(tmp_path / "run"))
    np.testing.assert_equal(scores([results[run]], "code_pass_at_1")[0, :, 0], [0.75, 0.25, np.nan, 0.0])
    two = scores([results[run]], "code_pass_at_1", only={"int/lt/ten/same", "list/y", "list/none"})
    np.testing.assert_equal(two[0, :, 0], [0.25, 0.0])
    assert scores([results[run]], "code_pass_at_1", only={"list/none"}).size == 0


def test_rows_of_an_older_version_have_a_digest_of_their_config(tmp_path: Path, study: Study):
    run = study.runs(study.stages[1], ["ours"], [0])[0]
    results = Results(str(tmp_path / "results.gz"))
    for seed, steps in enumerate((2, 2, 3)):
        measured(tmp_path / str(seed), 0.5, mul=0.4, steps=steps)
        results.keep(replace(run, seed=seed), {}, str(tmp_path / str(seed)))
    rows = [json.loads(line) for line in gzip.decompress((tmp_path / "results.gz").read_bytes()).splitlines()]
    for each in rows:
        each["config"] = hashlib.sha256(json.dumps(each["config"]).encode()).hexdigest()[:16]
    (tmp_path / "results.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    old = Results(str(tmp_path / "results.gz"))
    assert scores([old[run], old[replace(run, seed=1)]], "test_mul").shape == (2, 40, 2)
    with pytest.raises(BadInput, match="their configs differ"):
        scores([old[run], old[replace(run, seed=2)]], "test_mul")


def test_a_digest_is_of_what_decides_a_run(tmp_path: Path):
    rooms = ("data", "game", "lab/sft", "lab/worlds", "learn", "models", "players", "rollout", "sandbox/host", "values")
    decide = [*(f"{room}/a.py" for room in rooms), "evaluation/held_out.py", "training/step.py"]
    for name in decide:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    sources = {}
    for text in (
        '"""Says."""\ndef f(x: int) -> int:\n    """Adds."""\n    return x + 1  # why\n',
        "def f(x: int) -> int:\n    return (x\n            + 1)\n",
        "def f(x: int) -> int:\n    return x + 2\n",
        "def f(x: int) -> None:\n    return None\n",
        "def f(x: int) -> None:\n    return\n",
    ):
        (tmp_path / "sandbox/host/a.py").write_text(text)
        sources[text] = code_digest(tmp_path)
    first, again, *changed = sources.values()
    assert first == again
    assert len({first, *changed}) == 4
    (tmp_path / "training/feed.py").write_text("x = 1")
    assert code_digest(tmp_path) == changed[-1]
    of_each = set()
    for name in decide:
        (tmp_path / name).write_text("x = 1")
        of_each.add(code_digest(tmp_path))
    assert len(of_each - {changed[-1]}) == len(decide)


def test_damaged_results_are_refused(tmp_path: Path):
    (tmp_path / "results.gz").write_bytes(b"not gzip")
    with pytest.raises(BadInput, match=r"results .* are damaged"):
        Results(str(tmp_path / "results.gz"))


def test_the_report_says_who_is_above_whom_and_by_how_much(tmp_path: Path, study: Study):
    results = Results(str(tmp_path / "results.gz"))
    shares = {"ours": 0.9, "frozen": 0.6, "golden": 0.58}
    for run in study.runs(study.stages[1], list(shares), [0, 1, 2]):
        folder = tmp_path / run.name
        measured(folder, shares[run.arm], mul=0.4, questions=400, seed=10 * run.seed + len(run.arm))
        results.keep(run, {}, str(folder))
    write(study, results, str(tmp_path / "report"))
    text = (tmp_path / "report" / "report.md").read_text()
    of_world = text[text.index("## main") :].partition("### World blind")[0]
    lines = {line.split(" | ")[0].strip("| "): line for line in reversed(of_world.splitlines())}
    means = {arm: float(lines[arm.title()].split(" | ")[2].split()[0]) for arm in shares}
    assert means == pytest.approx({arm: 100 * share for arm, share in shares.items()}, abs=4)
    points, p_value, adjusted = lines["Ours less Frozen"].strip("| ").split(" | ")[1:]
    assert float(points.split()[0]) == pytest.approx(means["ours"] - means["frozen"], abs=0.11)
    assert float(p_value) < float(adjusted) < 0.05
    assert "6 runs" not in text
    unlike = "seed 0 (Ours / Frozen, Golden); seed 1 (Ours / Frozen, Golden); seed 2 (Ours / Frozen, Golden)."
    assert of_world.count(unlike) == 1  # `measured` began with other scores for the name of four letters


def test_the_report_counts_the_runs_that_the_audit_warns_of(tmp_path: Path, study: Study):
    results = Results(str(tmp_path / "results.gz"))
    for run in study.runs(study.stages[1], ["ours", "frozen"], [0, 1]):
        folder = tmp_path / run.name
        measured(folder, 0.5, mul=0.4)
        hidden = 0.0 if run.arm == "ours" and run.seed == 1 else 0.01
        rows = [
            {"step": k, "code/pass_rate_new": 0.5 + 0.01 * k, "code/hidden_pass_rate": 0.2 + hidden * k}
            for k in range(1, 41)
        ]
        RunFolder.existing(str(folder)).metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
        results.keep(run, {}, str(folder))
    write(study, results, str(tmp_path / "report"))
    lines = (tmp_path / "report" / "report.md").read_text().splitlines()
    ours, frozen = [line.strip("| ").split(" | ") for line in lines if " → " in line and line[0] == "|"][:2]
    # Means of steps 1 to 4 and 37 to 40: hidden rises for one seed alone, from 0.2 by 0.01 a step.
    assert ours == ["Ours", "52.5 → 88.5", "21.3 → 39.2", "-", "-", "-", "-", "1", "0"]
    assert frozen == ["Frozen", "52.5 → 88.5", "22.5 → 58.5", "-", "-", "-", "-", "0", "0"]
    assert not [line for line in lines if "warm start" in line]  # all began alike


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
    measured(tmp_path / "run", 0.5, mul=0.4)
    words = STAND_IN.format(python=f"{sys.executable} -S", run=str(tmp_path / "run"), log=str(tmp_path / "log"))
    (tmp_path / "python").write_text(words)
    os.chmod(tmp_path / "python", 0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


ONE_RUN = """
title = "One"
config = "configs/tiny.py"
steps = 60
start = {}
arms.ours.title = "Ours"
[[stages]]
name = "main"
split = "test"
arms = ["ours"]
seeds = [0]
"""


def test_a_row_has_the_code_that_made_its_run(tmp_path: Path, stand_in: None, monkeypatch: pytest.MonkeyPatch):
    one, file, workdir, log = (
        read_study(declared(tmp_path, ONE_RUN)),
        tmp_path / "r.gz",
        tmp_path / "W",
        tmp_path / "log",
    )

    def row(today: str) -> tuple[Result, list[str]]:
        """The row that is kept when the command is given again, and what ran."""
        monkeypatch.setattr(results, "code_digest", lambda: today)
        file.unlink(missing_ok=True)
        log.write_text("")
        assert Results(str(file)).complete(one, str(workdir), at_once=1)
        (kept,) = Results(str(file))
        return kept, log.read_text().split()

    ran = [row("a")]
    ran.append(row("b"))  # the run has ended
    (workdir / "done" / "ours_0_test.json").unlink()  # it has not
    ran.append(row("b"))
    shutil.rmtree(workdir / "ours_0_test")  # but its warm start is there
    ran.append(row("b"))
    shutil.rmtree(workdir)
    ran.append(row("b"))
    run, start = "ours_0_test", "start_0"
    codes = ["a", "a", "a+b", "a+b", "b"]
    assert [(each.code, names) for each, names in ran] == list(
        zip(codes, [[start, run], [], [run], [run], [start, run]], strict=True)
    )
    old, mixed, new = ran[0][0], ran[2][0], ran[4][0]
    assert not any(map(of_one_code, ([mixed], [mixed, mixed], [mixed, old], [old, new])))
    assert of_one_code([old, ran[1][0]])
    shutil.rmtree(workdir / "code")
    with pytest.raises(BadInput, match="W: nothing says of what code start_0 is"):
        row("b")


def test_rungs_rank_rows_of_one_code(tmp_path: Path, study: Study, stand_in: None):
    kept, first, runs = Results(str(tmp_path / "results.gz")), study.stages[0], tmp_path / "runs"
    for run in study.runs(first, first.arms, first.seeds[:1]):
        kept.keep(run, study.recipe(run.arm), str(tmp_path / "run"), code=run.arm)
    with pytest.raises(BadInput, match="stage recipes: rows of different code are not ranked: frozen, golden, ours"):
        kept.complete(study, str(runs), at_once=1)
    assert not runs.exists()
    same = Results(str(tmp_path / "same.gz"))
    for run in study.runs(first, first.arms, first.seeds[:1]):
        same.keep(run, study.recipe(run.arm), str(tmp_path / "run"), code=code_digest())
    assert same.complete(replace(study, stages=(first,)), str(runs), at_once=2)


def test_a_study_goes_on_from_its_results_alone(tmp_path: Path, stand_in: None):
    path, workdir = declared(tmp_path), str(tmp_path / "runs")
    results = Results(str(tmp_path / "study.results.gz"))
    assert results.complete(read_study(path), workdir, at_once=2, hours=1)
    ran = (tmp_path / "log").read_text().split()
    starts = [name for name in ran if name.startswith("start_")]
    assert len(starts) == len(set(starts)) == 2 * 6
    assert len(ran) - len(starts) == 2 * 3 + 2 * 2 * 2 + 2 * 3 * 3
    (tmp_path / "log").unlink()
    for folder in (tmp_path / "runs").iterdir():
        folder.rename(tmp_path / f"gone_{folder.name}")
    assert Results(str(tmp_path / "study.results.gz")).complete(read_study(path), workdir, at_once=2, hours=1)
    assert not (tmp_path / "log").exists()
    for folder in tmp_path.glob("gone_*"):
        folder.rename(tmp_path / "runs" / folder.name.removeprefix("gone_"))
    for folder in (tmp_path / "runs").glob("*_test"):
        shutil.rmtree(folder)
    (tmp_path / "study.results.gz").rename(tmp_path / "kept.gz")
    lost = Results(str(tmp_path / "study.results.gz"))
    for folder in (tmp_path / "runs").glob("*_validation"):
        shutil.rmtree(folder)
    assert lost.complete(read_study(path), workdir, at_once=2, hours=1)  # markers of what is lost count for nothing
    assert not any(name.startswith("start_") for name in (tmp_path / "log").read_text().split())
    changed = read_study(declared(tmp_path, DECLARED.replace('mutant_weight" = 0.5', 'mutant_weight" = 0.6')))
    with pytest.raises(BadInput, match=r"ours_\w+_100_validation was made as .*0\.5.* declares .*0\.6"):
        Results(str(tmp_path / "study.results.gz")).complete(changed, workdir, at_once=2, hours=1)


def test_the_detectable_difference_is_found_with_its_chance():
    rng = np.random.default_rng(0)
    found = detectable(4.0, seeds=5, tests=2)
    drawn = rng.normal(found, 4.0, size=(20_000, 5))
    p_values = stats.ttest_1samp(drawn, 0.0, axis=1).pvalue
    assert np.mean((p_values < 0.025) & (drawn.mean(axis=1) > 0)) == pytest.approx(0.8, abs=0.01)
    assert detectable(0.0, seeds=5, tests=2) == 0.0  # arms that differ by the same at every seed
