"""The one thread that carries all gradings: it starts children, moves their bytes and watches their clocks."""

import contextlib
import selectors
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence

from codea1.sandbox.host.run import Channel, Run
from codea1.sandbox.host.zygote import Child, Profile, Started, Zygote
from codea1.sandbox.isolation.levels import Isolation

EVENTS = ("gradings", "timeouts", "deaths", "violations", "zygotes_lost", "restarts", "infra")
# Summed over gradings: waiting for a slot, holding one. Of the clock: with at least one grading under way.
SECONDS = ("queue_seconds", "run_seconds", "busy_seconds")
MAX_QUEUED = 1 << 14  # gradings; who submits more waits
_MAX_RESTARTS = 3  # of the loop without a grading finished between them
_CHILDREN_PER_RUN = 2  # at most: a check script's run has two
_MAX_ATTEMPTS = 2  # of one grading, when a zygote is lost or a child killed under it
_MAX_KILLS = 2  # of one grading's children: then its program is what gets them killed
_MIN_WAIT, _MAX_WAIT = 0.002, 1.0  # seconds between looks at the clocks
_STANDSTILL = 1.0  # seconds that a turn of the loop may be late; beyond them it has stood still
_MIN_BACKOFF, _MAX_BACKOFF = 0.01, 1.0  # seconds between attempts to start processes where there was no room for one
_MAX_SHORTAGE = 60.0  # seconds without any room, after which a grading has failed


