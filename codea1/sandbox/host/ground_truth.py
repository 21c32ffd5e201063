"""What a ground truth answers to calls, and whether the answer can be relied on."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from codea1.sandbox.host.pool import HASH_SEEDS, SandboxPool
from codea1.sandbox.host.results import Call, Outcome
from codea1.values import canonical_of, contains_nan, decode_exact

_CALLS_PER_RUN = 64  # most solutions' suites fit; more, and one process would keep all others waiting

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


@dataclass(frozen=True)
class Promise:
    """An answer someone waits for."""

    call: Call
    future: Future[GroundTruthAnswer]
    first: Outcome | None = None  # of the first of the two runs

    def give(self, outcome: Outcome, *, reason: str = "") -> None:
        seconds = max(outcome.cpu_seconds, self.first.cpu_seconds if self.first else 0.0)
        value = b"" if reason else outcome.payload
        self.future.set_result(GroundTruthAnswer(not reason, value, reason, seconds))


_Settled = list[tuple[Promise, Outcome]]


def answer_calls(pool: SandboxPool, program: str, promises: Sequence[Promise]) -> None:
    """Sees to it that every promise is kept: by an answer both runs agree on, by a reason why there is none.

    The second run has another hash seed and takes the calls in the opposite order, so that answers made of set order,
    randomness or what earlier calls left behind disagree. An exception of the pool becomes the futures'.
    """
    for start in range(0, len(promises), _CALLS_PER_RUN):
        _run_all(pool, program, promises[start : start + _CALLS_PER_RUN], HASH_SEEDS[0], _after_first(pool, program))


def _run_all(
    pool: SandboxPool, program: str, promises: Sequence[Promise], hash_seed: int, use: Callable[[_Settled], None]
) -> None:
    """Runs the calls and hands the outcomes to `use`; calls that a spent budget kept from running run once more."""

    def settle(done: Future) -> None:
        try:
            pairs = list(zip(promises, done.result().outcomes, strict=True))
            left = [promise for promise, outcome in pairs if outcome.kind == "not_run"]
            if len(left) == len(pairs):  # not even the first call fits into a suite's budget
                use([(promise, Outcome("timeout")) for promise in left])
                return
            use([pair for pair in pairs if pair[1].kind != "not_run"])
            if left:
                _run_all(pool, program, left, hash_seed, use)
        except BaseException as error:
            _break(promises, error)

    try:
        calls = [promise.call for promise in promises]
        pool.run_calls(program, calls, reply="exact", hash_seed=hash_seed).add_done_callback(settle)
    except BaseException as error:
        _break(promises, error)


def _break(promises: Sequence[Promise], error: BaseException) -> None:
    for promise in promises:
        if not promise.future.done():
            promise.future.set_exception(error)


def _after_first(pool: SandboxPool, program: str) -> Callable[[_Settled], None]:
    def use(settled: _Settled) -> None:
        answered = []
        for promise, outcome in settled:
            reason = _REASONS.get(outcome.kind) or _unusable_value(outcome.payload)
            if reason:
                promise.give(outcome, reason=reason)
            else:
                answered.append(Promise(promise.call, promise.future, outcome))
        if answered:
            _run_all(pool, program, answered[::-1], HASH_SEEDS[1], _after_second)

    return use


def _after_second(settled: _Settled) -> None:
    for promise, outcome in settled:
        if outcome.kind in ("timeout", "infra"):
            promise.give(outcome, reason=outcome.kind)
        elif outcome.kind != "value" or not _agree(promise.first.payload, outcome.payload):
            promise.give(outcome, reason="disagrees")
        else:
            promise.give(promise.first)


def _unusable_value(payload: bytes) -> str:
    if canonical_of(payload) is not None:
        return ""
    try:
        return "nan" if contains_nan(decode_exact(payload, hashed=False)) else "not plain data"
    except ValueError:  # not what an honest encoder writes
        return "not plain data"


def _agree(first: bytes, second: bytes) -> bool:
    """Whether two exact encodings hold equal values; they may differ in the order of a dict built from a set."""
    return first == second or canonical_of(first) == canonical_of(second) is not None
