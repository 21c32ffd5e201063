"""A grading of tests that are Python source: they share a process with the program, see `SuiteRun`."""

import re
import socket
from collections.abc import Sequence
from dataclasses import replace

from codea1.sandbox import frames
from codea1.sandbox.host.judged_run import ENDED, JudgedRun, told
from codea1.sandbox.host.results import Arc, Limits, TracedRun
from codea1.sandbox.host.run import Channel, Desk, profile_of
from codea1.sandbox.host.zygote import Child, Ended
from codea1.values import decode_fields, encode_exact
from codea1.values.verdict import Verdict

_REPORT_BYTES = 1 << 20
_IMPORTS_PYTEST = re.compile(r"^[ \t]*(?:import|from)[ \t]+pytest\b", re.MULTILINE)


class SuiteRun(JudgedRun):
    """Program and tests share one child: tests hand objects over, patch modules, and look at what they like.

    Here the tests are what is measured, and the report is their word. A test that is an assert on literals has no code
    to lie with. One with code of its own can report a pass, which it can also have by asserting nothing; it can tell a
    program from its mutant by looking at it and not at what it does, which nothing here notices.
    """

    def __init__(
        self,
        program: str,
        tests: Sequence[str],
        *,
        module: str,
        imports: str,
        traced: bool,
        cpu_seconds: float,
        limits: Limits,
    ) -> None:
        super().__init__(replace(limits, cpu_seconds_per_script=cpu_seconds))
        source = "\n".join([imports, program, *tests])
        self.profile = replace(profile_of(source), with_pytest=bool(_IMPORTS_PYTEST.search(source)))
        self.lines = program.count("\n") + 1
        self.arcs: frozenset[Arc] = frozenset()
        job = encode_exact((module, imports, program, tuple(tests), traced))
        self.request = frames.pack(0, frames.SUITE, job)

    def launch(self, desk: Desk) -> tuple[Sequence[Child], Channel]:
        self.arcs = frozenset()
        ours, theirs = socket.socketpair()
        with theirs:
            child = desk.spawn(self, self.profile, [theirs], self.kernel_limit, self.limits.script_memory_bytes)
        return [child], Channel(ours, self.request, _REPORT_BYTES, _REPORT_BYTES)

    def take(self, desk: Desk, frame: frames.Frame) -> None:
        verdict, detail, arcs = decode_fields(frame.payload, str, str, list)
        if not all(type(arc) is tuple and len(arc) == 2 for arc in arcs):
            raise ValueError("not a list of arcs")
        self.arcs = frozenset((self._line(start), self._line(end)) for start, end in arcs)
        self.stop(desk, told(verdict), detail)

    def _line(self, number: object) -> int:
        if type(number) is not int or abs(number) > self.lines:
            raise ValueError("not a line of the program")
        return number

    def lost(self, ended: Sequence[Ended]) -> tuple[str, Ended] | None:
        return ("the process", ended[0]) if self.detail == ENDED else None

    def result(self, verdict: Verdict, detail: str, cpu_seconds: float) -> TracedRun:
        return TracedRun(verdict, detail, cpu_seconds, self.arcs)
