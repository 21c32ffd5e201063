"""Futures: work that waits for them without holding a thread, as one generator, and a memory of what they came to."""

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Awaiting = Generator[Future, Any, T]  # yields a future, is sent its result, and returns a T

_ENTRY_BYTES = 500  # of Python's objects around a result, as measured; never less than they take


def start(steps: Awaiting[T], target: Future[T] | None = None) -> Future[T]:
    """Returns the future of what `steps` returns, `target` where it is given.

    Each future that `steps` yields is awaited: its result is sent in, or its exception raised there. `steps` goes on in
    whichever thread completes the future, and must not block.
    """
    promised: Future[T] = Future() if target is None else target

    def resume(source: Future | None = None) -> None:
        try:
            while source is None or source.done():  # a loop, for a recursion could be as deep as there are steps
                error = source and source.exception()
                source = steps.throw(error) if error else steps.send(source and source.result())
        except StopIteration as stop:
            promised.set_result(stop.value)
        except BaseException as error:
            promised.set_exception(error)
        else:
            source.add_done_callback(resume)

    resume()
    return promised


def every(futures: Sequence[Future[T]]) -> Awaiting[list[T]]:
    """Awaits all futures and returns their results in order: `results = yield from every(futures)`."""
    results = []
    for future in futures:
        results.append((yield future))
    return results


class Memo:
    """Results by kind and key, within a bound in bytes, the least recently used forgotten first. Thread-safe.

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

    def forget(self, key: bytes) -> None:
        """Forgets a result, if it is there."""
        with self._lock:
            self.bytes -= self._results.pop(key, (None, 0))[1]

    def put(self, key: bytes, result: object, size: int) -> None:
        """Remembers a result that takes `size` bytes."""
        size += _ENTRY_BYTES
        with self._lock:
            self.forget(key)
            self.bytes += size
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
