"""The trainer's side of a zygote: starts it, asks it for children, and receives how they ended."""

import contextlib
import itertools
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import codea1
from codea1.sandbox.child.zygote import END, LIBRARY_PATH, READY, REPLY, REQUEST, START
from codea1.sandbox.host.memory_cgroup import MemoryCgroup
from codea1.sandbox.isolation import Isolation, kernel
from codea1.sandbox.isolation.files import LIBRARIES

MODULE = "codea1.sandbox.child.zygote"  # whose `start` a zygote runs
# Of the users that zygotes become when the trainer is root; no range of systemd's or of a distribution's has it.
FIRST_UNPRIVILEGED_UID = 61100
_STOP_SECONDS = 5.0
_CREDENTIALS = struct.Struct("=3i")  # struct ucred
_CREDENTIALS_SPACE = socket.CMSG_SPACE(_CREDENTIALS.size)
_SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED of linux/posix-timers.h


@dataclass(frozen=True)
class Profile:
    """Which zygote a program runs under; one process each."""

    with_numpy: bool
    hash_seed: int
    with_pytest: bool = False

    @property
    def uid(self) -> int:
        """The user this zygote and its children become where the trainer may choose: see `can_change_user`."""
        return FIRST_UNPRIVILEGED_UID + 4 * self.hash_seed + 2 * self.with_pytest + self.with_numpy


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    status: int  # as os.wait gives it
    cpu_seconds: float
    failure: str  # why it could not confine itself, so that it ran nothing; "" where it could
    was_asked: bool  # it was alive when `Zygote.end` killed it

    @property
    def was_killed(self) -> bool:
        """Whether another process killed the child; programs themselves cannot send signals."""
        return os.waitstatus_to_exitcode(self.status) == -signal.SIGKILL and not self.was_asked

    def __str__(self) -> str:
        code = os.waitstatus_to_exitcode(self.status)
        if self.was_asked and code == -signal.SIGKILL:
            return "closed its socket and went on"
        return f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"


class Child:
    """A forked child as the trainer knows it: its clock while it lives, and at last how it ended."""

    def __init__(self, zygote: "Zygote", token: int) -> None:
        self.zygote = zygote
        self.token = token
        self.pid = 0  # 0 until the zygote has reported it, -1 where it could not fork
        self.ended: Ended | None = None
        self.is_ending = False  # it was killed, or there never was one
        self.waited = 0.0  # seconds for which it could have run and no core was free, as last seen
        self._seen = 0.0

    def cpu_seconds(self) -> float:
        """Returns the CPU time that the child, which lives, has used; 0 before its process id is known."""
        if self.pid > 0:
            with contextlib.suppress(OSError):  # already dead: what was last seen stands until the zygote reports
                self._seen = max(self._seen, time.clock_gettime((~self.pid << 3) | _SCHEDULER_CLOCK))
        return self._seen

    def see_waiting(self) -> bool:
        """Notes in `waited` how long the child has waited for a core; returns whether it could run right now.

        Of its threads the one that waited longest counts, for they wait at the same time; a wait is counted when it is
        over. Sees nothing where the child is dead or the kernel does not count. The files are described in proc(5) and
        in the kernel's Documentation/scheduler/sched-stats.rst.
        """
        can_run = False
        with contextlib.suppress(OSError, IndexError):
            for thread in Path(f"/proc/{self.pid}/task").iterdir() if self.pid > 0 else ():
                self.waited = max(self.waited, int((thread / "schedstat").read_text().split()[1]) / 1e9)
                can_run |= (thread / "stat").read_text().rpartition(")")[2].split()[0] == "R"
        return can_run


