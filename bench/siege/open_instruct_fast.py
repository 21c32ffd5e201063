"""open-instruct: `open_instruct/code_utils/code_utils.py`, what its code server calls."""

import peers

peers.absent("open_instruct.logger_utils")
peers.package("open-instruct", "open_instruct")
from open_instruct.code_utils.code_utils import get_successful_tests_fast, get_successful_tests_stdio  # noqa: E402


def paid(question: dict, program: str) -> bool:
    if question["kind"] == "stdin":
        tests = [{"input": test["stdin"], "output": test["stdout"]} for test in question["tests"]]
        return all(get_successful_tests_stdio(program, tests, 3.0)[0])
    return all(get_successful_tests_fast(program, question["asserts"], 3.0)[0])
