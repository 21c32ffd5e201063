"""What a grader remembers: results by what was asked, within a bound in bytes."""

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_ENTRY_BYTES = 500  # of Python's objects around a result, as measured; never less than they take


class Memo:
    """Results by kind and key, the least recently used forgotten first. Thread-safe.

    Keys are digests, so what was asked is not kept.
    """

    def __init__(self, max_bytes: float) -> None:
        self.hits: Counter[str] = Counter()  # by kind, as the misses
        self.misses: Counter[str] = Counter()
        self.bytes = 0
        self._max_bytes = max_bytes
        self._results: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self._under_way: dict[bytes, Future] = {}
        self._lock = threading.RLock()

    def claim(self, kind: str, key: bytes, size: Callable[[T], int | None]) -> tuple[Future[T], bool]:
        """Returns (the future of a result, whether it is new, so that the caller must see to its completion).

        `size` gives the bytes that a result takes, or None for one that is to be forgotten at once, as exceptions are.
        """
        with self._lock:
            future = self._under_way.get(key)
            if future is None and key in self._results:
                future = Future()
                future.set_result(self.get(key))
            if future is not None:
                self.hits[kind] += 1
                return future, False
            self.misses[kind] += 1
            future = self._under_way[key] = Future()
            future.set_running_or_notify_cancel()  # others may wait for it: it cannot be cancelled

        def keep(done: Future[T]) -> None:
            taken = None if done.exception() is not None else size(done.result())
            with self._lock:
                del self._under_way[key]
                if taken is not None:
                    self.put(key, done.result(), taken)

        future.add_done_callback(keep)
        return future, True

    def get(self, key: bytes) -> Any:
        """Returns what was put under a key, None where that is forgotten."""
        with self._lock:
            if key not in self._results:
                return None
            self._results.move_to_end(key)
            return self._results[key][0]

    def put(self, key: bytes, result: object, size: int) -> None:
        """Remembers a result that takes `size` bytes."""
        size += _ENTRY_BYTES
        with self._lock:
            self.bytes += size - self._results.pop(key, (None, 0))[1]
            self._results[key] = result, size
            while self.bytes > self._max_bytes:
                self.bytes -= self._results.popitem(last=False)[1][1]


def digest(*parts: str | bytes) -> bytes:
    """Returns 16 bytes that differ for different parts."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.digest()
