"""Whole runs on two hosts with four devices each, against one host with eight; each host is a process."""

import json
import re
import shutil
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bench.micro_run import NOT_PROMISED, content, make_micro_config, write_config
from codea1.config import config_of
from codea1.runs.book_export import open_book, read_export
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runs.samples import Samples
from codea1.runtime.errors import BAD_INPUT_EXIT_CODE, RESTART_EXIT_CODE
from codea1.training.saved_step import ROUNDING as OF_A_REPLAY
from codea1.training.saved_step import SavedStep
from tests import two_hosts
from tests.conftest import ROOT
from tests.two_hosts import finish, outputs

PROGRAM = (str(ROOT / "tests" / "train_on_hosts.py"),)
ROUNDING = {"rtol": 2e-5, "atol": 1e-6}  # of float32, in sums over another order; 6e-8 was seen

Row = dict[str, object]


start = partial(two_hosts.start, PROGRAM)
start_two = partial(two_hosts.start_two, PROGRAM, devices=4)


@pytest.fixture(scope="module")
def config_file(model_folder, data_folder, tmp_path_factory) -> Path:
    config = make_micro_config(model_folder, data_folder)
    config.steps = 2
    config.questions_per_step = 4
    config.mesh.tensor = 2
    for player in (config.code, config.test):
        player.micro_batch_size = 4
    config.game.num_tests = 3
    config.validation.every = 1
    config.checkpoint.every = 1
    config.profile.first_step, config.profile.steps = 2, 1
    return write_config(config, tmp_path_factory.mktemp("config") / "config.py")


