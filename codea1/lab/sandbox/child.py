"""A sandbox child's life with what only benchmarks need, all in this one process: a program and many inputs, a program
and a `unittest` class, or a program and tests that are Python source.

Standard library only: this runs inside the sandbox. A child gets its code, compiled, in a SERVER frame.
"""

import marshal
import struct
import sys
import time
from _blake2 import blake2b  # hashlib would bring OpenSSL into every child
from collections.abc import Callable, Sequence
from types import CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any

from codea1.sandbox import frames
from codea1.sandbox.child.candidate import describe, new_module, run_program, seed_randomness
from codea1.values import decode_exact, encode_canonical, encode_exact
from codea1.values.verdict import Verdict

BATCH, UNITTEST, SUITE = b"B", b"U", b"T"  # frames that say what to do
DESCRIBE, GO_ON = b"Q", b"G"  # frames that answer a batch's digests
DIGEST = struct.Struct(">16sd")  # of one value, and the CPU seconds that its call says it took
NO_DIGEST = bytes(16)  # of a value that marshal cannot write
MAX_VALUES = 256  # in a DIGESTS frame
_FIRST_VALUES, _SECONDS = 8, 0.02  # the first frame comes soon, since most wrong programs fail early
TEST_CLASS = "TestCases"  # which the tests of a UNITTEST frame define
_PROGRAM_FILE = "<program>"
_YIELDS_AT_RESUME = sys.version_info[:2] == (3, 13)  # where a frame stands that has yielded; else before it
_INSTRUCTION = 2  # bytes


def serve(fd: int) -> None:
    """Serves the job of the next frame."""
    job = frames.read(fd)
    if job is not None:
        {BATCH: serve_batch, UNITTEST: serve_unittest, SUITE: serve_suite}[job.kind](fd, job)


def serve_batch(fd: int, job: frames.Frame) -> None:
    """Answers two BATCH frames, a job and its inputs: DIGESTS frames, VALUE frames where it is asked, and an ERROR.

    Sending values, and reading them, would take longer than most of the calls. So digests go, a few at a time. Where
    one is not what the trainer expects, it asks for the value's description and decides by that; else it lets the child
    go on.
    """
    program, entry_point, as_set, answer_bytes = decode_exact(job.payload)
    inputs = frames.read(fd)
    if inputs is None:
        return
    try:
        function = run_program(program, 0)[entry_point]
    except BaseException as error:
        frames.write(fd, frames.pack(frames.LOAD, frames.ERROR, describe(error)))
        return
    rows = marshal.loads(inputs.payload)
    first, size = 0, _FIRST_VALUES
    while True:
        values, payload, error = _answers(function, rows[first : first + size])
        frames.write(fd, frames.pack(first, frames.DIGESTS, payload))
        if not _describe_doubtful(fd, first, values, as_set, answer_bytes):
            return
        first, size = first + len(values), min(2 * size, MAX_VALUES)
        if error is not None:
            frames.write(fd, frames.pack(first, frames.ERROR, describe(error)))
            return


def value_digest(value: Any) -> bytes:
    """Returns 16 bytes, the same for equal values of equal types; NO_DIGEST for what is not of builtin types."""
    try:
        return blake2b(frames.marshal_piece(value), digest_size=16).digest()
    except ValueError:
        return NO_DIGEST


def _answers(function: Callable, rows: Sequence[Sequence]) -> tuple[list, bytes, BaseException | None]:
    """Returns the values of the first of these inputs, their digests, and what the next one raised."""
    values: list = []
    payload: list[bytes] = []
    began = mark = time.process_time()
    for arguments in rows:
        try:
            values.append(function(*arguments))
        except BaseException as error:
            return values, b"".join(payload), error
        digested = value_digest(values[-1])  # which takes longer than the call where the value is large
        now = time.process_time()
        payload.append(DIGEST.pack(digested, now - mark))
        mark = now
        if now - began > _SECONDS:
            break
    return values, b"".join(payload), None


def _describe_doubtful(fd: int, first: int, values: Sequence, as_set: bool, answer_bytes: int) -> bool:
    """Describes what is asked for; returns whether the child is to go on."""
    while (request := frames.read(fd)) is not None:
        if request.kind == GO_ON:
            return True
        for index in decode_exact(request.payload):
            description = encode_exact(_description(values[index - first], as_set, answer_bytes))
            frames.write(fd, frames.pack(index, frames.VALUE, description))
    return False


def _description(value: Any, as_set: bool, answer_bytes: int) -> tuple[str, bytes, bytes]:
    """Returns (type, canonical digest, exact encoding); with `as_set` the digest is that of the set of the members.

    Each is empty where the value, which may raise when it is looked at, has none.
    """
    kind = type(value)
    exact = _or_nothing(lambda: encode_exact(value))
    return (
        _or_nothing(lambda: f"{kind.__module__}.{kind.__qualname__}"[:200].encode("utf-8", "replace")).decode(),
        _or_nothing(lambda: blake2b(encode_canonical(set(value) if as_set else value), digest_size=16).digest()),
        exact if len(exact) <= answer_bytes else b"",
    )


def _or_nothing(function: Callable[[], bytes]) -> bytes:
    try:
        return function()
    except BaseException:
        return b""


def serve_unittest(fd: int, job: frames.Frame) -> None:
    """Runs the tests of one UNITTEST frame and sends one VERDICT frame.

    It holds (load error, [(test, outcome, detail), ...]), sorted: the reader of a dict would have to hash it.
    """
    program, tests = decode_exact(job.payload)
    try:
        answer = ("", [(name, *outcome) for name, outcome in sorted(_run_class(program, tests).items())])
    except BaseException as error:
        answer = (_words(error), [])
    frames.write(fd, frames.pack(0, frames.VERDICT, encode_exact(answer)))


