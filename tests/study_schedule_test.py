"""Jobs of studies: their commands, what is done already, failures, interruptions and the end of the hours."""

import json
import os
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from ml_collections import ConfigDict

from codea1.config_file import validate
from codea1.lab.study.declaration import Study, with_config
from codea1.lab.study.experiments import ARMS, PAPER, SFT_TEST, experiment_of
from codea1.lab.study.layouts import BASE
from codea1.lab.study.results import size_of
from codea1.lab.study.schedule import HoursOver, Job, Schedule
from codea1.runtime.errors import RESTART_EXIT_CODE, BadInput
from tests.conftest import ROOT

# Stands in for the interpreter: notes what it is asked to run, and fails or waits where it is told to.
STAND_IN = """#!{python}
import json, os, pathlib, sys, time
told = pathlib.Path({folder!r})
words = sys.argv[1:]
with open(told / "ran.jsonl", "a") as file:
    print(json.dumps(words), file=file)
rules = json.loads((told / "rules.json").read_text())
for part, (code, said, seconds) in rules.items():
    if part in " ".join(words):
        print(said, flush=True)
        time.sleep(seconds)
        sys.exit(code)
"""


class StandIn:
    def __init__(self, folder: Path):
        folder.mkdir()
        self.folder, self.python = folder, str(folder / "python")
        Path(self.python).write_text(STAND_IN.format(python=sys.executable, folder=str(folder)))
        os.chmod(self.python, 0o755)
        self.rules({})

    def rules(self, rules: dict[str, tuple[int, str, float]]) -> None:
        (self.folder / "rules.json").write_text(json.dumps(rules))

    def ran(self) -> list[list[str]]:
        """What ran since this was asked last."""
        file = self.folder / "ran.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tmp_path / "stand_in")
    monkeypatch.setattr(sys, "executable", made.python)  # that runs the jobs
    return made


class Plan(NamedTuple):
    jobs: list[Job]
    workdir: str


@pytest.fixture
def place(tmp_path: Path) -> Plan:
    """A plan of four jobs: a warm start, Code-A1, its suites, and a run on them."""
    workdir = str(tmp_path / "runs")
    names = ("start_0", "code_a1_0", "suites_code_a1", "static_a1_0")
    return Plan([job for job in jobs_of(PAPER, workdir) if job.name in names], workdir)


def jobs_of(study: Study, workdir: str = "W") -> list[Job]:
    return study.jobs(study.all_runs(), workdir)


def test_every_job_comes_after_what_it_needs_and_trains_every_experiment():
    jobs = jobs_of(PAPER)
    names = [job.name for job in jobs]
    assert len(set(names)) == len(names)
    for index, job in enumerate(jobs):
        assert set(job.needs) <= set(names[:index])
    trained = {job.name for job in jobs if job.kind == "train"}
    assert trained == {run.name for run in PAPER.all_runs()}
    assert {run.arm for run in PAPER.all_runs()} == set(ARMS)
    assert sorted(name for name in names if name.startswith("suites")) == [
        f"suites_{source}" for source in (BASE, "code_a1", SFT_TEST)
    ]
    of_first_tables = {f"{name}_{seed}" for name in ("code_a1", "golden", "self_play", SFT_TEST) for seed in range(5)}
    assert {job.name for job in [job for job in jobs if job.kind == "train"][:20]} == of_first_tables


def test_commands_are_those_of_the_programs():
    jobs = {job.name: job for job in jobs_of(replace(PAPER, config="configs/tiny.py:steps=40"))}
    command = "python -m codea1.train --config=configs/tiny.py:steps=40,seed=0,"
    assert jobs["start_1"].command == "python -m codea1.sft --config=configs/tiny.py:steps=40,seed=1 --workdir=W/sft_1"
    no_book = f"{command}method=code_a1,sft=W/sft_0 --workdir=W/no_book_0 --config.game.mistake_book=False"
    assert jobs["no_book_0"].command == no_book
    assert jobs["simple_0"].command == f"{command}method=simple,sft=W/sft_0 --workdir=W/simple_0"
    static = f"{command}method=static_tests,static_tests=W/suites_base.jsonl,sft=W/sft_0 --workdir=W/static_base_0"
    assert jobs["static_base_0"].command == static
    dump = "python -m codea1.lab dump_tests --run=W/code_a1_0 --test_model=W/sft_test_model_0/model"
    assert jobs["suites_sft_test"].command == f"{dump} --output=W/suites_sft_test.jsonl"


