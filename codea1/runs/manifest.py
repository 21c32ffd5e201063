"""The manifest of a saved step: size and checksum of each of its files, by which damage is seen before it is read."""

import json
from collections.abc import Mapping

from etils import epath

from codea1.runtime.errors import BadInput
from codea1.storage.checksums import Checksum, checksum_of, checksums
from codea1.storage.objects import files, read, write_atomically

MANIFEST = "manifest.json"
# Orbax writes these when all else is there: the time of the commit, and the marker of a complete step.
_WRITTEN_LATER = ("_CHECKPOINT_METADATA", "commit_success.txt", MANIFEST)


def write_manifest(folder: epath.Path) -> None:
    """Writes the manifest of all files that are in `folder` now. Raises StorageFailed."""
    found = checksums(folder, [name for name in files(folder) if name not in _WRITTEN_LATER])
    listed = {name: checksum._asdict() for name, checksum in found.items() if checksum is not None}
    write_atomically(folder / MANIFEST, json.dumps({"files": listed, "crc32c": _crc32c(listed)}, indent=1) + "\n")


def read_manifest(folder: epath.Path, beginning: str = "") -> dict[str, Checksum]:
    """Returns the checksums of the files of `folder` whose names, relative to it, have this beginning.

    Raises BadInput: the manifest is missing or damaged; StorageFailed.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(read(path))
        listed = {name: Checksum(int(entry["size"]), str(entry["crc32c"])) for name, entry in manifest["files"].items()}
        if manifest["crc32c"] != _crc32c(manifest["files"]):
            raise ValueError
    except FileNotFoundError:
        raise BadInput(f"{path} is missing.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path} is damaged.") from None
    return {name: wanted for name, wanted in listed.items() if name.startswith(beginning)}


def check_manifest(folder: epath.Path, beginning: str = "") -> None:
    """Returns where the files of `folder` whose names have this beginning are those of its manifest.

    Those on a disk are read once; of those in a bucket, Cloud Storage's own checksums are asked for.

    Raises:
      BadInput: names the first file that is missing, has another size, or other content.
      StorageFailed: they cannot be read.
    """
    listed = read_manifest(folder, beginning)
    found = checksums(folder, listed)
    for name, wanted in listed.items():
        check_same(folder / name, found[name], wanted)


def check_same(path: epath.Path, found: Checksum | None, wanted: Checksum | None) -> None:
    """Raises BadInput where a file is missing, or is not the one that the manifest lists."""
    if found is None or wanted is None:
        raise BadInput(f"{path} is missing.")
    if found.size != wanted.size:
        raise BadInput(f"{path} is damaged: it has {found.size} bytes, and had {wanted.size}.")
    if found != wanted:
        raise BadInput(f"{path} is damaged: its content is not what was saved.")


def _crc32c(listed: Mapping[str, Mapping[str, object]]) -> str:
    return checksum_of(json.dumps(listed, sort_keys=True).encode()).crc32c
