"""Whole runs on two hosts with two devices each, against one host with four; each host is a process."""

import json
import re
import shutil
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bench.micro_run import content, make_micro_config, write_config
from codea1.lab import model_writer
from codea1.lab.runs.book_export import open_book, read_export
from codea1.models import huggingface, peft
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runs.restarts import MOST_RESTARTS
from codea1.runtime.errors import BAD_INPUT_EXIT_CODE, RESTART_EXIT_CODE
from tests import host_processes
from tests.conftest import ROOT
from tests.host_processes import Process, assert_shown_once, finish, outputs
from tests.models_peft_test import ALPHA, RANK, draw
from tests.saved_step import ROUNDING as OF_A_REPLAY
from tests.saved_step import SavedStep
from tests.train_test import promised
from tests.train_test import rows as samples

PROGRAM = (str(ROOT / "tests" / "train_on_hosts.py"),)
ROUNDING = {"rtol": 2e-5, "atol": 1e-6}  # of float32, in sums over another order; 6e-8 was seen

Row = dict[str, object]


start_one = partial(Process, PROGRAM, devices=4)
start_two = partial(host_processes.start_two, PROGRAM)


@pytest.fixture(scope="module")
def config_file(model_folder, data_folder, tmp_path_factory) -> Path:
    config = make_micro_config(model_folder, data_folder)
    config.steps = 3
    config.questions_per_step = 4
    config.data.validation.limit = config.data.test.limit = 2
    config.mesh.tensor = 2
    for player in (config.code, config.test):
        player.micro_batch_size = 4
        player.max_response_length = 12  # each token crosses between the hosts, layer by layer
    config.game.num_tests = 3
    config.validation.every = 2
    config.checkpoint.every = 1
    config.checkpoint.keep_last = 3
    return write_config(config, tmp_path_factory.mktemp("config") / "config.py")


@pytest.fixture(scope="module")
def played(config_file, tmp_path_factory) -> tuple[Path, Path, list[str]]:
    """The folder of the run on one host, that of the run on two, made meanwhile, and what those two printed."""
    one, two = (tmp_path_factory.mktemp(name) / "run" for name in ("one", "two"))
    flags = f"--config={config_file}", "--config.profile.first_step=3"
    alone = start_one(*flags, f"--workdir={one}")
    _, *printed = finish(alone, *start_two(*flags, f"--workdir={two}"))
    return one, two, printed


@pytest.fixture
def one(played) -> Path:
    return played[0]


@pytest.fixture
def two(played) -> tuple[Path, list[str]]:
    """The folder of the run and what its hosts printed."""
    return played[1:]


def metrics(workdir: Path) -> list[Row]:
    return read_metrics(RunFolder.existing(str(workdir)).metrics)


def evaluations(workdir: Path) -> dict[str, Row]:
    return {path.name: json.loads(path.read_text()) for path in (workdir / "evaluations").iterdir()}


def book(workdir: Path, step: int) -> Row:
    _, pages = open_book(str(workdir), str(step))
    return content(pages)


def test_a_step_of_two_hosts_is_that_of_one(one, two):
    workdir, _ = two
    first = [samples(run, 1) for run in (one, workdir)]
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
    assert book(workdir, 2).keys() == book(one, 2).keys() != set()


def test_a_row_counts_the_hosts_and_all_of_their_gradings(one, two):
    alone, together = metrics(one), metrics(two[0])
    assert [row["step"] for row in together] == [0, 1, 2, 3]
    assert (together[1]["perf/processes"], together[1]["perf/devices"]) == (2, 4)
    assert (alone[1]["perf/processes"], alone[1]["perf/devices"]) == (1, 4)
    assert together[1]["sandbox/gradings"] >= alone[1]["sandbox/gradings"] > 0


def test_the_run_is_shown_and_written_once(one, two):
    workdir, printed = two
    assert_shown_once("best step on the validation questions", *printed)

    def files(run: Path) -> set[str]:
        return {path.name for path in run.iterdir()}

    assert files(workdir) == files(one)
    assert {"config.json", "metrics.jsonl", "report.md", "report.png", "samples", "evaluations"} <= files(workdir)
    assert len(list((workdir / "tensorboard").iterdir())) == 1
    assert evaluations(workdir).keys() == {"before.json", "after.json"}


