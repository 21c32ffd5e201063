"""Gradings that come to one verdict, for validation and benchmarks; rewards are paid by `codea1.sandbox.host.calls`.

A check script (`CheckRun`) and the oracle of many inputs (`BatchRun`) are out of the program's reach. Tests in the
program's process (`UnittestRun`, `SuiteRun`) hand objects over and patch what it imports, as their benchmarks have it.
So either can do to the other what it likes, and the report is their word: a program that writes a report of passes
itself has them, and a test with code of its own can report a pass or tell a program from its mutant by looking at it.
Never pay a policy by these two.
"""

import ast
import marshal
import re
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

from codea1.sandbox import frames
from codea1.sandbox.child.benchmarks import DIGEST, MAX_DESCRIBED_BYTES, MAX_VALUES, TEST_CLASS
from codea1.sandbox.host import Arc, Limits, ScriptRun, TracedRun
from codea1.sandbox.host.conversation import Closed, Conversation, OutOfTime, profile_of, wall_limit
from codea1.sandbox.host.dispatcher import GradingTask, Starved, Waiting
from codea1.sandbox.host.zygote import Child, Profile
from codea1.values import decode_fields, encode_exact
from codea1.values.verdict import Verdict

ENDED = "script ended"
_CANDIDATE_ENDED = "candidate ended"  # as codea1.sandbox.child.script says it
_KNOWN_TO_CHILDREN = (Verdict.PASS, Verdict.FAIL, Verdict.ERROR)
_VERDICT_BYTES = 4096
_BATCH_BYTES = 64 << 20  # of all that a child may say of a batch
_DESCRIPTION_BYTES = MAX_DESCRIBED_BYTES + 1024  # digests take less
_REPORT_BYTES = 1 << 20
# Added to an input's limit: its clock includes the fast inputs before it that no frame has reported yet.
_SLACK_SECONDS = 0.1
_IMPORTS_PYTEST = re.compile(r"^[ \t]*(?:import|from)[ \t]+pytest\b", re.MULTILINE)
_PASSED, _FAILED, _RAISED = "passed", "failed", "raised"  # as codea1.sandbox.child.benchmarks says them


class JudgedRun:
    """What gradings have in common that come to one verdict: children with one CPU budget, one of which reports."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def report(
        self, conversation: Conversation, seconds_left: Callable[[float], float]
    ) -> Waiting[tuple[Verdict, str]]:
        """Receives what leads to a verdict and returns (verdict, detail); here from one frame.

        May raise ValueError or ProtocolViolation for what honest children never send.
        """
        frame = next((yield from conversation.receive(seconds_left)))
        return self.read(frame.payload)

    def read(self, payload: bytes) -> tuple[Verdict, str]:
        """Reads the verdict in the one frame of a report. Raises ValueError."""
        verdict, detail = decode_fields(payload, str, str)
        return known_verdict(verdict), detail

    def judge(
        self, task: GradingTask, conversation: Conversation, children: Mapping[str, tuple[str, Child]]
    ) -> Waiting[ScriptRun]:
        """Awaits the report, ends all children, and returns the verdict.

        `children` has, by the detail of a verdict that means that a child ended early, its name and the child.
        """
        limit = self.limits.cpu_seconds_per_script
        with closing(conversation):
            yield from conversation.started()
            asleep_at = task.now + wall_limit(limit)
            try:
                verdict, detail = yield from self.report(
                    conversation, lambda clock: min(limit - clock, asleep_at - task.now)
                )
            except OutOfTime:
                verdict, detail = Verdict.TIMEOUT, f"more than {limit:g} CPU seconds, or asleep"
            except Closed:
                verdict, detail = Verdict.ERROR, ENDED
            except (OSError, Starved):  # the machine's: tried again later
                raise
            except Exception as error:  # whatever is wrong with a claim, or with what reads it, costs no other grading
                if not isinstance(error, frames.ProtocolViolation | ValueError):
                    traceback.print_exc()
                task.count("violations")
                verdict, detail = Verdict.ERROR, f"{children[ENDED][0]} broke the protocol"
            yield from conversation.end()
        if verdict is Verdict.TIMEOUT:
            task.count("timeouts")
        if detail in children:
            name, child = children[detail]
            assert child.ended is not None
            task.accept_end(child.ended)
            detail = f"{name} {child.ended}"
        return ScriptRun(verdict, detail[: frames.MAX_WORDS], conversation.cpu_seconds())

    def lost(self, why: str) -> ScriptRun:
        """Returns the result that says the sandbox failed."""
        return ScriptRun(Verdict.INFRA, why, 0.0)


class CheckRun(JudgedRun):
    """The program lives in one child and the script in another, which sends the verdict."""

    def __init__(self, script: str, program: str, entry_point: str, limits: Limits) -> None:
        super().__init__(limits)
        self.profile_of_program, self.profile_of_script = profile_of(program), profile_of(script)
        self.request = frames.pack(0, frames.JOB, encode_exact((script, program, entry_point)))

    def steps(self, task: GradingTask) -> Waiting[ScriptRun]:
        """Grades, from the beginning."""
        seconds, memory = self.limits.cpu_seconds_per_script, self.limits.script_memory_bytes
        script_end, program_end = socket.socketpair()
        with script_end, program_end:
            candidate = task.dispatcher.start_child(task, self.profile_of_program, [program_end], seconds, memory)
            conversation = Conversation(
                task,
                self.profile_of_script,
                self.request,
                cpu_seconds=seconds,
                memory_bytes=memory,
                max_bytes=_VERDICT_BYTES,
                max_payload=_VERDICT_BYTES,
                end_to_other=[script_end],
                others=[candidate],
            )
        children = {ENDED: ("script", conversation.child), _CANDIDATE_ENDED: ("candidate", candidate)}
        return (yield from self.judge(task, conversation, children))


@dataclass(frozen=True)
class Description:
    """What a program's process says that a value is."""

    type_name: str  # module and name
    compared: bytes  # canonical digest of the value, or of the set of its members; empty where there is none
    exact: bytes  # its exact encoding; empty where it is not plain data or large


