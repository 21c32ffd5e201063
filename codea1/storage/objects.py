"""Files on disks and objects in gs:// buckets, through one set of functions: a reader sees all of a write or none."""

import errno
import os
import re
import secrets
import shutil
import time
from typing import Any

import fsspec
from etils import epath

from codea1.runtime.errors import BadInput, StorageFailed
from codea1.runtime.extras import require
from codea1.storage.faults import Fault, retried, translate_storage_errors

BUCKETS = "gs://"
ABSENT = 0  # the generation of an object that is not there

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_SECONDS_BETWEEN_PUTS = 1.0  # Cloud Storage takes one put a second of one object
_PUT_BYTES_PER_SECOND = 1 << 20  # on average: a large object is put less often, and its growth costs linear time

# gcsfs would remember listings for ever, while TensorStore and other hosts write too.
fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False


def is_remote(path: epath.Path | str) -> bool:
    """Returns whether `path` is in a bucket."""
    return os.fspath(path).startswith(BUCKETS)


def location(name: str, what: str) -> epath.Path:
    """Returns the absolute path that a user means by a local folder or file, or a gs://BUCKET/NAME.

    Raises BadInput, which says `what` it is: nothing, or what is neither.
    """
    if not name:
        raise BadInput(f"{what} is empty; it must name a folder.")
    if name.startswith(BUCKETS):
        bucket, _, key = name.removeprefix(BUCKETS).strip("/").partition("/")
        if not bucket or not key:
            raise BadInput(f"{what} {name} is not a folder in a bucket, as gs://BUCKET/FOLDER is.")
        require("gcsfs", f"{what} {name}")
        return epath.Path(f"{BUCKETS}{bucket}/{key}")
    if "://" in name:
        raise BadInput(f"{what} {name} is neither a local folder nor one in a gs:// bucket.")
    return in_home(name, what).resolve()


def in_home(name: str, what: str) -> epath.Path:
    """Returns a local path whose ~ is the home folder. Raises BadInput, which says `what` it is: there is no home."""
    path = os.path.expanduser(name)
    if path.startswith("~"):
        raise BadInput(f"{what} {name} is in a home folder that is not there; set HOME, or give a path without ~.")
    return epath.Path(path)


def filesystem(path: epath.Path | str) -> fsspec.AbstractFileSystem:
    """Returns the filesystem that `path` is on."""
    if not is_remote(path):
        return fsspec.filesystem("file")
    require("gcsfs", str(path))
    return fsspec.filesystem("gs")


