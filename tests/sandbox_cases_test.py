"""`python -m codea1.sandbox grade`: a verdict a line, and one clear sentence for a malformed file."""

import json
import subprocess
import sys

import pytest

from codea1.lab.sandbox.cases import Case, grade_cases, read_cases
from codea1.runtime.errors import BadInput
from codea1.sandbox.host import Limits
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from tests.conftest import SHARED
from tests.sandbox_calls import pool_of, run_python

CASES = SHARED / "cases" / "grading_cases.jsonl"

TRUTH = "def f(n): return n + 1"


pool = pool_of(SandboxPool, Limits(cpu_seconds_per_test=1.0, cpu_seconds_per_suite=3.0))


def row(**fields: object) -> dict[str, object]:
    case = {"name": "case", "entry_point": "f", "ground_truth": TRUTH, "candidate": TRUTH, "test": "assert f(3) == 4"}
    return case | fields


@pytest.mark.parametrize(
    ("fields", "verdict", "detail"),
    [
        ({}, "pass", ""),
        ({"candidate": "def f(n): return n"}, "fail", ""),
        ({"candidate": "def f(n): raise OSError('x')"}, "error", "OSError: x"),
        ({"candidate": "def f(n): return f"}, "fail", "builtins.function"),
        ({"test": "assert f(3) == 5"}, "invalid", "the stated answer is not the ground truth's"),
        ({"test": "assert f('a') == 1"}, "invalid", "the ground truth gives no usable answer: raises"),
        ({"test": "assert g(3) == 4"}, "invalid", "not the entry point"),
        ({"test": "assert f(3)"}, "pass", ""),
        ({"test": "assert f(3) is True"}, "invalid", "the stated answer is not the ground truth's"),
        ({"test": "nonsense ("}, "invalid", "does not parse"),
    ],
)
def test_verdicts(pool, fields, verdict, detail):
    (result,) = grade_cases([Case(**row(**fields))], Grader(pool))
    assert (result.name, result.verdict, result.detail) == ("case", verdict, detail)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "line 2: not a JSON object"),
        (json.dumps({"name": "x"}), "line 2: 'entry_point' is missing"),
        (json.dumps(row(test=3)), "line 2: 'test' is missing or not a string"),
    ],
)
def test_malformed_lines_are_named(tmp_path, line, message):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(row()) + "\n" + line + "\n")
    with pytest.raises(BadInput, match=r"cases\.jsonl, " + message):
        read_cases(str(path))


def test_line_separators_inside_strings_do_not_split_lines(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(row(name="a\u2028b\x85c"), ensure_ascii=False) + "\n\n", encoding="utf-8")
    assert [case.name for case in read_cases(str(path))] == ["a\u2028b\x85c"]


def command(*arguments: str) -> subprocess.CompletedProcess:
    """The command in a process that could not import JAX."""
    program = "import runpy, sys; sys.modules['jax'] = None; runpy.run_module('codea1.sandbox', run_name='__main__')"
    return run_python(sys.executable, "-c", program, *arguments)


def test_command_line(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(
        "\n".join(json.dumps(row(name=name, test=test)) for name, test in [("a", "assert f(3) == 4"), ("b", "")])
    )
    done = command("grade", str(path))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["verdict"] for line in done.stdout.splitlines()] == ["pass", "invalid"]
    path.write_text("{}")
    done = command("grade", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == f"error: {path}, line 1: 'name' is missing or not a string."
    done = command("grade")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == "error: 'grade' is unknown here; known is grade CASES.jsonl."


@pytest.mark.skipif(not CASES.exists(), reason="the shared grading cases are not here")
def test_shared_cases(pool):
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]
    names = ("name", "entry_point", "ground_truth", "candidate", "test")
    results = grade_cases([Case(*(row[name] for name in names)) for row in rows], Grader(pool))
    wrong = [
        result
        for row, result in zip(rows, results, strict=True)
        if result.verdict.value not in (row["expected_verdict"], *row["also_ok"])
    ]
    assert wrong == []
