"""The zygote: a process that has run nothing untrusted and forks one confined child per grading on request.

Started by codea1.sandbox.host.zygote as a fresh interpreter, never as a fork of the trainer. It never sees a job: it
passes each child its sockets unread, so no child can find another job's text or answers in memory it inherited.

Standard library only: this runs inside the sandbox.
"""

import contextlib
import fcntl
import gc
import importlib
import marshal
import mmap
import operator
import os
import select
import site
import struct
import sys

# What `signal` and `socket` are made of, without their enums: those are memory to every fork.
from _signal import SIG_DFL, SIGCHLD, SIGKILL, set_wakeup_fd, signal
from _socket import CMSG_SPACE, SHUT_WR, SOL_SOCKET, socket, socketpair
from collections.abc import Callable, Sequence
from functools import partial

import codea1
from codea1.sandbox import frames
from codea1.sandbox.child import candidate, script
from codea1.sandbox.isolation import Isolation, files, kernel, limits, namespaces
from codea1.sandbox.isolation.limits import Supervisor, Threads
from codea1.values import encode_exact

START, END = b"S", b"E"
REQUEST = struct.Struct("<cQIQ")  # START or END, token, CPU seconds, memory bytes
# START or END, token, process id or -1, wait status, CPU seconds, whether END was what killed the child; END's is
# followed by why the child could not confine itself.
REPLY = struct.Struct("<cQiId?")
LIBRARY_PATH = "LD_LIBRARY_PATH"  # by which the dynamic linker finds what some Pythons are linked against
READY = b"ready"  # the first message; anything else says why this zygote cannot work

# What most programs import. More would be memory to every fork, and cost them more than it saves the few.
_PRELOAD = (
    "abc array bisect collections.abc contextlib copy datetime decimal enum fractions functools heapq itertools math "
    "operator random re string time types typing codea1.sandbox.child.entries"
)
_PRELOAD_WHERE_FILES_ARE_CLOSED = (
    "__future__ argparse ast asyncio base64 binascii calendar cmath cmd codecs colorsys concurrent.futures.thread "
    "configparser csv ctypes dataclasses difflib doctest email fileinput getpass gettext glob graphlib gzip hashlib "
    "hmac html http inspect io json keyword linecache locale logging mimetypes multiprocessing numbers os pathlib "
    "pickle pkgutil platform pprint profile queue reprlib sched secrets shelve shlex shutil socket sqlite3 statistics "
    "stringprep sys tempfile textwrap threading timeit token tokenize traceback unicodedata unittest urllib.parse "
    "urllib.request uuid warnings weakref xml.etree.ElementTree zipfile zlib zoneinfo"
)
PACKAGES = {"numpy": "numpy numpy.linalg numpy.fft numpy.random numpy.testing", "pytest": "pytest"}

_CALLS_BENEATH = 10  # of the program, which count against its depth of recursion
_NICENESS = 10  # so that the trainer gets most of a core that it shares with children
_WARM_UP_RUNS = 20
_OWN_FDS = 64
_SCM_CREDENTIALS = 2
_SCRIPT_SOCKETS = 2  # a check script's child gets its job's socket and its candidate's, any other child only one
_ATTACHED_SPACE = CMSG_SPACE(4 * _SCRIPT_SOCKETS)
_FIRST_SOCKET = 3  # the descriptors of a child's sockets; a zygote keeps them free of anything of its own
_IF_DEAD = os.WEXITED | os.WNOHANG | os.WNOWAIT
_CONFINED = 1  # written to a child's note once it is confined; until then the reason why it is not
_WHY_BYTES = 255


