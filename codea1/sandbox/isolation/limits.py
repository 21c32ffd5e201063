"""What the operating system keeps from untrusted code: the limits a zygote and its children put on themselves.

Standard library only: this runs inside the sandbox.
"""

import errno
import fcntl
import math
import os
import resource
import struct
import sys
from _signal import SIGKILL  # `signal` has enums, which are memory to every fork
from collections.abc import Iterable

from codea1.sandbox.isolation import Isolation, kernel, namespaces, seccomp
from codea1.sandbox.isolation.files import FileAccess
from codea1.sandbox.isolation.kernel import libc

MAX_QUESTIONS = 100_000  # of a child, which is killed then: each takes about 15 microseconds of its zygote's
MAX_THREADS = 32  # of a child at a time; what Python's own ThreadPoolExecutor asks for at most
_ASKED = struct.Struct("=QIIi4xQ6Q")  # struct seccomp_notif: id, thread, flags; call, instruction pointer, arguments
_ANSWER = struct.Struct("=QqiI")  # struct seccomp_notif_resp: id, value, minus an errno, flags
_CONTINUE = 1
_WEIGHT_OF_A_STEP, _NICEST = 1.25, 19  # a step nicer, a thread gets a fifth less: sched_prio_to_weight of the kernel
_EXIT = seccomp.native(seccomp.WITH_CONDITIONS["exit"])
_TGKILL = seccomp.native(seccomp.OF_THE_ZYGOTE["tgkill"])
_MAX_FDS = 64
_MOST_CALLS = (1 << 31) - 1  # that Python knows
_MAX_FILE_BYTES = 1 << 20


def prefer_as_victim() -> None:
    """Has the kernel kill this process and not the trainer where memory runs out. Done before anything else."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError as error:
        if error.errno != errno.EROFS:  # some containers' /proc is read-only: then the kernel chooses
            raise


def require_descriptors(count: int) -> None:
    """Raises this process's limit on descriptors to at least `count`. Raises OSError where that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        message = f"so many slots need {count} descriptors, and this machine allows {hard} (ulimit -Hn)"
        raise OSError(errno.EMFILE, message)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def lower(kind: int, most: int) -> None:
    """Sets a limit of this process for good, to `most` or what it may have at all."""
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))  # soft and hard: a soft limit's signal could be ignored


def grant_stacks() -> None:
    """Has `resource.setrlimit` give a program that asks for a larger stack than it may have the one that it may have.

    Many ask for an unlimited one, which root may have. What the kernel allows stays as it is.
    """
    set_limit = resource.setrlimit

    def setrlimit(kind: int, limits: Iterable[int]) -> None:
        _, most = resource.getrlimit(kind)
        unlimited = resource.RLIM_INFINITY
        if kind == resource.RLIMIT_STACK and most != unlimited:
            limits = [most if limit == unlimited else min(limit, most) for limit in limits]
        soft, hard = limits
        set_limit(kind, (soft, hard))

    vars(resource)["setrlimit"] = setrlimit


def hide_calls(beneath: int) -> None:
    """Has the depth to which programs may call count without the calls that are beneath them."""
    limit_now, set_limit = sys.getrecursionlimit, sys.setrecursionlimit
    set_limit(limit_now() + beneath)
    vars(sys)["getrecursionlimit"] = lambda: limit_now() - beneath
    vars(sys)["setrecursionlimit"] = lambda limit: set_limit(max(limit, min(limit + beneath, _MOST_CALLS)))