def _run_class(program: str, tests: str) -> dict[str, tuple[str, str]]:
    import unittest  # here, since no other kind of child needs it

    class FirstFailures(unittest.TestResult):
        """Keeps one outcome per test: the first that is not a pass."""

        def __init__(self) -> None:
            super().__init__()
            self.report: dict[str, tuple[str, str]] = {}

        def startTest(self, test: unittest.TestCase) -> None:
            super().startTest(test)
            self.report[test._testMethodName] = ("passed", "")

        def note(self, test: unittest.TestCase, outcome: str, error: BaseException) -> None:
            name = getattr(test, "_testMethodName", "")
            if self.report.get(name, ("passed", ""))[0] == "passed":
                self.report[name] = (outcome, _words(error))

        def addError(self, test: unittest.TestCase, err: tuple) -> None:
            self.note(test, "raised", err[1])

        def addFailure(self, test: unittest.TestCase, err: tuple) -> None:
            self.note(test, "failed", err[1])

        def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: tuple | None) -> None:
            if err is not None:
                self.note(test, "failed" if issubclass(err[0], test.failureException) else "raised", err[1])

        def addSkip(self, test: unittest.TestCase, reason: str) -> None:
            whole = getattr(test, "test_case", test)  # of a subtest
            self.report[whole._testMethodName] = ("failed", f"skipped: {reason}")  # a program too can raise SkipTest

        def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
            self.report[test._testMethodName] = ("failed", "an unexpected success")

    namespace = run_program(program, 0)
    exec(compile(tests, "<tests>", "exec", dont_inherit=True), namespace)
    result = FirstFailures()
    unittest.defaultTestLoader.loadTestsFromTestCase(namespace[TEST_CLASS]).run(result)
    return result.report


def _words(error: BaseException) -> str:
    return describe(error).decode("utf-8", "replace")


def serve_suite(fd: int, job: frames.Frame) -> None:
    """Runs the tests of one SUITE frame, to the first that does not pass, and sends one VERDICT frame.

    The frame holds (verdict, detail, the arcs that were run).
    """
    module, imports, program, tests, traced = decode_exact(job.payload)
    arcs: set[tuple[int, int]] = set()
    verdict, detail = _judge_suite(module, imports, program, tests, arcs if traced else None)
    answer = (verdict.value, detail.decode("utf-8", "replace"), sorted(arcs))
    frames.write(fd, frames.pack(0, frames.VERDICT, encode_exact(answer)))


def _judge_suite(
    module: str, imports: str, program: str, tests: Sequence[str], arcs: set[tuple[int, int]] | None
) -> tuple[Verdict, bytes]:
    seed_randomness(0)
    namespace = new_module(module)
    if arcs is not None:
        sys.settrace(_tracer(arcs))
    try:
        exec(compile(imports, "<imports>", "exec", dont_inherit=True), namespace)
        exec(compile(program, _PROGRAM_FILE, "exec", dont_inherit=True), namespace)
    except BaseException as error:
        return Verdict.ERROR, b"the program raised on load: " + describe(error)
    names = {name: value for name, value in namespace.items() if name[:2] + name[-2:] != "____"}
    try:
        for test in tests:
            _run_test(test, {**new_module("test"), **names})
    except AssertionError as error:
        return Verdict.FAIL, describe(error)
    except BaseException as error:
        return Verdict.ERROR, describe(error)
    finally:
        sys.settrace(None)
    return Verdict.PASS, b""


def _run_test(test: str, namespace: dict) -> None:
    """Runs a test's source and then the functions in it that are named test..., as pytest does."""
    import ast  # here, since no other kind of child needs it

    tree = ast.parse(test)
    functions = dict.fromkeys(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    )
    if not functions and not any(isinstance(node, ast.Assert) for node in tree.body):
        raise ValueError("neither a function named test... nor an assert")
    exec(compile(tree, "<test>", "exec", dont_inherit=True), namespace)
    for name in functions:
        if isinstance(namespace[name](), GeneratorType | CoroutineType):
            raise TypeError(f"{name} is a generator or a coroutine, which nothing runs")


def _tracer(arcs: set[tuple[int, int]]) -> Callable:
    """Makes a trace function that notes the program's arcs as the `coverage` library does.

    An arc is (line, next line) within one frame; it starts with minus the first line of the frame's code and ends with
    the same, by a return or an exception. Going on after a yield is no new start.
    """
    import opcode  # here, since no other kind of child needs it

    resume, push_exc_info = opcode.opmap["RESUME"], opcode.opmap["PUSH_EXC_INFO"]
    codes: dict[CodeType, bytes] = {}

    def enter(frame: FrameType, event: str, _: object) -> Callable | None:
        if event != "call" or frame.f_code.co_filename != _PROGRAM_FILE:
            return None
        code = codes.get(frame.f_code)
        if code is None:
            code = codes[frame.f_code] = frame.f_code.co_code
        first = frame.f_code.co_firstlineno
        is_new = code[frame.f_lasti + 1] == 0  # the argument of RESUME
        last = -first if is_new else frame.f_lineno

        def step(frame: FrameType, event: str, _: object) -> Callable:
            nonlocal last
            if event == "line":
                if code[frame.f_lasti] != push_exc_info:
                    arcs.add((last, frame.f_lineno))
                    last = frame.f_lineno
            elif event == "return":
                resumes_at = frame.f_lasti + (0 if _YIELDS_AT_RESUME else _INSTRUCTION)
                if resumes_at >= len(code) or code[resumes_at] != resume:
                    arcs.add((last, -first))
            return step

        return step

    return enter
