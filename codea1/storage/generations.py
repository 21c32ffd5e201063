"""Objects of Cloud Storage by generation: a write or removal that happens only where nobody else's came between."""

import os
from typing import Any

from etils import epath

from codea1.runtime.errors import StorageFailed
from codea1.storage.faults import Fault
from codea1.storage.objects import filesystem
from codea1.storage.retries import retried

ABSENT = 0  # the generation of an object that is not there


class ReplacedError(Exception):
    """The object no longer has the generation that was named."""


def current(path: epath.Path) -> tuple[int, bytes] | None:
    """The generation and the content of an object, of one moment; None where there is none. Raises StorageFailed."""
    try:
        headers, content = retried(f"reading {path}", lambda: _call(path, "GET", "b/{}/o/{}", alt="media"))
    except FileNotFoundError:
        return None
    return int(headers["X-Goog-Generation"]), content


def write_generation(path: epath.Path, content: bytes, generation: int) -> int:
    """Replaces the object that has this generation, or makes it where that is ABSENT; returns the new generation.

    Raises:
      ReplacedError: it has another generation. That may be this very write: its answer can be lost and it tried again.
      StorageFailed: it cannot be written.
    """

    def write() -> dict[str, Any]:
        system = filesystem(path)
        bucket, name, _ = system.split_path(os.fspath(path))
        url = f"{system._location}/upload/storage/v1/b/{bucket}/o"
        query = {"uploadType": "media", "name": name, "ifGenerationMatch": str(generation)}
        headers = {"Content-Type": "application/octet-stream"}
        return system.call("POST", url, data=content, headers=headers, json_out=True, **query)

    try:
        return int(retried(f"writing {path}", write)["generation"])
    except FileExistsError:  # gcsfs's word for a precondition that does not hold
        raise ReplacedError(path) from None
    except FileNotFoundError as error:
        raise StorageFailed(f"writing {path} failed: {Fault.GONE.value}.") from error


def remove_generation(path: epath.Path, generation: int) -> None:
    """Removes the object that has this generation. Raises ReplacedError where none has, StorageFailed."""
    query = {"ifGenerationMatch": str(generation)}
    try:
        retried(f"removing {path}", lambda: _call(path, "DELETE", "b/{}/o/{}", **query))
    except (FileExistsError, FileNotFoundError):
        raise ReplacedError(path) from None


def _call(path: epath.Path, method: str, url: str, **query: str) -> Any:
    system = filesystem(path)
    bucket, name, _ = system.split_path(os.fspath(path))
    return system.call(method, url, bucket, name, **query)
