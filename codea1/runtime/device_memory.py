"""The memory of the devices, where they tell; a CPU does not."""

import jax

from codea1.runtime.hosts import Hosts

GIB = 1 << 30


def peak_bytes() -> int | None:
    """The most that one of this host's devices has had in use since the program began; None where none tells."""
    told = [device.memory_stats() or {} for device in jax.local_devices()]
    return max((stats["peak_bytes_in_use"] for stats in told if "peak_bytes_in_use" in stats), default=None)


def limit_bytes() -> int | None:
    """The least that one of this host's devices lets programs use; None where none tells."""
    told = [device.memory_stats() or {} for device in jax.local_devices()]
    return min((stats["bytes_limit"] for stats in told if "bytes_limit" in stats), default=None)


def memory_metrics(hosts: Hosts) -> dict[str, float]:
    """ "perf/hbm_peak_gib", over the devices of all hosts; nothing where none tells. A collective."""
    peaks = [peak for peak in hosts.exchange(peak_bytes()) if peak is not None]
    return {"perf/hbm_peak_gib": max(peaks) / GIB} if peaks else {}
