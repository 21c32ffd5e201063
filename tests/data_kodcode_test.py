"""Files of KodCode-V1 become a training set that the loader reads; every row that does not is counted by its reason."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from codea1.data.loader import load_questions
from codea1.lab.data import formats
from codea1.lab.data.conversion import make_training_set
from codea1.lab.data.formats import HARD, KODCODE, asserts_of, kodcode, read_kodcode
from codea1.runtime.errors import BadInput
from tests.data_formats_test import why_left_out

PYTEST = """
from solution import double

def test_small():
    n = 2
    assert double(n) == 4
    assert double(3) == 6, "six"

def test_wrong():
    assert double(5) == 11

def helper():
    assert double(1) == 2
"""
HOTEL = "Twice as much as was agreed is what every guest of this hotel pays today."


def row(number: int = 1, **changes) -> dict:
    question = {
        "version": "v1.0",
        "subset": "Prefill",
        "question_id": f"Prefill_{number}_I",
        "question": f"Double a number, for the customer with the account number {number}.",
        "solution": "import math\n\ndef double(n):\n    return 2 * n\n",
        "test": PYTEST,
        "test_info": [{"function_name": "double", "function_declaration": "def double(n):", "docstring": ""}],
        "gpt_pass_percentage": 0.2,
    }
    return {**question, **changes}


def write(path: Path, rows: list[dict]) -> str:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return str(path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"test_info": None}, formats.NOT_ONE_FUNCTION),  # as of rows that ask for a class
        ({"solution": None}, formats.INCOMPLETE),
        ({"test_info": row()["test_info"] * 2}, formats.NOT_ONE_FUNCTION),
        ({"test_info": []}, formats.NOT_ONE_FUNCTION),
        ({"gpt_pass_percentage": float("nan")}, formats.NO_SHARE),
        ({"gpt_pass_percentage": 10**400}, formats.NOT_HARD),
        ({"gpt_pass_percentage": 1 / 3}, formats.NOT_HARD),
        ({"gpt_pass_percentage": 0.333}, formats.NOT_HARD),  # a third as the files round it, which they label medium
        ({"solution": "def triple(n): return 3 * n"}, formats.NO_FUNCTION),
        ({"solution": "class C:\n    def double(self): ..."}, formats.NO_FUNCTION),
        ({"solution": "def double(n): return ("}, formats.UNPARSED),
        ({"test": "def test_it():\n    assert sorted([2, 1]) == [1, 2]"}, formats.NO_ASSERT),
        ({"test": "def test_it(:"}, formats.UNPARSED_TESTS),
    ],
)
def test_rows_are_dropped_for_a_reason(changes, reason):
    assert why_left_out(read_kodcode, row(**changes), "here", max_pass_rate=1 / 3) == reason


def test_of_several_functions_the_one_that_is_tested_is_asked_for():
    helper = {**row()["test_info"][0], "function_name": "helper", "function_declaration": "def helper(n):"}
    question = read_kodcode(row(test_info=[helper, row()["test_info"][0]]), "here", max_pass_rate=1 / 3)
    assert question.entry_point == "double"
    assert question.problem.endswith("declared as `def double(n):`.")


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        (PYTEST, ["assert double(2) == 4", "assert double(3) == 6", "assert double(5) == 11"]),
        ("def test_a():\n assert double(1) == 2\ndef test_b():\n assert double(1) == 3", ["assert double(1) == 2"]),
        ("def test_a(fixture):\n    assert double(1) == 2", []),
        ("def test_a():\n    for n in range(3):\n        assert double(n) == 2 * n", []),
        (
            "def test_a():\n    with pytest.raises(ValueError):\n        double('a')",
            ["with pytest.raises(ValueError): double('a')"],
        ),
        ("def test_a():\n    assert double(\n        'a',\n    ) == 'aa'", ["assert double('a') == 'aa'"]),
        (
            "def test_a():\n    assert not double(0)\n    assert double(1) is None",
            ["assert not double(0)", "assert double(1) == None"],
        ),
        ("def test_a():\n    n = 4\n    r = double(n)\n    assert r == 8", ["assert double(4) == 8"]),
        ("def test_a():\n    n = 4\n    r = double(n)\n    n = 5\n    assert r == 8", ["assert double(4) == 8"]),
        ("def test_a():\n    a = [4]\n    a.append(5)\n    assert double(a) == 8", []),
        ("def test_a():\n    assert double(2) > 3\n    assert double(2) == 3 == 3\n    assert double(x) == 1", []),
        ("@pytest.mark.skip\ndef test_a():\n    assert double(2) == 5", []),
        ("import os\n" * 100_000, []),
    ],
)
def test_asserts_on_plain_data_are_read(source, texts):
    assert asserts_of(source, "double") == tuple(texts)


LENIENT = replace(kodcode(HARD), min_passed=0.5)


def test_a_training_set_comes_out(tmp_path, capsys):
    random = "import os\ndef double(n):\n    return os.getpid()"
    files = [
        write(tmp_path / "one.parquet", [row(1), row(2, gpt_pass_percentage=0.9), row(3, solution=random)]),
        write(tmp_path / "two.jsonl", [row(4, question=row(1)["question"].upper()), row(5, question=HOTEL)]),
        write(tmp_path / "three.jsonl", [row(1, question="Another task by the first one's name.")]),
    ]
    evaluation = {
        "prompt": [{"role": "user", "content": "?"}],
        "description": HOTEL.replace("Twice", "Thrice"),
        "GT_code": "def triple(n):\n    return 3 * n",
        "data_source": "e",
        "extra_info": {"question_id": "E/1", "function_name": "triple"},
    }
    output = tmp_path / "out.parquet"
    make_training_set(LENIENT, files, str(output), [write(tmp_path / "evaluation.jsonl", [evaluation])])
    (question,) = load_questions(str(output))
    assert (question.id, question.entry_point, question.data_source) == ("Prefill_1_I", "double", "kodcode_light")
    assert question.golden_tests == ("assert double(2) == 4", "assert double(3) == 6")
    assert question.problem.startswith(row()["question"])
    assert "`def double(n):`" in question.problem
    assert question.problem in question.prompt[-1]["content"]
    assert question.description == row()["question"]
    left_out = [json.loads(line) for line in output.with_suffix(".left_out.jsonl").read_text().splitlines()]
    assert {("three" in row["row"], row["question_id"], row["reason"]) for row in left_out} == {
        (True, "Prefill_1_I", "its id is an earlier row's"),
        (False, "Prefill_2_I", "not hard: too many trials passed"),
        (False, "Prefill_3_I", "its solution passes none of its tests, twice"),
        (False, "Prefill_4_I", "asks what an earlier row asks"),
        (False, "Prefill_5_I", "nearly a question of an evaluation set"),
    }
    printed = " ".join(capsys.readouterr().out.split())
    assert "rows read 6" in printed
    assert all(f"left out: {row['reason']} 1 " in printed for row in left_out)
    assert "kept, with 2 golden tests, 0 check scripts and 0 mutants 1 1" in printed


def test_a_row_and_its_twin_in_other_words_are_in_one_part_of_a_split(tmp_path):
    rows = [row(number, question_id=f"Prefill_{number}_{letter}") for number in range(8) for letter in "IC"]
    for each in rows[1::2]:
        each["question"] = f"def double(n): of {each['question_id']}"
    file, output = write(tmp_path / "a.jsonl", rows), tmp_path / "out"
    make_training_set(LENIENT, [file], str(output), (), "50/0/50")
    parts = [{each.id for each in load_questions(str(output / f"{part}.parquet"))} for part in ("train", "test")]
    assert all(parts)
    assert parts[0] | parts[1] == {each["question_id"] for each in rows}
    assert not {id[:-2] for id in parts[0]} & {id[:-2] for id in parts[1]}


@pytest.mark.parametrize("name", KODCODE)
def test_a_file_without_a_column_is_refused(tmp_path, name):
    rows = [{key: value for key, value in row().items() if key != name}]
    with pytest.raises(BadInput, match=f"the field '{name}' is missing"):
        read_kodcode(rows[0], "here", 1 / 3)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: [str(folder / "no.parquet")], "no.parquet does not exist"),
        (lambda folder: [write(folder / "a.parquet", [{"question": "?"}])], "has no column 'question_id'"),
        (lambda folder: [write(folder / "a.jsonl", [row(test_info=["f"])])], "test_info is not a list of records"),
        (lambda folder: [write(folder / "a.jsonl", [row(gpt_pass_percentage="0")])], "gpt_pass_percentage is str"),
        (lambda folder: [write(folder / "a.jsonl", [row(gpt_pass_percentage=1.0)])], "no question is left"),
    ],
)
def test_bad_files_are_one_sentence_and_nothing_is_written(tmp_path, make, told):
    output = tmp_path / "out.parquet"
    with pytest.raises(BadInput, match=re.escape(told)):
        make_training_set(kodcode(HARD), make(tmp_path), str(output))
    assert not output.exists()


def test_rows_of_the_pipeline_call_their_tests_otherwise(tmp_path):
    each = row()
    each["test_code"] = each.pop("test")
    ((where, found),) = kodcode(HARD).rows(write(tmp_path / "a.jsonl", [each]))
    assert read_kodcode(found, where, HARD).golden_tests == read_kodcode(row(), where, HARD).golden_tests
