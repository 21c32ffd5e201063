"""A sandbox child's life with a program and a `unittest` class for it, both in this one process.

Standard library only: this runs inside the sandbox.
"""

from codea1.sandbox import frames
from codea1.sandbox.child.candidate import MODULE_NAME, describe, new_module, seed_randomness
from codea1.values import decode_exact, encode_exact


def serve(fd: int, job: frames.Frame) -> None:
    """Runs the tests of one UNITTEST frame and sends one VERDICT frame.

    It holds (load error, [(test, outcome, detail), ...]), sorted: a dict would be hashed by whoever reads it.
    """
    program, tests, class_name = decode_exact(job.payload)
    try:
        answer = ("", [(name, *said) for name, said in sorted(_run(program, tests, class_name).items())])
    except BaseException as error:
        answer = (_said(error), [])
    frames.write(fd, frames.pack(0, frames.VERDICT, encode_exact(answer)))


def _run(program: str, tests: str, class_name: str) -> dict[str, tuple[str, str]]:
    import unittest  # here, since few programs need it: what is imported before the fork costs every child

    class Result(unittest.TestResult):
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
                self.report[name] = (outcome, _said(error))

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

    seed_randomness(0)
    namespace = new_module(MODULE_NAME)
    exec(compile(program, f"<{MODULE_NAME}>", "exec", dont_inherit=True), namespace)
    exec(compile(tests, "<tests>", "exec", dont_inherit=True), namespace)
    result = Result()
    unittest.defaultTestLoader.loadTestsFromTestCase(namespace[class_name]).run(result)
    return result.report


def _said(error: BaseException) -> str:
    return describe(error).decode("utf-8", "replace")
