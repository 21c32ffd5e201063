"""Files of questions with mutants that are made."""

import json
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from codea1.config_file import validate
from codea1.data.loader import load_questions, rows_of
from codea1.lab.data.conversion import add_mutants, make_training_set, write_rows
from codea1.lab.data.formats import FORMATS
from codea1.lab.mutants import drawn_mutants
from codea1.runtime.errors import BadInput
from codea1.training import setup
from tests.data_formats_test import MBPP


@pytest.fixture
def bare(micro_config, tmp_path: Path) -> str:
    """A file of the training questions, of which the second alone has mutants."""
    source = micro_config.data.train
    rows = [row for _, row in islice(rows_of(source.source, source.split, micro_config.data.folder), 24)]
    write_rows(tmp_path / "bare.parquet", [row if n == 1 else {**row, "mutants": []} for n, row in enumerate(rows)])
    return str(tmp_path / "bare.parquet")


def mutated(source: str, count: int) -> str:
    output = source.replace(".parquet", f"_{count}.parquet")
    add_mutants(source, output, count)
    return output


def test_questions_without_mutants_get_made_ones(bare: str, capsys):
    questions, before = load_questions(mutated(bare, 3)), load_questions(bare)
    for n, (question, was) in enumerate(zip(questions, before, strict=True)):
        drawn = drawn_mutants(was.ground_truth, 3, was.id)
        assert question == replace(was, mutants=was.mutants if n == 1 else drawn)
    assert (
        f"{sum(bool(each.mutants) for each in questions):,} of {len(before):,} questions have"
        in capsys.readouterr().out
    )
    with pytest.raises(BadInput, match="is there already"):
        mutated(bare, 3)


def test_a_conversion_makes_mutants_for_questions_that_have_none(tmp_path: Path):
    rows = [MBPP, MBPP | {"task_id": 8, "text": "Write it again."}]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    output = str(tmp_path / "out.parquet")
    make_training_set(replace(FORMATS["mbpp"], min_passed=0.5), [str(tmp_path / "rows.jsonl")], output, mutants=5)
    for question in load_questions(output):
        assert question.mutants == drawn_mutants(question.ground_truth, 5, question.id)
        assert len(question.mutants) == 5


def test_a_run_whose_mutants_pay_is_refused_where_no_question_has_any(bare: str, micro_config):
    micro_config.data.train.source = bare
    micro_config.game.reward, micro_config.game.mutant_weight = "strict_tests", 0.5
    setup.assemble(validate(micro_config))
    write_rows(Path(bare), [{**row, "mutants": []} for _, row in rows_of(bare, None, None)])
    with pytest.raises(BadInput, match=re.escape(f"`python -m codea1.lab convert json {bare} --mutants=8 --output=")):
        setup.assemble(validate(micro_config))
