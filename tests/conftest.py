"""What tests of whole runs share: a small random model in a folder, a config that plays with it, and a bucket."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# Before JAX starts: models this small compile longer than they run. Unoptimised, and with the older emitters of loops,
# a gradient of theirs compiles in a quarter of the time.
os.environ["XLA_FLAGS"] = " ".join(
    (os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false")
)
# Before gcsfs is imported: it would ask a bucket's kind by gRPC over TLS, of which the emulator knows nothing.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

import hypothesis
import jax
import pytest
from ml_collections import ConfigDict

from bench.micro_run import make_micro_config, make_model_folder, make_player
from codea1.data.sources import CLASSIC
from codea1.data.tokenizer import load_tokenizer
from codea1.lab.worlds.procedural import prepare
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.sharding import device_mesh
from tests import gcs_emulator

jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/codea1/jax-tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

# A timing is no test: three workers on two cores are late by chance. What fails did not pass the time before, either:
# --hypothesis-profile=default draws other examples.
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tests")

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("CODEA1_SHARED", ROOT.parent / "shared"))

# Files that take minutes, the longest first: started last, they would be all that one of the workers does in the end.
LONGEST = (
    "train_hosts_test.py",
    "train_test.py",
    "methods_test.py",
    "programs_hosts_test.py",
    "train_gcs_test.py",
    "kill_test.py",
    "first_hour_test.py",
    "notebooks_test.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Has the longest files begin first; the order of tests in a file stays."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with random weights and a tokenizer of the demo's texts."""
    return make_model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where prepared datasets are: the classic world."""
    folder = tmp_path_factory.mktemp("data")
    prepare(CLASSIC, str(folder))
    return folder


@pytest.fixture(scope="session")
def gcs() -> Iterator[gcs_emulator.Emulator]:
    """What gs:// means in the tests that ask for it, and in the programs they start."""
    with gcs_emulator.running() as emulator:
        yield emulator


@pytest.fixture
def bucket(gcs: gcs_emulator.Emulator) -> str:
    """The URL of an empty bucket."""
    return gcs.new_bucket()


@pytest.fixture
def micro_config(model_folder: Path, data_folder: Path) -> ConfigDict:
    """A game of six steps that takes seconds."""
    return make_micro_config(model_folder, data_folder)


@pytest.fixture(scope="session")
def saved_run(model_folder: Path, data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose two policies have moved away from where they started, each its own way."""
    config = make_micro_config(model_folder, data_folder)
    folder = RunFolder.open(str(tmp_path_factory.mktemp("saved") / "run"), config.to_dict())
    tokenizer = load_tokenizer(config.code.model)
    mesh = device_mesh(config)
    states = {name: make_player(name, config, mesh, tokenizer).state for name in ("code", "test")}
    checkpoints = Checkpoints(folder.checkpoints, keep_last=2, keep_best=1)
    for step, factor in ((3, 1.5), (6, 2.5)):
        moved = {
            name: jax.tree.map(lambda x, by=by: x * by if x.ndim else x, state)
            for (name, state), by in zip(states.items(), (factor, -factor), strict=True)
        }
        checkpoints.save(step, moved, {}, score=-float(step))
    checkpoints.close()
    return folder


@pytest.fixture
def run(saved_run: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of `saved_run` for a test to change."""
    shutil.copytree(saved_run.path, tmp_path / "run")
    return RunFolder.existing(str(tmp_path / "run"))
