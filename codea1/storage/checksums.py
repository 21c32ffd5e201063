"""Sizes and CRC-32C checksums of files, and the manifest of a folder that holds those of all its files.

Of a bucket's objects, Cloud Storage keeps the checksums: the objects are not read.
"""

import base64
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import fsspec
import google_crc32c
from etils import epath

from codea1.runtime.errors import BadInput
from codea1.storage.faults import retried
from codea1.storage.json_lines import loads
from codea1.storage.objects import files, filesystem, is_remote, read, sync, write_atomically

MANIFEST = "manifest.json"
# Orbax writes these when all else of a saved step is there: the time of the commit, and the marker of completeness.
_WRITTEN_LATER = ("_CHECKPOINT_METADATA", "commit_success.txt", MANIFEST)
_CHUNK_BYTES = 1 << 22
_THREADS = 8


class Checksum(NamedTuple):
    """Identifies the content of a file."""

    size: int  # bytes
    crc32c: str  # big-endian, in Base64, as Cloud Storage writes it


def checksum_of(content: bytes) -> Checksum:
    """Returns the checksum of some bytes."""
    return _checksum_of_chunks([content])


def _checksum_of_chunks(chunks: Iterable[bytes]) -> Checksum:
    size, crc32c = 0, google_crc32c.Checksum()
    for chunk in chunks:
        size += len(chunk)
        crc32c.update(chunk)
    return Checksum(size, base64.b64encode(crc32c.digest()).decode())


def checksums(folder: epath.Path, names: Iterable[str]) -> dict[str, Checksum | None]:
    """Returns the checksums of files by name relative to `folder`; None where there is none. Raises StorageFailed."""
    names = list(names)
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(names, threads.map(lambda name: checksum(folder / name), names), strict=True))


def checksum(path: epath.Path) -> Checksum | None:
    """Returns the checksum of one file, None where there is none. Raises StorageFailed."""
    try:
        return retried(f"reading {path}", lambda: stored_checksum(filesystem(path), os.fspath(path)))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def stored_checksum(system: fsspec.AbstractFileSystem, path: str) -> Checksum:
    """Returns the checksum of a file, which is not read where its filesystem keeps one. Raises what that raises."""
    info = system.info(path)
    if info["type"] == "directory":
        raise IsADirectoryError(path)
    if "crc32c" in info:
        return Checksum(int(info["size"]), info["crc32c"])
    with system.open(path, "rb") as file:
        return _checksum_of_chunks(iter(partial(file.read, _CHUNK_BYTES), b""))


def write_manifest(folder: epath.Path) -> None:
    """Writes the manifest of all files that are in `folder` now, once all are stored (`sync`). Raises StorageFailed."""
    if not is_remote(folder):
        with ThreadPoolExecutor(_THREADS) as threads:
            paths = (epath.Path(root) / name for root, _, held in os.walk(folder) for name in ("", *held))
            list(threads.map(sync, paths))
    there = checksums(folder, [name for name in files(folder) if name not in _WRITTEN_LATER])
    listed = {name: entry._asdict() for name, entry in there.items() if entry is not None}
    write_atomically(folder / MANIFEST, json.dumps({"files": listed, "crc32c": _crc32c(listed)}, indent=1) + "\n")


def read_manifest(folder: epath.Path, beginning: str = "") -> dict[str, Checksum]:
    """Returns the checksums of the files of `folder` whose names, relative to it, have this beginning.

    Raises BadInput: the manifest is missing or damaged; StorageFailed.
    """
    path = folder / MANIFEST
    try:
        manifest = loads(read(path))
        listed = {name: Checksum(int(entry["size"]), str(entry["crc32c"])) for name, entry in manifest["files"].items()}
        if manifest["crc32c"] != _crc32c(manifest["files"]):
            raise ValueError
    except FileNotFoundError:
        raise BadInput(f"{path} is missing.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path} is damaged.") from None
    return {name: wanted for name, wanted in listed.items() if name.startswith(beginning)}


def check_manifest(folder: epath.Path, beginning: str = "") -> None:
    """Checks the files of `folder` whose names have this beginning against its manifest.

    Those on a disk are read once; for those in a bucket, Cloud Storage's own checksums are compared.

    Raises:
      BadInput: names the first file that is missing, has another size, or other content.
      StorageFailed: they cannot be read.
    """
    listed = read_manifest(folder, beginning)
    there = checksums(folder, listed)
    for name, wanted in listed.items():
        check_same(folder / name, there[name], wanted)


def check_same(path: epath.Path, here: Checksum | None, wanted: Checksum | None) -> None:
    """Raises BadInput where a file is missing, or is not the one that the manifest lists."""
    if here is None or wanted is None:
        raise BadInput(f"{path} is missing.")
    if here.size != wanted.size:
        raise BadInput(f"{path} is damaged: it has {here.size} bytes, and had {wanted.size}.")
    if here != wanted:
        raise BadInput(f"{path} is damaged: its content is not what was saved.")


def _crc32c(listed: Mapping[str, Mapping[str, object]]) -> str:
    return checksum_of(json.dumps(listed, sort_keys=True).encode()).crc32c
