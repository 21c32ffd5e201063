"""A sandbox child's life with a program and tests of it that are Python source, all in this one process.

Standard library only: this runs inside the sandbox.
"""

import opcode
import sys
from collections.abc import Callable, Sequence
from types import CodeType, CoroutineType, FrameType, GeneratorType

from codea1.sandbox import frames
from codea1.sandbox.child.candidate import describe, new_module, seed_randomness
from codea1.values import decode_exact, encode_exact
from codea1.values.verdict import Verdict

_PROGRAM_FILE = "<program>"
_RESUME, _PUSH_EXC_INFO = opcode.opmap["RESUME"], opcode.opmap["PUSH_EXC_INFO"]
_YIELDS_AT_RESUME = sys.version_info[:2] == (3, 13)  # where a frame stands that has yielded; else before it
_INSTRUCTION = 2  # bytes


def serve(fd: int, job: frames.Frame) -> None:
    """Runs the tests of one SUITE frame, to the first that does not pass, and sends one VERDICT frame.

    It holds (verdict, what there is to say about it, the arcs that were run).
    """
    module, imports, program, tests, traced = decode_exact(job.payload)
    arcs: set[tuple[int, int]] = set()
    verdict, detail = _judge(module, imports, program, tests, arcs if traced else None)
    answer = (verdict.value, detail.decode("utf-8", "replace"), sorted(arcs))
    frames.write(fd, frames.pack(0, frames.VERDICT, encode_exact(answer)))


def _judge(
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
            _run(test, {**new_module("test"), **names})
    except AssertionError as error:
        return Verdict.FAIL, describe(error)
    except BaseException as error:
        return Verdict.ERROR, describe(error)
    finally:
        sys.settrace(None)
    return Verdict.PASS, b""


def _run(test: str, namespace: dict) -> None:
    """Runs a test's source and then the functions in it that are named test..., as pytest does."""
    import ast  # here, since no other kind of child needs it: what is imported before the fork costs them all

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
            raise TypeError(f"{name} is a generator or a coroutine, which nobody runs")


def _tracer(arcs: set[tuple[int, int]]) -> Callable:
    """A trace function that notes the program's arcs as the `coverage` library does.

    An arc is (line, next line) within one frame; it starts with minus the first line of the frame's code and ends with
    the same, by a return or an exception. Going on after a yield is no new start.
    """
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
                if code[frame.f_lasti] != _PUSH_EXC_INFO:
                    arcs.add((last, frame.f_lineno))
                    last = frame.f_lineno
            elif event == "return":
                resumes_at = frame.f_lasti + (0 if _YIELDS_AT_RESUME else _INSTRUCTION)
                if resumes_at >= len(code) or code[resumes_at] != _RESUME:
                    arcs.add((last, -first))
            return step

        return step

    return enter
