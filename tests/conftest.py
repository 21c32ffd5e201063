"""What tests of whole runs share: a small random model in a folder, a config that plays with it, and a bucket."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from fnmatch import fnmatch
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

from bench.micro_run import make_micro_config, make_model_folder, make_player, mesh_of
from codea1.config_file import default_config, validate
from codea1.data.sources import CLASSIC
from codea1.data.tokenizer import load_tokenizer
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.lab.worlds.procedural import prepare
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from tests import gcs_emulator

jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/codea1/jax-tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

# A timing is no test: three workers on two cores are late by chance. What fails did not pass the time before, either:
# --hypothesis-profile=default draws other examples.
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tests")

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("CODEA1_SHARED", ROOT.parent / "shared"))

# The quick selection: what `make test` runs. Patterns of files, and the tests of them, where not all are quick.
QUICK: dict[str, tuple[str, ...]] = {
    "aimed_step_test.py": (),  # the step against float64
    "data_feed_test.py": (),
    "data_loader_test.py": (),
    "game_*_test.py": (),
    "learn_[!m]*_test.py": (),  # all but the mesh
    "models_[!bp]*_test.py": (),  # all but the bucket and PEFT
    "rollout_engine_test.py": (
        "test_greedy_takes_the_argmax_of_a_full_forward_pass_at_every_step",
        "test_log_probs_are_those_of_the_trainer",
        "test_a_stop_id_ends_a_response_and_is_part_of_it",
        "test_a_sample_does_not_depend_on_the_batch_it_is_in",
        "test_samples_of_a_request_can_be_drawn_in_parts",
        "test_short_prompts_may_have_a_static_length_of_their_own",
        "test_seed_stream_and_step_change_the_draws",
        "test_samples_of_one_prompt_differ_by_index_and_question",
        "test_samples_leave_while_others_decode_and_requests_are_pulled_as_slots_come_free",
        "test_length_limits_cut_single_requests_short",
        "test_top_p_shapes_draws_and_not_log_probs",
        "test_no_requests_no_samples",
    ),
    "rollout_scheduler_test.py": (),
    "rooms_test.py": (),
    "runs_*_test.py": (),
    "sandbox_grading_test.py": (),
    "sandbox_hostile_test.py": ("test_twelve_programs_of_all_kinds_are_judged_as_they_should_be",),
    "train_test.py": (
        "test_six_steps_are_three_and_three_more",
        "test_four_steps_of_ppo_are_saved_and_made_again_from_samples",
        "test_every_step_says_what_the_sandbox_did",
        "test_every_step_says_what_the_devices_did_and_nothing_that_is_not_known",
    ),
    "training_step_test.py": (),
    "values_*_test.py": (),
}

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


def is_quick(file: str, test: str) -> bool:
    """Whether `make test` runs a function of a file."""
    return any(fnmatch(file, pattern) and (not tests or test in tests) for pattern, tests in QUICK.items())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the quick tests and has the longest files begin first; the order of tests in a file stays."""
    for item in items:
        if is_quick(item.path.name, item.originalname):
            item.add_marker(pytest.mark.quick)
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(LONGEST)))


def done(result: object) -> Future:
    """Returns the future of work that is done already."""
    future: Future = Future()
    future.set_result(result)
    return future


def config_of_steps(steps: int, every: int = 1) -> ConfigDict:
    """Returns the config of a run of so many steps, of which some are validated."""
    config = default_config()
    config.steps, config.validation.every = steps, every
    return config


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


@pytest.fixture(scope="module")
def pool() -> Iterator[BenchmarkPool]:
    """A sandbox that judges benchmarks."""
    with BenchmarkPool(2, isolation="auto") as pool:
        yield pool


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
    checked = validate(config)
    states = {name: make_player(name, checked, mesh_of(checked), tokenizer).state for name in ("code", "test")}
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
