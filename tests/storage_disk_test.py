"""A disk that takes no more: the run is told, and what was complete stays."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter, read_metrics
from codea1.runs.samples import Samples
from codea1.runtime.errors import StorageFailed
from codea1.training.record import Record
from tests.conftest import ROOT, config_of_steps

# Files of more than `limit` bytes cannot be: the kernel writes a part and refuses the rest, as it does on a full disk.
SAVES = """
import asyncio, resource, sys, jax.numpy as jnp, tensorstore
from absl import flags
from codea1.runtime import command
from codea1.runs.checkpoints import Checkpoints
from etils import epath

LIMIT = flags.DEFINE_integer("limit", 0, "")
WORKDIR = flags.DEFINE_string("workdir", "", "")

def main():
    checkpoints = Checkpoints(epath.Path(WORKDIR.value), 2, 0)
    checkpoints.save(1, {"x": jnp.zeros(8)}, {}, None)
    checkpoints.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT.value, LIMIT.value))
    loop, (promise, write) = asyncio.new_event_loop(), tensorstore.Promise.new()
    write.add_done_callback(lambda _: loop.call_soon_threadsafe(print))
    loop.close()
    promise.set_result(0)  # as a write does that ends after another has failed
    checkpoints.save(2, {"x": jnp.arange(100_000.0) ** 0.5}, {"x": "y" * 50_000}, None)
    checkpoints.close()

command.run(main)
"""


WRITES = """
import resource, sys
from codea1.runtime.errors import StorageFailed
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter
from codea1.runs.samples import Samples

folder = RunFolder.existing(sys.argv[1])
writer = MetricsWriter(folder)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
text = "".join(map(chr, range(0x4E00, 0x4E00 + 200)))  # which does not become shorter
for write in (lambda: Samples(folder).write(2, [{"a": text}]), lambda: writer.write(2, {"y" * 200: 1.0})):
    try:
        write()
    except StorageFailed as error:
        print(error)
"""


@pytest.mark.parametrize("limit", [100, 20_000, 100_000])
def test_a_step_that_does_not_fit_is_no_step(tmp_path: Path, limit: int):
    command = [sys.executable, "-c", SAVES, f"--limit={limit}", f"--workdir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 74, done.stderr
    assert "there is no space left (File too large)." in done.stderr
    assert "Traceback" not in done.stderr
    checkpoints = Checkpoints(tmp_path, 2, 0)
    assert checkpoints.latest() == (1, [])
    assert checkpoints.continue_from(1, Path) == []
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target = {"x": jax.ShapeDtypeStruct((8,), jnp.float32, sharding=here)}
    assert (checkpoints.restore(1, target)[0]["x"] == 0).all()
    checkpoints.close()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_metrics_and_samples_that_do_not_fit_leave_whole_ones(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path), {})
    with MetricsWriter(folder) as writer:
        writer.write(1, {"x": 1.0})
    Samples(folder).write(1, [{"a": 1}])
    done = subprocess.run([sys.executable, "-c", WRITES, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    told = done.stdout.splitlines()
    assert len(told) == 2, done.stderr
    assert all("failed: there is no space left (File too large)." in sentence for sentence in told)
    assert Samples(folder).steps() == [1]
    assert read_metrics(folder.metrics) == [{"step": 1, "x": 1.0}]
    with MetricsWriter(folder) as writer:
        writer.write(2, {"x": 2.0})
    assert [row["x"] for row in read_metrics(folder.metrics)] == [1.0, 2.0]


def test_samples_that_could_not_be_written_are_told_before_a_checkpoint_is_saved(tmp_path: Path, monkeypatch):
    def refuse(*_: object) -> None:
        raise StorageFailed("no space")

    monkeypatch.setattr(Samples, "write", refuse)
    with Record(RunFolder.open(str(tmp_path), {}), config_of_steps(1), -1, -1, cursor={}) as record:
        record.write_samples(1, [{"a": 1}])
        record.write_metrics(1, {"x": 1.0})
        with pytest.raises(StorageFailed, match="no space"):
            record.cursor()
        record.write_samples(2, [{"a": 1}])
        with pytest.raises(StorageFailed, match="no space"):
            record.write_samples(3, [{"a": 1}])
