"""The rows of a step's samples, and their diagnostics, against what a person counts."""

import math
from pathlib import Path

import pytest

from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples, diagnose


@pytest.fixture(params=["disk", "bucket"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    workdir = str(tmp_path) if request.param == "disk" else f"{request.getfixturevalue('bucket')}/run"
    return RunFolder.open(workdir, {})


@pytest.fixture
def samples(folder: RunFolder) -> Samples:
    return Samples(folder)


def test_rows_come_back_in_order(samples: Samples):
    rows = [{"question": "q1", "text": "def f():\n    return 'ü'"}, {"question": "q0", "reward": None}]
    samples.write(12, rows)
    assert list(samples.read(12)) == rows
    assert list(samples.read(13)) == []


def test_a_step_written_again_is_replaced(samples: Samples):
    samples.write(1, [{"a": 1}, {"a": 2}])
    samples.write(1, [{"a": 3}])
    assert list(samples.read(1)) == [{"a": 3}]


def test_a_row_that_cannot_be_written_leaves_no_file(samples: Samples, folder: RunFolder):
    with pytest.raises(TypeError):
        samples.write(1, [{"a": 1}, {"a": object()}])
    assert samples.steps() == []
    assert [path.name for path in folder.path.iterdir()] == ["config.json"]


def test_later_steps_are_removed_and_other_files_are_not(samples: Samples, folder: RunFolder):
    for step in (1, 2, 10, 1_000_000):
        samples.write(step, [])
    (folder.samples / "step_notes.jsonl").write_text("")
    samples.remove_after(2)
    assert samples.steps() == [1, 2]
    assert (folder.samples / "step_notes.jsonl").exists()


def test_removing_where_nothing_was_written(samples: Samples):
    samples.remove_after(-1)
    assert samples.steps() == []


def suite(solution: int, *asserts: tuple[str | None, str, str, str | None], tokens: int = 10) -> dict:
    names = ("call", "mark", "detail", "verdict")
    return {
        "player": "test",
        "question_id": "q",
        "solution": solution,
        "token_ids": list(range(tokens)),
        "asserts": [dict(zip(names, each, strict=True)) for each in asserts],
    }


ROWS = [
    {"player": "code"},
    suite(0, ("f(1)", "right", "", "pass"), ("f(2)", "wrong answer", "", "fail"), (None, "dropped", "", None)),
    suite(0, ("f(1)", "right", "", "error"), ("f(3)", "unusable", "disagrees", None), tokens=30),
    suite(1, ("f(1)", "right", "", "timeout"), ("f(2)", "wrong answer", "", "timeout"), tokens=20),
    suite(1, ("f(4)", "right", "", "not_run"), tokens=0),
    suite(2),
]


def test_shares_are_those_that_are_counted_by_hand():
    assert diagnose(ROWS) == {
        "asserts": 8 / 5,
        "suite_tokens": 70 / 5,
        "distinct_calls": (3 / 4 + 3 / 3) / 2,
        "wrong_answers": 2 / 6,
        "unstable_truths": 1 / 7,
        "kills_by_error": 1 / 4,
        "kills_by_timeout": 2 / 4,
        "not_run": 1 / 6,
    }


def test_a_reward_that_runs_only_right_tests_hides_no_wrong_answer():
    strict = suite(
        0,
        ("f(1)", "right", "", "pass"),
        ("f(2)", "wrong answer", "", None),
        ("f(3)", "wrong answer", "", None),
        ("f(4)", "unusable", "disagrees", None),
        ("f(5)", "rejected", "not ==", None),
        ("f(6)", "surplus", "", None),
    )
    found = diagnose([strict])
    assert found["wrong_answers"] == 2 / 3
    assert found["unstable_truths"] == 1 / 4


def test_of_nothing_there_is_no_share():
    assert all(math.isnan(value) for value in diagnose([{"player": "code"}]).values())