class Zygote:
    """One zygote process. Not thread-safe: the pool's dispatcher owns it.

    Requests to a dead zygote are dropped; `receive` raises EOFError.
    """

    def __init__(self, profile: Profile, isolation: Isolation, max_children: int, memory: MemoryCgroup) -> None:
        self.profile = profile
        self._memory = memory
        self.ready = False
        self._has_namespaces = isolation.namespaces
        self.failure = ""  # why it could not work, as it reported
        self.children: dict[int, Child] = {}
        self._tokens = itertools.count()
        self.unsent: deque[tuple[bytes, list[socket.socket]]] = deque()  # requests for which there was no room
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs:
            self._process = _spawn(theirs.fileno(), profile, isolation, max_children)

    def start(self, sockets: Sequence[socket.socket], cpu_seconds: int, memory_bytes: int) -> Child:
        """Asks for a child that owns `sockets`."""
        child = Child(self, next(self._tokens))
        self._send(REQUEST.pack(START, child.token, cpu_seconds, memory_bytes), sockets)
        self.children[child.token] = child
        return child

    def end(self, child: Child) -> None:
        """Asks to kill the child, where it is not dead, and to report on it."""
        if not child.is_ending:
            child.is_ending = True
            self._send(REQUEST.pack(END, child.token, 0, 0), [])

    def _send(self, request: bytes, sockets: Sequence[socket.socket]) -> None:
        """Sends a request, now or when there is room: two processes that wait for each other would do so for ever."""
        if self.unsent or not self._is_sent(request, sockets):
            self.unsent.append((request, [end.dup() for end in sockets]))

    def flush(self) -> None:
        """Sends what is unsent, as far as there is room."""
        while self.unsent and self._is_sent(*self.unsent[0]):
            for end in self.unsent.popleft()[1]:
                end.close()

    def _is_sent(self, request: bytes, sockets: Sequence[socket.socket]) -> bool:
        try:
            socket.send_fds(self.control, [request], [end.fileno() for end in sockets])
        except BlockingIOError:
            return False
        except OSError:  # it is dead, as `receive` tells
            pass
        return True

    def receive(self) -> Child | None:
        """Takes one message; returns the child that has started, ended, or could not be started.

        None where there is no message, and for the report that the zygote is ready. Raises EOFError when it is gone.
        """
        try:
            message, attached, _, _ = self.control.recvmsg(4096, _CREDENTIALS_SPACE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise EOFError from error
        if not message:
            raise EOFError
        if not self.ready:
            self.ready = message == READY
            self._memory.add(_pid_of_sender(attached))
            self.failure = "" if self.ready else message.decode()
            return None
        operation, token, pid, status, cpu_seconds, was_asked = REPLY.unpack_from(message)
        child = self.children[token]
        if operation == END:
            failure = message[REPLY.size :].decode("utf-8", "replace")
            child.ended = Ended(status, cpu_seconds, failure, was_asked)
        else:  # a zygote in namespaces of its own knows its children by other numbers: the kernel tells ours
            child.pid = _pid_of_sender(attached) if self._has_namespaces and pid > 0 else pid
        if child.ended or pid < 0:
            del self.children[token]
            child.is_ending = True
        return child

    def stop(self) -> None:
        """Ends the process and with it all its children. Safe to call twice."""
        self.control.close()
        self.flush()  # drops what is unsent
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _pid_of_sender(attached: list[tuple[int, int, bytes]]) -> int:
    return _CREDENTIALS.unpack(attached[0][2])[0]


def can_change_user(uid: int) -> bool:
    """Returns whether this process may become such a user, who could still read the Python that this one runs."""
    if os.getuid() != 0 or not kernel.holds(kernel.SETUID, kernel.SETGID):
        return False
    for kind in ("uid", "gid"):  # the user namespace of some containers has root alone
        ranges = [map(int, line.split()) for line in Path(f"/proc/self/{kind}_map").read_text().splitlines()]
        if not any(first <= uid < first + count for first, _, count in ranges):
            return False
    if Path("/proc/self/setgroups").read_text().strip() != "allow":
        return False
    library, packages = Path(os.__file__).parent, Path(sys.prefix)
    return all(path.stat().st_mode & stat.S_IXOTH for end in (library, packages) for path in (end, *end.parents))


def _spawn(control_fd: int, profile: Profile, isolation: Isolation, max_children: int) -> subprocess.Popen:
    """Starts a fresh interpreter: a fork could deadlock a trainer with threads, and would show children its memory."""
    uid = str(profile.uid) if can_change_user(profile.uid) else "-"
    packages = "numpy " * profile.with_numpy + "pytest" * profile.with_pytest  # keys of `child.zygote.PACKAGES`
    arguments = [str(control_fd), packages, isolation.value, str(max_children), uid]
    libraries = [path for path in sys.path if path.endswith(LIBRARIES)]
    return subprocess.Popen(
        # Without `site`, which would run what the .pth files of installed packages say: they are memory to every fork.
        [sys.executable, "-S", "-P", "-B", "-c", f"from {MODULE} import start; start()", *arguments, *libraries],
        pass_fds=[control_fd],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={
            "PYTHONPATH": str(Path(codea1.__file__).parents[1]),
            "PYTHONHASHSEED": str(profile.hash_seed),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "HOME": "/",
            "PATH": "/nonexistent",
            "MALLOC_ARENA_MAX": "1",  # every further arena would reserve address space a thread at a time
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            # Some Pythons do not start without; the zygote takes it away again.
            **{name: value for name, value in os.environ.items() if name == LIBRARY_PATH},
        },
    )
