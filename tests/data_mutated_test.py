"""Files of questions with mutants that are made, and with ground truths that are wrong on purpose."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from codea1.data.loader import load_questions, rows_of
from codea1.game.question import Question
from codea1.lab.data.mutated import mutated_rows, with_wrong_truth, write_rows
from codea1.lab.mutants import drawn_mutants
from codea1.runtime.errors import BadInput
from codea1.training import setup
from tests.game_grading_noise_test import GOLDEN, is_a_share

MUTANTS = ("paid 0", "hidden 0", "paid 1", "hidden 1")
QUESTIONS = [Question(f"q{n}", None, "", "", "truth", "f", "check", mutants=MUTANTS) for n in range(1000)]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_share_of_ground_truths_becomes_a_paid_mutant(share):
    noisy = [with_wrong_truth(question, share, seed=3) for question in QUESTIONS]
    wrong = [question.ground_truth for question in noisy if question.ground_truth != "truth"]
    assert is_a_share(len(wrong), 1000, share)
    assert set(wrong) == (set(MUTANTS[::2]) if share else set())
    assert {question.check_script for question in noisy} == {"check"}
    assert noisy == [with_wrong_truth(question, share, seed=3) for question in reversed(QUESTIONS)][::-1]
    if 0 < share < 1:
        assert noisy != [with_wrong_truth(question, share, seed=4) for question in QUESTIONS]


def test_a_question_without_mutants_keeps_its_ground_truth():
    assert with_wrong_truth(GOLDEN, 1.0, seed=0) is GOLDEN


@pytest.fixture
def bare(micro_config, tmp_path: Path) -> str:
    """A file of the training questions, of which the second alone has mutants."""
    source = micro_config.data.train
    rows = [row for _, row in rows_of(source.source, source.split, micro_config.data.folder)]
    write_rows(tmp_path / "bare.parquet", [row if n == 1 else {**row, "mutants": []} for n, row in enumerate(rows)])
    return str(tmp_path / "bare.parquet")


def mutated(source: str, *options) -> str:
    output = source.replace(".parquet", "_mutated.parquet")
    write_rows(Path(output), list(mutated_rows(source, "", "", *options)))
    return output


def test_questions_without_mutants_get_made_ones(bare: str):
    for n, (question, before) in enumerate(
        zip(load_questions(mutated(bare, 3, 0.0, 0)), load_questions(bare), strict=True)
    ):
        drawn = drawn_mutants(before.ground_truth, 3, before.id)
        assert question == replace(before, mutants=before.mutants if n == 1 else drawn)


def test_questions_get_paid_mutants_as_ground_truths_and_a_run_reads_them(bare: str, micro_config):
    clean = {question.id: question for question in load_questions(mutated(bare, 3, 0.0, 0))}
    micro_config.data.train.source = mutated(bare, 3, 1.0, 0)
    train = setup.assemble(micro_config).train
    assert train
    for question in train:
        before = clean[question.id]
        assert question.ground_truth in before.paid_mutants
        assert question == replace(before, ground_truth=question.ground_truth)


def test_a_run_whose_mutants_pay_is_refused_where_no_question_has_any(bare: str, micro_config):
    micro_config.data.train.source = mutated(bare, 0, 0.0, 0)
    micro_config.game.reward, micro_config.game.mutant_weight = "strict_tests", 0.5
    setup.assemble(micro_config)
    rows = [{**row, "mutants": []} for _, row in rows_of(bare, None, None)]
    write_rows(Path(bare), rows)
    micro_config.data.train.source = bare
    with pytest.raises(BadInput, match=re.escape(f"`python -m codea1.lab mutate {bare} --output=")):
        setup.assemble(micro_config)