class Judge(Protocol):
    """Decides, by what a program's process says that it returned."""

    def agrees(self, index: int, digest: bytes, seconds: float) -> bool:
        """Returns whether the digest, a `child.benchmarks.value_digest`, settles that an input's value is right."""

    def accepts(self, index: int, value: Description) -> bool:
        """Returns whether a value is right whose digest settled nothing."""


class Inputs:
    """The inputs of a function, each with the CPU seconds that its call may take."""

    def __init__(self, rows: Sequence[Sequence], seconds: Sequence[float], *, as_set: bool = False) -> None:
        """Packs the inputs; `as_set` has the sets of returned values' members compared.

        Raises ValueError for other types than those of literals.
        """
        self.frame = frames.pack(1, frames.BATCH, marshal.dumps([list(row) for row in rows], 2))
        self.count = len(rows)
        self.seconds = list(seconds)
        self.as_set = as_set


class _OneChildRun(JudgedRun):
    """One child has program, tests and inputs."""

    max_bytes = max_payload = _REPORT_BYTES
    is_asked = False  # see `Conversation`
    shared = b""  # follows the request; other gradings hold the same bytes

    def __init__(self, profile: Profile, request: bytes, limits: Limits) -> None:
        super().__init__(limits)
        self.profile, self.request = profile, request

    def steps(self, task: GradingTask) -> Waiting[ScriptRun]:
        """Grades, from the beginning."""
        conversation = Conversation(
            task,
            self.profile,
            self.request + self.shared,
            cpu_seconds=self.limits.cpu_seconds_per_script,
            memory_bytes=self.limits.script_memory_bytes,
            max_bytes=self.max_bytes,
            max_payload=self.max_payload,
            is_asked=self.is_asked,
        )
        return (yield from self.judge(task, conversation, {ENDED: ("the process", conversation.child)}))


class BatchRun(_OneChildRun):
    """Grades a program by digests of what it returns for many inputs, compared on the trusted side.

    The child waits after each frame of digests; the next request is to go on, or to describe some values.
    """

    max_bytes, max_payload = _BATCH_BYTES, _DESCRIPTION_BYTES
    is_asked = True

    def __init__(self, program: str, entry_point: str, inputs: Inputs, judge: Judge, limits: Limits) -> None:
        job = encode_exact((program, entry_point, inputs.as_set))
        super().__init__(profile_of(program), frames.pack(0, frames.BATCH, job), limits)
        self.shared = inputs.frame
        self.inputs, self.agrees, self.accepts = inputs, judge.agrees, judge.accepts

    def report(
        self, conversation: Conversation, seconds_left: Callable[[float], float]
    ) -> Waiting[tuple[Verdict, str]]:
        """Receives digests, and descriptions of the values that these do not settle, until the verdict is clear."""
        inputs, agrees, accepts = self.inputs, self.agrees, self.accepts
        done = 0  # inputs whose values are right
        has_raised = False  # the next input's call, as a frame without any digest says
        mark = 0.0  # the child's CPU clock when it last answered
        arrived: Iterator[frames.Frame] = iter(())

        def limit() -> float:
            return max(inputs.seconds[done : done + MAX_VALUES], default=0.0) + _SLACK_SECONDS

        def next_frame() -> Waiting[frames.Frame]:
            nonlocal arrived, mark
            while (frame := next(arrived, None)) is None:
                arrived = yield from conversation.receive(
                    lambda clock: min(seconds_left(clock), limit() - (clock - mark))
                )
            if conversation.unsent:  # an honest child reads a request before it answers
                raise frames.ProtocolViolation
            mark = conversation.cpu_seconds()
            return frame

        try:
            while True:
                frame = yield from next_frame()
                if frame.kind == frames.ERROR:
                    where = "on load" if frame.index == frames.LOAD else f"on input {done}"
                    return Verdict.ERROR, f"raised {where}: {frame.payload.decode('utf-8', 'replace')}"
                if frame.kind != frames.DIGESTS or frame.index != done or has_raised:
                    raise frames.ProtocolViolation
                count, left_over = divmod(len(frame.payload), DIGEST.size)
                if left_over or done + count > inputs.count:
                    raise frames.ProtocolViolation
                digests = list(DIGEST.iter_unpack(frame.payload))
                has_raised = not count
                doubtful = [i for i, (digest, seconds) in enumerate(digests, done) if not agrees(i, digest, seconds)]
                if doubtful:
                    conversation.send(frames.pack(0, frames.DESCRIBE, encode_exact(doubtful)))
                for index in doubtful:
                    frame = yield from next_frame()
                    if frame.kind != frames.VALUE or frame.index != index:
                        raise frames.ProtocolViolation
                    if not accepts(index, Description(*decode_fields(frame.payload, str, bytes, bytes))):
                        return Verdict.FAIL, f"input {index}: another value than expected"
                done += count
                if done == inputs.count:
                    return Verdict.PASS, ""
                conversation.send(frames.pack(0, frames.GO_ON))
        except OutOfTime:
            if seconds_left(conversation.clock) <= 0:
                raise
            return Verdict.TIMEOUT, f"input {done} or a later one took more than {limit():g} CPU seconds"


