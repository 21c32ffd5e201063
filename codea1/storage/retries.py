"""Storage that fails for a moment is asked again, and how often that was is known."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import tensorstore

from codea1.runtime.errors import StorageFailed, StorageOutage
from codea1.storage.faults import Fault, fault_of, reason

T = TypeVar("T")

PATIENCE_SECONDS = 300.0  # how long one operation is tried again
FIRST_PAUSE_SECONDS = 0.5  # each pause is twice the one before
LONGEST_PAUSE_SECONDS = 30.0

_lock = threading.Lock()
_own_retries = 0


def retried(what: str, operation: Callable[[], T]) -> T:
    """Returns what `operation` returns, tried again while the storage does not answer.

    Args:
      what: the beginning of a sentence: "writing gs://bucket/name".
      operation: may be done twice, as its answer may be lost.

    Raises:
      StorageOutage: it did not answer for PATIENCE_SECONDS.
      StorageFailed: no space, no permission.
      FileNotFoundError and what else `operation` raises: as it is.
    """
    started, pause = time.monotonic(), FIRST_PAUSE_SECONDS
    while True:
        try:
            return operation()
        except FileNotFoundError:
            raise
        except Exception as error:
            failure = told(what, error)
            if failure is None:
                raise
            if not isinstance(failure, StorageOutage) or time.monotonic() + pause - started > PATIENCE_SECONDS:
                raise failure from error
        _count_retry()
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


@contextlib.contextmanager
def faults_told(what: str) -> Iterator[None]:
    """Storage faults inside, of whatever library, are raised as StorageFailed, whose sentence begins with `what`."""
    try:
        yield
    except Exception as error:
        failure = told(what, error)
        if failure is None:
            raise
        raise failure from error


def told(what: str, error: Exception) -> StorageFailed | None:
    """The one sentence about a storage fault; None for another error, and for what is told already."""
    fault = fault_of(error)
    if fault is None or isinstance(error, StorageFailed):
        return None
    kind = StorageOutage if fault == Fault.PASSING else StorageFailed
    return kind(f"{what} failed: {reason(error)}.")


def retries_so_far() -> int:
    """How often this process asked a storage again: here, in gcsfs, or in TensorStore."""
    metrics = tensorstore.experimental_collect_matching_metrics("/tensorstore/kvstore/gcs/retries")
    return _own_retries + sum(int(each["value"]) for metric in metrics for each in metric["values"])


def _count_retry() -> None:
    global _own_retries
    with _lock:
        _own_retries += 1


class _GcsfsRetries(logging.Filter):
    """Counts the retries that gcsfs tells its log, and keeps the tracebacks of its last tries off the terminal."""

    def filter(self, record: logging.LogRecord) -> bool:
        if "retrying after exception" in str(record.msg):
            _count_retry()
        return False


logging.getLogger("gcsfs").setLevel(logging.DEBUG)
logging.getLogger("gcsfs").addFilter(_GcsfsRetries())