@pytest.fixture(scope="module")
def one(config_file, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("one") / "run"
    finish(start(f"--config={config_file}", f"--workdir={workdir}", devices=8))
    return workdir


@pytest.fixture(scope="module")
def two(config_file, tmp_path_factory) -> tuple[Path, list[str]]:
    """The folder of a run and what its hosts printed."""
    workdir = tmp_path_factory.mktemp("two") / "run"
    return workdir, finish(*start_two(f"--config={config_file}", f"--workdir={workdir}"))


def metrics(workdir: Path) -> list[Row]:
    return read_metrics(RunFolder.existing(str(workdir)).metrics)


def promised(workdir: Path) -> list[Row]:
    return [{k: v for k, v in row.items() if not k.startswith(NOT_PROMISED)} for row in metrics(workdir)]


def samples(workdir: Path) -> list[Row]:
    written = Samples(RunFolder.existing(str(workdir)))
    return [row for step in written.steps() for row in written.read(step)]


def evaluations(workdir: Path) -> dict[str, Row]:
    return {path.name: json.loads(path.read_text()) for path in (workdir / "evaluations").iterdir()}


def book(workdir: Path, step: int) -> Row:
    _, pages = open_book(str(workdir), str(step))
    return content(pages)


def test_a_step_of_two_hosts_is_that_of_one(one, two):
    workdir, _ = two
    first = [[row for row in samples(run) if row["step"] == 1] for run in (one, workdir)]
    for alone, together in zip(*first, strict=True):
        np.testing.assert_allclose(together.pop("log_probs"), alone.pop("log_probs"), **ROUNDING)
        assert together == alone
    for alone, together in zip(promised(one)[:2], promised(workdir)[:2], strict=True):
        assert together.keys() == alone.keys()
        for name in alone:
            np.testing.assert_allclose(together[name], alone[name], **ROUNDING, err_msg=name)
    assert promised(workdir)[1]["code/grad_norm"] > 0
    assert promised(workdir)[1]["test/grad_norm"] > 0
    assert {row["advantage"] != 0 for row in first[1]} == {True, False}
    assert book(workdir, 1) == book(one, 1) != {}


def test_a_row_tells_the_hosts_and_all_of_their_gradings(one, two):
    alone, together = metrics(one), metrics(two[0])
    assert [row["step"] for row in together] == [0, 1, 2]
    assert (together[1]["perf/processes"], together[1]["perf/devices"]) == (2, 8)
    assert (alone[1]["perf/processes"], alone[1]["perf/devices"]) == (1, 8)
    assert together[1]["sandbox/gradings"] >= alone[1]["sandbox/gradings"] > 0


def test_the_run_is_shown_and_written_once(one, two):
    workdir, (main, other) = two
    assert "best step on the validation questions" in main
    assert other == ""

    def files(run: Path) -> set[str]:
        return {path.name for path in run.iterdir()}

    assert files(workdir) == files(one)
    assert {"config.json", "metrics.jsonl", "report.md", "report.png", "samples", "evaluations"} <= files(workdir)
    assert len(list((workdir / "tensorboard").iterdir())) == 1
    assert evaluations(workdir).keys() == {"before.json", "after.json"}


def test_each_host_traces_its_part_of_the_step(two):
    traces = (two[0] / "profile").rglob("*.xplane.pb")
    assert sorted(f"{path.parent.name}/{path.name}" for path in traces) == [
        "steps_2_to_2/host_0.xplane.pb",
        "steps_2_to_2/host_1.xplane.pb",
    ]


def test_a_step_of_eight_devices_is_made_again_on_one(one):
    folder = RunFolder.existing(str(one))
    saved = SavedStep(folder, config_of(folder), 2)
    assert saved.mesh().size == 1
    pairs = saved.replay()
    assert [pair for pair in pairs if not pair.is_close(OF_A_REPLAY["float32"])] == []
    assert all(pair.again > 0 for pair in pairs if pair.name.endswith("grad_norm"))


def test_a_dry_run_of_two_hosts_is_shown_once(config_file):
    main, other = finish(*start_two(f"--config={config_file}", "--dry_run"))
    assert "8 devices (cpu) of 2 hosts, mesh replica 1 x fsdp 4 x tensor 2" in main
    assert "dry run done" in main
    assert other == ""


def test_when_a_host_is_told_to_end_or_dies_all_end_and_the_run_can_go_on(config_file, two, tmp_path):
    flags = f"--config={config_file}", f"--workdir={tmp_path / 'run'}", "--config.validation.every=10"
    flags = *flags, "--config.checkpoint.every=10", "--at=2"  # nothing else saves the first step
    done = outputs(start_two(*flags, "--what=term"))
    assert [code for code, _, _ in done] == [RESTART_EXIT_CODE] * 2, done
    assert "stopped after step 1, which is saved" in done[0][1]
    assert "SIGTERM" not in done[0][2]
    assert "SIGTERM: the last whole step is saved first" in done[1][2]
    runs = start_two(*flags, "--what=die")
    assert runs[1].wait(400) == -signal.SIGKILL
    # A collective notices at once, or else, on a busy machine, JAX's heartbeat after 100 s.
    assert outputs(runs, timeout=200)[0][0] != 0
    assert [row["step"] for row in metrics(tmp_path / "run")] == [0, 1]
    finish(*start_two(*flags[:-1]))
    workdir, _ = two
    for again, row in zip(promised(tmp_path / "run"), promised(workdir), strict=True):
        assert again == {name: row[name] for name in again}
    assert samples(tmp_path / "run") == samples(workdir)
    assert evaluations(tmp_path / "run") == evaluations(workdir)
    assert book(tmp_path / "run", 2) == book(workdir, 2) != {}


def test_a_frozen_host_is_told_of_and_ends_the_run(config_file, tmp_path):
    flags = f"--config={config_file}", f"--workdir={tmp_path / 'run'}", "--at=1", "--what=freeze"
    # Long enough for hosts that start one after the other on a busy machine.
    main, frozen = start_two(*flags, "--config.watchdog.collective=20", "--config.watchdog.restart_after=1")
    try:
        _, errors = main.communicate(timeout=400)
    finally:
        frozen.kill()
        frozen.communicate()
    assert main.returncode == RESTART_EXIT_CODE
    assert "watchdog: host 0 has made no progress" in errors
    assert "in: step 1 > rollout > collective. All its threads:" in errors
    assert "process_allgather" in errors


def test_a_sandbox_that_hangs_is_told_of_and_ends_the_run(config_file, tmp_path):
    flags = f"--config={config_file}", f"--workdir={tmp_path / 'run'}", "--at=1", "--what=hang"
    run = start(*flags, "--config.watchdog.sandbox=5", "--config.watchdog.restart_after=1", devices=8)
    ((code, _, errors),) = outputs([run])
    assert code == RESTART_EXIT_CODE
    assert "in: step 1 > rollout > sandbox. All its threads:" in errors
    assert "_own_results" in errors


def test_a_sandbox_that_judges_nothing_is_told_once_and_ends_every_host(config_file, tmp_path):
    flags = f"--config={config_file}", f"--workdir={tmp_path}", "--at=2", "--what=lose"
    (code, out, told), (other_code, _, other_told) = outputs(start_two(*flags))
    assert (code, other_code) == (BAD_INPUT_EXIT_CODE,) * 2, told
    assert re.findall("^error: .*", told, re.MULTILINE) == [
        "error: all 8 programs of step 2 failed for a reason that is not theirs: gone; "
        "`python -m codea1.tools.sandbox` tells what works on this machine."
    ]
    assert "error:" not in other_told
    assert "stopped after step 1, which is saved: the same command goes on from there" in out


def test_other_hosts_and_devices_go_on_from_the_same_place(config_file, one, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(one, workdir)
    shutil.rmtree(workdir / "checkpoints" / "2")
    finish(*start_two(f"--config={config_file}", f"--workdir={workdir}", devices=2))
    before, after = [[row for row in samples(run) if row["step"] == 2] for run in (one, workdir)]
    assert [(row["player"], row["question_id"]) for row in after] == [
        (row["player"], row["question_id"]) for row in before
    ]
    assert metrics(workdir)[:2] == metrics(one)[:2]
    # The history is what the saved book says, and the samples are drawn by the same keys.
    replayed = [[test["test"] for row in rows for test in row.get("history", [])] for rows in (before, after)]
    assert replayed[0] == replayed[1] != []
    same = [old["token_ids"] == new["token_ids"] for old, new in zip(before, after, strict=True)]
    assert np.mean(same) > 0.8  # float rounding may flip a token
    for name in ("learning_rate", "entropy"):
        np.testing.assert_allclose(metrics(workdir)[2][f"code/{name}"], metrics(one)[2][f"code/{name}"], rtol=1e-3)


def test_bad_input_is_told_once_and_ends_every_host(config_file, tmp_path):
    flags = f"--config={config_file}", f"--workdir={tmp_path / 'run'}"
    for of_all, of_host_1, sentence in (
        (("--config.data.train.source=no.jsonl",), (), "error: data file no.jsonl does not exist.\n"),
        ((), ("--config.seed=1",), "error: the configs on host 1 differ from those on host 0.\n"),
    ):
        done = outputs(start_two(*flags, *of_all, of_host_1=of_host_1))
        assert [code for code, _, _ in done] == [2, 2], done
        told = [line for _, _, errors in done for line in errors.splitlines(True) if line.startswith("error")]
        assert told == [sentence]
        assert not (tmp_path / "run").exists()


def test_a_book_goes_from_one_host_to_two_and_back(config_file, tmp_path):
    workdir = tmp_path / "run"
    flags = f"--config={config_file}", f"--workdir={workdir}", "--config.steps=3", f"--loaded_books={tmp_path}"
    assert outputs([start(*flags, "--at=2", "--what=die", devices=8)])[0][0] == -signal.SIGKILL
    first = book(workdir, 1)
    assert outputs(start_two(*flags, "--at=3", "--what=die"))[1][0] == -signal.SIGKILL
    parts = [content(read_export(tmp_path / f"{host}_of_2.jsonl")) for host in range(2)]
    assert all(parts)
    assert not parts[0].keys() & parts[1].keys()  # each question on exactly one host
    assert parts[0] | parts[1] == first
    second = book(workdir, 2)
    finish(start(*flags, devices=8))
    assert content(read_export(tmp_path / "0_of_1.jsonl")) == second != first
    assert [row["step"] for row in metrics(workdir)] == [0, 1, 2, 3]
    assert metrics(workdir)[3]["book/size"] == sum(len(entries) for _, entries in book(workdir, 3).values())