class UnittestRun(_OneChildRun):
    """Grades a program by the tests of a `unittest` class in its own process.

    What is left to the trusted side is to know from the source of the tests which of them must be reported, and to take
    nothing but "passed" for each: a program that exits, hangs, removes tests or ends the runner fails.
    """

    def __init__(self, program: str, tests: str, limits: Limits) -> None:
        """Raises ValueError when the tests' source has no TEST_CLASS with tests, or does not parse."""
        self.required = required_tests(tests)
        request = frames.pack(0, frames.UNITTEST, encode_exact((program, tests)))
        super().__init__(profile_of(f"{program}\n{tests}"), request, limits)

    def read(self, payload: bytes) -> tuple[Verdict, str]:
        load_error, report = decode_fields(payload, str, list)
        if not all(type(line) is tuple and [type(word) for word in line] == [str] * 3 for line in report):
            raise ValueError("not a list of a test, its outcome and its words each")
        if load_error:
            return Verdict.ERROR, f"raised on load: {load_error}"
        if [name for name, _, _ in report] != self.required:
            return Verdict.ERROR, "the tests that ran are not those of the class"
        for outcome, verdict in ((_RAISED, Verdict.ERROR), (_FAILED, Verdict.FAIL)):
            for name, reported, detail in report:
                if reported == outcome:
                    return verdict, f"{name}: {detail}"
        if all(reported == _PASSED for _, reported, _ in report):
            return Verdict.PASS, ""
        return Verdict.ERROR, "the report is malformed"


class SuiteRun(_OneChildRun):
    """Grades tests that are Python source, by a program in whose process they run: here they are what is measured."""

    def __init__(
        self, program: str, tests: Sequence[str], *, module: str, imports: str, traced: bool, limits: Limits
    ) -> None:
        source = "\n".join([imports, program, *tests])
        profile = replace(profile_of(source), with_pytest=bool(_IMPORTS_PYTEST.search(source)))
        job = encode_exact((module, imports, program, tuple(tests), traced))
        super().__init__(profile, frames.pack(0, frames.SUITE, job), limits)
        self.lines = program.count("\n") + 1

    def steps(self, task: GradingTask) -> Waiting[TracedRun]:
        """Grades, from the beginning."""
        self.arcs: frozenset[Arc] = frozenset()
        run = yield from super().steps(task)
        return TracedRun(run.verdict, run.detail, run.cpu_seconds, self.arcs)

    def read(self, payload: bytes) -> tuple[Verdict, str]:
        verdict, detail, arcs = decode_fields(payload, str, str, list)
        for arc in arcs:
            if type(arc) is not tuple or [type(line) for line in arc] != [int] * 2 or max(map(abs, arc)) > self.lines:
                raise ValueError("not two lines of the program")
        self.arcs = frozenset(arcs)
        return known_verdict(verdict), detail

    def lost(self, why: str) -> TracedRun:
        """Returns the result that says the sandbox failed."""
        return TracedRun(Verdict.INFRA, why, 0.0, frozenset())


def known_verdict(verdict: str) -> Verdict:
    """Returns the verdict that a child reports. Raises ValueError for one that no child can know."""
    if verdict not in _KNOWN_TO_CHILDREN:
        raise ValueError(f"a child cannot say {verdict!r}")
    return Verdict(verdict)


def required_tests(source: str) -> list[str]:
    """Returns the names of the tests in TEST_CLASS, as they are written. Raises ValueError when there are none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == TEST_CLASS:
            functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            if names := {each.name for each in functions if each.name.startswith("test")}:
                return sorted(names)
    raise ValueError(f"there is no class {TEST_CLASS} with tests")
