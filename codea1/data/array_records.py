"""Rows of datasets that tensorflow-datasets prepared as array_record files, whose lengths are not taken on trust.

The reader of array_record finds no row in a file that is missing or cut, and says nothing; dataset_info.json knows how
many there were.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordReader

from codea1.data.staging import staged_folder
from codea1.runtime.errors import BadInput

Row = dict[str, Any]


def dataset_rows(source: str, split: str | None, folder: str | None) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a split of a prepared dataset, each with its place for messages.

    Args:
      source: path or gs:// URL of the folder with dataset_info.json.
      split: by its name.
      folder: where a copy of a bucket's dataset goes; see `codea1.data.staging`.

    Raises:
      BadInput: no dataset, no such split, or a file of it that is missing or damaged.
      StorageFailed: the bucket fails.
    """
    local = staged_folder(source, folder)
    if not (Path(local) / "dataset_info.json").is_file():
        raise BadInput(f"data folder {source} has no dataset_info.json, so it is no tensorflow-datasets dataset.")
    try:
        builder = tfds.builder_from_directory(local)
    except Exception as error:  # of protobuf, JSON or TFDS
        raise BadInput(f"{source}/dataset_info.json is damaged: {_one_line(error)}.") from None
    yield from split_rows(builder, split, source)


def split_rows(builder: tfds.core.DatasetBuilder, split: str | None, source: str) -> Iterator[tuple[str, Row]]:
    """Yields the rows of one split of a builder whose data are on a disk; see `dataset_rows`."""
    if split not in builder.info.splits:
        raise BadInput(f"the dataset {source} has no split {split!r}; it has {', '.join(builder.info.splits)}.")
    if builder.info.file_format != tfds.core.FileFormat.ARRAY_RECORD:
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
    if not path.exists():
        raise BadInput(f"{source}/{path.name} is missing.")
    try:
        reader = ArrayRecordReader(str(path))
        found = reader.num_records()
        reader.close()
    except RuntimeError as error:
        raise BadInput(f"{source}/{path.name} is damaged: {_one_line(error)}.") from None
    if found != wanted:
        raise BadInput(f"{source}/{path.name} is damaged: it has {found} rows, and dataset_info.json says {wanted}.")


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:200]


def _plain(value: Any) -> Any:
    """A value as it was written: TFDS gives text as bytes, lists as arrays, a list of records as a record of lists."""
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