def die_with_parent() -> None:
    """Has the kernel kill this process when its parent dies. Changing the user undoes this."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, SIGKILL)


def confine_zygote(isolation: Isolation, max_fds: int) -> int | None:
    """Takes from this process, before it ever forks, what none of its children may have.

    Returns the descriptor that is asked about its children's threads; None where the kernel has none, and no thread
    starts.

    Args:
      isolation: the level; its namespaces are made already.
      max_fds: descriptors it needs itself.
    Raises:
      OSError: the operating system refuses; then nothing untrusted may run.
    """
    kept = (kernel.SYS_ADMIN, kernel.DAC_OVERRIDE) if isolation.namespaces else ()
    kernel.keep_only(*kept)  # to give children process namespaces, and to empty any folder they leave
    # Not dumpable: no process of the same user can open this one's memory, or its children's, under /proc.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    die_with_parent()
    _, most_written = resource.getrlimit(resource.RLIMIT_FSIZE)
    if isolation.has_scratch and most_written != resource.RLIM_INFINITY and most_written < _MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"files may have {most_written} bytes on this machine (ulimit -Hf)")
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: min(_MAX_FILE_BYTES, namespaces.SCRATCH_BYTES) if isolation.has_scratch else 0,
        resource.RLIMIT_NOFILE: max_fds,
        resource.RLIMIT_STACK: 8 << 20,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 64,
    }
    for kind, most in limits.items():
        lower(kind, most)
    os.chdir("/")
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    listener = seccomp.Filter(seccomp.zygote_filter(isolation, asks=True)).install_with_listener()
    if listener is None:
        seccomp.Filter(seccomp.zygote_filter(isolation, asks=False)).install()
    return listener


class ChildLimits:
    """What a child takes from itself right after the fork; made once by the zygote, before it is confined."""

    def __init__(self, isolation: Isolation) -> None:
        self._zygote = 0 if isolation.namespaces else os.getpid()  # as the child sees it
        self._drops_capabilities = isolation.namespaces
        with open("/proc/self/statm", "rb") as file:
            self._mapped = int(file.read().split()[0]) * resource.getpagesize()  # bytes of address space in use
        self._filter = seccomp.Filter(seccomp.child_filter())

    def confine(self, file_access: FileAccess, cpu_seconds: int, memory_bytes: int) -> None:
        """Takes from this process, a new child, the rest of what untrusted code must not have.

        Args:
          file_access: which files it may read and write.
          cpu_seconds: CPU time after which the kernel kills the process whatever it does.
          memory_bytes: address space it may have beyond what the interpreter already takes.
        Raises:
          OSError: the operating system refuses; then nothing untrusted may run.
        """
        die_with_parent()
        if os.getppid() != self._zygote:
            os._exit(1)
        lower(resource.RLIMIT_AS, self._mapped + memory_bytes)
        lower(resource.RLIMIT_CPU, cpu_seconds)
        lower(resource.RLIMIT_NOFILE, _MAX_FDS)
        file_access.confine()
        if self._drops_capabilities:
            kernel.keep_only()
        self._filter.install()


def why_unsupported() -> str:
    """Returns why this machine cannot confine untrusted code, as far as is known without trying; "" when it can."""
    if sys.platform != "linux":
        return "the sandbox needs Linux; on this system, run codea1 in a Linux container"
    if not os.path.exists("/proc/self"):
        return "the sandbox needs /proc, which is not mounted here"
    if os.uname().machine not in seccomp.ARCHITECTURES:
        return f"the sandbox's system-call filter does not know the processor {os.uname().machine}"
    return ""


class Threads:
    """The threads of one child: the kernel asks its zygote about each that starts or ends.

    A thread takes a process id, and kernel memory that no limit on the child's own counts, and needs none of its
    address space. A limit on the user's processes (RLIMIT_NPROC) would count the neighbours' and the trainer's. So the
    zygote's filter, which its children inherit, has the kernel hand these calls to the zygote and hold the thread
    meanwhile; the calls' arguments are in registers, where no other thread can change them.
    """

    def __init__(self) -> None:
        self.alive = 1
        self.niceness = 0  # beyond the zygote's own
        self.questions = 0
        self.ended: set[int] = set()  # ids: a thread that is interrupted while it ends asks again


class Supervisor:
    """Answers those questions at the zygote's end of the listener.

    The kernel shares cores by thread: so that a child's threads together get no more than another child's one, they are
    the nicer the more there are. A session for each child would do that too where there are autogroups (sched(7)), but
    share cores so between children and trainer: of 16 slots on two cores, a tenth was left to it.
    """

    def __init__(self, listener: int) -> None:
        self.listener = listener
        self._own_niceness = os.getpriority(os.PRIO_PROCESS, 0)

    def answer(self, children: Iterable[int], known: dict[int, Threads]) -> None:
        """Answers one question of a thread of one of the processes `children`; notes their threads in `known`."""
        asked = bytearray(_ASKED.size)
        try:
            fcntl.ioctl(self.listener, seccomp.NOTIFICATION, asked)
        except OSError:  # the thread was killed meanwhile
            return
        question, thread, _, call, *_ = _ASKED.unpack(asked)
        # Sending a thread no signal tells whether it is one of the process's.
        process = next((pid for pid in children if libc.syscall(_TGKILL, pid, thread, 0) == 0), None)
        if process is None:
            self._reply(question, 0 if call == _EXIT else errno.EAGAIN)
            return
        threads = known.setdefault(process, Threads())
        threads.questions += 1
        if threads.questions > MAX_QUESTIONS:
            os.kill(process, SIGKILL)
        if call == _EXIT:
            if self._reply(question, 0) and thread not in threads.ended:
                threads.ended.add(thread)
                threads.alive -= 1
        elif threads.alive >= MAX_THREADS:
            self._reply(question, errno.EAGAIN)
        else:
            niceness = math.ceil(math.log(threads.alive + 1, _WEIGHT_OF_A_STEP))
            if niceness > threads.niceness:  # no code here may take it back
                os.setpriority(os.PRIO_PGRP, process, min(self._own_niceness + niceness, _NICEST))
                threads.niceness = niceness
            if self._reply(question, 0):
                threads.alive += 1

    def _reply(self, question: int, code: int) -> bool:
        """Lets the call go on, or fail with an errno; returns whether its thread still waited."""
        answer = _ANSWER.pack(question, 0, -code, 0 if code else _CONTINUE)
        while True:
            try:
                fcntl.ioctl(self.listener, seccomp.RESPONSE, answer)
            except InterruptedError:  # which this call, unlike others of Python's, does not see to
                continue
            except OSError:
                return False
            return True
