"""Verdicts: what the ground truth answers, and whether a program answers the same.

Verdicts are decided here, in the trusted process, from values. A process that runs a candidate gets calls and never an
expected value; equality is equality of canonical bytes.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache

from codea1.sandbox.futures import Memo, fulfil, gather, then
from codea1.sandbox.ground_truth import GroundTruthAnswer, Promise, answer_calls
from codea1.sandbox.pool import SandboxPool
from codea1.sandbox.results import Call, Outcome, ProgramRun, ScriptRun, Test
from codea1.sandbox.values import contains_nan, decode_exact, encode_canonical
from codea1.sandbox.verdict import Verdict

GROUND_TRUTH_FACTOR = 10.0  # a candidate may take so many times the CPU time of the ground truth,
MIN_CALL_SECONDS = 0.5  # but never less than this, nor more than the limit per test

_MAX_ENTRIES = 1 << 17  # remembered of each kind
_MAX_VALUE_BYTES = 1 << 16  # a ground truth's larger values are computed again when asked for again

_VERDICTS = {
    "error": Verdict.ERROR,
    "opaque": Verdict.FAIL,
    "too_large": Verdict.FAIL,
    "timeout": Verdict.TIMEOUT,
    "not_run": Verdict.NOT_RUN,
    "infra": Verdict.INFRA,
}


@dataclass(frozen=True)
class Grading:
    """One program on a list of tests."""

    program_valid: bool | None  # it parses and its definitions run without raising; None: the sandbox failed
    verdicts: list[Verdict]  # in the order of the tests
    details: list[str]  # of each verdict: what was raised, or what else came instead of a value; else empty
    cpu_seconds: float


class Grader:
    """Grades programs in a pool. Thread-safe; runs nothing again that it still remembers, unless the sandbox failed."""

    def __init__(self, pool: SandboxPool) -> None:
        self._pool = pool
        self._answers: Memo[GroundTruthAnswer] = Memo(_MAX_ENTRIES, _keeps_answer)
        self._gradings: Memo[Grading] = Memo(_MAX_ENTRIES, lambda grading: grading.program_valid is not None)
        self._checks: Memo[ScriptRun] = Memo(_MAX_ENTRIES, lambda run: run.verdict is not Verdict.INFRA)
        self._seconds: dict[tuple[str, bytes, bytes], float] = {}  # of the ground truth, by call and answer
        self._taken: dict[str, float] = Counter()
        self._lock = threading.Lock()

    def ground_truth(self, program: str, calls: Sequence[Call]) -> Future[list[GroundTruthAnswer]]:
        """What a ground truth answers to each call, and whether the answer is usable: see `answer_calls`."""
        source = _digest(program)
        futures: list[Future[GroundTruthAnswer]] = []
        fresh: list[Promise] = []
        for call in calls:
            future, is_new = self._answers.claim((source, call.entry_point, call.arguments))
            futures.append(future)
            if is_new:
                fresh.append(Promise(call, future))
        answer_calls(self._pool, program, fresh)
        return then(gather(futures), lambda answers: self._note_seconds(calls, answers))

    def grade(self, program: str, tests: Sequence[Test]) -> Future[Grading]:
        """Runs the tests' calls on a program and compares what it returns with the expected values.

        Equal calls run once, for the first of the tests; the tests may expect different values.
        A call may take GROUND_TRUTH_FACTOR times the CPU time in which a ground truth gave the expected value, where
        this grader saw that. A test whose expected value is NaN somewhere inside, or malformed, is INVALID.
        """
        key = (_digest(program), *((test.call.entry_point, test.call.arguments, test.expected) for test in tests))
        promised, is_new = self._gradings.claim(key)
        if is_new:
            try:
                seconds: dict[tuple[str, bytes], float] = {}  # of the different calls, in the tests' order
                for test in tests:
                    seconds[_call_key(test)] = max(self._call_seconds(test), seconds.get(_call_key(test), 0.0))
                calls = {_call_key(test): test.call for test in tests}
                run = self._pool.run_calls(
                    program,
                    [calls[key] for key in seconds],
                    reply="canonical",
                    call_seconds=list(seconds.values()),
                )
                fulfil(promised, then(run, lambda run: _compare(run, list(seconds), tests)))
            except BaseException as error:
                promised.set_exception(error)
        return promised

    def check(self, program: str, script: str, entry_point: str) -> Future[ScriptRun]:
        """Runs a benchmark's own script, which defines `check(candidate)`, against the program's entry point."""
        promised, is_new = self._checks.claim((_digest(program), _digest(script), entry_point))
        if is_new:
            try:
                fulfil(promised, self._pool.run_script(script, program, entry_point))
            except BaseException as error:
                promised.set_exception(error)
        return promised

    def take_stats(self) -> dict[str, float]:
        """Counts since they were last taken: the pool's events, and questions asked and answered from memory."""
        now: dict[str, float] = Counter(self._pool.counters())
        for name, memo in {"answer": self._answers, "grading": self._gradings, "check": self._checks}.items():
            now[f"{name}_hits"], now[f"{name}_misses"] = memo.hits, memo.misses
        with self._lock:
            taken, self._taken = self._taken, now
        return {name: count - taken[name] for name, count in now.items()}

    def _note_seconds(self, calls: Sequence[Call], answers: list[GroundTruthAnswer]) -> list[GroundTruthAnswer]:
        with self._lock:
            for call, answer in zip(calls, answers, strict=True):
                if answer.usable:
                    key = (call.entry_point, call.arguments, answer.value)
                    self._seconds[key] = max(answer.cpu_seconds, self._seconds.pop(key, 0.0))
            while len(self._seconds) > _MAX_ENTRIES:
                del self._seconds[next(iter(self._seconds))]
        return answers

    def _call_seconds(self, test: Test) -> float:
        with self._lock:
            seconds = self._seconds.get((test.call.entry_point, test.call.arguments, test.expected))
        if seconds is None:
            return self._pool.limits.cpu_seconds_per_test
        return max(MIN_CALL_SECONDS, GROUND_TRUTH_FACTOR * seconds)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _keeps_answer(answer: GroundTruthAnswer) -> bool:
    return answer.reason != "infra" and len(answer.value) <= _MAX_VALUE_BYTES


def _call_key(test: Test) -> tuple[str, bytes]:
    return test.call.entry_point, test.call.arguments


def _compare(run: ProgramRun, keys: Sequence[tuple[str, bytes]], tests: Sequence[Test]) -> Grading:
    outcome_of = dict(zip(keys, run.outcomes, strict=True))
    outcomes = [outcome_of[_call_key(test)] for test in tests]
    verdicts = [_verdict(outcome, test.expected) for outcome, test in zip(outcomes, tests, strict=True)]
    details = ["" if each.kind == "value" else each.payload.decode("utf-8", "replace") for each in outcomes]
    return Grading(run.loaded, verdicts, details, run.cpu_seconds)


def _verdict(outcome: Outcome, expected: bytes) -> Verdict:
    canonical = _canonical(expected)
    if canonical is None:
        return Verdict.INVALID
    if outcome.kind == "value":
        return Verdict.PASS if outcome.payload == canonical else Verdict.FAIL
    return _VERDICTS[outcome.kind]


@lru_cache(maxsize=4096)
def _canonical(expected: bytes) -> bytes | None:
    """Canonical bytes of an exact encoding; None for what nothing can be equal to."""
    try:
        value = decode_exact(expected)
    except ValueError:
        return None
    return None if contains_nan(value) else encode_canonical(value)
