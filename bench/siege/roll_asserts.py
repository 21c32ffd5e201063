"""ROLL: `run_assert_tests` of `roll/pipeline/rlvr/rewards/code_sandbox_reward_worker.py`."""

import peers

peers.package("ROLL", "roll", "roll.utils", "roll.utils.local_code")
worker = "ROLL/roll/pipeline/rlvr/rewards/code_sandbox_reward_worker.py"
run_assert_tests = peers.definitions(worker, "run_assert_tests", Dict=dict, List=list, Tuple=tuple).run_assert_tests


def paid(question: dict, program: str) -> bool | None:
    if question["kind"] == "stdin":
        return None
    return run_assert_tests(program, [{"assert_code": each} for each in question["asserts"]])[0]