def test_what_is_done_is_not_done_again(place: Plan, stand_in: StandIn, capsys: pytest.CaptureFixture):
    assert Schedule(place.jobs, place.workdir).run()
    ran = stand_in.ran()
    assert [words[1] for words in ran] == [f"codea1.{name}" for name in ("sft", "train", "lab", "train")]
    said = capsys.readouterr().out
    assert "4 jobs, 0 of them done; 4 left" in said
    assert "static_a1_0: 1 left, about 1 min" in said
    assert Schedule(place.jobs, place.workdir).run()
    assert stand_in.ran() == []
    assert "4 jobs, 4 of them done; 0 left" in capsys.readouterr().out


def test_jobs_that_do_not_need_each_other_run_side_by_side(tmp_path: Path):
    """Two jobs that each wait for the other to begin, and a third that needs both."""
    meet = (
        "import os, pathlib, sys, time\n"
        f"told = pathlib.Path({str(tmp_path)!r})\n"
        "own, other = sys.argv[1:3]\n"
        "(told / own).write_text(' '.join(map(str, os.sched_getaffinity(0))))\n"
        "for _ in range(300):\n"
        "    if (told / other).exists():\n"
        "        sys.exit(0)\n"
        "    time.sleep(0.1)\n"
        "sys.exit(1)\n"
    )
    (tmp_path / "meet.py").write_text(meet)
    script = str(tmp_path / "meet.py")
    first = Job("first", "suites", (script, "first", "second"))
    second = Job("second", "suites", (script, "second", "first"))
    third = Job("third", "suites", ("-c", "pass"), needs=("first", "second"))
    assert Schedule([first, second, third], str(tmp_path / "runs"), at_once=2).run()
    assert {file.stem for file in (tmp_path / "runs" / "done").iterdir()} == {"first", "second", "third"}
    one, other = ({*map(int, (tmp_path / name).read_text().split())} for name in ("first", "second"))
    every = os.sched_getaffinity(0)
    assert one | other == every
    assert len(every) == 1 or not one & other


def test_what_a_job_makes_possible_runs_before_later_jobs(tmp_path: Path, stand_in: StandIn):
    needs = {"start_1": (), "run_1": ("start_1",), "start_2": (), "run_2": ("start_2",)}
    jobs = [Job(name, "train", (name,), needed) for name, needed in needs.items()]
    assert Schedule(jobs, str(tmp_path / "runs")).run()
    assert [name for (name,) in stand_in.ran()] == list(needs)


def test_another_command_under_the_same_name_is_not_done(place: Plan, stand_in: StandIn):
    assert Schedule(place.jobs, place.workdir).run()
    stand_in.ran()
    marker = Path(place.workdir) / "done" / "code_a1_0.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "command": "python other"}))
    (Path(place.workdir) / "done" / "suites_code_a1.json").write_text("{")
    assert Schedule(place.jobs, place.workdir).run()
    assert [words[1] for words in stand_in.ran()] == ["codea1.train", "codea1.lab"]


def test_a_failure_is_told_and_only_what_needs_it_waits(place: Plan, stand_in: StandIn, capsys: pytest.CaptureFixture):
    stand_in.rules({"codea1.lab": (2, "error: it has no Test LLM.", 0)})
    assert not Schedule(place.jobs, place.workdir).run()
    programs = [words[1] for words in stand_in.ran()]
    assert programs == ["codea1.sft", "codea1.train", "codea1.lab"]
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed: ")]
    assert told[0].startswith("failed: suites_code_a1: exit code 2: error: it has no Test LLM. (all in ")
    assert told[1] == "failed: static_a1_0: not begun, because it needs suites_code_a1"
    stand_in.rules({})
    assert Schedule(place.jobs, place.workdir).run()
    assert [words[1] for words in stand_in.ran()] == ["codea1.lab", "codea1.train"]


def test_a_job_that_asks_for_it_is_started_again_a_few_times(place: Plan, stand_in: StandIn):
    stand_in.rules({"codea1.lab": (RESTART_EXIT_CODE, "stopped", 0)})
    assert not Schedule(place.jobs, place.workdir).run()
    assert [words[1] for words in stand_in.ran()].count("codea1.lab") == 3


def test_when_the_hours_are_over_what_runs_saves_and_nothing_begins(place: Plan, stand_in: StandIn):
    stand_in.rules({"codea1.train": (0, "", 60)})
    began = time.monotonic()
    with pytest.raises(HoursOver):
        Schedule(place.jobs, place.workdir, hours=5 / 3600).run()
    assert time.monotonic() - began < 30
    assert [words[1] for words in stand_in.ran()] == ["codea1.sft", "codea1.train"]
    stand_in.rules({})
    assert Schedule(place.jobs, place.workdir).run()
    assert [words[1] for words in stand_in.ran()] == ["codea1.train", "codea1.lab", "codea1.train"]


