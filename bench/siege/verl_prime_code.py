"""verl: `verl/utils/reward_score/prime_code`."""

import sys

import peers

peers.stand_in_for_pyext()
sys.path.insert(0, str(peers.PEERS / "verl/verl/utils/reward_score"))
from prime_code import compute_score  # noqa: E402


def paid(question: dict, program: str) -> bool:
    return compute_score(program, peers.live_code_bench(question), continuous=True)[0] == 1
