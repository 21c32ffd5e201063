"""A lock in a bucket: an object that its holder renews, and that others may take when it is no longer renewed.

No clocks are compared: who finds the object waits, and looks whether it changes. Every write names the generation that
it replaces, so of two that take it one does, and a holder that slept through it learns that it holds nothing.
"""

import contextlib
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator

from etils import epath

from codea1.runtime.errors import BadInput, StorageFailed
from codea1.storage.generations import ABSENT, ReplacedError, current, remove_generation, write_generation

RENEW_SECONDS = 10.0
EXPIRY_SECONDS = 30.0  # without a renewal
LOST_EXIT_CODE = 74


@contextlib.contextmanager
def leased(path: epath.Path) -> Iterator[None]:
    """Holds the lease at `path` while it is open. A process that loses it ends at once, with exit code 74.

    Raises:
      BadInput: another process holds it. That is known when it renews it.
      StorageFailed: the bucket does not answer.
    """
    lease = _Lease(path)
    lease.take()
    stop = threading.Event()
    renewing = threading.Thread(target=lease.renew_until, args=(stop,), name="lease", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        stop.set()
        renewing.join()
        lease.give_back()


class _Lease:
    def __init__(self, path: epath.Path):
        self._path = path
        self._nonce = secrets.token_hex(8)
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "nonce": self._nonce}
        self._content = json.dumps(holder).encode()
        self._generation = ABSENT

    def take(self) -> None:
        there = current(self._path)
        if there is not None:
            self._generation = self._given_up(*there)
        try:
            self._write()
        except ReplacedError:
            raise self._refusal(current(self._path)) from None

    def renew_until(self, stop: threading.Event) -> None:
        while not stop.wait(RENEW_SECONDS):
            # Where the bucket does not answer, nobody else can take it either; what the run itself writes tells why.
            with contextlib.suppress(StorageFailed):
                try:
                    self._write()
                except ReplacedError:
                    self._end(_holder(current(self._path)))

    def give_back(self) -> None:
        with contextlib.suppress(ReplacedError, StorageFailed):
            remove_generation(self._path, self._generation)

    def _write(self) -> None:
        try:
            self._generation = write_generation(self._path, self._content, self._generation)
        except ReplacedError:
            there = current(self._path)
            if there is None or there[1] != self._content:
                raise
            self._generation = there[0]  # the answer to a write of ours was lost on its way

    def _given_up(self, generation: int, content: bytes) -> int:
        """The generation to replace, once the holder is found to be dead; ABSENT where it gave the lease back."""
        holder = _holder((generation, content))
        print(f"{self._path} is {holder}'s: waiting up to {EXPIRY_SECONDS:.0f} s for a sign of life", file=sys.stderr)
        deadline = time.monotonic() + EXPIRY_SECONDS
        while time.monotonic() < deadline:
            time.sleep(RENEW_SECONDS / 10)
            there = current(self._path)
            if there is None:
                return ABSENT
            if there[0] != generation:
                raise self._refusal(there)
        return generation

    def _refusal(self, there: tuple[int, bytes] | None) -> BadInput:
        return BadInput(f"folder {self._path.parent}: {_holder(there)} works there.")

    def _end(self, holder: str) -> None:
        print(f"error: folder {self._path.parent}: {holder} has taken it over; this process ends.", file=sys.stderr)
        sys.stderr.flush()
        os._exit(LOST_EXIT_CODE)


def _holder(there: tuple[int, bytes] | None) -> str:
    if there is not None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            holder = json.loads(there[1])
            return f"process {holder['pid']} of host {holder['host']}"
    return "another process"
