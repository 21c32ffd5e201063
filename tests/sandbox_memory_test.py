"""The memory cgroup around a pool: real ones where this process may make some, and forms of /proc."""

from pathlib import Path

import pytest

from codea1.sandbox.frames import Reply
from codea1.sandbox.host import Limits, memory_cgroup
from codea1.sandbox.host.memory_cgroup import MemoryCgroup
from codea1.sandbox.host.pool import SandboxPool
from tests.sandbox_calls import call, values

MIB = 1 << 20
LIMITS = Limits(memory_bytes=512 * MIB, script_memory_bytes=512 * MIB)
HOARD = """
import time

def f(n):
    held = bytearray(b"1") * (400 << 20)
    time.sleep(0.5)
    return len(held) >> 20
"""


def test_programs_that_fill_the_memory_together_end_each_other_alone(monkeypatch):
    """Four programs of 400 MiB in a GiB: those that the kernel ends are judged again, and none is to blame."""
    monkeypatch.setattr(memory_cgroup, "_available", lambda *_: 0)
    with SandboxPool(4, LIMITS, isolation="auto") as pool:
        if not pool.max_memory_bytes:
            pytest.skip("this process may not make a memory cgroup")
        assert pool.max_memory_bytes == 1024 * MIB
        folder = pool._dispatcher.memory._folder
        runs = [pool.run_calls(HOARD, [call(i)], reply=Reply.EXACT) for i in range(4)]
        assert [values(each.result(60)) for each in runs] == [[400]] * 4
        peaks = [each for each in ("memory.max_usage_in_bytes", "memory.peak") if (folder / each).exists()]
        assert 400 * MIB < int((folder / peaks[0]).read_text()) <= 1024 * MIB
    assert not folder.exists()


MOUNTS = {
    1: "35 31 0:32 / {tmp} rw,relatime - cgroup cgroup rw,memory\n34 31 0:31 / /none rw - cgroup cgroup rw,cpuset\n",
    2: "41 31 0:38 /box {tmp} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
}
UNLIMITED = "9223372036854771712"
OWN = {1: "5:devices:/\n4:cpu,memory:/a/b\n0::/\n", 2: "0::/box/a/b\n"}


@pytest.mark.parametrize(
    ("version", "files", "made_in", "limit"),
    [
        (1, {"a/b/memory.limit_in_bytes": "4294967296"}, "a/b", 2 << 30),
        (1, {"memory.limit_in_bytes": "3221225472", "a/memory.limit_in_bytes": UNLIMITED}, "a/b", 1536 * MIB),
        (2, {"a/b/cgroup.subtree_control": "", "a/cgroup.subtree_control": "cpu memory"}, "a", None),
        (2, {"a/b/cgroup.subtree_control": "memory", "a/b/memory.max": "2147483648"}, "a/b", 1024 * MIB),
        (2, {"a/b/cgroup.subtree_control": "pids", "a/cgroup.subtree_control": "cpu"}, "", 0),
    ],
)
def test_where_it_is_made(tmp_path, monkeypatch, version, files, made_in, limit):
    """In the cgroup of this process, or beside it where version 2 demands that; for half of what there is."""
    proc, mounted = tmp_path / "proc", tmp_path / "mounted"
    (mounted / "a" / "b").mkdir(parents=True)
    for name, text in files.items():
        (mounted / name).write_text(text)
    if version == 1:  # each folder has the file
        for name in (".", "a", "a/b"):
            if not (mounted / name / "memory.limit_in_bytes").exists():
                (mounted / name / "memory.limit_in_bytes").write_text(UNLIMITED)
    proc.mkdir()
    (proc / "mountinfo").write_text(MOUNTS[version].format(tmp=mounted))
    (proc / "cgroup").write_text(OWN[version])
    monkeypatch.setattr("codea1.runtime.memory._PROC", proc)
    left = mounted / made_in / "codea1-sandbox-4194305-1"  # of a process that cannot be
    if made_in:
        left.mkdir()
    memory = MemoryCgroup(256 * MIB)
    made = [each.parent for each in mounted.rglob("codea1-sandbox-*")]
    assert made == ([mounted / made_in] if made_in else [])
    assert (memory.max_bytes == limit) if limit is not None else memory.max_bytes > 1024 * MIB
    if made_in:
        memory.add(1)
        name = {1: "memory.limit_in_bytes", 2: "memory.max"}[version]
        assert (memory._folder / name).read_text() == str(memory.max_bytes)
        assert (memory._folder / "cgroup.procs").read_text() == "1"


@pytest.mark.parametrize("files", [{}, {"cgroup": "?", "mountinfo": "a - b\n"}, {"cgroup": OWN[2], "mountinfo": ""}])
def test_without_cgroups_there_is_none(tmp_path, monkeypatch, files):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("codea1.runtime.memory._PROC", tmp_path)
    memory = MemoryCgroup(256 * MIB)
    memory.add(1)
    memory.remove()
    assert memory.max_bytes == 0


def test_a_process_that_cannot_be_added_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_cgroup, "_parents", lambda: iter([(Path(tmp_path), "memory.max")]))
    memory = MemoryCgroup(256 * MIB)
    (memory._folder / "cgroup.procs").mkdir()
    memory.add(1)
    assert memory.max_bytes == 0
