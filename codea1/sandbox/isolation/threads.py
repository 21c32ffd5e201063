"""How many threads a child may have: the kernel asks its zygote about each that starts or ends.

A thread takes a process id, and kernel memory that no limit on the child's own counts, and needs none of its address
space. A limit on the user's processes (RLIMIT_NPROC) would count the neighbours' and the trainer's. So the zygote's
filter, which its children inherit, has the kernel hand these calls to the zygote and hold the thread meanwhile; the
calls' arguments are in registers, where no other thread can change them.

Standard library only: this runs inside the sandbox.
"""

import errno
import fcntl
import os
import struct
from _signal import SIGKILL  # `signal` has enums, which are memory to every fork
from collections.abc import Iterable

from codea1.sandbox.isolation import seccomp
from codea1.sandbox.isolation.kernel import libc

MAX_QUESTIONS = 100_000  # of a child, which is killed then: each takes about 15 microseconds of its zygote's
MAX_THREADS = 32  # of a child at a time; what Python's own ThreadPoolExecutor asks for at most

_ASKED = struct.Struct("=QIIi4xQ6Q")  # struct seccomp_notif: id, thread, flags; call, instruction pointer, arguments
_ANSWER = struct.Struct("=QqiI")  # struct seccomp_notif_resp: id, value, minus an errno, flags
_CONTINUE = 1
_EXIT = seccomp.native(seccomp.WITH_CONDITIONS["exit"])
_TGKILL = seccomp.native(seccomp.OF_THE_ZYGOTE["tgkill"])


class Threads:
    """The threads of one child."""

    def __init__(self) -> None:
        self.alive = 1
        self.questions = 0
        self.ended: set[int] = set()  # ids: a thread that is interrupted while it ends asks again


class Supervisor:
    """The zygote's end of the listener."""

    def __init__(self, listener: int) -> None:
        self.listener = listener

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
        threads = None if process is None else known.setdefault(process, Threads())
        if threads is not None:
            threads.questions += 1
            if threads.questions > MAX_QUESTIONS:
                os.kill(process, SIGKILL)
        if call == _EXIT:
            if self._reply(question, 0) and threads is not None and thread not in threads.ended:
                threads.ended.add(thread)
                threads.alive -= 1
        elif threads is None or threads.alive >= MAX_THREADS:
            self._reply(question, errno.EAGAIN)
        elif self._reply(question, 0):
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
