"""Sizes and CRC-32C checksums of files: of a bucket's objects as Cloud Storage keeps them, without reading them."""

import base64
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import google_crc32c
from etils import epath

from codea1.storage.faults import retried
from codea1.storage.objects import filesystem, is_remote

_CHUNK_BYTES = 1 << 22
_THREADS = 8


class Checksum(NamedTuple):
    """Identifies the content of a file."""

    size: int  # bytes
    crc32c: str  # big-endian, in Base64, as Cloud Storage writes it


def checksum_of(content: bytes) -> Checksum:
    """Returns the checksum of some bytes."""
    running = RunningChecksum()
    running.update(content)
    return running.value


class RunningChecksum:
    """Computes the checksum of bytes that come one after another."""

    def __init__(self) -> None:
        self._size = 0
        self._crc32c = google_crc32c.Checksum()

    def update(self, content: bytes) -> None:
        self._size += len(content)
        self._crc32c.update(content)

    @property
    def value(self) -> Checksum:
        """The checksum of all bytes so far."""
        return Checksum(self._size, base64.b64encode(self._crc32c.digest()).decode())


def checksums(folder: epath.Path, files: Iterable[str]) -> dict[str, Checksum | None]:
    """Returns the checksums of files by name relative to `folder`; None where there is none. Raises StorageFailed."""
    files = list(files)
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(files, threads.map(lambda name: checksum(folder / name), files), strict=True))


def checksum(path: epath.Path) -> Checksum | None:
    """Returns the checksum of one file, None where there is none. Raises StorageFailed."""

    def compute() -> Checksum:
        if is_remote(path):
            info = filesystem(path).info(os.fspath(path))
            if info["type"] != "file":
                raise FileNotFoundError(path)
            if "crc32c" in info:
                return Checksum(int(info["size"]), info["crc32c"])
        running = RunningChecksum()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                running.update(chunk)
        return running.value

    try:
        return retried(f"reading {path}", compute)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
