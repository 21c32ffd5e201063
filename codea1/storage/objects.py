"""Reading and writing whole files, on local disks and in buckets, so that a reader sees all of a file or none."""

import os
from collections.abc import Callable

import fsspec
from etils import epath

from codea1.runtime.errors import BadInput, StorageFailed
from codea1.storage.faults import Fault
from codea1.storage.retries import retried

BUCKETS = "gs://"

# gcsfs would remember listings for ever, while TensorStore and other hosts write beside it.
fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False


def is_remote(path: epath.Path | str) -> bool:
    """Whether `path` is in a bucket."""
    return os.fspath(path).startswith(BUCKETS)


def location(name: str, what: str) -> epath.Path:
    """The absolute path that a user means by a local folder or file, or a gs://BUCKET/NAME.

    Raises BadInput, which says `what` it is: nothing, or what is neither.
    """
    if not name:
        raise BadInput(f"{what} is empty; it must name a folder.")
    if name.startswith(BUCKETS):
        bucket, _, key = name.removeprefix(BUCKETS).strip("/").partition("/")
        if not bucket or not key:
            raise BadInput(f"{what} {name} is not a folder in a bucket, as gs://BUCKET/FOLDER is.")
        return epath.Path(f"{BUCKETS}{bucket}/{key}")
    if "://" in name:
        raise BadInput(f"{what} {name} is neither a local folder nor one in a gs:// bucket.")
    return epath.Path(name).expanduser().resolve()


def write_atomically(path: epath.Path, content: str | bytes) -> None:
    """Writes `content` (text as UTF-8) so that a reader, or a crash, sees the old content or the new, never a part.

    In a bucket that is one put. On a disk it is written beside `path` and moved there, and the folder is made where it
    is missing; one writer per path: the name of the temporary file is fixed, so one left by a crash is overwritten.

    Raises:
      StorageFailed: it could not be written; see `codea1.storage.retries`.
    """
    content = content.encode() if isinstance(content, str) else content
    write = _put if is_remote(path) else _move_there
    try:
        retried(f"writing {path}", lambda: write(path, content))
    except FileNotFoundError as error:
        raise StorageFailed(f"writing {path} failed: {Fault.GONE.value}.") from error


def _put(path: epath.Path, content: bytes) -> None:
    filesystem(path).pipe_file(os.fspath(path), content)


def _move_there(path: epath.Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.tmp"
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read(path: epath.Path) -> bytes:
    """The content of a file. Raises FileNotFoundError, StorageFailed."""
    return retried(f"reading {path}", path.read_bytes)


def exists(path: epath.Path) -> bool:
    """Whether there is a file or folder. Raises StorageFailed where that is not known."""
    return retried(f"looking for {path}", path.exists)


def is_folder(path: epath.Path) -> bool:
    """Whether there is a folder. Raises StorageFailed where that is not known."""
    return retried(f"looking for {path}", path.is_dir)


def names(folder: epath.Path) -> list[str]:
    """The names of what is in a folder, sorted; none where there is no folder. Raises StorageFailed."""
    return _or_missing(lambda: sorted(each.name for each in retried(f"listing {folder}", lambda: [*folder.iterdir()])))


def files(folder: epath.Path) -> list[str]:
    """The names, relative to `folder`, of all files in it and in the folders in it, sorted. Raises StorageFailed."""
    root = os.fspath(folder)
    system = filesystem(folder)
    prefix = f"{system._strip_protocol(root)}/"
    found = retried(f"listing {folder}", lambda: system.find(root))
    return sorted(name.removeprefix(prefix) for name in found if not name.endswith("/"))


def remove(path: epath.Path) -> None:
    """Removes a file, or leaves it missing. Raises StorageFailed."""
    retried(f"removing {path}", lambda: path.unlink(missing_ok=True))


def remove_folder(path: epath.Path) -> None:
    """Removes a folder and all in it, or leaves it missing. Raises StorageFailed."""
    retried(f"removing {path}", lambda: path.rmtree(missing_ok=True))


def filesystem(path: epath.Path | str) -> fsspec.AbstractFileSystem:
    """The filesystem that `path` is on."""
    return fsspec.filesystem("gs" if is_remote(path) else "file")


def _or_missing(listing: Callable[[], list[str]]) -> list[str]:
    try:
        return listing()
    except FileNotFoundError:
        return []
