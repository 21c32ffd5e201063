"""A job of the paper's plan while it runs: its process, its log, and its starts after the first."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from codea1.paper.commands import Job
from codea1.runtime.errors import RESTART_EXIT_CODE

_ATTEMPTS = 3


class RunningJob:
    """A process of a job; one that asks to be started again is, a few times."""

    def __init__(self, job: Job, python: str, log: Path):
        """Starts the job.

        Args:
          python: the interpreter that runs it.
          log: file that what it says is added to.

        Raises:
          OSError: the interpreter cannot be started, or the log cannot be written.
        """
        self.job, self.log = job, log
        self._command: Sequence[str] = (python, *job.arguments)
        self._attempts = 0
        self._began = time.monotonic()
        self._process = self._start()

    @property
    def seconds(self) -> float:
        """Since the first start."""
        return time.monotonic() - self._began

    def exit_code(self) -> int | None:
        """The exit code of the last attempt; None while there is one that runs."""
        code = self._process.poll()
        if code == RESTART_EXIT_CODE and self._attempts < _ATTEMPTS:
            self._process = self._start()
            return None
        return code

    def terminate(self) -> None:
        """Asks the process to save what it has and end."""
        self._process.terminate()

    def wait(self) -> None:
        """Returns once the process has ended."""
        self._process.wait()

    def last_line(self) -> str:
        """What the job said last."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def _start(self) -> subprocess.Popen[bytes]:
        self._attempts += 1
        with self.log.open("ab") as output:
            # In a session of its own, so that the terminal's ^Z and ^C reach it through its parent and not twice.
            return subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
