"""rLLM: `rllm/rewards/code_utils/livecodebench.py`, in a process that is started as `code_reward.py` does it."""

import json
from multiprocessing import Manager, Process

import peers

peers.package("rllm", "rllm", "rllm.rewards", "rllm.rewards.code_utils")
from rllm.rewards.code_utils.livecodebench import run_test  # noqa: E402

check = peers.definitions(
    *("rllm/rllm/rewards/code_reward.py", "_temp_run", "lcb_check_correctness_v2"),
    **{"lcb_run_test": run_test, "postprocess_lcb_sample": lambda sample: sample, "json": json},
    multiprocessing=type("multiprocessing", (), {"Manager": Manager, "Process": Process}),
).lcb_check_correctness_v2


def paid(question: dict, program: str) -> bool:
    return check({"input_output": json.dumps(peers.live_code_bench(question))}, program)[0]
