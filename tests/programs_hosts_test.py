"""The programs beside `train` on two hosts with two devices each, against one host."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from bench.micro_run import make_micro_config, make_player, mesh_of
from codea1.config_file import validate
from codea1.data.tokenizer import load_tokenizer
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from tests.evalplus_files import humaneval_row, write_rows
from tests.host_processes import Process, assert_shown_once, finish, outputs, start_two
from tests.model_folders import load

SCRIPTED = "tests/scripted.py"
ROUNDING = {"rtol": 2e-4, "atol": 1e-5}  # of float32, after a few updates with sums over another order


@pytest.fixture(scope="module")
def run(model_folder, data_folder, tmp_path_factory) -> str:
    """A run with one checkpoint of the policies as they start."""
    config = make_micro_config(model_folder, data_folder)
    tokenizer, mesh = load_tokenizer(model_folder), mesh_of(validate(config))
    players = [make_player(name, validate(config), mesh, tokenizer) for name in ("code", "test")]
    config.mesh.tensor = 2
    for player in (config.code, config.test):
        player.micro_batch_size = 4
    folder = RunFolder.open(str(tmp_path_factory.mktemp("run") / "run"), config.to_dict())
    checkpoints = Checkpoints(folder.checkpoints, keep_last=1, keep_best=0)
    checkpoints.save(1, {name: state for player in players for name, state in player.states.items()}, {}, score=0.0)
    checkpoints.close()
    return str(folder.path)


def reported(done: list[tuple[int, str, str]]) -> list[str]:
    return [line for _, _, errors in done for line in errors.splitlines() if line.startswith("error")]


def test_export_writes_one_folder(run, model_folder, bucket):
    program, flags = ("-m", "codea1.export"), (f"--run={run}", "--dtype=float32", f"--output={bucket}/out")
    printed = finish(*start_two(program, *flags))
    assert_shown_once(f"wrote {bucket}/out: the code policy of {run} after step 1, in float32", *printed)
    _, params = load(f"{bucket}/out")
    jax.tree.map(np.testing.assert_array_equal, params, load(model_folder)[1])
    assert load_tokenizer(f"{bucket}/out").vocab_size == load_tokenizer(model_folder).vocab_size
    done = outputs(start_two(program, *flags))
    assert [code for code, _, _ in done] == [2, 2]
    assert reported(done) == [f"error: --output {bucket}/out holds a model already."]


def test_evaluate_measures_what_one_host_measures(run):
    program, flags = (SCRIPTED, "codea1.evaluate"), (str(run), "--split=validation", "--step=best")
    written = Path(run) / "evaluations" / "validation_step_000001.json"
    (alone,) = finish(Process(program, *flags, devices=4))
    of_one = json.loads(written.read_text())
    written.unlink()
    assert "step 1, 3 questions of the validation split" in alone
    assert_shown_once(alone, *finish(*start_two(program, *flags)))
    assert json.loads(written.read_text()) == of_one
    means = {name: metric["mean"] for name, metric in of_one["metrics"].items()}
    assert any(0 < mean < 1 for mean in means.values()), means


def test_a_benchmark_measures_what_one_host_measures(run, tmp_path):
    tasks = (humaneval_row(number, canonical_solution=f"    return {number}\n") for number in range(3))
    path = write_rows(tmp_path / "he.jsonl", *tasks)
    short = "--max_prompt_length=600", "--max_response_length=8", "--slots=8", "--num_tests=3"
    flags = f"--run={run}", "--benchmark=humanevalplus", f"--file={path}", "--samples=4", "--best_of=own", *short
    program, evaluations = (SCRIPTED, "codea1.benchmark"), Path(run) / "evaluations"
    written = [evaluations / f"humanevalplus{kind}_step_000001.json" for kind in ("", "_best_of_4")]
    (alone,) = finish(Process(program, *flags, devices=4))
    of_one = [json.loads(path.read_text()) for path in written]
    shutil.rmtree(evaluations)
    assert_shown_once(alone, *finish(*start_two(program, *flags)))
    assert [json.loads(path.read_text()) for path in written] == of_one
    assert 0 < of_one[0]["metrics"]["avg_at_4"]["mean"] < 1
    done = outputs(start_two(program, *flags, "--samples=5"))
    assert [code for code, _, _ in done] == [2, 2]
    (error,) = reported(done)
    assert error.endswith("holds a run with another config: samples is 4 there and 5 here.")


def test_sft_makes_one_model(tmp_path):
    small = "--config.sft.steps=2", "--config.sft.batch_size=8", "--config.sft.row_lengths=()"
    program, flags = ("-m", "codea1.sft"), ("--config=configs/tiny.py", *small)

    def workdir(name: str) -> str:
        return f"--workdir={tmp_path / name}"

    finish(Process(program, *flags, workdir("one"), devices=4))
    printed = finish(*start_two(program, *flags, workdir("two")))
    assert_shown_once(f"wrote {tmp_path}/two/model", *printed)
    rows = [read_metrics(RunFolder.existing(str(tmp_path / name)).metrics) for name in ("one", "two")]
    assert [row["step"] for row in rows[1]] == [1, 2]
    for alone, together in zip(*rows, strict=True):
        np.testing.assert_allclose(together["cross_entropy"], alone["cross_entropy"], **ROUNDING)
        np.testing.assert_allclose(together["grad_norm"], alone["grad_norm"], **ROUNDING)
    (config, alone), (same, together) = (load(tmp_path / name / "model") for name in ("one", "two"))
    assert config == same
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **ROUNDING), together, alone)
    assert {path.name for path in (tmp_path / "two").iterdir()} == {path.name for path in (tmp_path / "one").iterdir()}
    printed = finish(*start_two(program, *flags, workdir("two")))
    assert_shown_once(f"{tmp_path}/two/model is there already.", *printed)


def test_sft_refuses_rows_that_the_devices_do_not_divide(tmp_path):
    flags = "--config=configs/tiny.py", f"--workdir={tmp_path / 'new'}", "--config.sft.micro_batch_size=6"
    done = outputs([Process(("-m", "codea1.sft"), *flags, devices=4)])
    assert done[0][0] == 2
    assert reported(done) == ["error: config.sft.micro_batch_size is 6; replica x fsdp = 4 must divide it: use 8."]
    assert not (tmp_path / "new").exists()
