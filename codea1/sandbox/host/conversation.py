"""What every grading does with its children: start them, send a request, receive frames, end them.

A grading is a generator. It yields the seconds for which it can wait, and goes on when they have passed, or sooner:
when one of its children has started or ended, or its socket is ready. So it reads from start to end, and thousands of
them take no thread.
"""

import math
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from codea1.sandbox.frames import Frame, FrameBuffer
from codea1.sandbox.host.dispatcher import GradingTask, Waiting, ZygoteStuck
from codea1.sandbox.host.zygote import Child, Profile

WALL_FACTOR, WALL_SECONDS = 4.0, 2.0  # wall limit = factor x CPU limit + seconds: for programs that sleep
# Most gradings are over by then, and their sockets are read once, after the child's end. The others' are watched.
_WATCH_SECONDS = 0.01
# Most children that close their socket are exiting, and their zygote reports how; one that lives on is killed after
# this.
_CLOSED_SECONDS = 0.1
_LOOK_SECONDS = 0.05  # between looks whether children that could run, beyond a limit of time, still could
_ZYGOTE_SECONDS = 60.0  # a zygote that has not answered for so long is stuck
# Also inside of a literal, as programs stand in what `Question.module` makes of them.
_IMPORTS_NUMPY = re.compile(r"(?:^|['\"]|\\n)(?:[ \t]|\\t)*(?:import|from)[ \t][^#\n\\]*\bnumpy\b", re.MULTILINE)
_READ_BYTES = 1 << 16
# A child that sends less of a frame at a time is read every _WATCH_SECONDS, since each look takes the trainer's time.
# Honest ones write a frame in one go, and the kernel passes it on in larger pieces.
_DRIP_BYTES = 1 << 12


class OutOfTime(Exception):
    """The children have used up their limit."""


class Closed(Exception):
    """The child ended, or closed its socket, before it had answered all."""


