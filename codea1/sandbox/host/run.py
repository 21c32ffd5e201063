"""A grading in progress: what every kind of it shares."""

import math
import os
import re
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol

from codea1.sandbox.frames import Frame, FrameBuffer
from codea1.sandbox.host.zygote import Child, Ended, Profile, Zygote

WALL_FACTOR, WALL_SECONDS = 4.0, 2.0  # wall limit = factor x CPU limit + seconds: for programs that sleep
# Most gradings are over by then, and their channels are read once, after the child's end. The others' are watched.
WATCH_SECONDS = 0.01
# A child that closed its socket is dying, mostly: of what, its zygote tells. One that lives on is ended after this.
HANG_UP_SECONDS = 0.1
_ZYGOTE_SECONDS = 60.0  # a zygote that has not answered for so long is stuck
_IMPORTS_NUMPY = re.compile(r"^[ \t]*(?:import|from)[ \t][^#\n]*\bnumpy\b", re.MULTILINE)
_READ_BYTES = 1 << 16


class Desk(Protocol):
    """What a run asks of the dispatcher that carries it."""

    now: float  # seconds of a clock that stands still while the dispatcher does

    def spawn(
        self, run: "Run", profile: Profile, sockets: Sequence[socket.socket], cpu_seconds: int, memory_bytes: int
    ) -> Child:
        """A child that owns `sockets`, with the limits that the kernel is to enforce."""

    def end(self, child: Child) -> None:
        """Kills the child, where it is not dead; `Run.on_ended` follows."""

    def watch(self, channel: "Channel", run: "Run") -> None:
        """Calls `Run.on_socket` when there is something to read, or room for what is unsent."""

    def unwatch(self, channel: "Channel") -> None:
        """Stops that, for good, and closes the socket."""

    def finish(self, run: "Run") -> None:
        """Frees the run's slot; its future has its result."""

    def lose(self, zygote: Zygote) -> None:
        """Gives a zygote up and with it all its children; runs that had one start again."""

    def try_again(self, run: "Run") -> bool:
        """Starts a run again whose child was killed, or gives it up; False where that was not the first time."""

    def count(self, event: str) -> None: ...


class Channel:
    """The trainer's end of a child's socket: a request to send, frames to receive, and never a wait."""

    def __init__(self, end: socket.socket, request: bytes, max_bytes: int, max_payload: int) -> None:
        """`max_bytes` bounds all that the child may say, `max_payload` one value of it."""
        end.setblocking(False)
        self.socket = end
        self.unsent = memoryview(request)
        self.watched = False
        self._received = FrameBuffer(max_bytes, max_payload)

    def send(self) -> None:
        """Sends as much of the request as the socket takes."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # the child closed its end: what it wrote before is still there to be read
            self.unsent = memoryview(b"")

    def say_no_more(self) -> None:
        """Tells the child, once everything is sent, that it has all it will get: it ends when it has answered."""
        if not self.unsent:
            self.socket.shutdown(socket.SHUT_WR)

    def receive(self) -> Iterator[Frame | None]:
        """Takes the whole frames that are there, and then None if the other end is closed. Raises ProtocolViolation."""
        is_open = True
        while is_open:
            try:
                piece = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            self._received.feed(piece)
            yield from self._received.frames()
            is_open = bool(piece)
        yield None


class Run(ABC):
    """One grading, from the queue to its future's result. All methods run in the dispatcher's thread."""

    def __init__(self) -> None:
        self.future: Future = Future()
        self.attempts = 0
        self.kills = 0  # of its children, by nobody knows whom
        self.children: set[Child] = set()  # that are not known to be dead
        self.queued = self.began = 0.0  # monotonic times
        self.short_since = 0.0  # monotonic time since which the machine has had no room for it; 0 where it has
        self.channel: Channel | None = None
        self.patience = 0.0  # desk time by which a zygote must have answered; 0 when none is asked
        self.due = 0.0  # desk time at which its limits are to be looked at again
        self.hung_up_at = 0.0  # desk time at which the child closed its socket; 0 while it has not

    @abstractmethod
    def begin(self, desk: Desk) -> None:
        """Starts from the beginning; called again after a zygote was lost."""

    @abstractmethod
    def on_socket(self, desk: Desk) -> None:
        """The watched channel can be read or written."""

    @abstractmethod
    def on_ended(self, desk: Desk, ended: Ended) -> None:
        """One of the run's children is dead."""

    @abstractmethod
    def check(self, desk: Desk) -> float:
        """Enforces the limits; returns the seconds within which to check again."""

    @abstractmethod
    def fail(self, why: str) -> None:
        """Gives the result that says the sandbox failed."""

    def hang_up(self, desk: Desk) -> None:
        """Notes that the child has closed its socket."""
        desk.unwatch(self.channel)
        self.hung_up_at = desk.now

    def abandon(self, desk: Desk) -> None:
        """Lets go of the channel: the run will begin again or fail."""
        if self.channel is not None:
            desk.unwatch(self.channel)

    def on_started(self, desk: Desk) -> None:
        """A child asked for exists now."""
        self.patience = 0.0

    def expect_zygote(self, desk: Desk) -> None:
        """Starts the time within which a zygote must answer."""
        self.patience = desk.now + _ZYGOTE_SECONDS


def profile_of(source: str, hash_seed: int = 0) -> Profile:
    """The zygote for a program: numpy's only where it is imported, since forking it costs more."""
    return Profile(bool(_IMPORTS_NUMPY.search(source)), hash_seed)


def kernel_cpu_limit(cpu_seconds: float) -> int:
    """RLIMIT_CPU behind a limit that the dispatcher enforces: the kernel counts ticks and may be ahead of the clock."""
    return 2 * math.ceil(cpu_seconds) + 2


def wall_limit(cpu_seconds: float) -> float:
    """Wall seconds after which a process that has not used `cpu_seconds` of CPU time counts as asleep."""
    return WALL_FACTOR * cpu_seconds + WALL_SECONDS


def was_killed(ended: Ended) -> bool:
    """Whether somebody else killed a child; not itself, for programs cannot send signals."""
    return os.waitstatus_to_exitcode(ended.status) == -signal.SIGKILL and not ended.was_asked


def how_it_ended(ended: Ended) -> str:
    """A few words on a child's end."""
    code = os.waitstatus_to_exitcode(ended.status)
    if ended.was_asked and code == -signal.SIGKILL:
        return "closed its socket and went on"
    return f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"
