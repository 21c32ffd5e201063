from pathlib import Path

import pytest

from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    return Samples(RunFolder.open(str(tmp_path), {}))


def test_rows_come_back_in_order(samples: Samples):
    rows = [{"question": "q1", "text": "def f():\n    return 'ü'"}, {"question": "q0", "reward": None}]
    samples.write(12, rows)
    assert list(samples.read(12)) == rows
    assert list(samples.read(13)) == []


def test_a_step_written_again_is_replaced(samples: Samples):
    samples.write(1, [{"a": 1}, {"a": 2}])
    samples.write(1, [{"a": 3}])
    assert list(samples.read(1)) == [{"a": 3}]


def test_a_row_that_cannot_be_written_leaves_no_file(samples: Samples, tmp_path: Path):
    with pytest.raises(TypeError):
        samples.write(1, [{"a": 1}, {"a": object()}])
    assert samples.steps() == []
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_later_steps_are_removed_and_other_files_are_not(samples: Samples, tmp_path: Path):
    for step in (1, 2, 10, 1_000_000):
        samples.write(step, [])
    (tmp_path / "samples" / "step_notes.jsonl").write_text("")
    samples.remove_after(2)
    assert samples.steps() == [1, 2]
    assert (tmp_path / "samples" / "step_notes.jsonl").exists()


def test_removing_where_nothing_was_written(samples: Samples):
    samples.remove_after(-1)
    assert samples.steps() == []