def start() -> None:
    """Confines this process, reports, and serves requests until the other end of the control socket closes.

    The command line is written by codea1.sandbox.host.zygote. With namespaces the process that serves is a child of
    this one, which waits for it: the first of its process table.
    """
    _, control_fd, packages, level, max_children, uid, *libraries = sys.argv
    isolation = Isolation(level)
    sys.path += libraries
    site.setquit()
    site.sethelper()
    control = socket(fileno=fcntl.fcntl(int(control_fd), fcntl.F_DUPFD_CLOEXEC, _FIRST_SOCKET + _SCRIPT_SOCKETS))
    os.close(int(control_fd))
    for fd in range(_FIRST_SOCKET, _FIRST_SOCKET + _SCRIPT_SOCKETS):
        os.dup2(0, fd)  # so that nothing else gets them
    try:
        limits.prefer_as_victim()
        os.nice(_NICENESS)
        if uid != "-":
            kernel.become(int(uid))
        if isolation.namespaces:
            namespaces.enter()
            _continue_in_a_child(control)
        _preload(_PRELOAD)
        if not isolation.hides_files:
            _preload(_PRELOAD_WHERE_FILES_ARE_CLOSED, ImportError)
        for package in packages.split():
            _preload(PACKAGES[package], ImportError)
        # Leaves to programs an ordinary environment, without the way this package was found.
        os.environ.pop(LIBRARY_PATH, None)  # its folders stay hidden
        root = os.environ.pop("PYTHONPATH").split(os.pathsep)
        sys.path[:] = [path for path in sys.path if path not in root or path.endswith(files.LIBRARIES)]
        sys.argv[:] = [""]
        if isolation.has_scratch:  # where each child is; to name its folder would cost 5 % of a grading
            os.environ["TMPDIR"] = os.environ["HOME"] = "./"
        zygote = _Zygote(control, isolation, int(max_children))
        listener = limits.confine_zygote(isolation, zygote.max_fds)
        zygote.supervisor = None if listener is None else Supervisor(listener)
    except Exception as error:
        control.send(f"{type(error).__name__}: {error}".encode()[:1000])
        return
    limits.grant_stacks()
    limits.hide_calls(_CALLS_BENEATH)
    _warm_up()
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, the pages children share
    control.send(READY)
    zygote.serve()


def _continue_in_a_child(control: socket) -> None:
    """Goes on as the first process of the new process table; this one waits for its end and shares it."""
    pid = os.fork()
    if pid:
        control.close()  # or its other end would not see the zygote's death
        limits.die_with_parent()  # and the zygote with this process
        os.waitpid(pid, 0)
        os._exit(0)
    limits.die_with_parent()


def _preload(names: str, *missing: type[ImportError]) -> None:
    """Some Pythons are built without sqlite3; programs that import what may be `missing` fail to."""
    for name in names.split():
        with contextlib.suppress(*missing):
            importlib.import_module(name)


def _warm_up() -> None:
    """Serves a program of our own as a child does, so that children find warm code instead of each warming a copy."""
    source = "def f(*args):\n    return [*args, {'a': 1.5}]"
    program = frames.pack_program(source, frames.Reply.CANONICAL, seed=0, output_bytes=1 << 16)
    arguments = encode_exact(((1, "a", [2.5, None]), {}))
    for _ in range(_WARM_UP_RUNS):
        ours, theirs = socketpair()
        ours.sendall(program + b"".join(frames.pack_call(i, "f", arguments) for i in range(8)))
        ours.shutdown(SHUT_WR)
        first = frames.read(theirs.fileno())
        assert first is not None
        candidate.serve(theirs.fileno(), first)
        ours.close()
        theirs.close()
    del sys.modules[candidate.MODULE_NAME]


