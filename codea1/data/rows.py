"""Rows of data files: of Parquet, JSON lines and prepared tensorflow-datasets, on a disk or copied from a bucket.

Copies of what is in buckets are kept by their checksums, so that the same content is fetched once per machine. Every
row comes with its place for messages.
"""

import base64
import codecs
import gzip
import io
import itertools
import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from codea1.data.sources import cache
from codea1.runtime.errors import BadInput, MissingFile
from codea1.runtime.extras import require
from codea1.storage.checksums import Checksum, checksum, checksum_of, checksums
from codea1.storage.faults import retried
from codea1.storage.objects import files, filesystem, is_remote

_ROWS_AT_ONCE = 256  # as Python objects
_MAX_LINE = 100 << 20  # bytes of a row of JSON lines; those of official files have some 200,000
_GZIP = b"\x1f\x8b"  # what such files begin with
_NOT_READ = {  # by what such files begin with
    b"PAR1": "a Parquet file, and is not called so",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: decompress it first",
    b"\xfd7zXZ": "compressed by xz: decompress it first",
    b"BZh": "compressed by bzip2: decompress it first",
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"\xff\xfe": "UTF-16 by its byte order mark: write it as UTF-8",
    b"\xfe\xff": "UTF-16 by its byte order mark: write it as UTF-8",
}

Row = dict[str, Any]


def file_rows(path: str, folder: str | None = None) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a data file, local or on gs://, each with its place for messages.

    One whose name ends in .parquet is read as such; any other is JSON lines or one JSON array, gzipped or not, whatever
    it is called.

    Args:
      folder: see `staged_file`.

    Raises:
      StorageFailed: the bucket fails.
      BadInput: there is no such file, or it is not of that form, or names a row that is none.
    """
    for where, row in rows_or_errors(path, folder):
        if isinstance(row, BadInput):
            raise row
        yield where, row


def rows_or_errors(
    path: str, folder: str | None = None, columns: Sequence[str] | None = None
) -> Iterator[tuple[str, Row | BadInput]]:
    """Yields rows as `file_rows` does, and for what is none the error; of a Parquet file `columns` alone, or all."""
    if path.endswith(".parquet"):
        require("pyarrow", f"data file {path}")
    local = staged_file(path, folder)
    if os.path.isdir(local):
        raise BadInput(f"data file {path} is a folder.")
    yield from _parquet_rows(path, local, columns) if path.endswith(".parquet") else _json_rows(path, local)


def _parquet_rows(path: str, local: str, columns: Sequence[str] | None) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a Parquet file, each with its place for messages, by the name `path` of its copy `local`.

    Raises BadInput: no such file, it is not Parquet, or it lacks one of `columns`, which alone are read where they are
    given.
    """
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(local) as file:
            for name in columns or ():
                if name not in file.schema_arrow.names:
                    raise BadInput(f"{path} has no column {name!r}.")
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                for row in batch.to_pylist():
                    yield f"{path}, row {number}", row
                    number += 1
    except FileNotFoundError:
        raise MissingFile(f"data file {path} does not exist.") from None
    except (pyarrow.ArrowInvalid, OSError) as error:
        if number := getattr(error, "errno", None):
            raise BadInput(f"data file {path} cannot be read: {os.strerror(number)}.") from None
        raise BadInput(f"data file {path} is not a Parquet file: {error}") from None


