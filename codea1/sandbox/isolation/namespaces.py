"""The namespaces of a zygote, where children find no other process, no network and no file but Python's libraries.

They are made once per zygote, of which only a fresh process table is made again for each child. A zygote keeps two
capabilities, over nothing but these namespaces; its children have none.

Standard library only: this runs inside the sandbox.
"""

import ctypes
import os
import struct
from collections.abc import Sequence

from codea1.sandbox.isolation import files
from codea1.sandbox.isolation.kernel import check, libc

_NEW_MOUNTS, _NEW_CGROUPS, _NEW_HOSTNAME, _NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_NEW_USERS, _NEW_PIDS, _NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
UID = 1000  # what zygotes and children see themselves as

# The same numbers on every architecture, but for pivot_root.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_HERE = -100  # AT_FDCWD
_CLONE_TREE, _RECURSIVE, _FROM_FD = 1, 0x8000, 4
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_NO_SETUID_NO_DEVICES, _NO_PROGRAMS = 0x2 | 0x4, 0x8
_DETACH = 2
_NO_CHANGE, _NO_SETUID, _NO_DEVICES = 0x1, 0x2, 0x4  # MOUNT_ATTR_RDONLY, _NOSUID and _NODEV
_STAGE = "/proc"  # where the new root is put together: it exists everywhere and is not wanted after

SCRATCH_BYTES, SCRATCH_FILES = 8 << 20, 256


def enter() -> None:
    """Moves this process to new namespaces, and the processes it forks from then on to a new process table.

    Raises OSError that names the step that the kernel, or a container's policy, refuses.
    """
    uid, gid = os.getuid(), os.getgid()
    _unshare(_NEW_USERS, "a user namespace")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{UID} {uid} 1")
    _write("/proc/self/gid_map", f"{UID} {gid} 1")
    for flag, what in (
        (_NEW_MOUNTS, "a mount namespace"),
        (_NEW_NETWORK, "a network namespace"),
        (_NEW_PIDS, "a process namespace"),
        (_NEW_IPC | _NEW_HOSTNAME, "IPC and host name namespaces"),
        (_NEW_CGROUPS, "a cgroup namespace"),
    ):
        _unshare(flag, what)


def change_root(readable: Sequence[str], hidden: str, scratches: int) -> list[str]:
    """Leaves this process with a read-only root that has only `readable`, and as many empty scratch folders.

    Where the folder `hidden` lies beneath one of `readable`, an empty one takes its place. Returns the scratch folders,
    each a file system of its own of SCRATCH_BYTES, with a random name: Landlock lets programs look at a
    neighbour's, though not into it. Raises OSError.
    """
    links, trees = _layout(readable)
    clones = {}  # before the stage may cover one of them
    for path in trees:
        clone = libc.syscall(_OPEN_TREE, _HERE, path.encode(), _CLONE_TREE | _RECURSIVE)
        clones[path] = check(clone, f"open_tree of {path}")
    check(libc.mount(b"none", b"/", None, _PRIVATE, None), "mount --make-rprivate /")
    _mount_tmpfs(_STAGE, _NO_SETUID_NO_DEVICES, "size=1m,mode=755")
    for path, target in links.items():
        os.makedirs(_STAGE + os.path.dirname(path), exist_ok=True)
        os.symlink(target, _STAGE + path)
    for path, clone in clones.items():
        _attach(clone, path)
    if os.path.isdir(_STAGE + hidden):
        _mount_tmpfs(_STAGE + hidden, _NO_SETUID_NO_DEVICES, "size=4k,mode=555")
        _set_read_only(_STAGE + hidden, 0)
    folders = [f"/scratch/{os.urandom(8).hex()}" for _ in range(scratches)]
    for folder in folders:
        os.makedirs(_STAGE + folder)
        options = f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode={files.SCRATCH_MODE:o}"
        _mount_tmpfs(_STAGE + folder, _NO_SETUID_NO_DEVICES | _NO_PROGRAMS, options)
    os.chdir(_STAGE)
    check(libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    check(libc.umount2(b".", _DETACH), "umount of the old root")
    os.chdir("/")
    _set_read_only("/", 0)
    return folders


def fork(parents: int) -> int:
    """Forks, as os.fork, a child that is the first process of a new process namespace: all its descendants die with it.

    `parents` is a descriptor of this process's own namespace. A process chooses the namespace of its children once;
    going back to its own lets it choose again. Raises OSError.
    """
    check(libc.setns(parents, _NEW_PIDS), "setns")
    _unshare(_NEW_PIDS, "a process namespace for a child")
    return os.fork()


def _layout(paths: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Returns (links on the way to `paths` and what they say, the real paths none of which is beneath another)."""
    links: dict[str, str] = {}
    real: set[str] = set()
    waiting = [os.path.abspath(path) for path in paths]
    while waiting:
        path = waiting.pop()
        parts = path.split("/")
        starts = ("/".join(parts[:end]) for end in range(2, len(parts) + 1))
        link = next(filter(os.path.islink, starts), None)
        if link is None:
            real.add(path)
        else:
            links[link] = os.readlink(link)
            target = os.path.normpath(os.path.join(os.path.dirname(link), links[link]))
            waiting.append(target + path[len(link) :])
    return links, [path for path in sorted(real) if not any(path.startswith(f"{other}/") for other in real)]


def _attach(clone: int, path: str) -> None:
    staged = _STAGE + path
    if os.path.isdir(path):
        os.makedirs(staged, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(staged), exist_ok=True)
        open(staged, "x").close()
    check(libc.syscall(_MOVE_MOUNT, clone, b"", _HERE, staged.encode(), _FROM_FD), f"move_mount of {path}")
    os.close(clone)
    # What is written to a device is no change to its mount.
    _set_read_only(staged, _RECURSIVE, devices=path.startswith("/dev/"))


def _set_read_only(path: str, flags: int, *, devices: bool = False) -> None:
    attributes = struct.pack("=4Q", _NO_CHANGE | _NO_SETUID | (0 if devices else _NO_DEVICES), 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))  # of struct mount_attr
    check(libc.syscall(_MOUNT_SETATTR, _HERE, path.encode(), flags, attributes, size), f"mount_setattr of {path}")


def _mount_tmpfs(path: str, flags: int, options: str) -> None:
    check(libc.mount(b"tmpfs", path.encode(), b"tmpfs", flags, options.encode()), f"mount of a tmpfs at {path}")


def _unshare(flags: int, what: str) -> None:
    check(libc.unshare(flags), f"making {what}")


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise OSError(error.errno, f"writing {path}: {error.strerror}") from None
