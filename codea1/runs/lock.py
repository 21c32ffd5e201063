"""One writer at a time in a folder: a training, or an evaluation."""

import contextlib
import fcntl
from collections.abc import Iterator

from etils import epath

from codea1.runs.folder import RunFolder
from codea1.runs.lease import leased
from codea1.runtime.errors import BadInput
from codea1.storage.objects import is_remote


@contextlib.contextmanager
def locked(folder: RunFolder) -> Iterator[None]:
    """Keeps every other writer out of the folder while it is open; a killed process keeps nobody out for long.

    On a disk that is a file lock; a filesystem that has no locks guards nothing. In a bucket it is a lease.

    Raises BadInput: another process works there.
    """
    hold = leased if is_remote(folder.path) else _file_locked
    with hold(folder.path / ".lock"):
        yield


@contextlib.contextmanager
def _file_locked(path: epath.Path) -> Iterator[None]:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"folder {path.parent}: another process works there.") from None
        except OSError:
            pass
        yield
