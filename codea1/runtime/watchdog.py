"""A thread that sees when nothing gets on any more: it tells what hangs, and in the end asks for a restart."""

import faulthandler
import os
import sys
import threading
from collections.abc import Mapping

from codea1.runtime import phases
from codea1.runtime.errors import RESTART_EXIT_CODE

_LONGEST_LOOK = 10.0  # seconds between looks, at most
_LOOKS_PER_LIMIT = 8


class Watchdog:
    """Watches this process while it is open; each host of a run has its own. A context manager.

    Time is counted by its own looks: a process that was suspended as a whole, and goes on, was not hanging.
    """

    def __init__(self, limits: Mapping[str, float], host: int = 0) -> None:
        """Prepares to watch.

        Args:
          limits: `config.watchdog`: seconds without progress, by the name of the activity; 0: any. Its "restart_after"
            is how long after the telling the process ends with the restart code; 0: never.
          host: which host of the run this is, for the telling.
        """
        self._limits = {name: float(limit) for name, limit in limits.items() if limit}
        self._restart_after = self._limits.pop("restart_after", None)
        self._host = host
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="codea1-watchdog", daemon=True)
        self._seen: tuple[phases.Activity, float] | None = None  # the innermost, and when it had moved
        self._still = 0.0  # seconds for which that has been so
        self._told = False

    def __enter__(self) -> "Watchdog":
        if self._limits:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        shortest = min(filter(None, [*self._limits.values(), self._restart_after]))
        between = min(_LONGEST_LOOK, shortest / _LOOKS_PER_LIMIT)
        while not self._closed.wait(between):
            self._look(between)

    def _look(self, seconds: float) -> None:
        activities = phases.now()
        seen = (activities[-1], activities[-1].moved) if activities else None
        if seen is None or seen != self._seen:
            self._seen, self._still, self._told = seen, 0.0, False
            return
        self._still += seconds
        limit = self._limits.get(activities[-1].name)
        if limit is None or self._still < limit:
            return
        if not self._told:
            self._told = True
            self._tell(activities)
        if self._restart_after and self._still >= limit + self._restart_after:
            self._say(f"ends, to be started again (exit code {RESTART_EXIT_CODE})")
            os._exit(RESTART_EXIT_CODE)

    def _tell(self, activities: tuple[phases.Activity, ...]) -> None:
        what = " > ".join(each.name for each in activities)
        self._say(f"has made no progress for {self._still:.0f} s in: {what}. All its threads:")
        faulthandler.dump_traceback(sys.__stderr__)

    def _say(self, sentence: str) -> None:
        print(f"watchdog: host {self._host} {sentence}", file=sys.__stderr__, flush=True)
