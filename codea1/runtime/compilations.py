"""Programs that a call had to compile first, and how long that took."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Compilation:
    """One program that was compiled."""

    name: str  # with its static sizes
    seconds: float  # of the call that compiled it


def noted(compilations: list[Compilation], name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a jitted `function` returns; if the call compiles it, that is added to `compilations`."""
    known, started = function._cache_size(), time.monotonic()
    result = function(*arguments)
    if function._cache_size() > known:
        compilations.append(Compilation(name, time.monotonic() - started))
    return result
