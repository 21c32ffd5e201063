"""Training on methods with nodes and on whole programs: both kinds are played and learned from."""

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from codea1.data.tokenizer import ChatTokenizer
from codea1.lab.data.conversion import make_training_set
from codea1.lab.data.formats import FORMATS, kodcode
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from tests.conftest import SHARED
from tests.data_formats_test import LEETCODE, PACK, STDIN
from tests.train_test import rows, train

REAL = SHARED / "data" / "real"
FILES = {
    "mbpp": "mbpp.jsonl.gz",
    "leetcode": "LeetCodeDataset-v0.2.0-train.jsonl.gz",
    "kodcode": "KodCode-demo-prefill.json.gz",
}
ANSWERS = {  # programs, one of them wrong, and the calls of tests with right and wrong answers
    "leetcode": (
        [LEETCODE["completion"], "class Solution:\n    def mirror(self, root, times=1):\n        return root"],
        ["Solution().mirror([1, 2]) == [1, None, 2]", "Solution().mirror([]) == []", "Solution().mirror([1], 2) == []"],
    ),
    "apps": (
        ["a, b = map(int, input().split())\nprint(a + b)", "print(sum(map(int, open(0).read().split()[:1])))"],
        ["stdout('1 2') == '3'", "stdout('2 2\\n') == '4\\n'", "stdout('5 0') == '4'"],
    ),
}


def training_set(form: str, rows: list[dict], folder: Path) -> str:
    """Converts rows and returns the file."""
    file = folder / f"{form}.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    format = {"kodcode": kodcode(0.7), **FORMATS}[form]
    make_training_set(format, [str(file)], str(file.with_suffix(".parquet")))
    return str(file.with_suffix(".parquet"))


def config_of(micro: ConfigDict, train_on: str, validate_on: str, prompts: str, prompt_length: int) -> ConfigDict:
    """Two steps on two questions each."""
    c = micro
    c.steps, c.validation.every, c.checkpoint.every = 2, 2, 1
    c.validation.samples = 4
    c.data.train.source = train_on
    c.data.validation.source = c.data.test.source = validate_on
    c.data.train.limit = c.data.validation.limit = c.data.test.limit = 2
    c.game.prompts, c.game.reward = prompts, "strict"
    c.code.max_prompt_length = c.test.max_prompt_length = prompt_length
    return c


ROWS = {
    "leetcode": [LEETCODE, LEETCODE | {"task_id": "other", "query": "Mirror this tree."}],
    "apps": [STDIN, STDIN | {"problem_id": 6, "question": "Add the two."}],
}


@pytest.mark.parametrize("form", ROWS)
def test_a_kind_of_question_is_learned(form, micro_config, tmp_path, monkeypatch):
    programs, calls = ANSWERS[form]

    def answer(_: ChatTokenizer, ids: Sequence[int]) -> str:
        h = sum(ids)
        tests = "\n".join(f"assert {calls[(h + n) % 3]}" for n in range(2))
        return f"```python\n{programs[h % 2]}\n```\n```python\n{tests}\n```"

    monkeypatch.setattr(ChatTokenizer, "decode", answer)
    questions = training_set(form, ROWS[form], tmp_path)
    train(config_of(micro_config, questions, questions, "tiny", 384), tmp_path / "run")
    samples = rows(tmp_path / "run")
    rewards = {player: {row["reward"] for row in samples if row["player"] == player} for player in ("code", "test")}
    assert len(rewards["code"]) > 1, rewards
    assert max(rewards["test"]) > 0.4, rewards
    metrics = read_metrics(RunFolder.existing(str(tmp_path / "run")).metrics)
    assert any(row.get("validation/code_pass_at_1") for row in metrics)  # by the check scripts


@pytest.mark.long
@pytest.mark.skipif(not REAL.exists(), reason="real files are not part of the project")
@pytest.mark.parametrize("form", FILES)
def test_real_rows_are_trained_on(form, micro_config, tmp_path):
    found = ({"kodcode": kodcode(0.7)} | FORMATS)[form].rows(str(REAL / FILES[form]))
    questions = training_set(form, [row for _, row in islice(found, 60)], tmp_path)
    validation = training_set("humanevalpack", [PACK, PACK | {"task_id": "Python/4"}], tmp_path)
    train(config_of(micro_config, questions, validation, "default", 3072), tmp_path / "run")
    assert rows(tmp_path / "run")
