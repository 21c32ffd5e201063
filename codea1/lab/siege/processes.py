"""A grader in a process of its own, which may die or hang without ending a siege."""

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codea1.runtime.errors import BadInput

PAID, NOT_PAID, DIED, NOT_ASKED = "paid", "not paid", "died", "not asked"
_WORKER = Path(__file__).with_name("worker.py")
_SAID = {True: PAID, False: NOT_PAID, None: NOT_ASKED}


@dataclass(frozen=True)
class GraderCommand:
    """How the process of a grader is started."""

    words: Sequence[str]
    forks: bool  # each program runs in a fork of its own, which runs the earlier programs that come with the request

    @classmethod
    def read(cls, grader: str, python: str = sys.executable) -> "GraderCommand":
        """Reads `path.py:function`, for which `python` is started, or a command.

        A word of a command that names a file becomes its absolute path: the process runs in another folder.
        Raises BadInput where there is no such file.
        """
        path, colon, function = grader.rpartition(":")
        if colon and path.endswith(".py") and function.isidentifier():
            if not os.path.isfile(path):
                raise BadInput(f"grader {grader}: there is no file {path}.")
            return cls([python, str(_WORKER), os.path.abspath(path), function], forks=True)
        try:
            words = shlex.split(grader)
        except ValueError as error:
            raise BadInput(f"grader {grader!r} is no command: {error}.") from None
        if not words or (len(words) == 1 and words[0].endswith(".py") and not os.access(words[0], os.X_OK)):
            raise BadInput(f"the grader {grader!r} is no command: name a function, as path.py:function, or a command.")
        return cls([os.path.abspath(word) if os.path.isfile(word) else word for word in words], forks=False)


class GraderProcess:
    """The process of a grader; it is started again after it died or gave no verdict in time."""

    def __init__(self, command: GraderCommand, seconds: float) -> None:
        """
        Args:
          command: of the grader.
          seconds: a verdict may take.
        """
        self._command, self._seconds = command, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="siege-", ignore_cleanup_errors=True)
        self._buffer, self._asked = b"", 0

    def ask(self, question: Mapping[str, Any], program: str, earlier: Sequence[str] = ()) -> tuple[str, str]:
        """Returns PAID, NOT_PAID, DIED or NOT_ASKED for a program, and why where it died.

        Raises BadInput where the grader cannot be started at all.
        """
        try:
            if self._command.forks:
                return self._verdict({"question": question, "program": program, "earlier": earlier})
            for previous in earlier:
                self._verdict({"question": question, "program": previous})
            return self._verdict({"question": question, "program": program})
        except (EOFError, BrokenPipeError):
            self.end()
            return DIED, "the grader's process ended"
        except TimeoutError:
            self.end()
            return DIED, f"no verdict within {self._seconds:g} s"

    def end(self) -> None:
        """Ends the process, and what it started in its session. What left the session may keep the pipes open."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()  # type: ignore[union-attr]
            self._process.wait()
        self._process, self._buffer = None, b""

    def _verdict(self, request: dict[str, Any]) -> tuple[str, str]:
        process = self._started()
        assert process.stdin is not None
        self._asked += 1
        id = f"{os.getpid()}-{process.pid}-{self._asked}"
        process.stdin.write(json.dumps({"id": id, **request}).encode() + b"\n")
        process.stdin.flush()
        deadline = time.monotonic() + self._seconds
        while True:
            answer = self._answer(deadline)
            if answer.get("id") != id:
                continue
            if "broken" in answer:
                raise BadInput(f"the grader cannot be loaded: {answer['broken']}.")
            if "died" in answer:
                return DIED, str(answer["died"])
            if "ended" in answer:
                return DIED, f"the grader's process ended with code {answer['ended']}"
            if "unclear" in answer:
                raise BadInput(f"the grader returned {answer['unclear']}; it must return True, False or None.")
            paid = answer.get("paid", "nothing")
            if paid is not None and not isinstance(paid, bool):
                raise BadInput(f"the grader answered {paid!r} where paid must be true, false or null.")
            return _SAID[paid], ""

    def _answer(self, deadline: float) -> dict[str, Any]:
        """Returns the next line that is a JSON object. Raises EOFError or TimeoutError where none comes."""
        assert self._process is not None
        assert self._process.stdout is not None
        stdout = self._process.stdout.fileno()
        while True:
            line, end, rest = self._buffer.partition(b"\n")
            if end:
                self._buffer = rest
                with contextlib.suppress(ValueError):
                    answer = json.loads(line)
                    if isinstance(answer, dict):
                        return answer
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise TimeoutError
            data = os.read(stdout, 1 << 16)
            if not data:
                raise EOFError
            self._buffer += data

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            paths = filter(None, (os.getcwd(), os.environ.get("PYTHONPATH")))
            try:
                self._process = subprocess.Popen(
                    self._command.words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd=self._folder.name,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                    start_new_session=True,
                )
            except OSError as error:
                raise BadInput(f"the grader cannot be started: {error}.") from error
        return self._process