def _json_rows(path: str, local: str) -> Iterator[tuple[str, Row | BadInput]]:
    """Yields the objects of a file of JSON lines, or of one JSON array, each with its place for messages.

    In the place of what is no object, or too long a line, is the error that names it.

    Args:
      path: the name of its copy `local` in messages.

    Raises BadInput: no such file, cut short, Parquet, compressed otherwise, UTF-16, or an array that is not JSON.
    """
    try:
        with open(local, "rb") as file:
            begins = file.read(8)
        for magic, what in _NOT_READ.items():
            if begins.startswith(magic):
                raise BadInput(f"data file {path} is {what}.")
        with gzip.open(local) if begins.startswith(_GZIP) else open(local, "rb") as file:
            first = next((line for line in iter(lambda: file.readline(_MAX_LINE), b"") if line.strip()), b"")
            file.seek(0)
            if first.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
                array = _json(file.read(), path)
                rows = ((f"{path}, row {number}", row) for number, row in enumerate(array, 1))
            else:
                rows = _lines(file, path)
            for where, row in rows:
                yield where, row if isinstance(row, dict | BadInput) else BadInput(f"{where}: not a JSON object.")
    except FileNotFoundError:
        raise MissingFile(f"data file {path} does not exist.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadInput(f"data file {path} is a damaged gzip file: {error}.") from None
    except OSError as error:
        raise BadInput(f"data file {path} cannot be read: {error.strerror}.") from None


def _lines(file: io.BufferedIOBase, path: str) -> Iterator[tuple[str, Any]]:
    for number in itertools.count(1):
        line = file.readline(_MAX_LINE)
        if not line:
            return
        where = f"{path}, line {number}"
        if len(line) == _MAX_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(_MAX_LINE)
            yield where, BadInput(f"{where}: longer than {_MAX_LINE:,} bytes.")
        elif line.strip():
            try:
                yield where, _json(line, where)
            except BadInput as error:
                yield where, error


def _json(text: bytes, where: str) -> Any:
    """Parses JSON. Raises BadInput where the text is not UTF-8, not JSON, or nested too deeply."""
    try:
        return json.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise BadInput(f"{where}: not UTF-8.") from None
    except ValueError as error:
        raise BadInput(f"{where}: not JSON: {error}.") from None
    except RecursionError:
        raise BadInput(f"{where}: JSON nested too deeply.") from None


def dataset_rows(source: str, split: str | None, folder: str | None) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a split of a prepared dataset, each with its place for messages.

    The reader of array_record finds no row in a file that is missing or cut, and says nothing; dataset_info.json knows
    how many there were.

    Args:
      source: path or gs:// URL of the folder with dataset_info.json.
      split: by its name.
      folder: where a copy of a bucket's dataset goes; see `staged_file`.

    Raises:
      BadInput: no dataset, no such split, or a file of it that is missing or damaged.
      StorageFailed: the bucket fails.
    """
    require("tensorflow_datasets", f"data folder {source}")
    local = staged_folder(source, folder)
    if not (Path(local) / "dataset_info.json").is_file():
        raise BadInput(f"data folder {source} has no dataset_info.json, so it is no tensorflow-datasets dataset.")
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder_from_directory(local)
    except Exception as error:  # of protobuf, JSON or TFDS
        raise BadInput(f"{source}/dataset_info.json is damaged: {_one_line(error)}.") from None
    if split not in builder.info.splits:
        raise BadInput(f"the dataset {source} has no split {split!r}; it has {', '.join(builder.info.splits)}.")
    if builder.info.file_format.value != "array_record":
        raise BadInput(f"the dataset {source} is not of array_record files.")
    info = builder.info.splits[split]
    for path, wanted in zip(info.filepaths, info.shard_lengths, strict=True):
        _check_shard(source, path, wanted)
    examples = builder.as_data_source(split=split)
    for number in range(len(examples)):
        place = f"{source}, split {split}, row {number}"
        try:
            row = _with_messages(_plain(examples[number]))
        except Exception as error:  # of array_record, protobuf or TFDS
            raise BadInput(f"{place} is damaged: {_one_line(error)}.") from None
        yield place, row


def _check_shard(source: str, path: Any, wanted: int) -> None:
    from array_record.python.array_record_module import ArrayRecordReader

    if not path.exists():
        raise BadInput(f"{source}/{path.name} is missing.")
    try:
        reader = ArrayRecordReader(str(path))
        records = reader.num_records()
        reader.close()
    except RuntimeError as error:
        raise BadInput(f"{source}/{path.name} is damaged: {_one_line(error)}.") from None
    if records != wanted:
        raise BadInput(f"{source}/{path.name} is damaged: it has {records} rows, and dataset_info.json says {wanted}.")


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:200]


def _plain(value: Any) -> Any:
    """Undoes what TFDS makes of values: of text bytes, of lists arrays, of a list of records a record of lists."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple, np.ndarray)) else value


def _with_messages(row: Row) -> Row:
    prompt = row.get("prompt")
    if not isinstance(prompt, dict) or prompt.keys() != {"role", "content"}:
        return row
    messages = zip(prompt["role"], prompt["content"], strict=True)
    return row | {"prompt": [{"role": role, "content": content} for role, content in messages]}


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
    return str(_fetched(path, wanted, _place(folder, wanted) / path.name))


def staged_folder(source: str, folder: str | None) -> str:
    """Returns the path of a local copy of a folder with all in it; of a local folder its own. See `staged_file`."""
    if not is_remote(source):
        return source
    path = epath.Path(source)
    wanted = {name: entry for name, entry in checksums(path, files(path)).items() if entry is not None}
    if not wanted:
        raise BadInput(f"data folder {source} does not exist.")
    place = _place(folder, checksum_of(repr(sorted(wanted.items())).encode()))
    for name, entry in wanted.items():
        _fetched(path / name, entry, place / name)
    return str(place)


def _place(folder: str | None, content: Checksum) -> Path:
    name = f"{base64.b64decode(content.crc32c).hex()}-{content.size}"
    return cache(folder) / "staged" / name


def _fetched(source: epath.Path, wanted: Checksum, local: Path) -> Path:
    """Returns the place of a file's copy, which is made unless it is there and whole."""

    def copy() -> None:
        local.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=local.parent) as partial:  # another process may fetch the same
            arriving = Path(partial) / local.name
            filesystem(source).get_file(os.fspath(source), str(arriving))
            arrived = checksum(epath.Path(arriving))
            if arrived != wanted:
                size = arrived.size if arrived else 0
                raise ConnectionError(f"{size} of {wanted.size} bytes came, or not the right ones")
            arriving.replace(local)

    if checksum(epath.Path(local)) != wanted:
        retried(f"fetching {source} to {local}", copy)
    return local