def test_each_host_traces_its_part_of_the_step(two):
    traces = (two[0] / "profile").rglob("*.xplane.pb")
    assert sorted(f"{path.parent.name}/{path.name}" for path in traces) == [
        "steps_3_to_3/host_0.xplane.pb",
        "steps_3_to_3/host_1.xplane.pb",
    ]


def test_a_step_of_four_devices_is_made_again_on_one(one):
    folder = RunFolder.existing(str(one))
    saved = SavedStep(folder, 3)
    assert saved.mesh().size == 1
    pairs = saved.replay()
    assert [pair for pair in pairs if not pair.is_close(OF_A_REPLAY["float32"])] == []
    assert all(pair.again > 0 for pair in pairs if pair.name.endswith("grad_norm"))


def test_two_hosts_that_are_stopped_and_go_on_make_the_run_that_never_was_stopped(config_file, two, tmp_path):
    """One of the two gets SIGTERM."""
    workdir = tmp_path / "run"
    flags = f"--config={config_file}", f"--workdir={workdir}"

    (code, out, errors), (other_code, _, other_errors) = outputs(start_two(*flags, "--at=3", "--what=term"))
    assert (code, other_code) == (RESTART_EXIT_CODE,) * 2, errors + other_errors
    assert "stopped after step 2, which is saved" in out
    assert "SIGTERM" not in errors
    assert "SIGTERM: the last whole step is saved first" in other_errors
    assert [row["step"] for row in metrics(workdir)] == [0, 1, 2]

    finish(*start_two(*flags))
    undisturbed, _ = two
    assert promised(workdir) == promised(undisturbed)
    assert samples(workdir) == samples(undisturbed)
    assert evaluations(workdir) == evaluations(undisturbed)
    assert book(workdir, 3) == book(undisturbed, 3) != {}


@pytest.mark.long
def test_a_run_goes_from_one_host_to_two_of_which_one_dies_and_back_to_one(config_file, one, tmp_path):
    workdir = tmp_path / "run"
    flags = f"--config={config_file}", f"--workdir={workdir}", f"--loaded_books={tmp_path}"
    shutil.copytree(one, workdir)
    for step in (2, 3):
        shutil.rmtree(workdir / "checkpoints" / str(step))

    main, dying = start_two(*flags, "--at=3", "--what=die")
    assert dying.wait() == -signal.SIGKILL
    ((code, _, errors),) = outputs([main])
    assert code == RESTART_EXIT_CODE
    assert re.search(r"^error: host 1 is gone, during step 3 > .*; start all hosts again\.$", errors, re.MULTILINE)
    parts = [content(read_export(tmp_path / f"{host}_of_2.jsonl")) for host in range(2)]
    assert all(parts)
    assert not parts[0].keys() & parts[1].keys()  # each question on exactly one host
    assert parts[0] | parts[1] == book(workdir, 1)
    assert metrics(workdir)[:2] == metrics(one)[:2]
    before, after = samples(one, 2), samples(workdir, 2)
    # The history is what the saved book holds, and the samples are drawn by the same keys from the same weights.
    replayed = [[test["test"] for row in rows for test in row.get("history", [])] for rows in (before, after)]
    assert replayed[0] == replayed[1] != []
    assert [row["token_ids"] for row in after] == [row["token_ids"] for row in before]

    saved = book(workdir, 2)
    finish(start_one(*flags))
    assert content(read_export(tmp_path / "0_of_1.jsonl")) == saved != book(workdir, 1)
    assert [row["step"] for row in metrics(workdir)] == [0, 1, 2, 3]
    assert metrics(workdir)[3]["book/size"] == sum(len(entries) for _, entries in book(workdir, 3).values())


