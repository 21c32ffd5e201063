"""What devices tell of their memory, played by ones that are not there."""

from types import SimpleNamespace

import jax
import pytest

from codea1.runtime.hosts import Hosts
from codea1.training.profile import memory_limit_gib, memory_metrics

GIB = 1 << 30


@pytest.fixture
def devices(monkeypatch):
    def have(*told):
        found = [SimpleNamespace(memory_stats=lambda stats=stats: stats) for stats in told]
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
    assert memory_limit_gib() == 15.0
    assert memory_metrics(Hosts()) == {"perf/hbm_peak_gib": 5.0}


def test_the_fullest_of_all_hosts_counts(devices):
    devices({"peak_bytes_in_use": 2 * GIB})
    assert memory_metrics(TwoHosts()) == {"perf/hbm_peak_gib": 7.0}


@pytest.mark.parametrize("told", [None, {}, {"bytes_in_use": 3}])
def test_nothing_is_said_where_devices_tell_nothing(devices, told):
    devices(told, told)
    assert (memory_limit_gib(), memory_metrics(Hosts())) == (None, {})