def test_a_job_counts_as_done_once_its_results_are_kept(place: Plan, stand_in: StandIn):
    def fail(job: Job) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        Schedule(place.jobs, place.workdir, done=fail).run()
    kept: list[str] = []
    assert Schedule(place.jobs, place.workdir, done=lambda job: kept.append(job.name)).run()
    assert kept == ["start_0", "code_a1_0", "suites_code_a1", "static_a1_0"]


def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path: Path, stand_in: StandIn):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be used"):
        Schedule([], str(tmp_path / "file")).run()


def test_a_dry_run_prints_every_command_and_makes_nothing(tmp_path: Path):
    workdir = tmp_path / "runs"
    lines = study("--config=configs/tiny.py:steps=3", f"--workdir={workdir}", "--dry_run").stdout.splitlines()
    assert len(lines) == len(jobs_of(PAPER)) + 1
    assert all(shlex.split(line)[:2] == ["python", "-m"] for line in lines)
    assert lines[-1].endswith(f"--output={workdir}/report")
    assert not workdir.exists()


def study(*flags: str, file: str = "studies/paper.toml") -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "codea1.lab", "study", file, *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_at_the_papers_scale_nothing_is_warmed_up():
    lines = [job.command for job in jobs_of(PLACES["3b"], "gs://bucket/tables")]
    assert "size=3b,topology=v5p-64,seed=0,method=code_a1 --workdir=gs://bucket/tables/code_a1_0" in lines[0]
    assert not any("sft=" in line for line in lines)
    assert any("--test_model=models/Qwen2.5-Coder-3B-Instruct" in line for line in lines)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("configs/tiny.py:seed=1", "config argument seed is the study's own"),
        ("configs/none.py", "config file configs/none.py does not exist"),
        ("configs/tiny.py:stepz=1", "config argument 'stepz' is unknown"),
        ("configs/tiny.py:steps=0", "config.steps is 0; it must be greater than 0"),
    ],
)
def test_mistakes_are_refused_in_a_sentence(config: str, said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(BadInput, match=said):
        with_config(PAPER, config)


def test_a_bucket_is_refused_with_what_to_do():
    done = study("--workdir=gs://bucket/tables")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is in a bucket: run what --dry_run prints" in done.stderr


def test_an_interruption_lets_the_job_that_runs_save_what_it_has(tmp_path: Path):
    """The program itself, as an impatient user would stop it; the first job notes how it was ended."""
    told = tmp_path / "told"
    patient = (
        "import pathlib, signal, sys, time\n"
        f"told = pathlib.Path({str(told)!r})\n"
        "def save(*_):\n"
        "    told.write_text('saving')\n"
        "    time.sleep(3)\n"
        "    told.write_text('saved')\n"
        "    sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "told.write_text('begun')\n"
        "time.sleep(60)\n"
    )
    (tmp_path / "python").write_text(f"#!{sys.executable}\n{patient}")
    os.chmod(tmp_path / "python", 0o755)
    code = (
        "import sys; from codea1.runtime import command; from codea1.lab.commands import study; "
        f"sys.executable = {str(tmp_path / 'python')!r}; command.run(study.main, argument='STUDY')"
    )
    command = [sys.executable, "-c", code, "studies/paper.toml", f"--workdir={tmp_path / 'runs'}", "--at_once=1"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _wait_until(lambda: told.exists() and told.read_text() == "begun")
    process.send_signal(signal.SIGTERM)
    _wait_until(lambda: told.read_text() == "saving")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert told.read_text() == "saved"
    assert error.splitlines()[-1] == "stopped: the same command goes on from there"


def _wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise TimeoutError


PLACES = {
    "tiny": replace(PAPER, config="configs/tiny.py:steps=40"),
    "3b": with_config(PAPER, f"{ROOT}/configs/code_a1.py:size=3b,topology=v5p-64"),
}
TRAINED = [(size, job) for size, study in PLACES.items() for job in jobs_of(study) if job.kind == "train"]


@pytest.mark.parametrize(("size", "job"), TRAINED, ids=lambda each: getattr(each, "name", each))
def test_a_command_makes_the_config_by_which_its_run_is_known(size: str, job: Job):
    given, *overrides = (word for word in job.arguments if word.startswith("--config"))
    path, _, argument = given.removeprefix("--config=").partition(":")
    made = runpy.run_path(str(ROOT / path))["get_config"](argument)
    for override in overrides:
        name, _, text = override.removeprefix("--config.").partition("=")
        kind = type(_field(made, name))
        made.update_from_flattened_dict({name: {"True": True, "False": False}[text] if kind is bool else kind(text)})
    validate(made)
    assert experiment_of(made.to_dict()).name == job.name.rpartition("_")[0]
    assert size_of(made.to_dict()) == size


def _field(config: ConfigDict, dotted: str) -> object:
    for name in dotted.split("."):
        config = config[name]
    return config
