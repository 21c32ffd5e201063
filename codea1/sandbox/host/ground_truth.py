"""What a ground truth answers to calls, and whether the answer can be relied on."""

from collections.abc import Sequence
from dataclasses import dataclass

from codea1.runtime.futures import Steps
from codea1.sandbox.host import Call, Outcome
from codea1.sandbox.host.pool import HASH_SEEDS, SandboxPool
from codea1.values import canonical_of, contains_nan, decode_exact

_REASONS = {
    "error": "raises",
    "opaque": "not plain data",
    "too_large": "not plain data",
    "timeout": "timeout",
    "infra": "infra",
}


@dataclass(frozen=True)
class GroundTruthAnswer:
    """What a ground truth answered to one call."""

    usable: bool
    value: bytes  # its exact encoding; empty when not usable
    reason: str  # "" or "raises", "not plain data", "nan", "disagrees", "timeout", "infra"
    cpu_seconds: float


def answer_calls(pool: SandboxPool, program: str, calls: Sequence[Call]) -> Steps[list[GroundTruthAnswer]]:
    """Runs a ground truth twice; returns for each call the answer that both runs agree on, or why there is none.

    The second run has another hash seed and takes the calls in the opposite order, so that answers made of set order,
    randomness or what earlier calls left behind disagree.
    """
    first = yield from _outcomes(pool, program, calls, HASH_SEEDS[0])
    answers = [_answer(outcome, _why_unusable(outcome)) for outcome in first]
    rest = [i for i, answer in reversed([*enumerate(answers)]) if answer.usable]
    second = yield from _outcomes(pool, program, [calls[i] for i in rest], HASH_SEEDS[1])
    for i, outcome in zip(rest, second, strict=True):
        if outcome.kind in ("timeout", "infra"):
            reason = outcome.kind
        elif outcome.kind != "value" or not _agree(first[i].payload, outcome.payload):
            reason = "disagrees"
        else:
            continue
        answers[i] = _answer(outcome, reason, max(outcome.cpu_seconds, first[i].cpu_seconds))
    return answers


def _outcomes(pool: SandboxPool, program: str, calls: Sequence[Call], hash_seed: int) -> Steps[list[Outcome]]:
    """Runs calls, and those that a spent budget kept from running again, as long as any get done."""
    outcomes = [Outcome("not_run")] * len(calls)
    left = list(range(len(calls)))
    while left:
        ran = yield pool.run_calls(program, [calls[i] for i in left], reply="exact", hash_seed=hash_seed)
        if all(outcome.kind == "not_run" for outcome in ran.outcomes):  # even one call does not fit into the budget
            return [Outcome("timeout") if outcome.kind == "not_run" else outcome for outcome in outcomes]
        for i, outcome in zip(left, ran.outcomes, strict=True):
            outcomes[i] = outcome
        left = [i for i in left if outcomes[i].kind == "not_run"]
    return outcomes


def _answer(outcome: Outcome, reason: str, cpu_seconds: float = 0.0) -> GroundTruthAnswer:
    value = b"" if reason else outcome.payload
    return GroundTruthAnswer(not reason, value, reason, cpu_seconds or outcome.cpu_seconds)


def _why_unusable(outcome: Outcome) -> str:
    if outcome.kind != "value":
        return _REASONS[outcome.kind]
    if canonical_of(outcome.payload) is not None:
        return ""
    try:
        return "nan" if contains_nan(decode_exact(outcome.payload, hashed=False)) else "not plain data"
    except ValueError:  # not what an honest encoder writes
        return "not plain data"


def _agree(first: bytes, second: bytes) -> bool:
    """Returns whether two exact encodings hold equal values: a dict built from a set may differ in its order."""
    return first == second or canonical_of(first) == canonical_of(second) is not None
