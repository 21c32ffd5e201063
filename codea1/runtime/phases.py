"""What this process is doing, how long that takes, and a watchdog that ends it where it makes no progress.

The main thread alone says what is being done. What nests is listed from the outside in: "step 7", "rollout",
"collective".
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from codea1.runtime.errors import RESTART_EXIT_CODE, say

# Seconds without progress after which a host of a run tells what it is doing: several times what the slowest of them
# may take of honest work, so that they need not be set; a slow machine has a larger `watchdog.restart_after`.
LIMITS = {
    "compile": 3600.0,  # one player's functions of generation, or of learning
    "rollout": 1800.0,  # a chunk of decoding
    "sandbox": 1800.0,  # the next of the gradings
    "update": 3600.0,  # one player's optimizer steps of a training step
    "collective": 1800.0,  # the other hosts
    "storage": 1800.0,  # a checkpoint, what the run starts from, a step's metrics and samples
}
_LONGEST_LOOK = 10.0  # seconds between looks, at most
_LOOKS_PER_LIMIT = 8


@dataclass(eq=False)
class Activity:
    """One thing that is being done, and when, by `time.monotonic`, it last made progress."""

    name: str
    moved: float = field(default_factory=time.monotonic)


_activities: list[Activity] = []  # the innermost is the last


@contextmanager
def doing(name: str) -> Iterator[None]:
    """Marks what happens inside as `name`; a watchdog limits some names."""
    _activities.append(Activity(name))
    try:
        yield
    except Exception as error:
        vars(error).setdefault("during", told())
        raise
    finally:
        _activities.pop()
        progress()


def progress() -> None:
    """Marks that the innermost activity makes progress."""
    if _activities:
        _activities[-1].moved = time.monotonic()


def now() -> tuple[Activity, ...]:
    """Returns what is being done, from the outside in; any thread may call it."""
    return tuple(_activities)


def told() -> str:
    """Returns what is being done, for people."""
    return " > ".join(phase.name for phase in now())


class Stopwatch:
    """Seconds of wall time by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to phase `name`, which a profiler's trace shows too."""
        import jax  # takes seconds, which wrong flags need not wait for

        started = time.monotonic()
        try:
            with jax.profiler.TraceAnnotation(name):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


class Watchdog:
    """Detects a stalled activity, dumps all stacks, and later exits with the restart code. A context manager.

    Each host of a run has its own. Time is counted by its own looks: a process that was suspended as a whole, and
    continues, was not stalled.
    """

    def __init__(
        self,
        restart_after: float,
        host: int = 0,
        end: Callable[[str], None] = lambda _: None,
        limits: Mapping[str, float] = LIMITS,
    ) -> None:
        """Prepares to watch.

        Args:
          restart_after: seconds after the dump at which the process exits; 0: never.
          host: index of this host, for the message.
          end: called with what stalled before this process exits for a collective; may exit itself.
          limits: seconds without progress after which stacks are dumped, by the name of the activity.
        """
        self._limits, self._restart_after = limits, restart_after
        self._host, self._end = host, end
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="codea1-watchdog", daemon=True)
        self._seen: tuple[Activity, float] | None = None  # the innermost, and its `moved`
        self._still = 0.0  # seconds for which that has been so
        self._dumped = False

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        shortest = min(filter(None, [*self._limits.values(), self._restart_after]))
        between = min(_LONGEST_LOOK, shortest / _LOOKS_PER_LIMIT)
        while not self._closed.wait(between):
            self._look(between)

    def _look(self, seconds: float) -> None:
        activities = now()
        seen = (activities[-1], activities[-1].moved) if activities else None
        if seen is None or seen != self._seen:
            self._seen, self._still, self._dumped = seen, 0.0, False
            return
        self._still += seconds
        limit = self._limits.get(activities[-1].name)
        if limit is None or self._still < limit:
            return
        if not self._dumped:
            self._dumped = True
            self._say(f"has made no progress for {self._still:.0f} s in: {told()}. All its threads:")
            faulthandler.dump_traceback(sys.__stderr__ or 2)
        if self._restart_after and self._still >= limit + self._restart_after:
            self._say(f"ends, to be started again (exit code {RESTART_EXIT_CODE})")
            if activities[-1].name == "collective":
                self._end(told())
            os._exit(RESTART_EXIT_CODE)

    def _say(self, sentence: str) -> None:
        say(f"watchdog: host {self._host} {sentence}")
