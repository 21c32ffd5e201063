"""ROLL: `roll/utils/local_code/evaluator.py`."""

import peers

peers.stand_in_for_pyext()
peers.package("ROLL", "roll", "roll.utils", "roll.utils.local_code")
from roll.utils.local_code.evaluator import codegen_check_correctness  # noqa: E402


def paid(question: dict, program: str) -> bool:
    results, _ = codegen_check_correctness(peers.live_code_bench(question), program, timeout=5)
    return all(each == 1 for each in results)
