"""What devices and machines tell of their memory, played by ones that are not there, and what does not fit in it."""

from types import SimpleNamespace

import jax
import pytest
from ml_collections import ConfigDict

from bench.micro_run import mesh_of
from codea1.config_file import default_config, validate
from codea1.lab.benchmarks.policies import policy_of_folder
from codea1.learn.batch import TrainSample
from codea1.models import at_rest
from codea1.models.config import PUBLISHED, PUBLISHED_IDS
from codea1.models.huggingface import StoredTensors
from codea1.players import memory
from codea1.players.base import Model
from codea1.players.functions import functions_of_players
from codea1.players.memory import device_memory
from codea1.rollout import functions
from codea1.rollout.engine import Request
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.runtime.memory import available_memory
from codea1.training.profile import memory_metrics
from codea1.training.setup import assemble

GIB = 1 << 30


@pytest.fixture
def devices(monkeypatch):
    def have(*told):
        found = [SimpleNamespace(memory_stats=lambda stats=stats: stats, platform="gpu") for stats in told]
        monkeypatch.setattr(jax, "local_devices", lambda: found)

    return have


class TwoHosts(Hosts):
    """This host, and another whose devices had 7 GiB in use."""

    def exchange(self, value):
        return [value, 7 * GIB]


def test_the_fullest_device_and_the_smallest_count(devices):
    devices(
        {"peak_bytes_in_use": 2 * GIB, "bytes_limit": 16 * GIB}, {"peak_bytes_in_use": 5 * GIB, "bytes_limit": 15 * GIB}
    )
    assert device_memory() == 15 * GIB
    assert memory_metrics(Hosts()) == {"perf/hbm_peak_gib": 5.0}


def test_the_fullest_of_all_hosts_counts(devices):
    devices({"peak_bytes_in_use": 2 * GIB})
    assert memory_metrics(TwoHosts()) == {"perf/hbm_peak_gib": 7.0}


@pytest.mark.parametrize("told", [None, {}, {"bytes_in_use": 3}])
def test_nothing_is_said_where_devices_tell_nothing(devices, told):
    devices(told, told)
    assert (device_memory(), memory_metrics(Hosts())) == (None, {})


MOUNTS = {
    1: "35 31 0:32 / {mounted} rw,relatime - cgroup cgroup rw,memory\n",
    2: "41 31 0:38 / {mounted} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
}
OWN = {1: "4:cpu,memory:/a/b\n0::/\n", 2: "0::/a/b\n"}


@pytest.mark.parametrize(
    ("version", "files", "available"),
    [
        (2, {"a/memory.max": 5 * GIB, "a/memory.current": 3 * GIB, "a/memory.stat": f"inactive_file {GIB}"}, 3),
        (2, {"a/b/memory.max": "max", "a/b/memory.current": 3 * GIB, "a/b/memory.stat": ""}, 8),
        (
            1,
            {
                "a/b/memory.limit_in_bytes": 5 * GIB,
                "a/b/memory.usage_in_bytes": 3 * GIB,
                "a/b/memory.stat": f"cache 7\ntotal_active_file {GIB}\ntotal_inactive_file {GIB}",
            },
            4,
        ),
        (1, {"memory.limit_in_bytes": 2**63 - 4096, "memory.usage_in_bytes": GIB, "memory.stat": ""}, 8),
    ],
)
def test_a_cpu_has_what_machine_and_cgroups_have_left(tmp_path, monkeypatch, version, files, available):
    (tmp_path / "mounted" / "a" / "b").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "mounted" / name).write_text(f"{text}\n")
    (tmp_path / "mountinfo").write_text(MOUNTS[version].format(mounted=tmp_path / "mounted"))
    (tmp_path / "cgroup").write_text(OWN[version])
    (tmp_path / "meminfo").write_text(f"MemTotal: {20 << 20} kB\nMemAvailable: {8 << 20} kB\n")
    monkeypatch.setattr("codea1.runtime.memory._PROC", tmp_path)
    monkeypatch.setattr("codea1.runtime.memory._MEMINFO", tmp_path / "meminfo")
    assert memory.device_memory() == available_memory() == available * GIB
    (tmp_path / "meminfo").unlink()
    assert memory.device_memory() is None


