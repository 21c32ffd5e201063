"""A whole run in a bucket: killed, taken up, read; and two processes that write one step there."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import jax
import nbformat
import pytest
from etils import epath
from ml_collections import ConfigDict
from nbclient import NotebookClient

from bench.micro_run import content, make_micro_config, write_config
from codea1.game.book_pages import Pages
from codea1.lab.export import export
from codea1.lab.report.run_report import report_run
from codea1.lab.runs.book_export import open_book, show_books
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import StorageFailed
from codea1.runtime.hosts import Hosts
from codea1.storage import faults
from tests.conftest import ROOT
from tests.faulty_gcs import WRITE, PlannedFault, faulty, no_bucket, reset
from tests.host_processes import Process, finish, start_two
from tests.train_test import promised, rows, scripting, train


def start(config: Path, workdir: str) -> Process:
    program = ("tests/scripted.py", "codea1.train")
    return Process(program, f"--config={config}", f"--workdir={workdir}", devices=1)


def kill_after_save(run: Process, workdir: str, step: int) -> None:
    marker = epath.Path(workdir) / "checkpoints" / str(step) / "commit_success.txt"
    while not marker.exists():
        assert not run.has_ended, run.printed()
        time.sleep(0.05)
    run.kill()
    run.wait()


def book(workdir: str, step: int) -> Pages:
    folder = RunFolder.existing(workdir).checkpoints
    return Checkpoints(folder, keep_last=1, keep_best=0, read_only=True).restore_book(step)


def evaluations(workdir: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in RunFolder.existing(workdir).evaluations.iterdir()}


@pytest.fixture(scope="module")
def undisturbed(model_folder, data_folder, tmp_path_factory) -> Iterator[tuple[ConfigDict, str]]:
    """A short run on a disk, with its config; answers mean something as long as it is in use."""
    config = make_micro_config(model_folder, data_folder)
    config.steps = 4
    config.game.num_tests = 3
    config.checkpoint.every = config.validation.every = 2
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    with scripting():
        train(config, workdir)
        yield config, str(workdir)


@pytest.fixture(scope="module")
def uploaded(undisturbed, gcs) -> str:
    """The URL of a copy of the run in a bucket."""
    _, local = undisturbed
    workdir = f"{gcs.new_bucket()}/run"
    fsspec.filesystem("gs").put(f"{local}/", f"{workdir}/", recursive=True)
    return workdir


def test_a_run_in_a_bucket_is_killed_and_ends_as_one_on_a_disk(undisturbed, data_folder, bucket, tmp_path, capsys):
    config, local = undisturbed
    fsspec.filesystem("gs").put(f"{data_folder}/procedural/", f"{bucket}/data/", recursive=True)
    config = ConfigDict(config.to_dict())
    config.data.train.source = f"{bucket}/data/classic-1.0.0/train.jsonl.gz"
    config_file, workdir = write_config(config, tmp_path / "config.py"), f"{bucket}/runs/run"

    kill_after_save(start(config_file, workdir), workdir, step=2)
    (printed,) = finish(start(config_file, workdir))

    assert re.search(f"continuing {workdir} after step [24]", " ".join(printed.split()))
    assert [row["step"] for row in promised(workdir)] == [0, 1, 2, 3, 4]
    assert promised(workdir) == promised(local)
    assert rows(workdir) == rows(local) != []
    assert book(workdir, 4) == book(local, 4) != {}
    assert evaluations(workdir) == evaluations(local)
    assert not epath.Path(f"{workdir}/.lock").exists()
    reports = {"report.md", "report.png", "report.html"}
    top = {"config.json", "metrics.jsonl", "samples", "evaluations", "tensorboard"} | reports
    assert {path.name for path in epath.Path(workdir).iterdir()} == top | {"checkpoints"}

    epath.Path(f"{workdir}/report.md").unlink()
    report_run(workdir)
    assert f"wrote {workdir}/report.md" in capsys.readouterr().out
    show_books([workdir], step="4", export=f"{workdir}/book.jsonl.gz")
    assert content(open_book(f"{workdir}/book.jsonl.gz", "last")[1]) == content(book(local, 4))
    export(RunFolder.existing(workdir), "code", "last", tmp_path / "exported", "float32", Hosts())
    assert (tmp_path / "exported" / "model.safetensors").stat().st_size > 0


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (PlannedFault(WRITE, "4/manifest.json", no_bucket, times=1e9), "4/manifest.json failed: .* is not there"),
        (PlannedFault(WRITE, "metrics", reset, times=5, served=True), None),
    ],
    ids=["no bucket before the marker of step 4", "lost answers"],
)
def test_nothing_is_lost_with_the_storage(undisturbed, bucket, monkeypatch, fault, told):
    monkeypatch.setattr(faults, "FIRST_PAUSE_SECONDS", 0.01)
    config, local = undisturbed
    workdir = f"{bucket}/run"
    with faulty(fault):
        if told:
            with pytest.raises(StorageFailed, match=told):
                train(config, workdir)
        else:
            train(config, workdir)
    assert fault.seen
    if told:
        assert Checkpoints(epath.Path(workdir) / "checkpoints", 1, 0, read_only=True).latest() == (2, [])
        train(config, workdir)
    assert promised(workdir) == promised(local)
    assert rows(workdir) == rows(local)
    assert book(workdir, 4) == book(local, 4)
    assert evaluations(workdir) == evaluations(local)
    if not told:
        assert sum(row["storage/retries"] for row in read_metrics(epath.Path(workdir) / "metrics.jsonl")) >= 5


def test_a_notebook_reads_a_run_in_a_bucket(uploaded, monkeypatch):
    monkeypatch.setenv("CODEA1_RUN", uploaded)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "notebooks" / "training_dynamics.ipynb", as_version=4)
    for cell in notebook.cells:  # committed with outputs of another run
        cell.pop("outputs", None)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
    assert any("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ()))


WRITES = """
import jax, numpy as np
from absl import flags
from etils import epath
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime import command
hosts, folder = command.define_hosts(), flags.DEFINE_string("folder", None, "of checkpoints")

def main():
    hosts()
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows"))
    checkpoints = Checkpoints(epath.Path(folder.value), keep_last=2, keep_best=0)
    for step in (1, 2, 3):
        whole = step * np.arange(4096.0, dtype=np.float32).reshape(8, 512)
        checkpoints.save(step, {"x": jax.make_array_from_callback(whole.shape, rows, lambda at: whole[at])}, {}, None)
    checkpoints.close()

command.run(main)
"""


def test_two_processes_write_their_shards_of_a_step_at_once(bucket: str, tmp_path):
    program, workdir = tmp_path / "writes.py", epath.Path(bucket) / "checkpoints"
    program.write_text(WRITES)
    finish(*start_two((str(program),), f"--folder={workdir}"))
    reader = Checkpoints(workdir, 1, 0, read_only=True)
    assert reader.steps() == [2, 3]
    assert reader.latest() == (3, [])
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target = {"x": jax.ShapeDtypeStruct((8, 512), "float32", sharding=here)}
    assert (reader.restore(3, target)[0]["x"].ravel() == 3 * jax.numpy.arange(4096.0)).all()
    assert {path.name for path in (workdir / "3" / "arrays").iterdir()} >= {"ocdbt.process_0", "ocdbt.process_1"}
