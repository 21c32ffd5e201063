"""rLLM: `rllm/rewards/code_utils/humanevalplus.py`."""

import peers

peers.package("rllm", "rllm", "rllm.rewards", "rllm.rewards.code_utils")
from rllm.rewards.code_utils.humanevalplus import run_test  # noqa: E402


def paid(question: dict, program: str) -> bool | None:
    return None if question["kind"] == "stdin" else run_test(program, "\n".join(question["asserts"]))[0]
