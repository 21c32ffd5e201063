"""The manifest of a step: the size and checksum of each of its files, by which damage is seen before it is read."""

import json
from collections.abc import Mapping

from etils import epath

from codea1.runtime.errors import BadInput
from codea1.storage.checksums import Checksum, checksum_of, checksums
from codea1.storage.objects import files, read, write_atomically

NAME = "manifest.json"
# Orbax writes these when all else is there: the time of the commit, and the marker of a complete step.
_WRITTEN_LATER = ("_CHECKPOINT_METADATA", "commit_success.txt", NAME)


def write_manifest(folder: epath.Path) -> None:
    """Writes the manifest of all files that are in `folder` now. Raises StorageFailed."""
    found = checksums(folder, [name for name in files(folder) if name not in _WRITTEN_LATER])
    listed = {name: checksum._asdict() for name, checksum in found.items() if checksum is not None}
    write_atomically(folder / NAME, json.dumps({"files": listed, "crc32c": _of_list(listed)}, indent=1) + "\n")


def check_manifest(folder: epath.Path, beginning: str = "") -> None:
    """Returns where the files of `folder` whose names have this beginning are those of its manifest.

    Those on a disk are read once; of those in a bucket, Cloud Storage's own checksums are asked for.

    Raises:
      BadInput: names the first file that is missing, has another size, or other content.
      StorageFailed: they cannot be read.
    """
    listed = {name: wanted for name, wanted in _listed(folder).items() if name.startswith(beginning)}
    found = checksums(folder, listed)
    for name, wanted in listed.items():
        there = found[name]
        if there is None:
            raise BadInput(f"{folder / name} is missing.")
        if there.size != wanted.size:
            raise BadInput(f"{folder / name} is damaged: it has {there.size} bytes, and had {wanted.size}.")
        if there.crc32c != wanted.crc32c:
            raise BadInput(f"{folder / name} is damaged: its content is not what was saved.")


def _listed(folder: epath.Path) -> dict[str, Checksum]:
    path = folder / NAME
    try:
        manifest = json.loads(read(path))
        listed = {name: Checksum(int(entry["size"]), str(entry["crc32c"])) for name, entry in manifest["files"].items()}
        if manifest["crc32c"] != _of_list(manifest["files"]):
            raise ValueError
    except FileNotFoundError:
        raise BadInput(f"{path} is missing.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path} is damaged.") from None
    return listed


def _of_list(listed: Mapping[str, Mapping[str, object]]) -> str:
    return checksum_of(json.dumps(listed, sort_keys=True).encode()).crc32c
