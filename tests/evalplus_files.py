"""Benchmark files in EvalPlus's and BigCodeBench's official forms, with rows of our own."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def humaneval_row(number: int = 0, **changes: Any) -> Row:
    """A task that adds one: base inputs 0 to 2, plus inputs 10 and -1."""
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": 'def f(x):\n    """ One more than x. """\n',
        "entry_point": "f",
        "canonical_solution": "    return x + 1\n",
        "base_input": [[0], [1], [2]],
        "plus_input": [[10], [-1]],
        "atol": 0,
        "contract": "",
        **changes,
    }


def mbpp_row(number: int, entry_point: str, solution: str, inputs: Sequence[list], **changes: Any) -> Row:
    """A task whose solution is a whole program; all inputs are base inputs."""
    return humaneval_row(
        task_id=f"Mbpp/{number}",
        prompt=f'"""\nWrite {entry_point}.\n"""\n',
        entry_point=entry_point,
        canonical_solution=solution,
        base_input=list(inputs),
        plus_input=[],
        **changes,
    )


def bigcodebench_row(number: int = 0, **changes: Any) -> Row:
    """A task of the standard library: the mean of numbers."""
    signature = "import statistics\n\ndef task_func(numbers):\n"
    return {
        "task_id": f"BigCodeBench/{number}",
        "complete_prompt": f'{signature}    """ The mean of numbers. """\n',
        "instruct_prompt": "Write task_func, the mean of numbers.",
        "canonical_solution": "    return statistics.mean(numbers)\n",
        "code_prompt": signature,
        "test": "import unittest\nclass TestCases(unittest.TestCase):\n"
        "    def test_mean(self):\n        self.assertEqual(task_func([1, 2, 3]), 2)\n",
        "entry_point": "task_func",
        "doc_struct": "{}",
        "libs": "['statistics']",
        **changes,
    }


def write_rows(path: Path, *rows: Row) -> str:
    """Writes a JSON-lines file and returns its path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


# What a program begins with that takes over its process: `answer` is what this says that values are.
TWO_ANSWERS = """
import sys

def answer(second):  # what the process says where it is asked what the value is
    frame = sys._getframe()
    while frame:
        names = frame.f_globals
        if "_description" in names and "_own" not in names:
            own = names["_own"] = names["_description"]
            names["_description"] = lambda _, *rest: own(second, *rest)
        frame = frame.f_back

"""
