"""Requests to stop, as a machine gets one before it is taken away, and the points at which a run acts on them."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

from codea1.runtime.errors import RESTART_EXIT_CODE, say
from codea1.runtime.hosts import Hosts

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SECONDS_BEFORE_END = 5.0
_EXCHANGE_EVERY = 4  # safe points: with several hosts, to look is a collective


class Stopped(Exception):
    """The run was asked to stop. What catches it saves what is not saved yet and raises it again."""


class StopRequest:
    """Holds whether this process was asked to stop; as a context manager, by SIGTERM, SIGINT or SIGHUP.

    A second signal ends the process at once, as does the first while `can_exit_now`. A thread receives both, since the
    main one may be held up for minutes by a compilation, or by a collective that never ends. SIGHUP, of a terminal that
    was closed, may come several times, so a later one does nothing; where it is ignored, as under nohup, it stays so.
    """

    def __init__(self, before_end: Callable[[], None] = lambda: None) -> None:
        """`before_end` is called, for a few seconds at most, where a signal ends the process and no work is lost."""
        self._before_end = before_end
        self.can_exit_now = True  # to end at this moment loses no work
        self._asked = threading.Event()
        self._passed = 0  # safe points

    def ask(self) -> None:
        """Asks to stop at the next safe point."""
        self._asked.set()

    def safe_point(self, hosts: Hosts) -> None:
        """Raises Stopped where a host was asked to stop, on all hosts at the same call.

        A collective. With several hosts only every _EXCHANGE_EVERY-th call looks.
        """
        self._passed += 1
        if hosts.count > 1 and self._passed % _EXCHANGE_EVERY:
            return
        if hosts.any(self._asked.is_set()):
            raise Stopped

    def __enter__(self) -> "StopRequest":
        self._wakeup_read, self._wakeup_write = socket.socketpair()
        self._wakeup_write.setblocking(False)
        # Python's handlers wait for the main thread; the bytes that it writes for each signal do not.
        is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._old = {number: signal.signal(number, lambda *_: None) for number in SIGNALS[: -1 if is_ignored else None]}
        for number in self._old:
            signal.siginterrupt(number, False)
        self._old_wakeup = signal.set_wakeup_fd(self._wakeup_write.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="codea1-signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._wakeup_write.close()
        self._thread.join()
        self._wakeup_read.close()

    def _listen(self) -> None:
        while byte := self._wakeup_read.recv(1):
            number = byte[0]
            if number not in SIGNALS or (number == signal.SIGHUP and self._asked.is_set()):
                continue
            name = signal.Signals(number).name
            if self._asked.is_set():
                _end(128 + number, f"{name} again: ended at once.")
            if self.can_exit_now:
                before_end = threading.Thread(target=self._before_end, daemon=True)
                before_end.start()
                before_end.join(_SECONDS_BEFORE_END)
                _end(RESTART_EXIT_CODE, f"{name}: ended; nothing was lost.")
            self.ask()
            say(f"{name}: the last whole step is saved first; a second signal ends the run at once.")


def _end(code: int, sentence: str) -> None:
    with contextlib.suppress(OSError):
        if sys.__stdout__ and sys.__stdout__.isatty():
            print("\x1b[?25h", end="", file=sys.__stdout__, flush=True)  # shows the cursor, which a live display hides
    say(sentence)
    os._exit(code)
