"""The memory of this machine, and of the cgroups that this process is in: cgroups(7) describes both versions."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc/self")
_MEMINFO = Path("/proc/meminfo")
_LIMIT = {"cgroup": "memory.limit_in_bytes", "cgroup2": "memory.max"}
_USAGE = {"cgroup": "memory.usage_in_bytes", "cgroup2": "memory.current"}
# Of memory.stat: what is given back when something else wants it.
_CACHE = {"cgroup": ("total_inactive_file", "total_active_file"), "cgroup2": ("inactive_file", "active_file")}


def memory_cgroups() -> Iterator[tuple[Path, str]]:
    """Yields the folders of the cgroups of this process that count memory, each with the kind of its filesystem."""
    with contextlib.suppress(OSError, ValueError):  # another form than that of proc(5)
        lines = [line.split(":", 2)[1:] for line in (_PROC / "cgroup").read_text().splitlines()]
        for line in (_PROC / "mountinfo").read_text().splitlines():
            mount, _, filesystem = line.partition(" - ")
            _, _, _, root, point, *_ = mount.split()
            kind, _, options = filesystem.split()
            controller = {"cgroup": "memory", "cgroup2": ""}.get(kind)
            for controllers, path in lines:
                if controller in controllers.split(",") and (not controller or controller in options.split(",")):
                    yield Path(point, os.path.relpath(path, root)), kind


def available_memory() -> int | None:
    """Returns the bytes that this process may still use without swapping; None where the system does not tell."""
    try:
        meminfo = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
        available = int(meminfo["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return None
    for folder, kind in memory_cgroups():
        for group in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):  # no cgroup, or one whose limit is "max"
                free = int((group / _LIMIT[kind]).read_text()) - int((group / _USAGE[kind]).read_text())
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                available = min(available, free + sum(int(stat.get(name, 0)) for name in _CACHE[kind]))
    return available