class _Zygote:
    def __init__(self, control: socket, isolation: Isolation, max_children: int) -> None:
        """Prepares to fork; with namespaces, also moves this process to its own root."""
        self.control = control
        self.child_limits = limits.ChildLimits(isolation)
        self.children: dict[int, tuple[int, int]] = {}  # token and slot, by process id
        self.isolation = isolation
        # Programs do not see this package: the demo's questions and their answers are part of it.
        package = os.path.dirname(os.path.realpath(codea1.__file__))
        limits.require_descriptors(_OWN_FDS + max_children * isolation.has_scratch)
        readable = files.library_paths()
        scratches: Sequence[str | None] = [None]  # by slot, or one for all
        self.fork: Callable[[], int] = os.fork
        if isolation.namespaces:
            self.fork = partial(namespaces.fork, os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC))
            scratches = namespaces.change_root(readable, package, max_children * isolation.has_scratch) or scratches
        else:
            readable = files.without(package, readable)
        accesses = [files.FileAccess(isolation, readable, scratch) for scratch in scratches]
        self.file_access = accesses * (max_children // len(accesses))  # by slot
        self.free_slots = list(range(max_children))
        self.notes = mmap.mmap(-1, (1 + _WHY_BYTES) * max_children)  # shared with each child until it is confined
        self.whys = range(max_children, len(self.notes), _WHY_BYTES)  # where the reasons begin
        self.threads: dict[int, Threads] = {}  # by process id, of children that ever started one
        self.killed: set[int] = set()  # process ids of children that are dead because of END
        self.max_fds = _OWN_FDS + len(accesses)
        self.supervisor: Supervisor | None = None

    def serve(self) -> None:
        deaths, wakeup = os.pipe2(os.O_NONBLOCK)
        set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal(SIGCHLD, operator.is_)  # does nothing, in C
        poll = select.poll()
        for fd in (deaths, self.control.fileno(), *([self.supervisor.listener] if self.supervisor else [])):
            poll.register(fd, select.POLLIN)
        is_asked = True
        while is_asked:
            for fd, _ in poll.poll():
                if fd == deaths:
                    os.read(deaths, 4096)
                    self.reap()
                elif fd == self.control.fileno():
                    is_asked = self.take_request()
                elif self.supervisor:
                    self.supervisor.answer(self.children, self.threads)
        for pid in self.children:
            os.kill(pid, SIGKILL)

    def take_request(self) -> bool:
        """Takes one request; returns whether more may come."""
        message, attached, _, _ = self.control.recvmsg(REQUEST.size, _ATTACHED_SPACE)
        if not message:
            return False
        fds = memoryview(attached[0][2]).cast("i").tolist() if attached else []
        operation, token, cpu_seconds, memory_bytes = REQUEST.unpack(message)
        if operation == START:
            self.start(token, fds, cpu_seconds, memory_bytes)
        else:
            for pid, (known, _) in self.children.items():
                if known == token and not os.waitid(os.P_PID, pid, _IF_DEAD):
                    os.kill(pid, SIGKILL)
                    self.killed.add(pid)
        return True

    def start(self, token: int, fds: list[int], cpu_seconds: int, memory_bytes: int) -> None:
        pid = -1
        if self.free_slots:
            self.notes[self.free_slots[-1]] = 0
            with contextlib.suppress(OSError):
                pid = self.fork()
        if pid == 0:
            self.run_child(self.free_slots[-1], fds, cpu_seconds, memory_bytes)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            self.children[pid] = token, self.free_slots.pop()
        reply = REPLY.pack(START, token, pid, 0, 0.0, False)
        if pid > 0 and self.isolation.namespaces:
            # struct ucred tells the trainer, outside of these namespaces, which child it is: the kernel translates.
            credentials = struct.pack("=3i", pid, namespaces.UID, namespaces.UID)
            self.control.sendmsg([reply], [(SOL_SOCKET, _SCM_CREDENTIALS, credentials)])
        else:
            self.control.send(reply)

    def reap(self) -> None:
        """Reports on the children that are dead, with all their descendants."""
        while self.children:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                break
            token, slot = self.children.pop(pid)
            self.threads.pop(pid, None)
            self.file_access[slot].clear()
            self.free_slots.append(slot)
            failure = b""
            if self.notes[slot] != _CONFINED:
                why = slice(self.whys[slot], self.whys[slot] + _WHY_BYTES)
                failure = self.notes[why].rstrip(b"\0") or b"a child died before it was confined"
                self.notes[why] = bytes(_WHY_BYTES)  # or the slot's next child that dies so early would report it
            seconds = usage.ru_utime + usage.ru_stime
            reply = REPLY.pack(END, token, pid, status, seconds, pid in self.killed)
            self.killed.discard(pid)
            self.control.send(reply + failure)

    def run_child(self, slot: int, fds: list[int], cpu_seconds: int, memory_bytes: int) -> None:
        """Confines this process, a new child, and serves its grading. Does not return."""
        try:
            try:
                set_wakeup_fd(-1)
                signal(SIGCHLD, SIG_DFL)
                for number, fd in enumerate(fds, start=_FIRST_SOCKET):
                    os.dup2(fd, number)
                os.setpgid(0, 0)  # has the priority that its threads share: see `Supervisor`
                self.child_limits.confine(self.file_access[slot], cpu_seconds, memory_bytes)
                os.closerange(_FIRST_SOCKET + len(fds), self.max_fds)
                self.notes[slot] = _CONFINED
                self.notes.close()  # for good: the program must not write there
            except Exception as error:
                why = f"a child could not confine itself: {error}".encode("utf-8", "replace")[:_WHY_BYTES]
                self.notes[self.whys[slot] : self.whys[slot] + _WHY_BYTES] = why.ljust(_WHY_BYTES, b"\0")
                os._exit(1)
            first = frames.read(_FIRST_SOCKET)
            if first is not None and len(fds) == _SCRIPT_SOCKETS:
                script.serve(_FIRST_SOCKET, first, _FIRST_SOCKET + 1)
            elif first is not None and first.kind == frames.SERVER:
                server: dict = {}
                exec(marshal.loads(first.payload), server)
                server["serve"](_FIRST_SOCKET)
            elif first is not None:
                candidate.serve(_FIRST_SOCKET, first)
            os._exit(0)
        finally:
            os._exit(1)
