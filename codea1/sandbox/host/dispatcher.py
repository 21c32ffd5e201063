"""The one thread that carries all gradings: it starts their children, watches their sockets and their clocks.

Another one completes their futures, whose callbacks take as long as they please: the clocks of other gradings run.
"""

import contextlib
import math
import queue
import selectors
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from codea1.sandbox.host.memory_cgroup import MemoryCgroup
from codea1.sandbox.host.zygote import Child, Ended, Profile, Zygote
from codea1.sandbox.isolation import Isolation

T = TypeVar("T")
Waiting = Generator[float, None, T]  # yields the seconds for which it can wait, and returns a T

EVENTS = ("gradings", "timeouts", "deaths", "violations", "starved", "zygotes_lost", "restarts", "infra")
# Summed over gradings: waiting for a slot, holding one. Of the clock: with at least one grading under way.
SECONDS = ("queue_seconds", "run_seconds", "busy_seconds")
MAX_QUEUED = 1 << 14  # gradings; `submit` waits beyond them
_MAX_RESTARTS = 3  # of the loop without a grading finished between them
_CHILDREN_PER_GRADING = 2  # at most: a check script's has two
_MAX_ATTEMPTS = 2  # of one grading among others, when a zygote is lost or a child killed under it; as many then alone
_STARVED = 0.1  # share of a grading's time without a free core, from which on a time limit is not the program's doing
_MIN_WAIT, _MAX_WAIT = 0.002, 1.0  # seconds between looks at the clocks
_STANDSTILL = 1.0  # seconds that a turn of the loop may be late; beyond them it has stood still
_MIN_BACKOFF, _MAX_BACKOFF = 0.01, 1.0  # seconds between attempts to start processes where there was no room for one
_MAX_SHORTAGE = 60.0  # seconds without any room, after which a grading has failed


class KilledByOthers(Exception):
    """Another process killed a child of a grading, which begins again."""


class Starved(Exception):
    """A grading ran out of time, not of CPU time, because others kept it waiting: it begins again, alone."""


class ZygoteStuck(Exception):
    """A zygote has not answered a grading for long: all its gradings begin again with another."""


class Runnable(Protocol):
    """What a grading does."""

    def steps(self, task: "GradingTask") -> Waiting[Any]:
        """Makes the generator that grades, see `codea1.sandbox.host.conversation`; called for each attempt."""

    def lost(self, why: str) -> object:
        """Makes the result that says that the sandbox failed."""


class GradingTask:
    """One grading, from the queue to its future's result: its steps, and what they ask of the dispatcher."""

    def __init__(self, run: Runnable, dispatcher: "Dispatcher") -> None:
        self.run, self.dispatcher = run, dispatcher
        self.future: Future = Future()
        self.steps: Waiting[Any]  # of the attempt under way, from the first on
        self.attempts = 0
        self.is_alone = dispatcher.slots == 1  # judged without other gradings
        self.attempts_alone = 0  # of the attempts
        self.kills_alone = 0  # of its children, by other processes
        self.children: set[Child] = set()  # that are not known to be dead
        self.waited = 0.0  # seconds for which this attempt's children found no free core, as last seen
        self.waited_before = 0.0  # of them, those of children that are dead
        self.queued = self.began = 0.0  # monotonic times
        self.short_since = 0.0  # monotonic time since which the machine has had no room for it; 0 where it has
        self.due = 0.0  # time of the dispatcher's clock at which its steps go on at the latest

    @property
    def now(self) -> float:
        """Seconds of a clock that stands still while the dispatcher does, and while its children wait for a core.

        The latter as far as was seen: see `see_waiting`.
        """
        return self.dispatcher.now - self.waited

    def see_waiting(self) -> bool:
        """Looks how long its children have waited for a core; returns whether one of them could run right now."""
        can_run = [child.see_waiting() for child in self.children]
        self.waited = self.waited_before + sum(child.waited for child in self.children)
        return any(can_run)

    def require_cores(self) -> None:
        """Raises Starved where its children did not get the cores that they would have had alone."""
        if not self.is_alone and self.waited >= _STARVED * (self.dispatcher.now - self.began):
            raise Starved

    def count(self, event: str) -> None:
        """Counts one of EVENTS."""
        self.dispatcher.counters[event] += 1

    def accept_end(self, ended: Ended) -> None:
        """Takes a child's early end for its own doing. Raises KilledByOthers where it may be that of others.

        Where it is killed whenever it is alone, its program is what gets it killed.
        """
        if ended.was_killed:
            self.kills_alone += self.is_alone
            if self.kills_alone < _MAX_ATTEMPTS:
                raise KilledByOthers