class Conversation:
    """The children of a grading, and a socket to the one of them that talks, which must be closed at the end.

    Nothing here waits for a socket: see the module.
    """

    def __init__(
        self,
        task: GradingTask,
        profile: Profile,
        request: bytes,
        *,
        cpu_seconds: float,
        memory_bytes: int,
        max_bytes: int,
        max_payload: int,
        is_asked: bool = False,
        end_to_other: Sequence[socket.socket] = (),
        others: Sequence[Child] = (),
    ) -> None:
        """Asks for the child that talks, and sends it the request.

        Args:
          task: the grading.
          profile: the zygote.
          request: what to send first.
          cpu_seconds: that the grading lets its children use; the kernel's own limit is behind that.
          memory_bytes: the child's address space.
          max_bytes: bound on all that the child may say.
          max_payload: bound on one value of it.
          is_asked: the child waits for answers to what it says; else it sees the end of requests behind the first.
          end_to_other: the child's end of a socket to another child.
          others: children of the grading that do not talk to the trainer.
        """
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        with theirs:
            sockets = [theirs, *end_to_other]
            self.child = task.dispatcher.start_child(task, profile, sockets, cpu_seconds, memory_bytes)
        self.clock = 0.0  # CPU seconds of the children when frames were last looked for
        self.unsent = memoryview(b"")
        self._task = task
        self._children = [*others, self.child]
        self._received = FrameBuffer(max_bytes, max_payload)
        self._is_asked = is_asked
        self._is_closed = self._is_watched = False
        self._watch_at = 0.0 if is_asked else math.inf
        self.send(request)

    def cpu_seconds(self) -> float:
        """Returns the CPU time that the children have used."""
        return sum(child.ended.cpu_seconds if child.ended else child.cpu_seconds() for child in self._children)

    def started(self) -> Waiting[None]:
        """Waits until all children exist."""
        yield from self._await_zygote(lambda: all(child.pid for child in self._children))
        self._watch_at = min(self._watch_at, self._task.now + _WATCH_SECONDS)

    def send(self, request: bytes = b"") -> None:
        """Sends `request` or, without one, what is unsent; the rest follows as soon as there is room."""
        self.unsent = memoryview(request) if request else self.unsent
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # the child closed its end: what it wrote before is still there to be read
            self.unsent = memoryview(b"")
        if not self._is_asked and not self.unsent:
            self.socket.shutdown(socket.SHUT_WR)
        if self.unsent or self._is_watched:
            self._watch()

    def receive(self, seconds_left: Callable[[float], float]) -> Waiting[Iterator[Frame]]:
        """Waits until the child has sent something; returns the frames that are there, at least one.

        Taking them, from the second on, may raise ProtocolViolation, too.

        Args:
          seconds_left: of the children's limits, when they have used so many CPU seconds.
        Raises:
          ProtocolViolation: what the child says is not what an honest one would.
          Closed: the child says no more.
          OutOfTime: the children have reached a limit.
          Starved: they would not have reached it alone.
        """
        while not self._is_closed:
            quiet = self._watch_at - self._task.now
            if quiet > 0 and not self._is_watched and not self.child.ended:
                yield quiet
                continue
            self.clock = self.cpu_seconds()
            left = seconds_left(self.clock)  # before a look at the socket: an answer that has arrived meanwhile counts
            if self.unsent:
                self.send()
            frames, room = self._frames(), self._received.room
            for first in frames:
                return chain((first,), frames)
            drips = 0 < room - self._received.room < _DRIP_BYTES
            if self._is_closed or self.child.ended:
                break
            if left <= 0:
                can_run = self._task.see_waiting()
                left = seconds_left(self.clock)
                if left <= 0 and seconds_left(0.0) <= 0:  # had they used no CPU time at all: they should be asleep
                    if can_run:
                        left = _LOOK_SECONDS
                    else:
                        self._task.require_cores()
            if left <= 0:
                raise OutOfTime
            if drips:
                self._unwatch()
                self._watch_at = self._task.now + _WATCH_SECONDS
                continue
            if not self._is_watched:
                self._watch()
            yield left
        self.close()
        close_at = self._task.now + _CLOSED_SECONDS
        while not self.child.ended and self._task.now < close_at:
            yield close_at - self._task.now
        raise Closed

    def end(self) -> Waiting[None]:
        """Kills the children that are not dead, and waits until all are."""
        self.close()
        for child in self._children:
            child.zygote.end(child)
        yield from self._await_zygote(lambda: all(child.ended for child in self._children))

    def _frames(self) -> Iterator[Frame]:
        """Takes the whole frames that are there, and no more than a child drips meanwhile. Raises ProtocolViolation."""
        while not self._is_closed:
            try:
                piece = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            self._is_closed = not piece
            yield from self._received.frames(piece)
            if len(piece) < _DRIP_BYTES and not self.child.ended:
                return

    def _await_zygote(self, has_answered: Callable[[], bool]) -> Waiting[None]:
        deadline = self._task.now + _ZYGOTE_SECONDS
        while not has_answered():
            if self._task.now > deadline:
                raise ZygoteStuck
            yield deadline - self._task.now
            if self.unsent:
                self.send()

    def _watch(self) -> None:
        dispatcher = self._task.dispatcher
        dispatcher.watch(self.socket, lambda: dispatcher.advance(self._task), for_room=bool(self.unsent))
        self._is_watched = True

    def _unwatch(self) -> None:
        if self._is_watched:
            self._task.dispatcher.unwatch(self.socket)
        self._is_watched = False

    def close(self) -> None:
        """Closes the socket. Safe to call twice."""
        self._unwatch()
        self.unsent = memoryview(b"")
        self.socket.close()


def profile_of(source: str, hash_seed: int = 0) -> Profile:
    """Returns the zygote for a program: numpy's only where it is imported, since forking it costs more."""
    return Profile(bool(_IMPORTS_NUMPY.search(source)), hash_seed)


def wall_limit(cpu_seconds: float) -> float:
    """Returns wall seconds after which a process that has not used `cpu_seconds` of CPU time counts as asleep."""
    return WALL_FACTOR * cpu_seconds + WALL_SECONDS
