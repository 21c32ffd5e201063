"""Files of the benchmarks of test generation: what is read, and one sentence for what cannot be."""

import json
from pathlib import Path

import pytest

from codea1.lab.benchmarks.benchmarks import TESTEVAL, ULT, SuiteTask, load_suites, missing_modules
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.runtime.errors import BadInput
from codea1.sandbox.frames import Reply
from codea1.storage.objects import location, write_atomically
from tests.conftest import SHARED

ROW = {"func_name": "f", "code": "def f(x):\n    return x", "prompt": "Itself.", "task_id": "7", "test_list": ["x"]}
TASK = SuiteTask("7", "f", ROW["code"], "Itself.")


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_an_array_and_a_bucket_are_read_as_lines_are(tmp_path, bucket):
    assert ULT.load(write(tmp_path / "ULT.jsonl", json.dumps(ROW) + "\n\n")) == [TASK]
    write_atomically(location(f"{bucket}/ULT.jsonl", "a file"), json.dumps([ROW], indent=4))
    assert ULT.load(f"{bucket}/ULT.jsonl") == [TASK]


def test_the_fields_of_testeval(tmp_path):
    row = {"task_num": 4, "func_name": "g", "python_solution": "class Solution: pass", "description": "d", "blocks": []}
    (task,) = TESTEVAL.load(write(tmp_path / "leetcode-py-all.jsonl", json.dumps(row)))
    assert task == SuiteTask("4", "g", "class Solution: pass", "d")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no question of this benchmark"),
        ("[1]", "row 1: not a JSON object"),
        (json.dumps({**ROW, "code": 3}), "line 1: the field 'code' is not text"),
        (json.dumps(ROW) + "\n" + json.dumps(ROW), "question 7 comes twice"),
        *(
            (json.dumps({**ROW, "code": code}), f"line 1, task 7: its program does not compile: {why}")
            for code, why in {
                "def f(:": "",
                "return 1": "'return' outside",
                "def f():\n    nonlocal x": "no binding for nonlocal 'x'",
                "x = 1\nfrom __future__ import annotations": "from __future__ imports must occur at the beginning",
            }.items()
        ),
        (json.dumps({**ROW, "func_name": None}), "line 1: the field 'func_name' is missing"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, text, message):
    path = write(tmp_path / "u.jsonl", text)
    with pytest.raises(BadInput) as error:
        ULT.load(path)
    assert str(error.value).startswith(path)
    assert message in str(error.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(BadInput, match=r"u.jsonl does not exist\. Get datasets/ULT.jsonl of github"):
        ULT.load(str(tmp_path / "u.jsonl"))
    with pytest.raises(BadInput, match=r"s.jsonl does not exist\.$"):
        load_suites(str(tmp_path / "s.jsonl"), [TASK])


@pytest.mark.parametrize("row", [{"task_id": "7", "tests": ["a"]}, {"task_id": 7, "test_list": ["a"]}])
def test_suites_are_read(tmp_path, row):
    assert load_suites(write(tmp_path / "s.jsonl", json.dumps(row)), [TASK]) == {"7": ["a"]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"task_id": "8", "tests": []}], "line 1: task_id '8' is none of the benchmark's tasks"),
        ([{"tests": []}], "line 1: task_id '' is none"),
        ([{"task_id": "7", "tests": []}] * 2, "line 2: task 7 comes twice"),
        ([{"task_id": "7"}], "line 1, task 7: its tests are not a list of texts"),
        ([{"task_id": "7", "tests": [None]}], "line 1, task 7: its tests are not a list of texts"),
        ([{"task_id": "9", "tests": []}], "has nothing for 1 of 2 tasks, the first is 7; --part evaluates the others"),
    ],
)
def test_suites_that_are_none_are_said(tmp_path, rows, message):
    path = write(tmp_path / "s.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(BadInput) as error:
        load_suites(path, [TASK, SuiteTask("9", "f", "", "")])
    assert message in str(error.value)


@pytest.mark.filterwarnings("error")
def test_a_program_that_the_compiler_warns_of_is_read_and_never_run(tmp_path):
    row = {**ROW, "code": f"open({str(tmp_path / 'run')!r}, 'w')\nassert 1 is 1, '\\d'"}
    assert len(ULT.load(write(tmp_path / "u.jsonl", json.dumps(row)))) == 1
    assert not (tmp_path / "run").exists()


def test_what_is_imported_is_what_is_used():
    assert ULT.imports_of("def f(x: List[int]): return np.sum(x)", "not python", "assert math.pi > os") == (
        "import os\nimport math\nimport numpy as np\nfrom typing import List"
    )
    assert TESTEVAL.imports_of("math.pi") == ""


def test_modules_that_are_not_there():
    program = "import json, no_such.thing\nfrom nothing_here import x\nfrom . import y\nmath.pi"
    assert missing_modules(ULT.whole(SuiteTask("1", "f", program, ""))) == ["no_such", "nothing_here"]
    assert missing_modules("import __main__, sys", "def f():\n    import absent_here") == ["absent_here"]


def test_modules_are_looked_up_where_the_sandbox_looks(tmp_path, monkeypatch):
    (tmp_path / "beside_the_trainer.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "import beside_the_trainer, pytest, math, json.decoder, _struct"
    assert missing_modules(source) == ["beside_the_trainer"]
    with BenchmarkPool() as pool:
        for name, loads in (("beside_the_trainer", False), ("pytest", True), ("_struct", True)):
            assert pool.run_calls(f"import {name}", [], reply=Reply.EXACT).result(60).loaded is loads


def test_the_real_file():
    path = SHARED / "data" / "ult_lite_100.json"
    if not path.exists():
        pytest.skip("the shared data is not here")
    tasks = ULT.load(str(path))
    assert len(tasks) == 100
    assert all(len(suite) == 5 for suite in load_suites(str(path), tasks).values())
