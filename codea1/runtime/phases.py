"""What this process is doing, and how long each phase of a step takes.

The main thread alone says what is being done, for the watchdog, which must tell a slow process from one that hangs.
What nests is told from the outside in: "step 7", "rollout", "collective".
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Activity:
    """One thing that is being done, and when, by `time.monotonic`, it last got on."""

    name: str
    began: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)


_activities: list[Activity] = []  # the innermost is the last


@contextmanager
def doing(name: str) -> Iterator[None]:
    """Says that what happens inside is `name`; those that have a limit are in `config.watchdog`."""
    _activities.append(Activity(name))
    try:
        yield
    finally:
        _activities.pop()
        progress()


def progress() -> None:
    """Says that the innermost activity gets on."""
    if _activities:
        _activities[-1].moved = time.monotonic()


def now() -> tuple[Activity, ...]:
    """What is being done, from the outside in; any thread may ask."""
    return tuple(_activities)
