"""What a run prints, which only shows how it goes: a full disk or a closed pipe under it ends no run."""

import sys
from collections.abc import Callable
from typing import Any, TextIO

from codea1.runtime.errors import say


class LossyStream:
    """A text stream of which is lost what cannot be written; says so once, on stderr."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._has_said = stream, False

    def write(self, text: str) -> int:
        self._attempt(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, function: Callable[..., object], *arguments: str) -> None:
        try:
            function(*arguments)
        except OSError as error:
            if not self._has_said:
                self._has_said = True
                say(
                    f"{self._stream.name} cannot be written ({error.strerror}): the run goes on, what it shows is lost."
                )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def may_be_lost() -> None:
    """Lets stdout and stderr of this process fail, until it ends: what it makes is in files."""
    sys.stdout, sys.stderr = (stream and LossyStream(stream) for stream in (sys.stdout, sys.stderr))
