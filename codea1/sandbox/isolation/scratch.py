"""The places where children live: what files each may read, and the folder, if any, that it may write to.

Standard library only: this runs inside the sandbox.
"""

import os
from collections.abc import Sequence

from codea1.sandbox.isolation import landlock
from codea1.sandbox.isolation.levels import Isolation


class Place:
    """What one child at a time may read and write."""

    def __init__(self, ruleset: landlock.Ruleset | None, scratch: str | None) -> None:
        self._ruleset = ruleset
        self._scratch = scratch

    def settle(self) -> None:
        """Confines this process, a new child, to the place, for good."""
        if self._scratch is not None:
            os.chdir(self._scratch)
        if self._ruleset is not None:
            self._ruleset.restrict_self()

    def clear(self) -> None:
        """Empties the scratch, whose child is dead."""
        if self._scratch is None:
            return
        while names := os.listdir(self._scratch):
            for name in names:
                self._remove(os.path.join(self._scratch, name))

    def _remove(self, path: str) -> None:
        """Removes a file; or a folder, whose contents move up, however deep it is: paths stay short."""
        try:
            os.unlink(path)
        except IsADirectoryError:
            for name in os.listdir(path):
                os.rename(os.path.join(path, name), os.path.join(self._scratch, os.urandom(16).hex()))
            os.rmdir(path)


def make_places(isolation: Isolation, readable: Sequence[str], scratches: Sequence[str]) -> list[Place]:
    """One place for each scratch folder, or else the one that all children share. Raises OSError."""
    folders = scratches if isolation.has_scratch else [None]
    return [Place(_ruleset(isolation, readable, folder), folder) for folder in folders]


def _ruleset(isolation: Isolation, readable: Sequence[str], scratch: str | None) -> landlock.Ruleset | None:
    if not isolation.landlock:
        return None
    return landlock.Ruleset(readable, [] if scratch is None else [scratch, os.devnull])
