"""BigCodeBench: tasks in the official form that need only the standard library."""

import random
import time

import pytest

from codea1.data.loader import parsed
from codea1.game.prompts import DEFAULT
from codea1.lab.benchmarks.bigcodebench import BigCodeBench, _longest_program, load_tasks, sanitize
from codea1.lab.benchmarks.programs import broken_questions
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.runtime.errors import BadInput
from codea1.sandbox.host import ScriptRun
from codea1.values.verdict import Verdict
from tests.evalplus_files import bigcodebench_row, write_rows


def judge(pool: BenchmarkPool, answer: str, **changes) -> ScriptRun:
    benchmark = BigCodeBench("bigcodebench_complete", [bigcodebench_row(**changes)], pool)
    question = benchmark.questions[0]
    return benchmark.judge(question, benchmark.program(question, answer)).result(60)


def test_a_program_is_calibrated(pool):
    # It lacks the import that the task's own head has: the stub before it brings it.
    assert judge(pool, "def task_func(numbers):\n    return statistics.mean(numbers)").verdict is Verdict.PASS
    run = judge(pool, "def task_func(numbers):\n    return math.fsum(numbers) / 3")
    assert (run.verdict, run.detail) == (Verdict.ERROR, "test_mean: NameError: name 'math' is not defined")
    assert judge(pool, "def task_func(numbers):\n    return 3").verdict is Verdict.FAIL
    # Without a program, the stub alone is judged.
    assert judge(pool, "I do not know.").verdict is not Verdict.PASS


def test_a_completion_goes_on_where_the_task_ends(pool):
    benchmark = BigCodeBench("bigcodebench_complete", [bigcodebench_row()], pool)
    question = benchmark.questions[0]
    program = benchmark.continued(question, "    return statistics.mean(numbers)\n")
    assert benchmark.judge(question, program).result(60).verdict is Verdict.PASS


def test_what_is_asked(pool):
    complete, instruct = (
        BigCodeBench(f"bigcodebench_{split}", [bigcodebench_row()], pool) for split in ("complete", "instruct")
    )
    (asked,) = complete.messages(complete.questions[0], DEFAULT)
    assert asked["content"].endswith(
        '```\nimport statistics\n\ndef task_func(numbers):\n    """ The mean of numbers. """\n```\n'
    )
    (asked,) = instruct.messages(instruct.questions[0], DEFAULT)
    assert asked["content"].endswith("markdown code block:\nWrite task_func, the mean of numbers.\n")
    assert complete.prefill.endswith("\n```python\n")


def test_what_cannot_be_judged_here_is_told_with_the_reason(pool):
    test = "import unittest, no_such_module\nclass TestCases(unittest.TestCase):\n    def test_it(self): pass\n"
    wrong = "    return no_name\n"
    rows = [bigcodebench_row(), bigcodebench_row(1, test=test), bigcodebench_row(2, canonical_solution=wrong)]
    benchmark = BigCodeBench("bigcodebench_complete", rows, pool)
    broken = broken_questions(benchmark, [question.id for question in benchmark.questions], lambda: None)
    assert broken == {
        "BigCodeBench/1": "this Python has no module no_such_module",
        "BigCodeBench/2": "its own solution does not pass: error: test_mean: NameError: name 'no_name' is not defined",
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"test": "x = 1"}, r"line 1 \(BigCodeBench/0\): its test cannot be used: there is no class TestCases"),
        ({"test": "class TestCases("}, r"its test cannot be used"),
        ({"canonical_solution": "    return ("}, r"\(BigCodeBench/0\): its canonical_solution does not compile: "),
        ({"code_prompt": "def task_func(:"}, r"\(BigCodeBench/0\): its code_prompt does not compile: "),
        ({"code_prompt": None}, r"line 1: the field 'code_prompt' is missing"),
    ],
)
def test_bad_rows(tmp_path, changes, told):
    with pytest.raises(BadInput, match=told):
        load_tasks(write_rows(tmp_path / "b.jsonl", bigcodebench_row(**changes)))


def test_bad_files(tmp_path):
    with pytest.raises(BadInput, match="BigCodeBench/0 comes twice"):
        load_tasks(write_rows(tmp_path / "b.jsonl", bigcodebench_row(), bigcodebench_row()))
    with pytest.raises(BadInput, match=r"does not exist.*huggingface\.co/datasets/bigcode/bigcodebench"):
        load_tasks(str(tmp_path / "none.parquet"))


HELPED = "import math\nLIMIT = 3\ndef helper(x):\n    return x + LIMIT\n\n\ndef f(x):\n    return helper(x)"


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        (HELPED, HELPED.replace("\n\n\n", "\n")),
        (f"Here it is:\n{HELPED}\nI hope it helps!", HELPED.replace("\n\n\n", "\n")),
        ("def f(x):\n    return x\n\nprint(f(3))\ndef unused():\n    pass", "def f(x):\n    return x"),
        ("def f(x):\n    return x\n\ndef g(x):\n    return (", "def f(x):\n    return x"),  # cut off
        ("x: int = 3\ndef f():\n    return x", "x: int = 3\ndef f():\n    return x"),
        ("class A:\n    pass\nclass B(A):\n    pass\ndef f():\n    return B()", None),
        ("def f(x):\n    return 1\ndef f(x):\n    return 2", "def f(x):\n    return 1"),  # the first of a name
        ("", ""),
        ("no program at all", ""),
    ],
)
def test_sanitize(answer, program):
    assert sanitize(answer, "f") == (answer if program is None else program)


LINES = ["", "def f(x):", "    return (x", ")", "it's", '"""', "a = [1,", "2]", "if x:", "    y", "else:", "try:", "("]


@pytest.mark.parametrize("seed", range(40))
def test_the_program_is_the_run_that_parses_with_most_lines_that_are_not_blank(seed):
    draw = random.Random(seed)
    for _ in range(20):
        lines = draw.choices(LINES, k=draw.randint(1, 9))
        runs = [lines[i:j] for i in range(len(lines)) for j in range(i + 1, len(lines) + 1)]
        most = max((sum(map(bool, run)) for run in runs if parsed("\n".join(run))), default=0)
        text, _ = _longest_program(lines)
        assert sum(map(bool, text.split("\n"))) == most, lines


def test_long_answers_are_read_in_time():
    prose = "It's a program, isn't it? (It is one"
    code = ["def f(x):", *["    x = [x,", "", "    1]"] * 40, "    return x"]
    began = time.process_time()
    for answer in ([prose] * 120, [prose] * 60 + code + [prose] * 60, [*code, '"""', *code], ["f(", *code]):
        assert sanitize("\n".join(answer), "f").startswith("def f" if code[0] in answer else "")
    assert time.process_time() - began < 2