class Dispatcher:
    """An event loop in a thread of its own; only `submit`, `close`, `counters` and `failure` are for other threads."""

    def __init__(self, slots: int, isolation: Isolation, profiles: Sequence[Profile]) -> None:
        """`slots` gradings run at once; the zygotes of `profiles` start right away, others when first needed."""
        self.counters: dict[str, float] = dict.fromkeys(EVENTS + SECONDS, 0)
        self.failure = ""  # why a zygote last failed to work at all
        self._slots = slots
        self._isolation = isolation
        self._queue: deque[Run] = deque()
        self._active: set[Run] = set()
        self._owners: dict[Child, Run] = {}
        self.now = self._ticked = time.monotonic()  # see `_tick`
        self._backoff = 0.0  # seconds to wait with new processes after the next failure to start one, at least
        self._resume_at = 0.0  # monotonic time until which no grading begins
        self._zygotes: dict[Profile, Zygote] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain_wakes)
        self._closing = False
        self._error: BaseException | None = None
        self._restarts = 0  # since a grading last finished
        self._busy_since: float | None = None
        self._lock = threading.Lock()  # guards the queue against the loop's end
        self._room = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._main, args=(profiles,), name="codea1-sandbox", daemon=True)
        self._thread.start()

    def submit(self, run: Run) -> None:
        """Queues a run, when there is room for it. Raises RuntimeError when the dispatcher is closed or broke down.

        A future's callback, which runs in the dispatcher's own thread, does not wait for room.
        """
        with self._room:
            if threading.current_thread() is not self._thread:
                self._room.wait_for(lambda: self._closing or len(self._queue) < MAX_QUEUED)
            if self._closing:
                raise RuntimeError("the sandbox is closed") from self._error
            run.queued = time.monotonic()
            self._queue.append(run)
        self._wake_up()

    def close(self) -> None:
        """Kills every sandbox process; gradings that are not finished fail with RuntimeError."""
        with self._room:
            self._closing = True
            self._room.notify_all()
        self._wake_up()
        self._thread.join()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake up anyway; closed: it is past waking
            self._wake.send(b"\0", socket.MSG_DONTWAIT)

    # What runs ask for: the Desk protocol.

    def spawn(
        self, run: Run, profile: Profile, sockets: Sequence[socket.socket], cpu_seconds: int, memory_bytes: int
    ) -> Child:
        zygote = self._zygotes.get(profile) or self._start_zygote(profile)
        child = zygote.start(sockets, cpu_seconds, memory_bytes)
        self._owners[child] = run
        run.children.add(child)
        return child

    def end(self, child: Child) -> None:
        child.zygote.end(child)

    def watch(self, channel: Channel, run: Run) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.unsent else 0)
        register = self._selector.modify if channel.watched else self._selector.register
        register(channel.socket, events, lambda: self._carry(run, lambda: run.on_socket(self)))
        channel.watched = True

    def unwatch(self, channel: Channel) -> None:
        if channel.watched:
            channel.watched = False
            self._selector.unregister(channel.socket)
        channel.socket.close()

    def finish(self, run: Run) -> None:
        self._active.discard(run)
        self._restarts = 0
        self.count("gradings")
        self.counters["run_seconds"] += time.monotonic() - run.began

    def lose(self, zygote: Zygote) -> None:
        if self._zygotes.get(zygote.profile) is not zygote:
            return
        self.count("zygotes_lost")
        self.failure = zygote.failure or self.failure
        del self._zygotes[zygote.profile]
        self._selector.unregister(zygote.control)
        zygote.stop()
        for run in {self._owners[child] for child in zygote.children.values() if child in self._owners}:
            self._begin_again(run, "its zygote was lost")

    def try_again(self, run: Run) -> bool:
        run.kills += 1
        if run.kills >= _MAX_KILLS:
            return False
        self._begin_again(run, "its process was killed")
        return True

    def count(self, event: str) -> None:
        self.counters[event] += 1

    # The loop.

    def _main(self, profiles: Sequence[Profile]) -> None:
        try:
            with contextlib.suppress(OSError):  # then the first run that needs one fails too, and tells
                for profile in profiles:
                    self._start_zygote(profile)
            while not self._closing:
                try:
                    self._admit()
                    self._count_busy_seconds()
                    wait = self._check_limits()
                    for zygote in self._zygotes.values():
                        self._heed(zygote)
                    events = self._selector.select(wait)
                    self._tick(wait)
                    for key, _ in events:
                        if key.fileobj.fileno() >= 0:  # closed by an earlier event of this batch
                            key.data()
                except Exception:  # a bug: what was running runs again, for it may never come up again
                    self._restart()
        except BaseException as error:  # nobody may be left waiting for a result
            self._error = error
            raise
        finally:
            self._shut_down()

    def _tick(self, waited: float) -> None:
        """Moves the clock of `now` on by what has passed, but by no more than a second beyond what was to be waited.

        In the rest the machine, or this thread, stood still, and what the children did was not to be seen.
        """
        ticked = time.monotonic()
        self.now += min(ticked - self._ticked, waited + _STANDSTILL)
        self._ticked = ticked

    def _restart(self) -> None:
        """Begins anew with new zygotes, when an exception has left nobody knows what. Raises it if that is no use."""
        self._restarts += 1
        if self._restarts > _MAX_RESTARTS:
            raise
        traceback.print_exc()
        self.count("restarts")
        for zygote in list(self._zygotes.values()):
            self.lose(zygote)
        for run in list(self._active):
            self._begin_again(run, "the dispatcher failed")

    def _admit(self) -> None:
        if self._resume_at > time.monotonic():
            return
        while self._queue and len(self._active) < self._slots and not self._resume_at > time.monotonic():
            with self._room:
                run = self._queue.popleft()
                self._room.notify()
            if run.attempts or run.short_since or run.future.set_running_or_notify_cancel():
                run.attempts += 1
                run.began = time.monotonic()
                self.counters["queue_seconds"] += run.began - run.queued
                self._active.add(run)
                self._carry(run, lambda run=run: run.begin(self))

    def _count_busy_seconds(self) -> None:
        now = time.monotonic()
        if self._busy_since is not None:
            self.counters["busy_seconds"] += now - self._busy_since
        self._busy_since = now if self._active else None

    def _check_limits(self) -> float:
        """Looks at the runs whose time has come; returns the seconds until the next's."""
        for run in [run for run in self._active if run.due <= self.now]:
            if run.patience and self.now > run.patience:
                for child in list(run.children):
                    self.lose(child.zygote)
            if run in self._active:
                self._carry(run, lambda run=run: self._check(run))
        wait = min((run.due for run in self._active), default=self.now + _MAX_WAIT) - self.now
        if self._queue and self._resume_at:
            wait = min(wait, self._resume_at - time.monotonic())
        return min(max(wait, _MIN_WAIT), _MAX_WAIT)

    def _check(self, run: Run) -> None:
        run.due = self.now + run.check(self)

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def _start_zygote(self, profile: Profile) -> Zygote:
        zygote = Zygote(profile, self._isolation, _CHILDREN_PER_RUN * self._slots)
        self._zygotes[profile] = zygote
        self._selector.register(zygote.control, selectors.EVENT_READ, lambda: self._hear(zygote))
        return zygote

    def _heed(self, zygote: Zygote) -> None:
        """Looks for room for a zygote's requests, where some are unsent, as well as for its messages."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if zygote.unsent else 0)
        if self._selector.get_key(zygote.control).events != events:
            self._selector.modify(zygote.control, events, lambda: self._hear(zygote))

    def _hear(self, zygote: Zygote) -> None:
        zygote.flush()
        try:
            message = zygote.receive()
        except EOFError:
            self.lose(zygote)
            return
        run = self._owners.get(message.child) if message is not None else None
        if run is None:
            return
        if isinstance(message, Started):
            if message.ok:
                self._carry(run, lambda: run.on_started(self))
                if not run.patience:  # all its children are there
                    run.short_since = self._backoff = self._resume_at = 0.0
            else:
                self._postpone(run, "no process could be started for it")
            return
        del self._owners[message.child]
        run.children.discard(message.child)
        if message.failure:
            self.failure = message.failure
            self._begin_again(run, message.failure)
        else:
            self._carry(run, lambda: run.on_ended(self, message))

    def _carry(self, run: Run, step: Callable[[], None]) -> None:
        """Takes a step of a run. The machine may have no room for another process; a bug costs this run alone."""
        run.due = self.now
        try:
            step()
        except OSError as error:
            self._postpone(run, str(error))
        except Exception as error:
            traceback.print_exc()
            self.count("restarts")
            self._begin_again(run, f"the sandbox has a bug: {error!r}")

    def _postpone(self, run: Run, why: str) -> None:
        """Takes a run back to the queue, since the machine has no room for its processes now, and waits a while."""
        now = time.monotonic()
        self._backoff = min(max(2 * self._backoff, _MIN_BACKOFF), _MAX_BACKOFF)
        self._resume_at = now + self._backoff
        run.short_since = run.short_since or now
        if now - run.short_since < _MAX_SHORTAGE:
            run.attempts -= 1
        self._begin_again(run, why)

    def _begin_again(self, run: Run, why: str) -> None:
        """Takes a run that lost a child for no fault of its own back to the queue, or gives it up."""
        for child in run.children:
            del self._owners[child]
            self.end(child)
        run.children.clear()
        run.abandon(self)
        self._active.discard(run)
        if run.attempts < _MAX_ATTEMPTS:
            run.queued = time.monotonic()
            self._queue.appendleft(run)
        else:
            self.count("infra")
            run.fail(why)

    def _shut_down(self) -> None:
        with self._room:
            self._closing = True
            self._room.notify_all()
            unfinished = [*self._active, *self._queue]
        for run in self._active:
            run.abandon(self)
        for zygote in self._zygotes.values():
            zygote.stop()
        for run in unfinished:
            if not run.future.cancel():
                run.future.set_exception(RuntimeError("the sandbox was closed"))
        self._selector.close()
        self._wake.close()
        self._woken.close()
