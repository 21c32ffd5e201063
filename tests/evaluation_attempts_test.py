"""Files of completions and every way in which they can be wrong; and programs made from ground truths."""

import json
from pathlib import Path

import pytest

from codea1.lab.benchmarks.evalplus import EvalPlus, load_problems
from codea1.lab.benchmarks.evaluation import Attempt
from codea1.lab.benchmarks.programs import given_attempts
from codea1.runtime.errors import BadInput
from tests.evalplus_files import humaneval_row, write_rows


@pytest.fixture
def benchmark(tmp_path: Path) -> EvalPlus:
    path = write_rows(tmp_path / "he.jsonl", humaneval_row(0), humaneval_row(1))
    return EvalPlus("humanevalplus", load_problems("humanevalplus", path), pool=None)


def test_solutions_and_completions(benchmark, tmp_path):
    path = write_rows(
        tmp_path / "c.jsonl",
        {"task_id": "HumanEval/1", "completion": "    return 3"},
        {"task_id": "humaneval/0", "solution": "Thus:\n```python\ndef f(x): return 1\n```"},
        {"task_id": "HumanEval/1", "solution": "def f(x): return 2", "completion": "nonsense"},
        {"task_id": "HumanEval/1", "completion": " \n"},
    )
    assert given_attempts(path, benchmark) == [
        Attempt("HumanEval/1", 0, humaneval_row()["prompt"] + "    return 3"),
        Attempt("HumanEval/0", 0, "def f(x): return 1"),
        Attempt("HumanEval/1", 1, "def f(x): return 2"),
        Attempt("HumanEval/1", 2, ""),
    ]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["not json"], r"line 1: not JSON"),
        (['{"solution": ""}'], r"line 1: there is no task_id"),
        (['{"task_id": "HumanEval/7", "solution": ""}'], r"line 1: the task HumanEval/7 is not in humanevalplus"),
        (['{"task_id": "HumanEval/0"}'], r"line 1: completion is missing, and so is solution"),
        (['{"task_id": "HumanEval/0", "solution": ["a"]}'], r"line 1: solution is not text"),
        (['{"task_id": "HumanEval/0", "solution": ""}'], r"nothing for 1 of 2 tasks, the first is HumanEval/1; --part"),
        ([], r"nothing for 2 of 2 tasks, the first is HumanEval/0; --part"),
    ],
)
def test_bad_files(benchmark, tmp_path, lines, told):
    path = tmp_path / "c.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(BadInput, match=told):
        given_attempts(str(path), benchmark)


def test_programs_made_from_ground_truths(benchmark):
    truth = given_attempts("ground_truth", benchmark)
    assert truth[0].program == humaneval_row()["prompt"] + json.loads('"    return x + 1\\n"')
    mutated = given_attempts("mutated_ground_truth", benchmark)
    assert all(one.program != other.program for one, other in zip(truth, mutated, strict=True))
