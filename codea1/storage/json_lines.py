"""JSON Lines: one object per line, valid JSON everywhere, and readable after a crash cut the last line."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from etils import epath

from codea1.runtime.errors import BadInput
from codea1.storage.objects import read


def encode(row: Mapping[str, Any]) -> bytes:
    """Returns `row` as one line with its newline; NaN and infinities become null, numpy values become plain ones.

    Raises:
      TypeError: a value that JSON has no form for.
    """
    try:
        return orjson.dumps(row, _plain_array, orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # it refuses what UTF-8 cannot hold, long integers, and keys that are no text
        return json.dumps(plain(row), allow_nan=False).encode() + b"\n"


def _plain_array(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError


def plain(value: Any) -> Any:
    """Returns `value` made of dict, list, str, int, float, bool and None only, each float finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def whole_lines(path: epath.Path) -> list[tuple[str, dict[str, Any]]]:
    """Returns each line of `path` with the object it holds; none where the file is missing.

    A last line that a crash cut short, or that a live run has not finished, is left out.

    Raises:
      BadInput: another line is not a JSON object.
      StorageFailed: the file cannot be read.
    """
    try:
        *lines, unfinished = read(path).split(b"\n")
    except FileNotFoundError:
        return []
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError
        except ValueError:
            if number == len(lines) and not unfinished:
                break
            raise BadInput(f"{path}, line {number}: not a JSON object.") from None
        rows.append((line.decode() + "\n", row))
    return rows