class Dispatcher:
    """An event loop in a thread of its own; only `submit`, `close`, `counters` and `failure` are for other threads.

    Callbacks of futures run in a second thread of its own.
    """

    def __init__(self, slots: int, isolation: Isolation, profiles: Sequence[Profile], largest_child: int) -> None:
        """Runs `slots` gradings at once; the zygotes of `profiles` start right away, others when first needed.

        `largest_child` is what one child may use, in bytes: see `MemoryCgroup`.
        """
        self.counters: dict[str, float] = dict.fromkeys(EVENTS + SECONDS, 0)
        self.failure = ""  # why a zygote last failed to work at all
        self.slots = slots
        self._isolation = isolation
        self.memory = MemoryCgroup(largest_child)
        self._queue: deque[GradingTask] = deque()
        self._active: set[GradingTask] = set()
        self._owners: dict[Child, GradingTask] = {}
        self.now = self._ticked = time.monotonic()  # see `_tick`
        self._backoff = 0.0  # seconds to wait with new processes after the next failure to start one, at least
        self._resume_at = 0.0  # monotonic time until which no grading begins
        self._zygotes: dict[Profile, Zygote] = {}
        self._selector = selectors.DefaultSelector()
        self._wakeup_write, self._wakeup_read = socket.socketpair()
        self._wakeup_read.setblocking(False)
        self._selector.register(self._wakeup_read, selectors.EVENT_READ, self._drain_wakeups)
        self._closing = False
        self._error: BaseException | None = None
        self._restarts = 0  # since a grading last finished
        self._busy_since: float | None = None
        self._room = threading.Condition()  # in the queue; its lock guards that against the loop's end
        self._finished: queue.SimpleQueue[tuple[Future, Any] | None] = queue.SimpleQueue()  # None after the last
        self._completing = threading.Thread(target=self._complete, name="codea1-verdicts", daemon=True)
        self._completing.start()
        self._thread = threading.Thread(target=self._main, args=(profiles,), name="codea1-sandbox", daemon=True)
        self._thread.start()

    def submit(self, run: Runnable) -> Future:
        """Queues a grading, when there is room for it. Raises RuntimeError: the dispatcher is closed or broke down."""
        task = GradingTask(run, self)
        with self._room:
            self._room.wait_for(lambda: self._closing or len(self._queue) < MAX_QUEUED)
            if self._closing:
                raise RuntimeError("the sandbox is closed") from self._error
            task.queued = time.monotonic()
            self._queue.append(task)
        self._wake_up()
        return task.future

    def close(self) -> None:
        """Kills every sandbox process; gradings that are not finished fail with RuntimeError."""
        with self._room:
            self._closing = True
            self._room.notify_all()
        self._wake_up()
        self._thread.join()
        if threading.current_thread() is not self._completing:
            self._completing.join()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake up anyway; closed: it is past waking
            self._wakeup_write.send(b"\0", socket.MSG_DONTWAIT)

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup_read.recv(4096):
                pass

    # What the steps of gradings ask for.

    def start_child(
        self,
        task: GradingTask,
        profile: Profile,
        sockets: Sequence[socket.socket],
        cpu_seconds: float,
        memory_bytes: int,
    ) -> Child:
        """Asks for a child that owns `sockets`.

        The grading enforces `cpu_seconds`; the kernel's limit is behind that, for its ticks may be ahead of the clock.
        """
        zygote = self._zygotes.get(profile) or self._start_zygote(profile)
        child = zygote.start(sockets, 2 * math.ceil(cpu_seconds) + 2, memory_bytes)
        self._owners[child] = task
        task.children.add(child)
        return child

    def watch(self, end: socket.socket, ready: Callable[[], None], *, for_room: bool) -> None:
        """Calls `ready` when there is something to read from a socket or, `for_room`, room to write."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if for_room else 0)
        if end in self._selector.get_map():
            self._selector.modify(end, events, ready)
        else:
            self._selector.register(end, events, ready)

    def unwatch(self, end: socket.socket) -> None:
        """Stops watching a socket."""
        self._selector.unregister(end)

    # The loop.

    def _main(self, profiles: Sequence[Profile]) -> None:
        try:
            with contextlib.suppress(OSError):  # then the first grading that needs one reports the error
                for profile in profiles:
                    self._start_zygote(profile)
            while not self._closing:
                try:
                    self._admit()
                    now = time.monotonic()
                    if self._busy_since is not None:
                        self.counters["busy_seconds"] += now - self._busy_since
                    self._busy_since = now if self._active else None
                    wait = self._advance_due()
                    for zygote in self._zygotes.values():
                        if zygote.unsent:  # requests for which there was no room
                            self.watch(zygote.control, partial(self._receive, zygote), for_room=True)
                    events = self._selector.select(wait)
                    self._tick(wait)
                    for key, _ in events:
                        assert isinstance(key.fileobj, socket.socket)
                        if key.fileobj.fileno() >= 0:  # closed by an earlier event of this batch
                            key.data()
                except Exception:  # a bug: what was running runs again, for it may never come up again
                    self._restart()
        except BaseException as error:  # no future may be left without a result
            self._error = error
            raise
        finally:
            self._shut_down()

    def _admit(self) -> None:
        """Begins gradings that wait, as far as there are slots."""
        while self._queue and len(self._active) < self.slots and self._resume_at <= time.monotonic():
            if self._active and (self._queue[0].is_alone or any(task.is_alone for task in self._active)):
                break  # until the pool is empty
            with self._room:
                task = self._queue.popleft()
                self._room.notify()
            if task.attempts or task.short_since or task.future.set_running_or_notify_cancel():
                task.attempts += 1
                task.attempts_alone += task.is_alone
                task.began = self.now
                self.counters["queue_seconds"] += time.monotonic() - task.queued
                self._active.add(task)
                task.steps = task.run.steps(task)
                self.advance(task)

    def _advance_due(self) -> float:
        """Goes on with the gradings whose time has come; returns the seconds until the next's."""
        for task in [task for task in self._active if task.due <= self.now]:
            if task in self._active:
                self.advance(task)
        wait = min((task.due for task in self._active), default=self.now + _MAX_WAIT) - self.now
        if self._queue and self._resume_at:
            wait = min(wait, self._resume_at - time.monotonic())
        return min(max(wait, _MIN_WAIT), _MAX_WAIT)

    def advance(self, task: GradingTask) -> None:
        """Goes on with a grading. The machine may have no room for another process; a bug costs this grading alone."""
        try:
            task.due = self.now + next(task.steps)
        except StopIteration as stop:
            self._active.discard(task)
            self._restarts = 0
            self.counters["gradings"] += 1
            self.counters["run_seconds"] += self.now - task.began
            self._finished.put((task.future, stop.value))
        except KilledByOthers:
            self._begin_again(task, "its process was killed")
        except Starved:
            self.counters["starved"] += 1
            self._begin_again(task, "it got no core", alone=True)
        except ZygoteStuck:
            for child in list(task.children):
                self._lose(child.zygote)
        except OSError as error:
            self._postpone(task, str(error))
        except Exception as error:
            traceback.print_exc()
            self.counters["restarts"] += 1
            self._begin_again(task, f"the sandbox has a bug: {error!r}")

    def _complete(self) -> None:
        """Completes futures, in a thread of its own, until the dispatcher has closed."""
        for future, result in iter(self._finished.get, None):
            if not isinstance(result, RuntimeError):
                future.set_result(result)
            elif not future.cancel():
                future.set_exception(result)

    def _tick(self, waited: float) -> None:
        """Moves the clock of `now` on by what has passed, but by no more than a second beyond what was to be waited.

        In the rest the machine, or this thread, stood still, and what the children did was not to be seen.
        """
        ticked = time.monotonic()
        self.now += min(ticked - self._ticked, waited + _STANDSTILL)
        self._ticked = ticked

    def _start_zygote(self, profile: Profile) -> Zygote:
        zygote = Zygote(profile, self._isolation, _CHILDREN_PER_GRADING * self.slots, self.memory)
        self._zygotes[profile] = zygote
        self.watch(zygote.control, lambda: self._receive(zygote), for_room=False)
        return zygote

    def _receive(self, zygote: Zygote) -> None:
        """Takes a message of a zygote, and goes on with the grading that it is about."""
        if zygote.unsent:
            zygote.flush()
            self.watch(zygote.control, lambda: self._receive(zygote), for_room=bool(zygote.unsent))
        try:
            child = zygote.receive()
        except EOFError:
            self._lose(zygote)
            return
        task = self._owners.get(child) if child else None
        if child is None or task is None:
            return
        if child.ended:
            del self._owners[child]
            task.children.discard(child)
            task.waited_before += child.waited
            if child.ended.failure:
                self.failure = child.ended.failure
                self._begin_again(task, child.ended.failure)
                return
        elif child.pid < 0:
            self._postpone(task, "no process could be started for it")
            return
        elif all(child.pid for child in task.children):
            task.short_since = self._backoff = self._resume_at = 0.0
        self.advance(task)

    def _postpone(self, task: GradingTask, why: str) -> None:
        """Takes a grading back to the queue, since the machine has no room for its processes now, and waits a while."""
        now = time.monotonic()
        self._backoff = min(max(2 * self._backoff, _MIN_BACKOFF), _MAX_BACKOFF)
        self._resume_at = now + self._backoff
        task.short_since = task.short_since or now
        if now - task.short_since < _MAX_SHORTAGE:
            task.attempts -= 1
            task.attempts_alone -= task.is_alone
        self._begin_again(task, why)

    def _begin_again(self, task: GradingTask, why: str, *, alone: bool = False) -> None:
        """Takes a grading back to the queue for no fault of its own, to be judged `alone` or, soon, in any case.

        Gives it up where it was lost again, alone: among others the cause is unknown.
        """
        task.steps.close()
        for child in task.children:
            del self._owners[child]
            child.zygote.end(child)
        task.children.clear()
        task.waited = task.waited_before = 0.0
        self._active.discard(task)
        if task.attempts_alone >= _MAX_ATTEMPTS:
            self.counters["infra"] += 1
            self._finished.put((task.future, task.run.lost(why)))
        else:
            task.is_alone |= alone or task.attempts >= _MAX_ATTEMPTS
            task.queued = time.monotonic()
            self._queue.appendleft(task)

    def _lose(self, zygote: Zygote) -> None:
        """Gives a zygote up and with it all its children; gradings that had one begin again."""
        if self._zygotes.get(zygote.profile) is not zygote:
            return
        self.counters["zygotes_lost"] += 1
        self.failure = zygote.failure or self.failure
        del self._zygotes[zygote.profile]
        self._selector.unregister(zygote.control)
        zygote.stop()
        for task in {self._owners[child] for child in zygote.children.values() if child in self._owners}:
            self._begin_again(task, "its zygote was lost")

    def _restart(self) -> None:
        """Starts over with new zygotes, when an exception has left an unknown state. Raises it if that is no use."""
        self._restarts += 1
        if self._restarts > _MAX_RESTARTS:
            raise
        traceback.print_exc()
        self.counters["restarts"] += 1
        for zygote in list(self._zygotes.values()):
            self._lose(zygote)
        for task in list(self._active):
            self._begin_again(task, "the dispatcher failed")

    def _shut_down(self) -> None:
        with self._room:
            self._closing = True
            self._room.notify_all()
            unfinished = [*self._active, *self._queue]
        for task in self._active:
            task.steps.close()
        for zygote in self._zygotes.values():
            zygote.stop()
        self.memory.remove()
        for task in unfinished:
            self._finished.put((task.future, RuntimeError("the sandbox was closed")))
        self._finished.put(None)
        self._selector.close()
        self._wakeup_write.close()
        self._wakeup_read.close()
