"""What this process is doing, how long that takes, and a watchdog that ends it where it makes no progress.

The main thread alone says what is being done. What nests is listed from the outside in: "step 7", "rollout",
"collective".
"""

import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
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


def told() -> str:
    """Returns what is being done, from the outside in, for people; any thread may call it."""
    return " > ".join(activity.name for activity in tuple(_activities))


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


@contextmanager
def watchdog(restart_after: float, host: int = 0, end: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Detects a stalled activity, dumps all stacks, and later exits with the restart code.

    Each host of a run has its own. Time is counted by its own looks: a process that was suspended as a whole, and
    continues, was not stalled.

    Args:
      restart_after: seconds after the dump at which the process exits; 0: never.
      host: index of this host, for the message.
      end: called with what stalled before this process exits for a collective; may exit itself.
    """
    closed = threading.Event()
    watching = (closed, restart_after, host, end)
    thread = threading.Thread(target=_watch, args=watching, name="codea1-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        thread.join()


def _watch(closed: threading.Event, restart_after: float, host: int, end: Callable[[str], None]) -> None:
    shortest = min(filter(None, [*LIMITS.values(), restart_after]))
    between = min(_LONGEST_LOOK, shortest / _LOOKS_PER_LIMIT)
    seen: tuple[Activity, float] | None = None  # the innermost, and its `moved`
    still, has_dumped = 0.0, False  # seconds for which that has been so
    while not closed.wait(between):
        activities = tuple(_activities)
        before, seen = seen, (activities[-1], activities[-1].moved) if activities else None
        if seen is None or seen != before:
            still, has_dumped = 0.0, False
            continue
        still += between
        name = seen[0].name
        limit = LIMITS.get(name, math.inf)
        if still >= limit and not has_dumped:
            has_dumped = True
            say(f"watchdog: host {host} has made no progress for {still:.0f} s in: {told()}. All its threads:")
            faulthandler.dump_traceback(sys.__stderr__ or 2)
        if restart_after and still >= limit + restart_after:
            say(f"watchdog: host {host} ends, to be started again (exit code {RESTART_EXIT_CODE})")
            if name == "collective":
                end(told())
            os._exit(RESTART_EXIT_CODE)
