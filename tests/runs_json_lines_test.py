import json
import math

import numpy as np
import pytest
import zstandard
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1.runtime.errors import BadInput
from codea1.storage import json_lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_a_row_is_one_line_and_comes_back(row: dict):
    line = json_lines.encode(row)
    assert line.endswith(b"\n")
    assert len(line.splitlines()) == 1
    assert json.loads(line) == row


def test_numpy_becomes_plain_and_not_finite_becomes_null():
    row = {"a": np.float32(0.5), "b": np.arange(3), "c": (math.nan, -math.inf), "d": np.array([np.inf]), "e": np.True_}
    plain = {"a": 0.5, "b": [0, 1, 2], "c": [None, None], "d": [None], "e": True}
    assert json.loads(json_lines.encode(row)) == plain


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_cut_last_line_is_left_out(tmp_path: epath.Path, cut: int):
    path = epath.Path(tmp_path) / "x.jsonl"
    content = '{"a": 1}\n{"b": 2}\n'
    path.write_text(content[:-cut])
    assert [row for _, row in json_lines.whole_lines(path)] == [{"a": 1}]


def test_a_damaged_last_line_is_left_out_but_not_one_before_it(tmp_path: epath.Path):
    path = epath.Path(tmp_path) / "x.jsonl"
    path.write_text('{"a": 1}\n\x00\x00\n')
    assert [row for _, row in json_lines.whole_lines(path)] == [{"a": 1}]
    path.write_text('{"a": 1}\n\x00\x00\n{"b": 2}\n')
    with pytest.raises(BadInput, match="line 2"):
        list(json_lines.whole_lines(path))


def test_a_line_that_would_fill_the_memory_of_its_reader_is_refused(
    tmp_path: epath.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(json_lines, "_LONGEST_LINE", 1 << 24)
    path = tmp_path / "rows.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b" " * (1 << 28)))
    with pytest.raises(BadInput, match=r"rows.jsonl.zst has a line of more than 16 MiB"):
        list(json_lines.whole_lines(path))