def filesystem_of_url(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Returns the filesystem of any URL that fsspec knows, and the path there. Raises BadInput for another."""
    if is_remote(url):
        require("gcsfs", url)
    try:
        return fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise BadInput(f"{url} cannot be opened: {error}") from None


def read(path: epath.Path) -> bytes:
    """Returns the content of a file. Raises FileNotFoundError, StorageFailed."""
    return retried(f"reading {path}", path.read_bytes)


def exists(path: epath.Path) -> bool:
    """Returns whether there is a file or folder. Raises StorageFailed where that is not known."""
    return retried(f"looking for {path}", path.exists)


def is_folder(path: epath.Path) -> bool:
    """Returns whether there is a folder. Raises StorageFailed where that is not known."""
    return retried(f"looking for {path}", path.is_dir)


def names(folder: epath.Path) -> list[str]:
    """Returns the names of what is in a folder, sorted; none where there is no folder.

    Raises StorageFailed, also where it is a link to what is not there, such as a disk that is not mounted.
    """
    try:
        return sorted(entry.name for entry in retried(f"listing {folder}", lambda: [*folder.iterdir()]))
    except FileNotFoundError:
        if not is_remote(folder) and os.path.islink(folder):
            raise StorageFailed(f"{folder} is a link to {os.readlink(folder)}, which is not there.") from None
        return []


def files(folder: epath.Path) -> list[str]:
    """Returns the names, relative to `folder`, of all files below it, sorted. Raises StorageFailed."""
    root, system = os.fspath(folder), filesystem(folder)
    prefix = f"{system._strip_protocol(root)}/"
    paths = retried(f"listing {folder}", lambda: system.find(root))
    return sorted(name.removeprefix(prefix) for name in paths if not name.endswith("/"))


def remove(path: epath.Path) -> None:
    """Removes a file, or leaves it missing. Raises StorageFailed."""
    retried(f"removing {path}", lambda: path.unlink(missing_ok=True))


def remove_folder(path: epath.Path) -> None:
    """Removes a folder and all in it, or leaves it missing. Raises StorageFailed."""
    retried(f"removing {path}", lambda: path.rmtree(missing_ok=True))


def move(path: epath.Path, to: epath.Path) -> None:
    """Gives a file or folder another name, where nothing is; in a bucket object by object. Raises StorageFailed."""

    def rename() -> None:
        if is_remote(path):
            filesystem(path).mv(os.fspath(path), os.fspath(to), recursive=is_folder(path))
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, to)  # a file, where its folder is another disk's

    retried(f"moving {path}", rename)


def write_atomically(path: epath.Path, content: str | bytes) -> None:
    """Writes `content` (text as UTF-8) so that a reader, or a crash, sees the old content or the new, never a part.

    In a bucket that is one put. On a disk it is written next to `path` and moved there, over a link too, and the
    folder is made where it is missing; `remove_unfinished` removes what a crash leaves. When this returns, a loss of
    power loses nothing.

    Raises:
      StorageFailed: it could not be written; see `codea1.storage.faults`.
    """
    content = content.encode() if isinstance(content, str) else content
    try:
        if is_remote(path):
            retried(f"writing {path}", lambda: filesystem(path).pipe_file(os.fspath(path), content))
        else:
            retried(f"writing {path}", lambda: _write_and_rename(path, content))
    except FileNotFoundError as error:
        raise StorageFailed(f"writing {path} failed: {Fault.GONE.value}.") from error


def _write_and_rename(path: epath.Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name cannot be known before, nor be there: a folder that somebody sent may hold links to files of its reader.
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_unfinished(folder: epath.Path) -> None:
    """Removes from a folder on a disk what `write_atomically` was writing when it was killed. Raises StorageFailed."""
    for name in () if is_remote(folder) else names(folder):
        if _UNFINISHED.fullmatch(name):
            remove(folder / name)


def sync(path: epath.Path) -> None:
    """Returns when the content of a file, or the names in a folder, would survive a loss of power.

    In a bucket they do. On a filesystem that cannot be asked nothing is waited for. Raises StorageFailed.
    """
    if is_remote(path):
        return
    with translate_storage_errors(f"writing {path}"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)


class GrowingFile:
    """A file with one writer: appended to on a disk; in a bucket, where nothing can be, put again as a whole.

    Readers always see a prefix that ends between two appends, unless a crash cut the file on a disk.
    """

    def __init__(self, path: epath.Path, content: bytes):
        """Makes the file hold `content` and nothing else. Raises StorageFailed."""
        self._path = path
        write_atomically(path, content)
        self._file = None if is_remote(path) else path.open("ab")
        self._content = bytearray(content if is_remote(path) else b"")
        self._stored = len(self._content)
        self._stored_at = time.monotonic()

    def append(self, content: bytes) -> None:
        """Adds to the end: stored when this returns on a disk, and at the latest by `flush` in a bucket."""
        if self._file is not None:
            with translate_storage_errors(f"writing {self._path}"):
                self._file.write(content)
                self._file.flush()
            return
        self._content += content
        pause = max(_SECONDS_BETWEEN_PUTS, len(self._content) / _PUT_BYTES_PER_SECOND)
        if time.monotonic() - self._stored_at >= pause:
            self.flush()

    def flush(self) -> None:
        """Returns when all that was appended is stored, and would survive a loss of power. Raises StorageFailed."""
        if self._file is not None:
            with translate_storage_errors(f"writing {self._path}"):
                os.fsync(self._file.fileno())
        if len(self._content) > self._stored:
            write_atomically(self._path, bytes(self._content))
            self._stored, self._stored_at = len(self._content), time.monotonic()

    def close(self) -> None:
        """Flushes and closes the file."""
        self.flush()
        if self._file is not None:
            with translate_storage_errors(f"writing {self._path}"):
                self._file.close()


class ReplacedError(Exception):
    """The object no longer has the generation that was named."""


def read_generation(path: epath.Path) -> tuple[int, bytes] | None:
    """Returns an object's generation and the content it has in it; None where there is none. Raises StorageFailed."""
    try:
        headers, content = retried(f"reading {path}", lambda: _call(path, "GET", "b/{}/o/{}", alt="media"))
    except FileNotFoundError:
        return None
    return int(headers["X-Goog-Generation"]), content


def write_generation(path: epath.Path, content: bytes, generation: int) -> int:
    """Replaces the object that has this generation, or makes it where that is ABSENT; returns the new generation.

    Raises:
      ReplacedError: it has another generation. That may be this very write: its answer can be lost and it retried.
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
    except FileExistsError:  # gcsfs's error for a precondition that does not hold
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
