"""Being asked to stop, as a machine is before it is taken away: when that is heeded, and how a run ends by it."""

import os
import signal
import socket
import sys
import threading

from codea1.runtime.errors import RESTART_EXIT_CODE
from codea1.runtime.hosts import Hosts

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_EXCHANGE_EVERY = 4  # safe points: several hosts must ask one another


class Stopped(Exception):
    """The run was asked to stop. Whoever holds what is not saved yet saves it and passes this on."""


class StopRequest:
    """Whether this process was asked to stop. As a context manager it is SIGTERM and SIGINT that ask.

    A second signal ends the process at once, as does the first while `costs_nothing`. Both are seen by a thread, since
    the main one may be held up for minutes in a compilation or in a collective that never ends.
    """

    def __init__(self) -> None:
        self.costs_nothing = True  # ending this very moment loses nothing that is done
        self._asked = threading.Event()
        self._passed = 0  # safe points

    def ask(self) -> None:
        """Asks to stop at the next safe point."""
        self._asked.set()

    def safe_point(self, hosts: Hosts) -> None:
        """Raises Stopped where a host was asked to stop, on all hosts at the same call: it is a collective.

        With several hosts only every few calls look; the calls must be the same on all of them.
        """
        self._passed += 1
        if hosts.count > 1 and self._passed % _EXCHANGE_EVERY:
            return
        if hosts.any(self._asked.is_set()):
            raise Stopped

    def __enter__(self) -> "StopRequest":
        self._heard, self._ear = socket.socketpair()
        self._ear.setblocking(False)
        # Python's handlers wait for the main thread; the bytes that it writes for each signal do not.
        self._old = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
        for number in SIGNALS:
            signal.siginterrupt(number, False)
        self._old_ear = signal.set_wakeup_fd(self._ear.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="codea1-signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._old_ear)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._ear.close()
        self._thread.join()
        self._heard.close()

    def _listen(self) -> None:
        while byte := self._heard.recv(1):
            number = byte[0]
            if number not in SIGNALS:
                continue
            name = signal.Signals(number).name
            if self._asked.is_set():
                _end(128 + number, f"{name} again: ended at once.")
            if self.costs_nothing:
                _end(RESTART_EXIT_CODE, f"{name}: ended; nothing was lost.")
            _say(f"{name}: the last whole step is saved first; a second signal ends the run at once.")
            self.ask()


def _end(code: int, sentence: str) -> None:
    if sys.__stdout__.isatty():
        print("\x1b[?25h", end="", flush=True)  # shows the cursor, which a live display hides
    _say(sentence)
    os._exit(code)


def _say(sentence: str) -> None:
    print(sentence, file=sys.__stderr__, flush=True)