@pytest.mark.long
def test_adapters_of_two_hosts_learn_as_those_of_one(model_folder, data_folder, tmp_path):
    """From new adapters and from some of a folder, on one base; two hosts are stopped and go on."""
    config, checkpoint = make_micro_config(model_folder, data_folder), huggingface.Checkpoint(model_folder)
    base = peft.Base(str(model_folder), checkpoint.checksum())
    model_writer.save_adapters(tmp_path / "adapters", draw(checkpoint.config), alpha=ALPHA, base=base)
    config.test.model = str(tmp_path / "adapters")
    config.steps, config.questions_per_step, config.mesh.tensor, config.checkpoint.every = 2, 4, 2, 1
    for player in (config.code, config.test):
        player.lora.rank, player.lora.alpha, player.micro_batch_size, player.warmup_steps = RANK, ALPHA, 4, 0
    file, runs = write_config(config, tmp_path / "config.py"), [tmp_path / "one", tmp_path / "two"]
    finish(start_one(f"--config={file}", f"--workdir={runs[0]}"))
    flags = f"--config={file}", f"--workdir={runs[1]}"
    assert [code for code, _, _ in outputs(start_two(*flags, "--at=2", "--what=term"))] == [RESTART_EXIT_CODE] * 2
    finish(*start_two(*flags))
    for alone, together in zip(promised(runs[0])[:2], promised(runs[1])[:2], strict=True):
        for name in alone:
            np.testing.assert_allclose(together[name], alone[name], **ROUNDING, err_msg=name)
    assert [row["token_ids"] for row in samples(runs[1], 1)] == [row["token_ids"] for row in samples(runs[0], 1)]
    for row in metrics(runs[1])[1:]:
        assert all(row[f"{player}/{name}"] > 0 for player in ("code", "test") for name in ("grad_norm", "update_norm"))
    exported = []
    for run in runs:
        flags = f"--run={run}", "--player=test", "--step=1", f"--output={run}_test"
        finish(*host_processes.start_two(("-m", "codea1.export"), *flags))
        assert peft.Adapters(f"{run}_test").base == base
        exported.append(load_file(f"{run}_test/adapter_model.safetensors"))
    begun = load_file(tmp_path / "adapters" / "adapter_model.safetensors")
    for name, before in begun.items():
        alone, together = (there[name] for there in exported)
        are_close = np.isclose(alone, together, **ROUNDING)  # of an element without gradient Adam may err
        assert are_close.mean() > 0.98, name
        assert not np.any(np.isclose(alone, before, rtol=0, atol=1e-5)), name


@pytest.mark.long
def test_a_run_that_is_killed_in_one_step_for_ever_is_given_up_and_one_that_is_told_to_stop_is_not(
    config_file, tmp_path
):
    flags = f"--config={config_file}", f"--workdir={tmp_path / 'run'}", "--at=3"
    for _ in range(2 * MOST_RESTARTS):
        ((code, _, errors),) = outputs([start_one(*flags, "--what=term")])
        assert code == RESTART_EXIT_CODE, errors
    for _ in range(1 + MOST_RESTARTS):
        ((code, _, errors),) = outputs([start_one(*flags, "--what=die")])
        assert code == -signal.SIGKILL, errors
    done = outputs(start_two(*flags, "--what=die"))
    assert [code for code, _, _ in done] == [1, 1], done
    sentences = [line for _, _, errors in done for line in errors.splitlines() if line.startswith("error: ")]
    assert sentences == [
        f"error: {tmp_path / 'run'}: 3 restarts brought no step after step 2; see why, then start it again."
    ]
    finish(start_one(*flags[:2]))


def test_a_sandbox_that_hangs_is_reported_and_ends_the_run(config_file, tmp_path):
    flags = f"--config={config_file}", f"--workdir={tmp_path / 'run'}", "--at=1", "--what=hang"
    run = start_one(*flags, "--config.watchdog.restart_after=1")
    ((code, _, errors),) = outputs([run])
    assert code == RESTART_EXIT_CODE
    assert "in: step 1 > rollout > sandbox. All its threads:" in errors
    assert "in collect" in errors


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--config.seed=1", "the configs on host 1 differ from those on host 0."),
        ("--config.code.model=/nowhere", "host 1: /nowhere"),
    ],
)
def test_bad_input_is_reported_once_and_ends_every_host(config_file, tmp_path, flag, said):
    flags = f"--config={config_file}", f"--workdir={tmp_path / 'run'}"
    done = outputs(start_two(*flags, of_host_1=(flag,)))
    assert [code for code, _, _ in done] == [BAD_INPUT_EXIT_CODE] * 2, done
    reported = [line for _, _, errors in done for line in errors.splitlines() if line.startswith("error")]
    (sentence,) = reported
    assert sentence.startswith(f"error: {said}")
    assert not (tmp_path / "run").exists()
