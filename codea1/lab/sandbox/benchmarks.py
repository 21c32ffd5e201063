"""Gradings that only benchmarks need, each in one child. No policy is paid by them.

The oracle of many inputs (`BatchRun`) is out of the program's reach. Tests in the program's process (`UnittestRun`,
`SuiteRun`) hand objects over and patch what it imports, as their benchmarks have it. So either can do to the other what
it likes, and the report is their word: a program that writes a report of passes itself has them, and a test with code
of its own can report a pass or tell a program from its mutant by looking at it. Never pay a policy by these two.
"""

import ast
import marshal
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from codea1.lab.sandbox import child
from codea1.lab.sandbox.child import (
    BATCH,
    DESCRIBE,
    DIGEST,
    GO_ON,
    MAX_VALUES,
    SUITE,
    TEST_CLASS,
    UNITTEST,
)
from codea1.sandbox import frames
from codea1.sandbox.host import Limits, ScriptRun
from codea1.sandbox.host.conversation import Conversation, OutOfTime, profile_of, wall_limit
from codea1.sandbox.host.dispatcher import GradingTask, Waiting
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.host.runs import ENDED, JudgedRun, known_verdict
from codea1.sandbox.host.zygote import Profile
from codea1.values import decode_fields, encode_exact
from codea1.values.verdict import Verdict

Arc = tuple[int, int]  # two lines of which one ran right after the other; minus a line for entering or leaving there
_ANSWER_BYTES, _MOST_ANSWERS = 1 << 20, 64  # of a value's encoding; so many of the largest a child may describe
# Of the exact encoding of an answer that is judged by what it is said to be, whatever its digest. A program that has
# its process say what it likes would learn by a question after a digest that this is wrong, and answer "No" where it
# had the digest of "Yes".
DESCRIBED_BYTES = 4 << 10
_REPORT_BYTES = 1 << 20
# Added to an input's limit: its clock includes the fast inputs before it that no frame has reported yet.
_SLACK_SECONDS = 0.1
_IMPORTS_PYTEST = re.compile(r"^[ \t]*(?:import|from)[ \t]+pytest\b", re.MULTILINE)
_PASSED, _FAILED, _RAISED = "passed", "failed", "raised"  # as codea1.lab.sandbox.child says them
# Children cannot read this package, and to have it loaded would cost those of training memory.
_SERVER = frames.pack(0, frames.SERVER, marshal.dumps(compile(Path(child.__file__).read_text(), "<server>", "exec")))


@dataclass(frozen=True)
class TracedRun(ScriptRun):
    """Tests run against one program in its own process, to the first that does not pass."""

    arcs: frozenset[Arc]  # of the program, as the `coverage` library counts them; empty unless asked for


@dataclass(frozen=True)
class Description:
    """What a program's process says that a value is."""

    type_name: str  # module and name
    compared: bytes  # canonical digest of the value, or of the set of its members; empty where there is none
    exact: bytes  # its exact encoding; empty where it is not plain data or large


class BatchJudge(Protocol):
    """Decides, by what a program's process says that it returned."""

    def agrees(self, index: int, digest: bytes, seconds: float) -> bool:
        """Returns whether the digest, a `child.value_digest`, settles that an input's value is right."""

    def accepts(self, index: int, value: Description) -> bool:
        """Returns whether a value is right whose digest settled nothing."""


class Inputs:
    """The inputs of a function, each with the CPU seconds that its call may take."""

    def __init__(
        self,
        rows: Sequence[Sequence],
        seconds: Sequence[float],
        *,
        as_set: bool = False,
        answer_bytes: int = _ANSWER_BYTES,
    ) -> None:
        """Packs the inputs; `as_set` has the sets of returned values' members compared.

        `answer_bytes` bounds the exact encoding of a value that is described. Raises ValueError for other types than
        those of literals.
        """
        self.frame = frames.pack(1, BATCH, marshal.dumps([list(row) for row in rows], 2))
        self.count = len(rows)
        self.seconds = list(seconds)
        self.as_set, self.answer_bytes = as_set, answer_bytes


