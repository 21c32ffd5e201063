"""A grading by a `unittest` class in the program's own process: weaker than a check script, see `UnittestRun`."""

import ast
import socket
from collections.abc import Sequence

from codea1.sandbox import frames
from codea1.sandbox.host.judged_run import ENDED, JudgedRun
from codea1.sandbox.host.results import Limits
from codea1.sandbox.host.run import Channel, Desk, profile_of
from codea1.sandbox.host.zygote import Child, Ended
from codea1.values import decode_fields, encode_exact
from codea1.values.verdict import Verdict

_REPORT_BYTES = 1 << 20
_PASSED, _FAILED, _RAISED = "passed", "failed", "raised"  # as codea1.sandbox.child.unittests says them


class UnittestRun(JudgedRun):
    """Program and tests share one child and one namespace, since such tests pass objects and patch modules.

    So the program can do to the tests what it likes, and the report is its word. What is left to the trusted side is to
    know from the source of the tests which of them must be reported, and to take nothing but "passed" for each of them:
    a program that exits, hangs, removes tests or ends the runner fails. One that writes such a report itself passes.
    """

    def __init__(self, program: str, tests: str, class_name: str, limits: Limits) -> None:
        """Raises ValueError when the tests' source has no class `class_name` with tests, or does not parse."""
        super().__init__(limits)
        self.required = required_tests(tests, class_name)
        self.profile = profile_of(f"{program}\n{tests}")
        self.request = frames.pack(0, frames.UNITTEST, encode_exact((program, tests, class_name)))

    def launch(self, desk: Desk) -> tuple[Sequence[Child], Channel]:
        ours, theirs = socket.socketpair()
        with theirs:
            child = desk.spawn(self, self.profile, [theirs], self.kernel_limit, self.limits.script_memory_bytes)
        return [child], Channel(ours, self.request, _REPORT_BYTES, _REPORT_BYTES)

    def take(self, desk: Desk, frame: frames.Frame) -> None:
        load_error, report = decode_fields(frame.payload, str, list)
        if not all(type(line) is tuple and [type(word) for word in line] == [str] * 3 for line in report):
            raise ValueError("not a list of a test, its outcome and its words each")
        self.stop(desk, *self._judge(load_error, report))

    def _judge(self, load_error: str, report: Sequence[tuple[str, str, str]]) -> tuple[Verdict, str]:
        if load_error:
            return Verdict.ERROR, f"raised on load: {load_error}"
        if [name for name, _, _ in report] != self.required:
            return Verdict.ERROR, "the tests that ran are not those of the class"
        for outcome, verdict in ((_RAISED, Verdict.ERROR), (_FAILED, Verdict.FAIL)):
            for name, said, detail in report:
                if said == outcome:
                    return verdict, f"{name}: {detail}"
        if all(said == _PASSED for _, said, _ in report):
            return Verdict.PASS, ""
        return Verdict.ERROR, "the report is none"

    def lost(self, ended: Sequence[Ended]) -> tuple[str, Ended] | None:
        return ("the process", ended[0]) if self.detail == ENDED else None


def required_tests(source: str, class_name: str) -> list[str]:
    """The names of the tests of a class, as they are written. Raises ValueError when there are none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            names = {
                each.name
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test")
            }
            if names:
                return sorted(names)
    raise ValueError(f"there is no class {class_name} with tests")
