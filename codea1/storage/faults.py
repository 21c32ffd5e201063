"""Faults of disks and buckets: transient ones are retried, all others are raised as one sentence."""

import contextlib
import enum
import errno
import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import tensorstore

from codea1.runtime.errors import StorageFailed, StorageOutage

T = TypeVar("T")

RETRY_SECONDS = 300.0  # how long one operation is retried
FIRST_PAUSE_SECONDS = 0.5  # each pause is twice the one before
LONGEST_PAUSE_SECONDS = 30.0
TOLD_SECONDS = 3.0  # an outage of so long is reported


class Fault(enum.Enum):
    """A kind of storage fault; the value ends a sentence about it."""

    TRANSIENT = "the storage does not answer"
    FULL = "there is no space left"
    DENIED = "access is denied"
    GONE = "the bucket or folder is not there"
    BROKEN = "the disk does not work"
    REFUSED = "the file system refuses it"  # and says why


_OF_ERRNO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), Fault.FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), Fault.DENIED),
    errno.ENOENT: Fault.GONE,
    **dict.fromkeys((errno.EIO, errno.ENXIO, errno.ENODEV), Fault.BROKEN),
    **dict.fromkeys((errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT), Fault.TRANSIENT),
    **dict.fromkeys((errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE), Fault.TRANSIENT),
    **dict.fromkeys((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN), Fault.TRANSIENT),
}
_OF_HTTP = {401: Fault.DENIED, 403: Fault.DENIED, 404: Fault.GONE, 408: Fault.TRANSIENT, 429: Fault.TRANSIENT}
_OF_LIBRARY = {**dict.fromkeys(("aiohttp", "requests", "urllib3"), Fault.TRANSIENT), "google.auth": Fault.DENIED}
# TensorStore's errors are text: "PERMISSION_DENIED: ...", or "No space left on device [os_error_code='28']".
_OF_STATUS = {
    **{"PERMISSION_DENIED": Fault.DENIED, "UNAUTHENTICATED": Fault.DENIED, "NOT_FOUND": Fault.GONE},
    **dict.fromkeys(("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED"), Fault.TRANSIENT),
}
_OS_ERROR = re.compile(r"os_error_code='(\d+)'")
_STATUS = re.compile(rf"\b({'|'.join(_OF_STATUS)}):")


def fault_of(error: BaseException) -> Fault | None:
    """Returns the fault behind an error of fsspec, gcsfs, TensorStore or the operating system; None for others."""
    return next((fault for cause in _chain(error) if (fault := _classify(cause)) is not None), None)


def reason(error: BaseException) -> str:
    """Returns what was wrong, for the end of a sentence: the kind of fault, with the system's own words if any."""
    fault = fault_of(error)
    number = next((cause.errno for cause in _chain(error) if isinstance(cause, OSError) and cause.errno), None)
    if number is None and (match := _OS_ERROR.search(str(error))):
        number = int(match[1])
    words = os.strerror(number) if number else " ".join(str(error).split())[:200]
    return f"{fault.value} ({words})" if fault else words


def retried(what: str, operation: Callable[[], T]) -> T:
    """Returns what `operation` returns, after retries of transient faults with exponential backoff.

    Args:
      what: the beginning of a sentence: "writing gs://bucket/name".
      operation: must be idempotent: it is retried when its answer is lost.

    Raises:
      StorageOutage: transient faults lasted for RETRY_SECONDS.
      StorageFailed: a permanent fault.
      FileNotFoundError and what else `operation` raises: as it is.
    """
    started, pause = time.monotonic(), FIRST_PAUSE_SECONDS
    while True:
        try:
            return operation()
        except FileNotFoundError:
            raise
        except Exception as error:
            failure = as_storage_error(what, error)
            if failure is None:
                raise
            if not isinstance(failure, StorageOutage) or time.monotonic() + pause - started > RETRY_SECONDS:
                raise failure from error
        _count_retry(str(failure).rstrip("."))
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


@contextlib.contextmanager
def translate_storage_errors(what: str) -> Iterator[None]:
    """Raises storage faults inside, of whatever library, as StorageFailed, whose sentence begins with `what`."""
    try:
        yield
    except Exception as error:
        failure = as_storage_error(what, error)
        if failure is None:
            raise
        raise failure from error


def as_storage_error(what: str, error: Exception) -> StorageFailed | None:
    """Returns the error with one sentence about a storage fault; None where `error` is none, or is one already."""
    fault = fault_of(error)
    if fault is None or isinstance(error, StorageFailed):
        return None
    kind = StorageOutage if fault == Fault.TRANSIENT else StorageFailed
    return kind(f"{what} failed: {reason(error)}.")


def retries_so_far() -> int:
    """Returns how many retries this process has made: here, in gcsfs, or in TensorStore."""
    metrics = tensorstore.experimental_collect_matching_metrics("/tensorstore/kvstore/gcs/retries")
    return _own_retries + sum(int(value["value"]) for metric in metrics for value in metric["values"])


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _classify(error: BaseException) -> Fault | None:
    """Returns the fault of one error, whatever it was caused by."""
    if isinstance(error, (TimeoutError, ConnectionError)):
        return Fault.TRANSIENT
    if isinstance(error, FileNotFoundError):
        return Fault.GONE
    if isinstance(error, OSError) and error.errno in _OF_ERRNO:
        return _OF_ERRNO[error.errno]
    if type(error) is OSError and error.errno:  # Python has no class for it, as for EMFILE, EUCLEAN and ELOOP
        return Fault.REFUSED
    if isinstance(error, OSError) and str(error).startswith("Forbidden"):  # gcsfs's error for a 403
        return Fault.DENIED
    module = type(error).__module__
    for library, fault in _OF_LIBRARY.items():
        if f"{module}.".startswith(f"{library}."):
            return fault
    if module.startswith("gcsfs") and (code := getattr(error, "code", None)):
        return Fault.TRANSIENT if int(code) >= 500 else _OF_HTTP.get(int(code))
    if isinstance(error, (ValueError, RuntimeError)):
        if match := _OS_ERROR.search(str(error)):
            return _OF_ERRNO.get(int(match[1]), Fault.REFUSED)
        return _OF_STATUS[match[1]] if (match := _STATUS.search(str(error))) else None
    return None


_lock = threading.Lock()
_own_retries = 0
_first_retry = _last_retry = -math.inf  # of an outage, by time.monotonic


def _count_retry(why: str) -> None:
    """Counts a retry; where an outage lasts, says so once on stderr: nothing else may be heard for minutes."""
    global _own_retries, _first_retry, _last_retry
    with _lock:
        _own_retries += 1
        now = time.monotonic()
        if now - _last_retry > 2 * LONGEST_PAUSE_SECONDS:
            _first_retry = now
        lasts_now = _last_retry - _first_retry < TOLD_SECONDS <= now - _first_retry
        _last_retry = now
    if lasts_now:
        said = "the storage does not answer; each operation is tried again for up to"
        print(f"note: {said} {RETRY_SECONDS:.0f} s ({why})", file=sys.stderr, flush=True)


def _count_retry_of_gcsfs(record: logging.LogRecord) -> bool:
    """Counts the retries that gcsfs logs, and keeps the tracebacks of its last tries off the terminal."""
    _, retries, why = str(record.msg).partition("retrying after exception: ")
    if retries:
        _count_retry(why)
    return False


logging.getLogger("gcsfs").setLevel(logging.DEBUG)
logging.getLogger("gcsfs").addFilter(_count_retry_of_gcsfs)
