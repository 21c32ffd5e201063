"""Our reading and writing of headers against the format's own library."""

import contextlib
import itertools
import json
import struct

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from safetensors import deserialize
from safetensors.numpy import save

from codea1.lab.model_writer import make_header
from codea1.models.files import ModelFolder
from codea1.models.safetensors_header import DTYPES, read_header
from codea1.runtime.errors import BadInput

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
NAMES = st.text(min_size=1, max_size=20).filter(lambda name: name != "__metadata__")
TENSORS = st.dictionaries(NAMES, st.tuples(SHAPES, st.sampled_from(sorted(DTYPES.values()))), max_size=5)


def random_arrays(tensors) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(jnp.dtype(dtype)) for name, (shape, dtype) in tensors.items()}


@given(tensors=TENSORS)
def test_the_library_reads_what_we_write(tensors):
    arrays = random_arrays(tensors)
    header = make_header({name: (array.shape, array.dtype) for name, array in arrays.items()})
    found = dict(deserialize(header + b"".join(array.tobytes() for array in arrays.values())))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (DTYPES[found[name]["dtype"]], tuple(found[name]["shape"])) == (array.dtype.name, array.shape)
        assert found[name]["data"] == array.tobytes()


@given(tensors=TENSORS, metadata=st.booleans())
def test_we_read_what_the_library_writes(tensors, metadata):
    arrays = random_arrays(tensors)
    content = save(arrays, metadata={"format": "pt"} if metadata else None)
    folder = ModelFolder("memory://written-by-the-library")
    folder.write("file", [content])
    entries = read_header(folder, "file")
    assert entries.keys() == arrays.keys()
    for name, array in arrays.items():
        entry = entries[name]
        assert (entry.shape, entry.jax_dtype) == (array.shape, array.dtype)
        assert content[entry.start : entry.stop] == array.tobytes()


def encoded(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(**changes: object) -> dict[str, object]:
    return {"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "it has 0 bytes"),
        (b"short", "it has 5 bytes"),
        (struct.pack("<Q", 1 << 60) + b"{}", "its header has"),
        (encoded(b"{"), "Expecting"),
        (encoded(b"\xff"), "utf-8"),
        (encoded([]), "list"),
        (encoded({"t": {}}), "data_offsets"),
        (encoded(tensor(), bytes(7)), "end at byte 77, the file at 76"),
        (encoded(tensor(), bytes(9)), "end at byte 77, the file at 78"),
        (encoded(tensor(shape=[3]), bytes(8)), "8 bytes are not F32 of shape"),
        (encoded(tensor(shape=[-2]), bytes(8)), "describes no tensor"),
        (encoded(tensor(shape="2"), bytes(8)), "describes no tensor"),
        (encoded(tensor(dtype=None), bytes(8)), "describes no tensor"),
        (encoded(tensor(data_offsets=[8, 16]), bytes(16)), "starts at byte"),
        (encoded(tensor() | {"u": tensor()["t"]}, bytes(16)), "starts at byte"),
    ],
    ids=itertools.count(),
)
def test_what_is_no_whole_file_is_refused(content, complaint, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BadInput, match=rf"{tmp_path}/file: is not a whole safetensors file .*{complaint}"):
        read_header(ModelFolder(tmp_path), "file")


@given(content=st.binary(max_size=60), length=st.integers(0, 70))
def test_no_bytes_do_worse_than_be_refused(content, length):
    folder = ModelFolder("memory://any-bytes")
    folder.write("file", [struct.pack("<Q", length) + content])
    with contextlib.suppress(BadInput):
        assert read_header(folder, "file") == {}
