"""What the operating system keeps from untrusted code: the limits a zygote and its children put on themselves.

Honest about what this is: one process with rlimits, no privileges and a system-call filter that leaves it no other
process, no network, no signal to anyone, no way to change a file and, where the kernel has Landlock, no file to read
but Python's libraries. It still shares the kernel, the process table and the machine's memory with its host.

Standard library only: this runs inside the sandbox.
"""

import ctypes
import os
import resource
import signal
import stat
import struct
import sys
from pathlib import Path

from codea1.sandbox import landlock, seccomp

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CAPABILITY_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


def confine_zygote(uid: int | None) -> None:
    """Takes from this process, before it ever forks, what none of its children may have.

    Args:
      uid: an otherwise unused user to become; None keeps the user, without capabilities.
    Raises:
      OSError: the operating system refuses; then nothing untrusted may run.
    """
    _set("/proc/self/oom_score_adj", "1000")  # out of memory, the kernel must choose us and not the trainer
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _drop_capabilities()
    # Not dumpable: no process of the same user can open this one's memory, or its children's, under /proc.
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # after the user: changing it clears this
    _limit_resources()
    os.chdir("/")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    landlock.allow_reading_only(landlock.library_paths())
    seccomp.Filter(seccomp.zygote_filter()).install()


class ChildLimits:
    """What a child takes from itself right after the fork; made once by the zygote, before it is confined."""

    def __init__(self) -> None:
        self._zygote = os.getpid()
        self._mapped = _mapped_bytes()
        self._filter = seccomp.Filter(seccomp.child_filter())

    def confine(self, cpu_seconds: int, memory_bytes: int) -> None:
        """Takes from this process, a new child, the rest of what untrusted code must not have.

        Args:
          cpu_seconds: CPU time after which the kernel kills the process whatever it does.
          memory_bytes: address space it may have beyond what the interpreter already takes.
        Raises:
          OSError: the operating system refuses; then nothing untrusted may run.
        """
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._zygote:
            os._exit(1)
        address_space = self._mapped + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))  # soft == hard: SIGXCPU could be ignored
        self._filter.install()


def can_change_user() -> bool:
    """Whether this process is root and any other user could still read the Python it runs."""
    library, packages = Path(os.__file__).parent, Path(sys.prefix)
    return os.getuid() == 0 and all(
        path.stat().st_mode & stat.S_IXOTH for end in (library, packages) for path in (end, *end.parents)
    )


def why_unsupported() -> str:
    """Why this machine cannot confine untrusted code, as far as can be told without trying; "" when it can."""
    if sys.platform != "linux":
        return "the sandbox needs Linux; on this system, run codea1 in a Linux container"
    if not seccomp.supported():
        return f"the sandbox's system-call filter does not know the processor {os.uname().machine}"
    return ""


def _limit_resources() -> None:
    values = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_STACK: 8 << 20,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 64,
    }
    for kind, value in values.items():
        resource.setrlimit(kind, (value, value))


def _drop_capabilities() -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, bytes(24)):
        code = ctypes.get_errno()
        raise OSError(code, f"cannot drop capabilities: {os.strerror(code)}")


def _mapped_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _set(path: str, value: str) -> None:
    with open(path, "w") as file:
        file.write(value)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")
