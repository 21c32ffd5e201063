"""SandboxFusion: `sandbox/utils/testing.py`, with the server's runner in this process and the Python that is here."""

import asyncio
import sys

import peers

sys.path.insert(0, str(peers.PEERS / "SandboxFusion"))
from sandbox.datasets.types import GeneralStdioTest, TestConfig
from sandbox.runners import major
from sandbox.utils.testing import check_auto_test_case, check_stdio_test_cases

major.get_python_rt_env = lambda name: {}


def paid(question: dict, program: str) -> bool:
    config = TestConfig(language="python")
    if question["kind"] != "stdin":
        source = "\n".join([program, *question["asserts"]])
        return asyncio.run(check_auto_test_case(source, config)).passed
    tests = [{"stdin": test["stdin"]} for test in question["tests"]]
    outputs = [{"stdout": test["stdout"]} for test in question["tests"]]
    cases = [GeneralStdioTest(input=given, output=wanted) for given, wanted in zip(tests, outputs, strict=True)]
    return all(each.passed for each in asyncio.run(check_stdio_test_cases(program, cases, config)))
