"""rLLM: `rllm/rewards/code_utils/kodcode.py`. `pytest` must be found on the PATH."""

import peers

peers.package("rllm", "rllm", "rllm.rewards", "rllm.rewards.code_utils")
from rllm.rewards.code_utils.kodcode import code_exec  # noqa: E402


def paid(question: dict, program: str) -> bool | None:
    if question["kind"] == "stdin":
        return None
    return code_exec(program, "\n    ".join(["def test_solution():", *question["asserts"]]))[0]
