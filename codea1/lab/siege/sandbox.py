"""`python -m codea1.lab.siege.sandbox [LEVEL]`: this project's sandbox as a grader that is a command."""

import json
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from codea1.game.calls import Call, CallTest
from codea1.game.question import Question
from codea1.sandbox.host.grading import Grader, Grading
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.values import encode_exact
from codea1.values.entry_points import STDOUT, tidied
from codea1.values.verdict import Verdict


def grade(pool: SandboxPool, question: Mapping[str, Any], program: str) -> Future[Grading]:
    """Grades a program of a siege by calls, as training does, with a grader that remembers no verdict."""
    entry_point = question.get("entry_point", STDOUT)
    tests = []
    for test in question["tests"]:
        arguments = test.get("arguments", [test.get("stdin")])
        expected = test["expected"] if "expected" in test else tidied(test["stdout"])
        tests.append(CallTest(Call(entry_point, encode_exact((tuple(arguments), {}))), encode_exact(expected)))
    module = Question(question["id"], None, "", "", "", entry_point).module(program)
    return Grader(pool).grade(module, tests)


def is_paid(grading: Grading) -> bool:
    """Returns whether a program passed all tests."""
    return all(verdict is Verdict.PASS for verdict in grading.verdicts)


def main(level: str = AUTO) -> None:
    """Reads requests, and prints verdicts, as JSON lines."""
    with SandboxPool(1, isolation=level) as pool:
        for line in sys.stdin:
            request = json.loads(line)
            grading = grade(pool, request["question"], request["program"]).result()
            said = {"died": grading.lost} if grading.lost else {"paid": is_paid(grading)}
            print(json.dumps({"id": request["id"], **said}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
