"""JSON Lines: one object per line, valid JSON everywhere, and readable after a crash cut the last line.

PATH.zst is a file of them that was written at once, as one Zstandard frame (RFC 8878) with the checksum of its text.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import orjson
import zstandard
from etils import epath

from codea1.runtime.errors import BadInput
from codea1.storage.objects import read

_CHUNK_BYTES = 1 << 14  # compressed, decompressed at a time, to at most 512 MiB
_LONGEST_LINE = 1 << 28  # bytes; a file that somebody made to fill the memory of its reader has a longer one


def encode(row: Mapping[str, Any]) -> bytes:
    """Returns `row` as one line with its newline; NaN and infinities become null, numpy values become plain ones.

    Raises:
      TypeError: a value that JSON has no form for.
    """
    try:
        return orjson.dumps(row, lambda array: array.tolist(), orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # it refuses what UTF-8 cannot hold, long integers, and keys that are no text
        return json.dumps(plain(row), allow_nan=False).encode() + b"\n"


def compressed(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Returns the content of a .zst file of `rows`, whose text is never held as a whole. Raises TypeError: `encode`."""
    compressor = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return b"".join([*(compressor.compress(encode(row)) for row in rows), compressor.flush()])


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


def loads(text: str | bytes) -> Any:
    """Returns what JSON says. Raises ValueError where it is none, or is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def whole_lines(path: epath.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each line of `path` with the object it holds, one after another; none where the file is missing.

    A last line that a crash cut short, or that a live run has not finished, is left out; a .zst file has none.

    Raises:
      BadInput: another line is not a JSON object, or a .zst file is damaged.
      StorageFailed: the file cannot be read.
    """
    try:
        content = read(path)
    except FileNotFoundError:
        return
    last, lines = 0, _decompressed_lines(path, content)
    if path.suffix != ".zst":
        *lines, unfinished = content.split(b"\n")
        last = 0 if unfinished else len(lines)
    for number, line in enumerate(lines, start=1):
        try:
            row = loads(line)
            if not isinstance(row, dict):
                raise ValueError
        except ValueError:
            if number == last:
                return
            raise BadInput(f"{path}, line {number}: not a JSON object.") from None
        yield line.decode() + "\n", row


def _decompressed_lines(path: epath.Path, content: bytes) -> Iterator[bytes]:
    decompressor, rest = zstandard.ZstdDecompressor().decompressobj(), b""
    try:
        for start in range(0, len(content), _CHUNK_BYTES):
            *lines, rest = (rest + decompressor.decompress(content[start : start + _CHUNK_BYTES])).split(b"\n")
            yield from lines
            if len(rest) > _LONGEST_LINE:
                raise BadInput(f"{path} has a line of more than {_LONGEST_LINE >> 20} MiB.")
    except zstandard.ZstdError:
        raise BadInput(f"{path} is damaged: its content is not what was written.") from None
    if not decompressor.eof or decompressor.unused_data or rest:
        raise BadInput(f"{path} is damaged: it is not as long as it was written.")
