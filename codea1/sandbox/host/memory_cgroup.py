"""A memory cgroup around all processes of a pool, where this process may make one.

Each child has a limit of its own, and all of them together may take more memory than there is. Whom the kernel ends
then, it chooses among all processes of the machine or container; a container may end as a whole. In a cgroup of their
own the children are the only choice. Both versions are described in cgroups(7).
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from codea1.runtime.memory import memory_cgroups

_NAME = "codea1-sandbox-"  # with the trainer's process id behind it
_SHARE = 0.5  # of the memory that this process may use
_ROOM = 512 << 20  # bytes for the zygotes and scratch folders, in addition to the largest child


class MemoryCgroup:
    """Bounds the memory of the processes that are added. `max_bytes` is 0 where no cgroup can be made."""

    def __init__(self, largest_child: int) -> None:
        """Makes the cgroup, and removes those of trainers that are gone; `largest_child` is its limit in bytes."""
        self.max_bytes = 0
        self._folder = Path()
        for parent, limit in _parents():
            with contextlib.suppress(OSError):  # not ours to change
                for left in parent.glob(f"{_NAME}*"):
                    if not Path("/proc", left.name.removeprefix(_NAME).partition("-")[0]).exists():
                        with contextlib.suppress(OSError):
                            left.rmdir()
                self._folder = parent / f"{_NAME}{os.getpid()}-{id(self)}"
                self._folder.mkdir()
                most = max(int(_available(parent, limit) * _SHARE), largest_child + _ROOM)
                (self._folder / limit).write_text(str(most))
                self.max_bytes = most
                return

    def add(self, pid: int) -> None:
        """Moves a process into the cgroup, and with it the children that it will have."""
        if self.max_bytes:
            try:
                (self._folder / "cgroup.procs").write_text(str(pid))
            except OSError:
                self.max_bytes = 0

    def remove(self) -> None:
        """Removes the cgroup, whose processes are dead. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()
        self.max_bytes = 0


def _parents() -> Iterator[tuple[Path, str]]:
    """Yields folders in which a memory cgroup may be made, each with the name of the file of its limit."""
    for folder, kind in memory_cgroups():
        if kind == "cgroup":
            yield folder, "memory.limit_in_bytes"
            continue
        with contextlib.suppress(OSError):
            for parent in (folder, folder.parent):  # a cgroup with processes has none below it, but its parent may
                if "memory" in (parent / "cgroup.subtree_control").read_text().split():
                    yield parent, "memory.max"


def _available(parent: Path, limit: str) -> int:
    """Returns the bytes that processes in `parent` may use."""
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    while (parent / limit).exists():
        with contextlib.suppress(ValueError):  # "max"
            available = min(available, int((parent / limit).read_text()))
        parent = parent.parent
    return available