class _OneChildRun(JudgedRun):
    """One child has program, tests and inputs, and the code of `codea1.lab.sandbox.child` that serves them."""

    max_bytes = max_payload = _REPORT_BYTES
    is_asked = False  # see `Conversation`
    shared = b""  # follows the request; other gradings hold the same bytes

    def __init__(self, profile: Profile, request: bytes, limits: Limits) -> None:
        super().__init__(limits)
        self.profile, self.request = profile, request

    def steps(self, task: GradingTask) -> Waiting[ScriptRun]:
        """Grades, from the beginning."""
        self.task = task
        conversation = Conversation(
            task,
            self.profile,
            _SERVER + self.request + self.shared,
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

    is_asked = True

    def __init__(self, program: str, entry_point: str, inputs: Inputs, judge: BatchJudge, limits: Limits) -> None:
        job = encode_exact((program, entry_point, inputs.as_set, inputs.answer_bytes))
        super().__init__(profile_of(program), frames.pack(0, BATCH, job), limits)
        self.shared = inputs.frame
        self.max_bytes = _MOST_ANSWERS * inputs.answer_bytes
        self.max_payload = inputs.answer_bytes + 1024  # digests take less
        self.inputs, self.agrees, self.accepts = inputs, judge.agrees, judge.accepts

    def report(
        self, conversation: Conversation, seconds_left: Callable[[float], float]
    ) -> Waiting[tuple[Verdict, str]]:
        """Receives digests, and descriptions of the values that these do not settle, until the verdict is clear."""
        inputs, agrees, accepts = self.inputs, self.agrees, self.accepts
        done = 0  # inputs whose values are right
        has_raised = False  # the next input's call, as a frame without any digest says
        mark, heard = 0.0, self.task.now  # the child's CPU clock, and the dispatcher's, when it last answered
        arrived: Iterator[frames.Frame] = iter(())

        def limit() -> float:
            return max(inputs.seconds[done : done + MAX_VALUES], default=0.0) + _SLACK_SECONDS

        def next_frame() -> Waiting[frames.Frame]:
            nonlocal arrived, mark, heard
            while (frame := next(arrived, None)) is None:
                arrived = yield from conversation.receive(
                    lambda clock: min(
                        seconds_left(clock), limit() - (clock - mark), heard + wall_limit(limit()) - self.task.now
                    )
                )
            if conversation.unsent:  # an honest child reads a request before it answers
                raise frames.ProtocolViolation
            mark, heard = conversation.cpu_seconds(), self.task.now
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
                    conversation.send(frames.pack(0, DESCRIBE, encode_exact(doubtful)))
                for index in doubtful:
                    frame = yield from next_frame()
                    if frame.kind != frames.VALUE or frame.index != index:
                        raise frames.ProtocolViolation
                    if not accepts(index, Description(*decode_fields(frame.payload, str, bytes, bytes))):
                        return Verdict.FAIL, f"input {index}: another value than expected"
                done += count
                if done == inputs.count:
                    return Verdict.PASS, ""
                conversation.send(frames.pack(0, GO_ON))
        except OutOfTime:
            if seconds_left(conversation.clock) <= 0:
                raise
            return Verdict.TIMEOUT, f"input {done} or a later one took more than {limit():g} CPU seconds, or slept"


class UnittestRun(_OneChildRun):
    """Grades a program by the tests of a `unittest` class in its own process.

    What is left to the trusted side is to know from the source of the tests which of them must be reported, and to take
    nothing but "passed" for each: a program that exits, hangs, removes tests or ends the runner fails.
    """

    def __init__(self, program: str, tests: str, limits: Limits) -> None:
        """Raises ValueError when the tests' source has no TEST_CLASS with tests, or does not parse."""
        self.required = required_tests(tests)
        request = frames.pack(0, UNITTEST, encode_exact((program, tests)))
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
        self, program: str, tests: Sequence[str], module: str, imports: str, traced: bool, limits: Limits
    ) -> None:
        source = "\n".join([imports, program, *tests])
        profile = replace(profile_of(source), with_pytest=bool(_IMPORTS_PYTEST.search(source)))
        job = encode_exact((module, imports, program, tuple(tests), traced))
        super().__init__(profile, frames.pack(0, SUITE, job), limits)
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


class BenchmarkPool(SandboxPool):
    """A sandbox for the gradings of benchmarks besides those of training."""

    def run_batch(
        self, program: str, entry_point: str, inputs: Inputs, judge: BatchJudge, limits: Limits
    ) -> Future[ScriptRun]:
        """Runs a program's function on inputs, in order and in one process, until `judge` rejects a value.

        A call that raises, hangs or ends the process is the end, too. The limits are those of the whole, in
        `cpu_seconds_per_script` and `script_memory_bytes`, and of each input; `judge` is called in the
        dispatcher's thread and must not take long.
        """
        return self._dispatcher.submit(BatchRun(program, entry_point, inputs, judge, limits))

    def run_unittest(self, program: str, tests: str, limits: Limits | None = None) -> Future[ScriptRun]:
        """Runs a program and the `unittest` class TestCases, written to follow it, in one process they share.

        For benchmarks whose tests hand objects over or patch what the program imports. A program that attacks the
        tests can pass them: never pay a policy by this. Which tests must pass is read off the source of the tests.
        Raises ValueError when that does not parse or has no such class with tests.
        """
        return self._dispatcher.submit(UnittestRun(program, tests, limits or self.limits))

    def run_suite(
        self,
        program: str,
        tests: Sequence[str],
        *,
        module: str,
        imports: str = "",
        traced: bool = False,
        cpu_seconds: float,
    ) -> Future[TracedRun]:
        """Runs tests, each an own Python source, to the first that does not pass, in one process with the program.

        What such a shared process allows is said above: never pay a policy by this.

        Args:
          program: Python source.
          tests: each has asserts, or functions named test... which are called, or both. Each finds the program's names
            in a fresh namespace of its own.
          module: under which tests can import the program.
          imports: Python source that runs first; its names are the program's and the tests' too.
          traced: whether to note the program's arcs, which slows it down.
          cpu_seconds: CPU limit of everything.
        """
        limits = replace(self.limits, cpu_seconds_per_script=cpu_seconds)
        return self._dispatcher.submit(SuiteRun(program, tests, module, imports, traced, limits))


def required_tests(source: str) -> list[str]:
    """Returns the names of the tests in TEST_CLASS, as they are written. Raises ValueError when there are none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == TEST_CLASS:
            functions = [child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
            if names := {child.name for child in functions if child.name.startswith("test")}:
                return sorted(names)
    raise ValueError(f"there is no class {TEST_CLASS} with tests")
