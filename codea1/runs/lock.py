"""One writer at a time in a folder: a file lock on a disk, a lease in a bucket.

A lease is an object that its holder renews, and that others may take when it is no longer renewed. No clocks are
compared: a process that finds the object waits to see whether it changes. Every write names the generation that it
replaces: of two processes that take the lease one succeeds, and a holder that was suspended meanwhile notices its loss.
"""

import contextlib
import fcntl
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from codea1.runs.folder import Own, RunFolder
from codea1.runtime.errors import STORAGE_EXIT_CODE, BadInput, StorageFailed, StorageOutage, say
from codea1.storage.objects import (
    ABSENT,
    ReplacedError,
    is_remote,
    read,
    read_generation,
    remove_generation,
    remove_unfinished,
    write_generation,
)

RENEW_SECONDS = 10.0
EXPIRY_SECONDS = 30.0  # without a renewal
_marks: dict[epath.Path, bytes] = {}  # what this process wrote to the lock files that it holds


@contextlib.contextmanager
def opened(workdir: str, config: Mapping[str, Any], own: Own | None = None) -> Iterator[RunFolder]:
    """Opens a run under its lock: of two that begin there at once, one alone writes config.json.

    Raises BadInput as `RunFolder.open` and `locked` do.
    """
    with locked(RunFolder.check(workdir, config, own)):
        yield RunFolder.open(workdir, config, own)


@contextlib.contextmanager
def locked(folder: RunFolder) -> Iterator[None]:
    """Keeps every other writer out of the folder while it is open; the lock of a killed process ends soon.

    Makes a folder that is missing. Removes the files that a killed one was writing.

    On a filesystem that refuses locks nothing is guarded, which stderr says; one that grants them to each machine apart
    does not show that it does.

    Raises BadInput: another process works there, or the lock's file cannot be made.
    """
    hold = leased if is_remote(folder.path) else _file_locked
    with hold(folder.path / ".lock"):
        for place in (folder.path, folder.samples, folder.evaluations):
            remove_unfinished(place)
        yield


@contextlib.contextmanager
def _file_locked(path: epath.Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise BadInput(f"{path} cannot be opened: {error.strerror}.") from None
    with open(descriptor, "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"folder {path.parent}: another process works there.") from None
        except OSError as error:
            unguarded = f"{path.parent} is on a filesystem without locks ({error.strerror})"
            say(f"{unguarded}: no other run may write there", sys.stderr)
        mark = secrets.token_hex(8).encode()
        with contextlib.suppress(OSError):  # a disk that is full shows soon enough
            os.ftruncate(descriptor, 0)
            os.write(descriptor, mark)
            _marks[path] = mark
        try:
            yield
        finally:
            _marks.pop(path, None)


def require_lock(folder: RunFolder) -> None:
    """Raises StorageOutage where this process held the folder's lock, and the lock's file was removed.

    Another process may have made it again since, and work there. A lease notices its loss by itself.
    """
    path = folder.path / ".lock"
    try:
        is_there = path not in _marks or read(path) == _marks[path]
    except FileNotFoundError:
        is_there = False
    if not is_there:
        raise StorageOutage(
            f"{path} was removed while this process worked there: another one may have begun, so nothing more is "
            "written. The same command goes on from the last checkpoint."
        )


def is_held(folder: RunFolder) -> bool:
    """Returns whether a process works in the folder, as far as that shows. Raises StorageFailed."""
    path = folder.path / ".lock"
    if is_remote(path):
        return read_generation(path) is not None
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nothing was ever locked there, or nothing can be
        return False
    return False


@contextlib.contextmanager
def leased(path: epath.Path) -> Iterator[None]:
    """Holds the lease at `path` while it is open. A process that loses it ends at once, with exit code 74.

    Raises:
      BadInput: another process holds it, and renewed it while this one waited.
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
        with contextlib.suppress(ReplacedError, StorageFailed):
            remove_generation(path, lease.generation)


class _Lease:
    def __init__(self, path: epath.Path):
        self._path = path
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "nonce": secrets.token_hex(8)}
        self._content = json.dumps(holder).encode()
        self.generation = ABSENT

    def take(self) -> None:
        try:
            if (there := read_generation(self._path)) is not None:
                self._wait_for_expiry(*there)
            self._write()
        except ReplacedError as holder:
            raise BadInput(f"folder {self._path.parent}: {holder} works there.") from None

    def renew_until(self, stop: threading.Event) -> None:
        while not stop.wait(RENEW_SECONDS):
            try:
                self._write()
            except StorageFailed:
                pass  # a process that cannot write the lease cannot write the run: its own writes say why
            except Exception as error:  # without this thread the run would go on without a lease
                is_lost = isinstance(error, ReplacedError)
                why = f"{error} has taken it over" if is_lost else f"its lease cannot be renewed ({error!r})"
                say(f"error: folder {self._path.parent}: {why}; this process ends.", sys.stderr)
                os._exit(STORAGE_EXIT_CODE)

    def _write(self) -> None:
        """Writes the lease. Raises ReplacedError, which says who has it, and StorageFailed."""
        try:
            self.generation = write_generation(self._path, self._content, self.generation)
        except ReplacedError:
            there = read_generation(self._path)
            if there is None or there[1] != self._content:
                raise ReplacedError(_holder(there)) from None
            self.generation = there[0]  # the answer to a write of ours was lost on its way

    def _wait_for_expiry(self, generation: int, content: bytes) -> None:
        """Waits until the holder has given the lease back or is found dead. Raises ReplacedError: it has renewed it."""
        holder = _holder((generation, content))
        print(f"{self._path} is {holder}'s: waiting up to {EXPIRY_SECONDS:.0f} s for a sign of life", file=sys.stderr)
        deadline = time.monotonic() + EXPIRY_SECONDS
        while time.monotonic() < deadline:
            time.sleep(RENEW_SECONDS / 10)
            there = read_generation(self._path)
            if there is None:
                return
            if there[0] != generation:
                raise ReplacedError(_holder(there))
        self.generation = generation  # to be replaced


def _holder(there: tuple[int, bytes] | None) -> str:
    if there is not None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            holder = json.loads(there[1])
            return f"process {holder['pid']} of host {holder['host']}"
    return "another process"