@pytest.mark.parametrize("kind", ["unstacked", "critic"])
def test_a_run_has_no_less_in_memory_than_it_is_said_to_need(micro_config, monkeypatch, kind):
    config = micro_config
    if kind == "unstacked":  # adapters on one base, whose kernels lie in two forms
        config.code.lora.rank = config.test.lora.rank = 4
        monkeypatch.setattr(at_rest, "MOST_CACHED", 0)
        functions._publishing.cache_clear()
    else:  # all weights train, those of a critic too
        config.code.advantage = "gae"
    said = []
    monkeypatch.setattr(memory, "device_memory", lambda: 1 << 60)
    of_run = memory.memory_of_run
    monkeypatch.setattr(memory, "memory_of_run", lambda *arguments: (said.append(of_run(*arguments)), said[-1])[1])
    before = {id(x): x for x in jax.live_arrays()}  # kept, or another array would have the id of one that is gone
    policies = assemble(validate(config)).policies
    most = []
    for player in policies.values():

        def look() -> None:
            most.append(sum(x.nbytes for x in jax.live_arrays() if id(x) not in before))

        player.call_between_chunks(look)
        samples = list(player.generate([Request("q", (5, 6, 7), 0, 4)], stream="code", step=1))
        if player.learns:
            update = player.functions.update
            update._apply = lambda *arguments, apply=update._apply, look=look: (look(), apply(*arguments))[1]
            player.learn([TrainSample(x.prompt_ids, x.token_ids, x.log_probs, 1.0, 1.0) for x in samples], 2)
    assert 0.8 * max(most) < sum(said[0].values()) <= max(most)


def large(rank: int, size: str = "1.5b") -> tuple[ConfigDict, dict[str, Model]]:
    config = default_config()
    config.model.dtype, config.rollout.slots = "float32", 64
    for player in (config.code, config.test):
        player.max_prompt_length, player.max_response_length, player.lora.rank = 2048, 1024, rank
    model = Model(PUBLISHED[f"qwen2.5-coder-{size}"], PUBLISHED_IDS, "", "one")
    return config, {"code": model, "test": model}


def require(config: ConfigDict, models: dict[str, Model]) -> None:
    config = validate(config)
    mesh = mesh_of(config, jax.devices()[:1])
    memory.require_memory(config, functions_of_players(config, mesh, models), models)


@pytest.mark.parametrize(
    ("rank", "gib", "flags"),
    [
        (16, 16, {"rollout.cache_gib"}),
        (16, 10, {"model.dtype", "rollout.cache_gib"}),
        (0, 24, {"code.lora.rank", "test.lora.rank"}),
        (0, 10, {"code.lora.rank", "test.lora.rank", "model.dtype", "rollout.cache_gib"}),
    ],
)
def test_what_cannot_fit_is_refused_with_what_would(monkeypatch, rank, gib, flags):
    config, models = large(rank)
    monkeypatch.setattr(memory, "device_memory", lambda: gib * GIB)
    with pytest.raises(BadInput, match=rf"^this machine has {gib} GiB of memory left, and at least \d") as error:
        require(config, models)
    told, _, advice = str(error.value).partition("; with --config.")
    assert "(code: pages of keys" in told if rank else "(code: parameters and moments 17.3, test: par" in told
    changes = dict(each.split("=") for each in advice.split(" they would be ")[0].split(" --config."))
    assert changes.keys() == flags
    for key, value in changes.items():
        kind = type(config.to_dict()[key.split(".")[0]].get(key.split(".")[1]))
        config.update_from_flattened_dict({key: kind(value) if kind is not dict else int(value)})
    require(config, models)


def test_where_nothing_helps_that_is_told(monkeypatch):
    config, models = large(0, "7b")
    config.code.advantage = config.test.advantage = "gae"  # adapters are not for them
    monkeypatch.setattr(memory, "device_memory", lambda: 30 * GIB)
    with pytest.raises(BadInput, match=r"; it takes a smaller model, or more devices to cut it over \(config"):
        require(config, models)


def test_nothing_is_loaded_that_cannot_fit(micro_config, model_folder, monkeypatch):
    monkeypatch.setattr(memory, "device_memory", lambda: 1000)
    monkeypatch.setattr(StoredTensors, "place", None)
    with pytest.raises(BadInput, match=r"this machine has .* GiB of memory left"):
        assemble(validate(micro_config))
    with pytest.raises(BadInput, match=r"\(.*weights .*\); fewer slots and shorter lengths take fewer pages\.$"):
        policy_of_folder("code", str(model_folder), (80, 12, 8))
