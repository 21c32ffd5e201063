"""Which host of a run is gone, asked through JAX's coordination service once a collective broke.

Host 0 keeps the service. A thread of each host looks every second whether one of them calls, and answers, whatever its
main thread waits for. Then each host ends with RESTART_EXIT_CODE and a sentence that names who did not answer.
"""

import contextlib
import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from codea1.runtime import phases
from codea1.runtime.errors import RESTART_EXIT_CODE, say

_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 5.0  # of the hosts
_SERVICE_SECONDS = 2.0
_CALL, _HERE, _ENDED = "codea1/call", "codea1/here/", "codea1/ended/"


class RollCall:
    """The calls and the answers of one host."""

    def __init__(self, client: Any, address: str, index: int, count: int) -> None:
        """Begins to listen; `client` is that of `jax.distributed`, `address` that of its service."""
        self._client, self._address, self._index, self._count = client, address, index, count
        self._ending = threading.Lock()  # taken once
        threading.Thread(target=self._listen, name="codea1-roll-call", daemon=True).start()
        # JAX's client aborts where host 0, or for long a heartbeat, is lost: 0.10.2 dies of a bad_cast in its own
        # missed_heartbeat_callback. abort() runs this on its own thread, and that client answers no more.
        self._on_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: self.end(phases.told(), is_answered=False))
        ctypes.CDLL(None).signal(signal.SIGABRT, self._on_abort)

    def leave(self, code: int) -> None:
        """Lets the others know that this host ends by itself."""
        key = f"{_ENDED}{self._index}"
        self._ask(_SERVICE_SECONDS, lambda: self._client.key_value_set(key, str(code), allow_overwrite=True))

    def end(self, during: str, is_answered: bool = True) -> NoReturn:
        """Calls the others, and ends this process with RESTART_EXIT_CODE and a sentence; returns on no thread."""
        self._ending.acquire()
        missing = self._ask(2 * _ANSWER_SECONDS, self._missing) if is_answered else None
        if missing is None:
            silent = "host 0 does not answer" if is_answered else "JAX aborted this process for what it says above"
            missing = [silent if is_served(self._address) else "host 0 is gone"]
        what = " and ".join(missing) or "a connection between hosts broke"
        say(f"error: {what}, during {during or 'the start'}; start all hosts again.")
        if self._index == 0:
            time.sleep(_ANSWER_SECONDS)  # the others are still asking
        os._exit(RESTART_EXIT_CODE)

    def _listen(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            with contextlib.suppress(Exception):  # no host has stored a call
                self._client.key_value_try_get(_CALL)
                self.end(phases.told())

    def _missing(self) -> list[str]:
        for key in (_CALL, f"{_HERE}{self._index}"):
            self._client.key_value_set(key, "", allow_overwrite=True)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            here, ended = self._answers(_HERE), self._answers(_ENDED)
            gone = set(range(self._count)) - here.keys() - ended.keys()
            if not gone or time.monotonic() > deadline:
                return [
                    *(f"host {index} ended with exit code {code}" for index, code in sorted(ended.items())),
                    *(f"host {index} is gone" for index in sorted(gone)),
                ]
            time.sleep(_LOOK_SECONDS / 5)

    def _answers(self, folder: str) -> dict[int, str]:
        return {int(key.rpartition("/")[2]): value for key, value in self._client.key_value_dir_get(folder)}

    def _ask(self, seconds: float, question: Callable[[], Any]) -> Any:
        """Returns the answer of the service; None where it has none within the time."""
        answers = []

        def ask() -> None:
            with contextlib.suppress(Exception):
                answers.append(question())

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(seconds)
        return answers[0] if answers else None


def is_served(address: str) -> bool:
    """Returns whether a process listens at `address`, `host:port`, be it stopped."""
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), _SERVICE_SECONDS)
    except OSError:
        return False
    with connection:
        try:
            # The kernel still accepts for a process that is being killed, and resets it a moment later.
            return connection.recv(1) != b""
        except TimeoutError:
            return True
        except OSError:
            return False
