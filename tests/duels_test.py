"""Duels in hand-made samples: a program that was paid and is wrong, the assert that breaks it, and one that passes."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from codea1.lab.runs.duels import find, tell_duels
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from tests.explain_test import claim, code_row, test_row

WRONG = "def f(a):\n    return 1"
RIGHT = "def f(a):\n    return a"
OTHER = "def f(a):\n    return 0 + a"
BREAKS = claim("f(2)", "2", "fail")


def shown(step: int, solution: int, program: str, reward: float, *asserts: dict[str, Any], **row: Any) -> list[Any]:
    """A program with a suite about it."""
    return [code_row(step, solution, program, reward=reward, **row), test_row(step, solution, list(asserts))]


PAID = {1: shown(1, 0, WRONG, 1.0, claim("f(1)", "1", "pass"))}
BROKEN = {4: shown(4, 0, WRONG, 0.5, claim("f(20)", "20", "fail"), BREAKS, claim("f(3)", "4", "fail", "wrong answer"))}
MENDED = {9: shown(9, 0, RIGHT, 1.0, claim("f(2)", "2", "pass"))}


def test_paid_but_wrong_then_broken_then_mended_is_a_duel():
    (duel,) = find(PAID | BROKEN | MENDED)
    assert (duel.step, duel.program, duel.test.text) == (4, WRONG, "assert f(2) == 2")
    assert (duel.paid_at, duel.reward, duel.others) == (1, 0.5, ((9, RIGHT),))


@pytest.mark.parametrize(
    "steps",
    [
        PAID | MENDED,  # no assert breaks it
        PAID | BROKEN,  # and none comes after it
        MENDED | {10: BROKEN[4]},  # the right one was before
        PAID | {4: shown(4, 0, WRONG, 0.5, claim("f(2)", "3", "fail", "wrong answer"))} | MENDED,
        PAID | {4: shown(4, 0, WRONG, 0.5, BREAKS, program_valid=False)} | MENDED,
        PAID | BROKEN | {9: shown(9, 0, RIGHT, 0.9)},  # the later one fails a test of its own
        PAID | BROKEN | {9: shown(9, 0, OTHER, 1.0, passes_check=False)},  # or its check script
    ],
)
def test_where_a_part_is_missing_there_is_no_duel(steps: dict[int, list[Any]]):
    assert not find(steps)


def test_the_best_duels_come_first():
    """A program that was paid before one that was not, a later right program before one beside it."""
    unpaid = "def f(a): return 2"
    both = [*BROKEN[4], *shown(4, 1, unpaid, 0.5, BREAKS), *shown(4, 2, OTHER, 1.0)]
    assert [duel.program for duel in find(PAID | {4: both} | MENDED)] == [WRONG, unpaid]
    beside = find({4: both})
    assert [duel.others for duel in beside] == [((4, OTHER),)] * 2
    assert [duel.paid_at for duel in beside] == [None] * 2


@pytest.fixture
def duel_run(tmp_path: Path, micro_config: Any) -> RunFolder:
    question = {
        "prompt": [{"role": "user", "content": "Write f."}],
        "GT_code": RIGHT,
        "GT_test": ["assert f(1) == 1"],
        "data_source": "made",
        "description": "Return a < b & what\nis given.",
        "extra_info": {"question_id": "q/1", "function_name": "f"},
    }
    (tmp_path / "train.jsonl").write_text(json.dumps(question))
    micro_config.data.train.source = str(tmp_path / "train.jsonl")
    return RunFolder.open(str(tmp_path / "run"), micro_config.to_dict())


def write(run: RunFolder, steps: dict[int, list[Any]]) -> None:
    for step, rows in steps.items():
        Samples(run).write(step, rows)


def test_the_sandbox_runs_what_is_told_and_drawn(duel_run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture):
    liar = "def f(a):\n    return a if a == 2 else '<script>'"  # its row says that it passes everything
    write(duel_run, BROKEN | {6: shown(6, 0, liar, 1.0)} | MENDED)
    tell_duels(str(duel_run.path))
    said = capsys.readouterr().out
    for part in (
        "Return a < b & what is given.",
        "1. The Code LLM, step 4: wrong",
        "The dataset's golden test would pay it 1.0.",
        "assert f(2) == 2",
        "The truth answers 2.",
        "The program answers 1.",
        "3. The Code LLM, 5 steps later, step 9: passes",
    ):
        assert part in said, part
    assert "<script>" not in said

    tell_duels(str(duel_run.path), picture_file=str(tmp_path / "duel.svg"))
    source = (tmp_path / "duel.svg").read_text()
    texts = [
        "".join(node.itertext()).replace("\xa0", " ")
        for node in ElementTree.fromstring(source).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert texts[0] == "Return a < b & what is given."
    drawn = "".join(texts)
    for part in ("    return 1", "assert f(2) == 2", "The program answers 1.", "    return a"):
        assert part in drawn, part
    assert "prefers-color-scheme: dark" in source
    assert not re.search(r"<script|href|url\(", source)


def test_what_the_sandbox_does_not_confirm_is_no_duel(duel_run: RunFolder):
    """The row says that the assert breaks the program, and it does not."""
    write(duel_run, {4: shown(4, 0, OTHER, 0.5, BREAKS)} | MENDED)
    with pytest.raises(BadInput, match="has no duel here"):
        tell_duels(str(duel_run.path))


def test_a_run_of_other_questions_is_told(duel_run: RunFolder):
    write(duel_run, {1: [{**row, "question_id": "q/2"} for row in PAID[1]]})
    with pytest.raises(BadInput, match=r"question q/2 of .* is not in .*train\.jsonl"):
        tell_duels(str(duel_run.path))
