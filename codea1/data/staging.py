"""Local copies of data in buckets, kept by their checksums: the same content is fetched once per machine."""

import base64
import os
import tempfile
from pathlib import Path

from etils import epath

from codea1.runtime.errors import BadInput, MissingFile
from codea1.storage.checksums import Checksum, checksum, checksum_of, checksums
from codea1.storage.faults import retried
from codea1.storage.objects import files, filesystem, is_remote


def staged_file(source: str, folder: str | None) -> str:
    """Returns the path of a local copy of a file; of a local file its own.

    Args:
      source: path or gs:// URL of a file.
      folder: copies are under its staged/; None for ~/.cache/codea1.

    Raises:
      MissingFile: the bucket has no such file.
      StorageFailed: it cannot be fetched whole.
    """
    if not is_remote(source):
        return source
    path = epath.Path(source)
    wanted = checksum(path)
    if wanted is None:
        raise MissingFile(f"data file {source} does not exist.")
    local = _place(folder, wanted) / path.name
    _fetch(path, wanted, local)
    return str(local)


def staged_folder(source: str, folder: str | None) -> str:
    """Returns the path of a local copy of a folder with all in it; of a local folder its own. See `staged_file`."""
    if not is_remote(source):
        return source
    path = epath.Path(source)
    wanted = {name: each for name, each in checksums(path, files(path)).items() if each is not None}
    if not wanted:
        raise BadInput(f"data folder {source} does not exist.")
    place = _place(folder, checksum_of(repr(sorted(wanted.items())).encode()))
    for name, each in wanted.items():
        _fetch(path / name, each, place / name)
    return str(place)


def _place(folder: str | None, content: Checksum) -> Path:
    name = f"{base64.b64decode(content.crc32c).hex()}-{content.size}"
    return Path(folder or "~/.cache/codea1").expanduser() / "staged" / name


def _fetch(source: epath.Path, wanted: Checksum, local: Path) -> None:
    """Copies a file unless the copy is there and whole."""
    if checksum(epath.Path(local)) == wanted:
        return
    local.parent.mkdir(parents=True, exist_ok=True)
    retried(f"fetching {source} to {local}", lambda: _copy(source, wanted, local))


def _copy(source: epath.Path, wanted: Checksum, local: Path) -> None:
    with tempfile.TemporaryDirectory(dir=local.parent) as partial:  # another process may fetch the same
        arriving = Path(partial) / local.name
        filesystem(source).get_file(os.fspath(source), str(arriving))
        arrived = checksum(epath.Path(arriving))
        if arrived != wanted:
            raise ConnectionError(
                f"{arrived.size if arrived else 0} of {wanted.size} bytes came, or not the right ones"
            )
        arriving.replace(local)
