"""Code-A1, the paper's code: `evaluate` of `code/rl/reward.py`; SandboxFusion is here a plain process."""

import subprocess
import sys
import types
from enum import Enum
from types import SimpleNamespace

import peers

RunStatus = Enum("RunStatus", "Success Failed")
CommandRunStatus = Enum("CommandRunStatus", "Finished TimeLimitExceeded")


def run_code(request):
    try:
        done = subprocess.run([sys.executable, "-c", request.code], capture_output=True, text=True, timeout=10)
    except subprocess.TimeoutExpired:
        late = SimpleNamespace(status=CommandRunStatus.TimeLimitExceeded, stdout="", stderr="")
        return SimpleNamespace(status=RunStatus.Failed, run_result=late)
    result = SimpleNamespace(status=CommandRunStatus.Finished, stdout=done.stdout, stderr=done.stderr)
    return SimpleNamespace(status=RunStatus.Failed if done.returncode else RunStatus.Success, run_result=result)


peers.absent("torch", "verl", "verl.workers", "verl.workers.reward_manager")
sys.modules["sandbox_fusion"] = types.SimpleNamespace(
    **{"run_code": run_code, "run_concurrent": lambda run, args, concurrency: [run(*each) for each in args]},
    **{"RunCodeRequest": SimpleNamespace, "RunCodeResponse": SimpleNamespace},
    **{"RunStatus": RunStatus, "CommandRunStatus": CommandRunStatus},
)
sys.modules["sandbox_fusion.models"] = types.SimpleNamespace(CommandRunResult=SimpleNamespace)
sys.path.insert(0, str(peers.PEERS / "Code-A1/Code-A1/code/rl"))
from reward import evaluate  # noqa: E402


def paid(question: dict, program: str) -> bool | None:
    if question["kind"] == "stdin":
        return None
    result = evaluate([program], ['{"assert_statements": []}'], [""], [question["asserts"]])
    passed, total = result[4][0], result[5][0]
    return passed == total
