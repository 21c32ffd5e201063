"""The files of a model's folder, on a local disk or behind any URL that fsspec knows, such as gs://BUCKET/FOLDER."""

import contextlib
import glob
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fsspec.implementations.local import LocalFileSystem

from codea1.runtime.errors import BadInput, StorageFailed
from codea1.storage.checksums import Checksum, stored_checksum
from codea1.storage.faults import Fault, fault_of, reason, retried, translate_storage_errors
from codea1.storage.objects import filesystem_of_url

T = TypeVar("T")

_WRITTEN_AT_ONCE = 16 << 20  # bytes: what a bucket's client holds of a file that is being written

Content = bytes | memoryview

_POINTER, _POINTER_BYTES = b"version https://git-lfs", 1024  # how a Git LFS pointer begins, and how long it is at most
# Where models lie in what a trainer wrote, and in a cache of the Hugging Face hub.
_BELOW = ("*", "snapshots/*", "models--*/snapshots/*", "hub/models--*/snapshots/*")


class ModelFolder:
    """One folder. config.json is written last: where it is missing, a model is missing or not yet whole.

    Methods that read raise BadInput for what does not exist or may not be read, and StorageFailed for other faults.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        """Reads nothing. Raises BadInput for a URL of a kind that fsspec does not know, or lacks the package for."""
        self.url = os.fspath(url).rstrip("/")
        self._files, self._path = filesystem_of_url(self.url)

    def __str__(self) -> str:
        return self.url

    @property
    def place(self) -> str:
        """What two names of one folder have in common."""
        local = isinstance(self._files, LocalFileSystem)
        return os.path.realpath(self._path) if local else self._files.unstrip_protocol(self._path)

    def file(self, name: str) -> str:
        """Returns what a file is called in a sentence."""
        return f"{self.url}/{name}"

    def names(self) -> list[str]:
        """Returns the names of the files in the folder, sorted; none where there is no folder."""
        paths = _read(self.url, lambda: self._files.find(self._path, maxdepth=1), missing="there is no such bucket")
        return sorted(path.rpartition("/")[2] for path in paths)

    def holds_model(self) -> bool:
        """Returns whether the folder is whole."""
        return "config.json" in self.names()

    def require_model_here(self) -> None:
        """Raises BadInput where the folder holds no model and no adapters, but folders below it do: it names these."""
        kinds = ("config.json", "adapter_config.json")
        if not {*kinds} & {*self.names()}:
            patterns = [f"{glob.escape(self._path)}/{folders}/{kind}" for folders in _BELOW for kind in kinds]
            paths = _read(self.url, lambda: [path for pattern in patterns for path in self._files.glob(pattern)])
            folders = {path.rpartition("/")[0].removeprefix(self._path).strip("/") for path in paths}
            if last := sorted(folders, key=lambda folder: (len(folder), folder))[-3:]:
                raise BadInput(
                    f"{self.url} holds no model itself; name a folder below it that does: {', '.join(last)}."
                )

    def require_content(self, name: str) -> None:
        """Raises BadInput where a file is missing, or a Git LFS pointer to what was not downloaded."""
        if self.size(name) <= _POINTER_BYTES:
            self.read(name)

    def size(self, name: str) -> int:
        """Returns the bytes in a file."""
        return _read(self.file(name), lambda: self._files.size(self._at(name)))

    def read(self, name: str) -> bytes:
        """Returns a whole file. Raises BadInput where it is a Git LFS pointer."""
        content = _read(self.file(name), lambda: self._files.cat_file(self._at(name)))
        if content.startswith(_POINTER):
            raise BadInput(f"{self.file(name)}: is a Git LFS pointer: `git lfs pull` gets the file that it stands for.")
        return content

    def read_json(self, name: str) -> dict[str, Any]:
        """Returns the object that a JSON file holds. Raises BadInput where it holds none."""
        try:
            content = json.loads(self.read(name))
        except ValueError as error:
            raise BadInput(f"{self.file(name)}: is not JSON ({error}).") from error
        if not isinstance(content, dict):
            raise BadInput(f"{self.file(name)}: is not a JSON object.")
        return content

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Returns bytes `start` to `stop` of files, for each (name, start, stop), all asked for at once.

        Raises BadInput where a file ends before.
        """
        names, starts, stops = (list(column) for column in zip(*ranges, strict=True))
        paths = [self._at(name) for name in names]
        parts = _read(self.file(names[0]), lambda: self._files.cat_ranges(paths, starts, stops, on_error="raise"))
        for part, (name, start, stop) in zip(parts, ranges, strict=True):
            if len(part) != stop - start:
                raise BadInput(f"{self.file(name)}: ends after {start + len(part)} bytes, before byte {stop}.")
        return parts

    def checksum(self, name: str) -> Checksum:
        """Returns the checksum of a file, which is not read where its storage keeps one."""
        return _read(self.file(name), lambda: stored_checksum(self._files, self._at(name)))

    def write(self, name: str, chunks: Iterable[Content]) -> None:
        """Writes a file that consists of `chunks`. A bucket shows it when it is whole, a local disk at once.

        Raises BadInput where a file is in the folder's place; StorageFailed.
        """
        with translate_storage_errors(f"writing {self.file(name)}"):
            try:
                self._files.makedirs(self._path, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise BadInput(f"{self.url}: is not a folder.") from None
            with self._files.open(self._at(name), "wb") as file:
                for chunk in chunks:
                    for start in range(0, len(chunk), _WRITTEN_AT_ONCE):
                        file.write(chunk[start : start + _WRITTEN_AT_ONCE])

    def write_json(self, name: str, content: Any) -> None:
        """Writes a JSON file."""
        self.write(name, [(json.dumps(content, indent=2, sort_keys=True) + "\n").encode()])

    def remove(self) -> None:
        """Removes the folder and all that is in it; none need be there."""
        with contextlib.suppress(FileNotFoundError):
            retried(f"removing {self.url}", lambda: self._files.rm(self._path, recursive=True))

    @contextlib.contextmanager
    def staged(self, wanted: Collection[str]) -> Iterator[Path]:
        """Yields a local folder with those files of these names that exist, for libraries that read no other."""
        if isinstance(self._files, LocalFileSystem):
            yield Path(self._path)
            return
        with tempfile.TemporaryDirectory(prefix="codea1-model-") as folder:
            for name in self.names():
                if name in wanted:
                    (Path(folder) / name).write_bytes(self.read(name))
            yield Path(folder)

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"


def _read(what: str, operation: Callable[[], T], missing: str = "there is no such file") -> T:
    """Returns what `operation` reads. Raises BadInput: it does not exist or may not be read; StorageFailed."""
    try:
        return retried(f"reading {what}", operation)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{what}: {missing}.") from None
    except IsADirectoryError as error:
        raise BadInput(f"{what}: cannot be read ({error}).") from error
    except StorageFailed as error:
        if fault_of(error) != Fault.DENIED:
            raise
        raise BadInput(f"{what}: cannot be read ({reason(error.__cause__ or error)}).") from error
