"""The header of a safetensors file: which tensors it holds, and at which bytes.

Eight bytes, little-endian: the header's length; then JSON, {"name": {"dtype", "shape", "data_offsets"}}, offsets
counted from the header's end; then the tensors' bytes, row-major and little-endian, without gaps.
(https://github.com/huggingface/safetensors#format)

Read by itself, it lets a host fetch no more of a file than it needs.
"""

# Why not the library `safetensors`: it opens local files alone, and a folder of 60 GB in a bucket must stream without a
# local copy. `lab.model_writer` writes headers itself for the same reason: the library takes all of a file's tensors at
# once.

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from codea1.models.files import ModelFolder
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import Checksum, checksum_of

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}  # name in the file: name in JAX

_LONGEST = 100_000_000  # bytes, the format's limit: another kind of file can announce any length
_SAMPLES, _SAMPLE_BYTES = 16, 4096  # of a fingerprint

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """One tensor of a file."""

    file: str
    dtype: str  # as the file names it, one of DTYPES or another
    shape: Shape
    start: int  # its first byte in the file
    stop: int

    @property
    def jax_dtype(self) -> np.dtype:
        return jnp.dtype(DTYPES[self.dtype])

    def part(self, first: int, last: int) -> tuple[str, int, int]:
        """Returns the file, and where in it lie the numbers from `first` to `last` in row-major order."""
        size = self.jax_dtype.itemsize
        return self.file, self.start + first * size, self.start + last * size


def read_header(folder: ModelFolder, name: str) -> dict[str, Entry]:
    """Returns the tensors of a file by name.

    Raises BadInput: there is no such file, it is cut off or longer than its header says, or it has another format.
    """
    size = folder.size(name)
    folder.require_content(name)
    try:
        if size < 8:
            raise ValueError(f"it has {size} bytes")
        (length,) = struct.unpack("<Q", folder.read_ranges([(name, 0, 8)])[0])
        if length > min(size - 8, _LONGEST):
            raise ValueError(f"its header has {length} bytes, the file {size}")
        header = json.loads(folder.read_ranges([(name, 8, 8 + length)])[0])
        entries = {tensor: _entry(name, 8 + length, raw) for tensor, raw in header.items() if tensor != "__metadata__"}
        _check_whole(entries, 8 + length, size)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{folder.file(name)}: is not a whole safetensors file ({error}).") from error
    return entries


def fingerprint(folder: ModelFolder, name: str) -> Checksum:
    """Returns the size of a file, and a checksum of its header and of samples of its bytes: 60 GB are not read.

    Raises BadInput as `read_header` does.
    """
    header, size = read_header(folder, name), folder.size(name)
    samples = [(name, at, min(at + _SAMPLE_BYTES, size)) for at in range(0, size, -(-size // _SAMPLES))]
    return Checksum(size, checksum_of(repr(header).encode() + b"".join(folder.read_ranges(samples))).crc32c)


def _entry(file: str, origin: int, raw: dict) -> Entry:
    start, stop = raw["data_offsets"]
    entry = Entry(file, raw["dtype"], tuple(raw["shape"]), origin + start, origin + stop)
    numbers = (start, stop, *entry.shape)
    if not isinstance(entry.dtype, str) or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"{raw} describes no tensor")
    if entry.dtype in DTYPES and stop - start != math.prod(entry.shape) * entry.jax_dtype.itemsize:
        raise ValueError(f"{stop - start} bytes are not {entry.dtype} of shape {entry.shape}")
    return entry


def _check_whole(entries: Mapping[str, Entry], origin: int, size: int) -> None:
    at = origin
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.stop)):
        if entry.start != at:
            raise ValueError(f"a tensor starts at byte {entry.start}, the one before ends at {at}")
        at = entry.stop
    if at != size:
        raise ValueError(f"its tensors end at byte {at}, the file at {size}")
