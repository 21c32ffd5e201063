"""What the errors of disks, gcsfs and TensorStore mean, and what is tried again."""

import errno
import math
import os
from collections.abc import Callable

import aiohttp
import pytest
from gcsfs.retry import HttpError

from codea1.runtime.errors import StorageFailed, StorageOutage
from codea1.storage import faults
from codea1.storage.faults import Fault, fault_of, retried, retries_so_far, translate_storage_errors


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (os_error(errno.ENOSPC), Fault.FULL),
        (os_error(errno.EFBIG), Fault.FULL),
        (os_error(errno.EACCES), Fault.DENIED),
        (os_error(errno.ENOENT), Fault.GONE),
        (os_error(errno.EIO), Fault.BROKEN),
        (os_error(errno.ESTALE), Fault.TRANSIENT),
        (os_error(errno.EMFILE), Fault.REFUSED),
        (os_error(errno.EUCLEAN), Fault.REFUSED),
        (os_error(errno.ELOOP), Fault.REFUSED),
        (os_error(errno.EXDEV), Fault.REFUSED),
        (os_error(errno.ENOTCONN), Fault.REFUSED),  # of a FUSE mount whose process has died
        (ValueError("INTERNAL: Failed to open [os_error_code='24']"), Fault.REFUSED),
        (OSError("no number"), None),
        (TimeoutError(), Fault.TRANSIENT),
        (aiohttp.ClientPayloadError("cut"), Fault.TRANSIENT),
        (HttpError({"code": 503, "message": "x"}), Fault.TRANSIENT),
        (HttpError({"code": 401, "message": "x"}), Fault.DENIED),
        (OSError("Forbidden: https://storage.googleapis.com/..."), Fault.DENIED),
        (ValueError("PERMISSION_DENIED: Error writing ..."), Fault.DENIED),
        (ValueError("NOT_FOUND: The specified bucket does not exist."), Fault.GONE),
        (ValueError("ABORTED: All 32 retry attempts failed: UNAVAILABLE: HTTP response code: 503"), Fault.TRANSIENT),
        (
            ValueError("RESOURCE_EXHAUSTED: Failed to write: No space left on device [os_error_code='28']"),
            Fault.FULL,
        ),
        (caused(RuntimeError("Failed to save"), os_error(errno.ENOSPC)), Fault.FULL),
        (ValueError("shape (4,) is not (5,)"), None),
        (KeyError("x"), None),
        (IsADirectoryError(errno.EISDIR, "x"), None),
    ],
)
def test_errors_tell_their_fault(error: Exception, fault: Fault | None):
    assert fault_of(error) == fault


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, of which none is made."""
    pauses: list[float] = []
    monkeypatch.setattr(faults.time, "sleep", pauses.append)
    monkeypatch.setattr(faults.time, "monotonic", lambda: sum(pauses))
    return pauses


def failing(times: int, error: Exception) -> Callable[[], str]:
    calls = iter(range(10_000))

    def operation() -> str:
        if next(calls) < times:
            raise error
        return "done"

    return operation


def test_what_passes_is_tried_again_and_counted(impatient: list[float]):
    before = retries_so_far()
    assert retried("writing x", failing(3, TimeoutError())) == "done"
    assert impatient == [0.5, 1.0, 2.0]
    assert retries_so_far() == before + 3


def test_an_outage_is_told_when_retries_end(impatient: list[float]):
    with pytest.raises(StorageOutage, match=r"^writing x failed: the storage does not answer"):
        retried("writing x", failing(10_000, HttpError({"code": 503, "message": "x"})))
    assert 250 < sum(impatient) <= 300
    assert max(impatient) == 30


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "there is no space left (No space left on device)."),
        (errno.EACCES, "access is denied (Permission denied)."),
        (errno.EMFILE, "the file system refuses it (Too many open files)."),
    ],
)
def test_what_stays_is_told_at_once(impatient: list[float], number: int, words: str):
    with pytest.raises(StorageFailed) as failure:
        retried("writing x", failing(1, os_error(number)))
    assert str(failure.value) == f"writing x failed: {words}"
    assert not isinstance(failure.value, StorageOutage)
    assert impatient == []


def test_what_is_no_fault_of_the_storage_is_raised_as_it_is(impatient: list[float]):
    for error in (FileNotFoundError("x"), KeyError("x"), ValueError("shape")):
        with pytest.raises(type(error)) as raised:
            retried("reading x", failing(1, error))
        assert raised.value is error
    with pytest.raises(KeyError), translate_storage_errors("reading x"):
        raise KeyError("x")
    assert impatient == []


def test_a_sentence_is_told_once():
    with pytest.raises(StorageFailed, match=r"^writing x failed"), translate_storage_errors("saving y"):
        raise StorageFailed("writing x failed: there is no space left.")


def test_an_outage_that_lasts_is_told_once(monkeypatch, capsys):
    def answer() -> str:
        if next(tries) < 4:
            raise ConnectionResetError(104, "Connection reset by peer")
        return "here"

    monkeypatch.setattr(faults, "FIRST_PAUSE_SECONDS", 0.0)
    for told_after, notes in ((0.0, 1), (60.0, 0)):
        monkeypatch.setattr(faults, "TOLD_SECONDS", told_after)
        monkeypatch.setattr(faults, "_last_retry", -math.inf)
        tries = iter(range(9))
        assert faults.retried("reading gs://bucket/name", answer) == "here"
        printed = capsys.readouterr().err
        assert printed.count("note: the storage does not answer") == notes
        assert ("reading gs://bucket/name failed" in printed) == bool(notes)
