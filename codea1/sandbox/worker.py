"""The zygote: a process that has run nothing untrusted and forks one confined child per grading on request.

Started by codea1.sandbox.zygote as a fresh interpreter, never as a fork of the trainer. It never sees a job: it passes
each child its sockets unread, so no child can find another job's text or answers in memory it inherited.

Standard library only: this runs inside the sandbox.
"""

import gc
import importlib
import os
import signal
import socket
import struct
import sys

from codea1.sandbox import candidate, frames, limits, script
from codea1.sandbox.values import encode_exact

START, END = b"S", b"E"
REQUEST = struct.Struct("<cQIQ")  # START or END, token, CPU seconds, memory bytes
REPLY = struct.Struct("<cQiId")  # START or END, token, process id or -1, wait status, CPU seconds
READY = b"ready"  # the first message; anything else says why this zygote cannot work

_PRELOAD = (
    "abc array bisect collections.abc contextlib copy dataclasses datetime decimal enum fractions functools heapq "
    "itertools json math operator random re statistics string time traceback types typing"
)
_PRELOAD_NUMPY = "numpy numpy.linalg numpy.fft numpy.random numpy.testing"

_WARM_UP_LIVES = 20
_SCRIPT_SOCKETS = 2  # a check script's child gets its job's socket and its candidate's, any other child only one


def main(control_fd: int, with_numpy: bool, uid: int | None) -> None:
    """Confines this process, reports, and serves requests until the other end of the control socket closes."""
    with socket.socket(fileno=control_fd) as inherited:
        control = inherited.dup()  # as the lowest free fd, below the limit on fds, so that children close it
    try:
        _preload(with_numpy)
        _forget_origin()
        child_limits = limits.ChildLimits()
        limits.confine_zygote(uid)
        _rehearse(child_limits)
    except Exception as error:
        control.send(f"{type(error).__name__}: {error}".encode()[:1000])
        return
    _warm_up()
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, the pages children share
    control.send(READY)
    _Zygote(control, child_limits).serve()


def _preload(with_numpy: bool) -> None:
    for name in _PRELOAD.split() + (_PRELOAD_NUMPY.split() if with_numpy else []):
        try:
            importlib.import_module(name)
        except ImportError:
            if not name.startswith("numpy"):
                raise


def _forget_origin() -> None:
    """Leaves to programs an ordinary environment, without the way this package was found."""
    root = os.environ.pop("PYTHONPATH", None)
    if root and not root.endswith(("site-packages", "dist-packages")):
        sys.path[:] = [path for path in sys.path if path != root]
    sys.argv[:] = [""]


def _rehearse(child_limits: limits.ChildLimits) -> None:
    """Forks and confines a child that does nothing. Raises OSError when that fails."""
    pid = os.fork()
    if pid == 0:
        try:
            child_limits.confine(cpu_seconds=1, memory_bytes=1 << 28)
            importlib.import_module("colorsys")  # not preloaded: the confined user must be able to read the library
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
        except ImportError:
            os._exit(255)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 255:
        raise OSError(f"user {os.getuid()} cannot read Python's library at {os.path.dirname(os.__file__)}")
    if code:
        raise OSError(f"a child could not confine itself: {os.strerror(code) if code > 0 else signal.strsignal(-code)}")


def _warm_up() -> None:
    """Lives a child's life on a program of our own, so that children find warm code instead of each warming a copy."""
    source = "def f(*args):\n    return [*args, {'a': 1.5}]"
    program = frames.pack_program(source, frames.Reply.CANONICAL, seed=0, output_bytes=1 << 16)
    arguments = encode_exact(((1, "a", [2.5, None]), {}))
    for _ in range(_WARM_UP_LIVES):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(program + b"".join(frames.pack_call(i, "f", arguments) for i in range(8)))
            ours.shutdown(socket.SHUT_WR)
            candidate.serve(theirs.fileno())
    del sys.modules[candidate.MODULE_NAME]


class _Zygote:
    def __init__(self, control: socket.socket, child_limits: limits.ChildLimits) -> None:
        self.control = control
        self.child_limits = child_limits
        self.children: dict[int, int] = {}  # token -> process id, until END

    def serve(self) -> None:
        while True:
            message, fds, _, _ = socket.recv_fds(self.control, REQUEST.size, _SCRIPT_SOCKETS)
            if not message:
                break
            operation, token, cpu_seconds, memory_bytes = REQUEST.unpack(message)
            if operation == START:
                self.start(token, fds, cpu_seconds, memory_bytes)
            else:
                self.end(token)
        for token in list(self.children):
            self.kill(token)

    def start(self, token: int, fds: list[int], cpu_seconds: int, memory_bytes: int) -> None:
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            self.live(fds, cpu_seconds, memory_bytes)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            self.children[token] = pid
        self.control.send(REPLY.pack(START, token, pid, 0, 0.0))

    def end(self, token: int) -> None:
        """Kills the child, which may be dead already, and reports what it used."""
        pid, status, cpu_seconds = self.kill(token) if token in self.children else (-1, 0, 0.0)
        self.control.send(REPLY.pack(END, token, pid, status, cpu_seconds))

    def kill(self, token: int) -> tuple[int, int, float]:
        """(process id, wait status, CPU seconds) of a child that is gone now."""
        pid = self.children.pop(token)
        os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        return pid, status, usage.ru_utime + usage.ru_stime

    def live(self, fds: list[int], cpu_seconds: int, memory_bytes: int) -> None:
        """A child's whole life. Does not return."""
        try:
            for number, fd in enumerate(fds, start=3):  # received fds are the lowest free ones: none is overwritten
                os.dup2(fd, number)
            os.closerange(3 + len(fds), os.sysconf("SC_OPEN_MAX"))
            self.child_limits.confine(cpu_seconds, memory_bytes)
            if len(fds) == _SCRIPT_SOCKETS:
                script.serve(3, 4)
            else:
                candidate.serve(3)
            os._exit(0)
        finally:
            os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "numpy", int(sys.argv[3]) if sys.argv[3] != "-" else None)
