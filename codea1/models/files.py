"""The files of a model's folder, on a local disk or behind any URL that fsspec knows, such as gs://BUCKET/FOLDER."""

import contextlib
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from codea1.runtime.errors import BadInput

_WRITTEN_AT_ONCE = 16 << 20  # bytes: what a bucket's client holds of a file that is being written

Content = bytes | memoryview


class ModelFolder:
    """One folder. config.json is written last: where it is missing, a model is missing or not yet whole."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        """Nothing is read. Raises BadInput for a URL of a kind that fsspec does not know, or lacks the package for."""
        self.url = os.fspath(url).rstrip("/")
        try:
            self._files, self._path = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except (ValueError, ImportError) as error:
            raise BadInput(f"{self.url} cannot be opened: {error}") from None

    def __str__(self) -> str:
        return self.url

    def file(self, name: str) -> str:
        """What a file is called in a sentence."""
        return f"{self.url}/{name}"

    def names(self) -> list[str]:
        """Names of the files in the folder, sorted; none where there is no folder. Raises BadInput: no such bucket."""
        with _told(self.url, missing="there is no such bucket"):
            found = self._files.find(self._path, maxdepth=1)
        return sorted(path.rpartition("/")[2] for path in found)

    def holds_model(self) -> bool:
        """Whether the folder is whole."""
        return "config.json" in self.names()

    def size(self, name: str) -> int:
        """Bytes in a file. Raises BadInput where it cannot be read."""
        with _told(self.file(name)):
            return self._files.size(self._at(name))

    def read(self, name: str) -> bytes:
        """A whole file. Raises BadInput where it cannot be read."""
        with _told(self.file(name)):
            return self._files.cat_file(self._at(name))

    def read_json(self, name: str) -> Any:
        """What a JSON file holds. Raises BadInput where it cannot be read, or is none."""
        try:
            return json.loads(self.read(name))
        except ValueError as error:
            raise BadInput(f"{self.file(name)}: is not JSON ({error})") from error

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Bytes `start` to `stop` of files, for each (name, start, stop), all asked for at once.

        Raises BadInput where one cannot be read or ends before.
        """
        names, starts, stops = (list(column) for column in zip(*ranges, strict=True))
        with _told(self.file(names[0])):
            parts = self._files.cat_ranges([self._at(name) for name in names], starts, stops, on_error="raise")
        for part, (name, start, stop) in zip(parts, ranges, strict=True):
            if len(part) != stop - start:
                raise BadInput(f"{self.file(name)}: ends after {start + len(part)} bytes, before byte {stop}")
        return parts

    def write(self, name: str, chunks: Iterable[Content]) -> None:
        """Writes a file that consists of `chunks`. A bucket shows it when it is whole, a local disk at once."""
        self._files.makedirs(self._path, exist_ok=True)
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
            self._files.rm(self._path, recursive=True)

    @contextlib.contextmanager
    def staged(self, wanted: Collection[str]) -> Iterator[Path]:
        """A local folder with the files of these names that there are, for libraries that read no other; then gone."""
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


@contextlib.contextmanager
def _told(what: str, missing: str = "there is no such file") -> Iterator[None]:
    """Turns into BadInput what fsspec raises for what is not there or not for us; a failing network is none."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{what}: {missing}") from None
    except Exception as error:
        # gcsfs has an OSError for 403 and an exception of its own for 401.
        is_forbidden = str(error).startswith("Forbidden") or getattr(error, "code", None) in (401, 403)
        if not is_forbidden and not isinstance(error, (PermissionError, IsADirectoryError)):
            raise
        raise BadInput(f"{what}: cannot be read ({error})") from error
