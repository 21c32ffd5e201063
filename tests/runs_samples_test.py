"""The rows of a step's samples, and their diagnostics, against what a person counts."""

import base64
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import zstandard

from codea1.lab.runs.diagnosis import diagnose
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from codea1.storage import json_lines

FILE = "step_000001.jsonl.zst"


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


def test_tokens_come_back_to_the_last_bit(samples: Samples, folder: RunFolder):
    log_probs = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    log_probs[:3] = -np.inf, 1e-45, -0.0
    row = {"prompt_ids": (0, 2**31 - 1), "token_ids": np.arange(4096), "log_probs": tuple(map(float, log_probs))}
    samples.write(1, [{"text": "a", **row}, {"text": "b"}])
    read, without = samples.read(1)
    assert read == {"text": "a"} | {name: list(values) for name, values in row.items()}
    assert np.array(read["log_probs"], np.float32).tobytes() == log_probs.tobytes()
    assert without == {"text": "b"}
    assert list(samples.read(1, tokens=False)) == [{"text": "a"}, {"text": "b"}]
    line = zstandard.ZstdDecompressor().decompressobj().decompress((folder.samples / FILE).read_bytes()).splitlines()[0]
    assert json.loads(line)["log_probs"] == base64.b64encode(log_probs.astype("<f4").tobytes()).decode()


def test_rows_are_read_one_after_another(samples: Samples, folder: RunFolder):
    """What lies behind a row is not decompressed for it, and its damage is told when it comes."""
    samples.write(1, [{"text": f"{number} " * 1000} for number in range(2000)] + [{"text": os.urandom(1 << 18).hex()}])
    path = folder.samples / FILE
    path.write_bytes(path.read_bytes()[:-3])
    rows = samples.read(1)
    assert next(rows)["text"].startswith("0 ")
    with pytest.raises(BadInput, match=r"step_000001\.jsonl\.zst is damaged"):
        list(rows)


@pytest.mark.parametrize("number", range(8))
def test_a_flipped_bit_is_told(tmp_path: Path, number: int):
    samples = Samples(RunFolder.open(str(tmp_path), {}))
    samples.write(1, [{"token_ids": list(range(500)), "log_probs": [-0.5] * 500, "text": "x"}])
    path = tmp_path / "samples" / FILE
    content = bytearray(path.read_bytes())
    content[len(content) * number // 8 + 1] ^= 4
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"step_000001\.jsonl\.zst is damaged"):
        list(samples.read(1))


@pytest.mark.parametrize("value", ["AAA", "AAAA", "A!AA"])
def test_what_is_no_column_of_tokens_is_told(tmp_path: Path, value: str):
    samples = Samples(RunFolder.open(str(tmp_path), {}))
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / FILE).write_bytes(json_lines.compressed([{"log_probs": value}]))
    with pytest.raises(BadInput, match=r"zst, line 1: log_probs is not Base64 of <f4"):
        list(samples.read(1))


def test_the_newest_steps_are_kept(folder: RunFolder):
    samples = Samples(folder, keep=2)
    samples.write(1, [])
    for step in (2, 3, 4):
        samples.write(step, [])
        assert samples.steps() == [step - 1, step]


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
    suite(0, ("f(1)", "right", "", "error"), ("f(3)", "unusable", "set order", None), tokens=30),
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
