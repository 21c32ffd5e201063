"""Verdicts: what the ground truth answers, whether a program answers the same, and whether it was judged at all.

Verdicts are decided here, in the trusted process, from values. A process that runs a candidate gets calls and never an
expected value; equality is equality of canonical bytes, or what a checker of printed texts says.

A sandbox that fails now and then costs samples, which are masked. One that always fails would otherwise look like
programs that are all wrong, or like steps from which nothing is learned: then the run must stop (`require_judged`).
"""

import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from codea1.runtime.errors import BadInput
from codea1.runtime.futures import Awaiting, Memo, digest, every, start
from codea1.sandbox.child.backward_sets import makes_sets
from codea1.sandbox.frames import Reply
from codea1.sandbox.host import AnyCall, AnyTest, BareCall, Outcome, ScriptRun
from codea1.sandbox.host.pool import HASH_SEEDS, SandboxPool
from codea1.values import canonical_of, contains_nan, decode_exact, encode_exact
from codea1.values.entry_points import (
    ACCEPTS,
    RAISES,
    agree,
    asked_of,
    form_of,
    is_raised,
    kinds_raised,
    raises_on_purpose,
    same_answer,
    same_printed,
    text_of,
)
from codea1.values.verdict import Verdict

GROUND_TRUTH_FACTOR = 10.0  # a candidate may take so many times the CPU time of the ground truth,
MIN_CALL_SECONDS = 0.5  # but never less than this, nor more than the limit per test
_CALLS_PER_RUN = 64  # of a ground truth: most suites fit; with more, one process would keep all others waiting

LOST = "the sandbox failed"
OF_CHECKER = "the checker "  # begins the detail of a test that is INFRA by no fault of the sandbox
# A script that raises something else may do so over what a program returned.
_CANNOT_RUN = ("script exited", "script was killed", "script raised ImportError", "script raised ModuleNotFoundError")
MIN_PROGRAMS = 4  # fewer may all be lost by chance

_WHY_UNUSABLE = {
    "error": "raises",
    "opaque": "not plain data",
    "too_large": "not plain data",
    "timeout": "timeout",
    "infra": "infra",
}
_VERDICTS = {  # of what is not right
    "value": Verdict.FAIL,
    "error": Verdict.ERROR,
    "opaque": Verdict.FAIL,
    "too_large": Verdict.FAIL,
    "timeout": Verdict.TIMEOUT,
    "not_run": Verdict.NOT_RUN,
    "infra": Verdict.INFRA,
}
_TRUE = encode_exact(True)  # what a checker answers to a text that is right


@dataclass(frozen=True)
class GroundTruthAnswer:
    """What a ground truth answered to one call."""

    usable: bool
    value: bytes  # its exact encoding; empty when not usable
    # "" or "raises", "does not raise", "not plain data", "nan", "disagrees", "set order", "timeout", "infra"
    reason: str
    cpu_seconds: float


@dataclass(frozen=True)
class Grading:
    """One program on a list of tests."""

    program_valid: bool | None  # it parses and its definitions run without raising; None: the sandbox failed
    verdicts: list[Verdict]  # in the order of the tests
    details: list[str]  # of each verdict: what was raised, or what else came instead of a value; else empty
    cpu_seconds: float

    @property
    def lost(self) -> str:
        """Why the sandbox failed on the program or a test; empty where it did not."""
        return why_lost(self.verdicts, self.details) or (LOST if self.program_valid is None else "")


class Grader:
    """Grades programs in a pool. Thread-safe; runs nothing again that it still remembers, unless the sandbox failed."""

    def __init__(self, pool: SandboxPool) -> None:
        self._pool = pool
        self._memo = Memo(pool.limits.memo_bytes)
        self._taken: dict[str, float] = {}
        self._lock = threading.Lock()

    def ground_truth(self, program: str, calls: Sequence[AnyCall]) -> Future[list[GroundTruthAnswer]]:
        """Asks a ground truth what it answers to each call, and whether that is usable: see `answer_calls`."""
        source = digest(program)
        keys = [_key("answer", source, call) for call in calls]
        claims = [self._memo.claim("answer", key, _answer_size) for key in keys]
        fresh = [(call, future) for call, (future, is_new) in zip(calls, claims, strict=True) if is_new]
        for first in range(0, len(fresh), _CALLS_PER_RUN):
            start(self._answered(program, fresh[first : first + _CALLS_PER_RUN]))
        return start(self._timed(source, calls, [future for future, _ in claims]))

    def ground_truth_again(self, program: str, call: AnyCall) -> Future[list[GroundTruthAnswer]]:
        """Asks a ground truth about one call as if for the first time, alone in a process."""
        self._memo.forget(_key("answer", digest(program), call))
        return self.ground_truth(program, [call])

    def grade(
        self, program: str, tests: Sequence[AnyTest], checker: str = "", ground_truth: str = ""
    ) -> Future[Grading]:
        """Runs the tests' calls on a program and compares what it returns with the expected values, in the test's form.

        Equal calls run once, for the first of the tests; the tests may expect different values.
        A call may take GROUND_TRUTH_FACTOR times the CPU time that the ground truth took for it, if that was asked for
        it before. A test whose expected value is NaN somewhere inside, or malformed, is INVALID.

        Args:
          program: as the sandbox loads it.
          tests: in the order of the verdicts.
          checker: source that defines `accepts(given, expected, printed)`, which says of printed text that is not the
            expected one whether it is right too: if it answers True. It runs in a process of its own. Where it does
            not answer True to the expected text itself, it is the checker that is wrong, and the verdict is INFRA.
          ground_truth: as `ground_truth` was asked.
        """
        known = [digest(test.call.entry_point, test.call.arguments, test.expected) for test in tests]
        truth = digest(ground_truth)
        key = digest("grading", program, checker, truth, *known)
        promised, is_new = self._memo.claim("grading", key, _grading_size)
        return start(self._graded(program, tests, known, checker, truth), promised) if is_new else promised

    def check(self, program: str, script: str, entry_point: str) -> Future[ScriptRun]:
        """Runs a benchmark's own script, which defines `check(candidate)`, against the program's entry point."""
        key = digest("check", program, script, entry_point)
        promised, is_new = self._memo.claim("check", key, _check_size)
        return start(self._checked(program, script, entry_point), promised) if is_new else promised

    def take_stats(self) -> dict[str, float]:
        """Counts since they were last taken: the pool's events, and questions asked and answered from memory."""
        now = dict(self._pool.counters())
        for kind in ("answer", "grading", "check"):
            now[f"{kind}_hits"], now[f"{kind}_misses"] = self._memo.hits[kind], self._memo.misses[kind]
        with self._lock:
            taken, self._taken = self._taken, now
        return {name: count - taken.get(name, 0) for name, count in now.items()}

    def _graded(
        self, program: str, tests: Sequence[AnyTest], known: Sequence[bytes], checker: str, truth: bytes
    ) -> Awaiting[Grading]:
        keys = [_bare(test.call) for test in tests]
        limits: dict[BareCall, float] = {}  # CPU seconds of the different ones, in the tests' order
        for key, test in zip(keys, tests, strict=True):
            limit = self._pool.limits.cpu_seconds_per_test
            seconds = self._memo.get(_key("seconds", truth, test.call))
            if seconds is not None:
                limit = max(MIN_CALL_SECONDS, GROUND_TRUTH_FACTOR * seconds)
            limits[key] = max(limit, limits.get(key, 0.0))
        ran = yield self._pool.run_calls(
            program, list(limits), reply=Reply.CANONICAL, call_seconds=list(limits.values())
        )
        outcomes = dict(zip(limits, ran.outcomes, strict=True))
        verdicts: list[Verdict] = []
        details: list[str] = []
        words: dict[bytes, str] = {}  # of outcomes: equal ones take memory once
        for test, key, test_digest in zip(tests, keys, known, strict=True):
            outcome, expected = outcomes[key], self._canonical(test, test_digest)
            form = form_of(test.call.entry_point)
            if outcome.kind == "value":
                details.append("")
            else:
                details.append(words.setdefault(outcome.payload, outcome.payload.decode("utf-8", "replace")))
            if not expected:
                verdicts.append(Verdict.INVALID)
                continue
            if form.startswith(RAISES):
                is_right = outcome.kind == "error" and bool(ran.loaded) and is_raised(form, details[-1])
            else:
                is_right = outcome.kind == "value" and (
                    agree(form, outcome.payload, expected) or same_printed(key.entry_point, expected, outcome.payload)
                )
            verdicts.append(Verdict.PASS if is_right else _VERDICTS[outcome.kind])
        if checker:
            failed = [i for i, key in enumerate(keys) if verdicts[i] is Verdict.FAIL and outcomes[key].kind == "value"]
            asked = {i: call for i in failed if (call := _judgement(tests[i], outcomes[keys[i]].payload))}
            expected = {i: call for i in asked if (call := _judgement(tests[i], tests[i].expected))}
            different = list(dict.fromkeys([*expected.values(), *asked.values()]))
            judgements = yield from _outcomes(self._pool, checker, different, HASH_SEEDS[0], backward=False)
            said = dict(zip(different, judgements, strict=True))
            for i, call in expected.items():
                verdicts[i], details[i] = _said(said[call], said[asked[i]])
        return Grading(ran.loaded, verdicts, details, ran.cpu_seconds)

    def _checked(self, program: str, script: str, entry_point: str) -> Awaiting[ScriptRun]:
        return (yield self._pool.run_script(script, program, entry_point))

    def _answered(self, program: str, promised: Sequence[tuple[AnyCall, Future[GroundTruthAnswer]]]) -> Awaiting[None]:
        """Completes futures with their answers, or with the exception of the pool."""
        try:
            answers = yield from answer_calls(self._pool, program, [call for call, _ in promised])
        except BaseException as error:
            for _, future in promised:
                future.set_exception(error)
            return
        for (_, future), answer in zip(promised, answers, strict=True):
            future.set_result(answer)

    def _timed(
        self, truth: bytes, calls: Sequence[AnyCall], futures: Sequence[Future[GroundTruthAnswer]]
    ) -> Awaiting[list[GroundTruthAnswer]]:
        """Awaits the answers, and remembers how long each took."""
        answers = yield from every(futures)
        for call, answer in zip(calls, answers, strict=True):
            if answer.usable:
                key = _key("seconds", truth, call)
                self._memo.put(key, max(answer.cpu_seconds, self._memo.get(key) or 0.0), 0)
        return answers

    def _canonical(self, test: AnyTest, test_digest: bytes) -> bytes:
        """Returns canonical bytes of the value that a test expects; empty for one that nothing can be equal to."""
        key = b"canonical" + test_digest
        known = self._memo.get(key)
        if known is None:
            known = canonical_of(test.expected) or b""
            self._memo.put(key, known, len(known))
        return known


def _bare(call: AnyCall) -> BareCall:
    return BareCall(asked_of(call.entry_point), call.arguments)


def _judgement(test: AnyTest, answer: bytes) -> BareCall | None:
    """Returns the checker's call that judges an answer that is not the expected one; None: it is no text."""
    printed = text_of(answer)
    if printed is None:
        return None
    positional, named = decode_exact(test.call.arguments)  # one text, named or not
    return BareCall(ACCEPTS, encode_exact(((*positional, *named.values(), decode_exact(test.expected), printed), {})))


def _said(of_expected: Outcome, of_printed: Outcome) -> tuple[Verdict, str]:
    """Returns the verdict by what a checker says of the expected and of the printed text, and why it is INFRA.

    A printed text at which it raises or takes too long is wrong: if that left a program unjudged, it would pay to.
    """
    for said in (of_expected, of_printed):
        if said.kind == "infra":
            return Verdict.INFRA, said.payload.decode("utf-8", "replace")
    if of_expected.kind != "value":
        words = of_expected.payload.decode("utf-8", "replace")
        return Verdict.INFRA, f"{OF_CHECKER}fails at the expected output: {words}"
    if of_expected.payload != _TRUE:
        return Verdict.INFRA, f"{OF_CHECKER}does not answer True to the expected output"
    return (Verdict.PASS if of_printed.kind == "value" and of_printed.payload == _TRUE else Verdict.FAIL), ""


def answer_calls(pool: SandboxPool, program: str, calls: Sequence[AnyCall]) -> Awaiting[list[GroundTruthAnswer]]:
    """Runs a ground truth several times; returns the answers that all runs agree on, or why there is none.

    The second run has another hash seed and takes the calls in the opposite order, so that answers made of hashes,
    randomness or what earlier calls left behind disagree. A third, where the program or an argument makes sets, has
    them iterate backwards. If that alone takes too long, nothing follows from it.
    """
    run = partial(_answers, pool, program)
    first = yield from run(calls, HASH_SEEDS[0])
    reasons = [_why_unusable(outcome, call) for outcome, call in zip(first, calls, strict=True)]
    seconds = [outcome.cpu_seconds for outcome in first]
    rest = [i for i in reversed(range(len(calls))) if not reasons[i]]
    # In a reversed list the middle call may keep its place, and what earlier calls left: one more in front moves all.
    again = rest[:1] if len(rest) > 1 and any(i == place for place, i in enumerate(rest)) else []
    second = yield from run([calls[i] for i in (*again, *rest)], HASH_SEEDS[1])
    for i, outcome in zip(rest, second[len(again) :], strict=True):
        if outcome.kind in ("timeout", "infra"):
            reasons[i] = outcome.kind
        elif outcome.kind != "value" or not same_answer(calls[i].entry_point, first[i].payload, outcome.payload):
            reasons[i] = "disagrees"
        if reasons[i]:
            seconds[i] = max(seconds[i], outcome.cpu_seconds)
    is_made = makes_sets(program)
    rest = [i for i, call in enumerate(calls) if not reasons[i] and (is_made or _may_hold_sets(call.arguments))]
    third = (yield from run([calls[i] for i in rest], HASH_SEEDS[0], backward=True)) if rest else []
    for i, outcome in zip(rest, third, strict=True):
        if outcome.kind == "infra":
            reasons[i] = outcome.kind
        elif outcome.kind != "timeout" and not (
            outcome.kind == "value" and same_answer(calls[i].entry_point, first[i].payload, outcome.payload)
        ):
            reasons[i] = "set order"
    return [
        GroundTruthAnswer(not reason, b"" if reason else outcome.payload, reason, taken)
        for outcome, reason, taken in zip(first, reasons, seconds, strict=True)
    ]


def _may_hold_sets(arguments: bytes) -> bool:
    """Returns whether an exact encoding has the tag of a set or frozenset; a text may have the same letter."""
    return b"S" in arguments or b"Z" in arguments


def _answers(
    pool: SandboxPool, program: str, calls: Sequence[AnyCall], hash_seed: int, backward: bool = False
) -> Awaiting[list[Outcome]]:
    """Runs calls of a ground truth; to one that should raise and does so on purpose, True is the answer."""
    outcomes = yield from _outcomes(pool, program, [_bare(call) for call in calls], hash_seed, backward)
    for i, call in enumerate(calls):
        form, outcome = form_of(call.entry_point), outcomes[i]
        if form.startswith(RAISES):
            words = outcome.payload.decode("utf-8", "replace") if outcome.kind == "error" else ""
            if words and is_raised(form, words) and raises_on_purpose(program, kinds_raised(words)[0]):
                outcomes[i] = replace(outcome, kind="value", payload=encode_exact(True))
            elif outcome.kind == "value":
                outcomes[i] = replace(outcome, payload=encode_exact(False))
    return outcomes


def _outcomes(
    pool: SandboxPool, program: str, calls: Sequence[AnyCall], hash_seed: int, backward: bool
) -> Awaiting[list[Outcome]]:
    """Runs calls, and those that a spent budget kept from running again, as long as any get done."""
    outcomes = [Outcome("not_run")] * len(calls)
    left = list(range(len(calls)))
    while left:
        asked = [calls[i] for i in left]
        ran = yield pool.run_calls(program, asked, reply=Reply.EXACT, hash_seed=hash_seed, backward=backward)
        if all(outcome.kind == "not_run" for outcome in ran.outcomes):  # even one call does not fit into the budget
            return [Outcome("timeout") if outcome.kind == "not_run" else outcome for outcome in outcomes]
        for i, outcome in zip(left, ran.outcomes, strict=True):
            outcomes[i] = outcome
        left = [i for i in left if outcomes[i].kind == "not_run"]
    return outcomes


def _why_unusable(outcome: Outcome, call: AnyCall) -> str:
    if outcome.kind != "value":
        return _WHY_UNUSABLE[outcome.kind]
    if form_of(call.entry_point).startswith(RAISES) and outcome.payload != encode_exact(True):
        return "does not raise"
    if canonical_of(outcome.payload) is not None:
        return ""
    try:
        return "nan" if contains_nan(decode_exact(outcome.payload, hashed=False)) else "not plain data"
    except ValueError:  # not what an honest encoder writes
        return "not plain data"


def _key(kind: str, truth: bytes, call: AnyCall) -> bytes:
    """Returns what the answer of a ground truth, by its digest, to a call is remembered by, or its CPU time."""
    return digest(kind, truth, call.entry_point, call.arguments)


def _answer_size(answer: GroundTruthAnswer) -> int | None:
    return None if answer.reason == "infra" else len(answer.value)


def _grading_size(grading: Grading) -> int | None:
    if grading.program_valid is None or Verdict.INFRA in grading.verdicts:
        return None
    return 16 * len(grading.verdicts) + sum(map(sys.getsizeof, set(grading.details)))


def _check_size(run: ScriptRun) -> int | None:
    return None if run.verdict is Verdict.INFRA else len(run.detail)


def why_lost(verdicts: Sequence[Verdict], details: Sequence[str]) -> str:
    """Returns why the sandbox failed on a program, by the verdicts and details of its tests; empty where it did not."""
    lost = [detail for verdict, detail in zip(verdicts, details, strict=True) if verdict is Verdict.INFRA]
    return next(filter(None, lost), LOST) if lost else ""


def why_unjudged(run: ScriptRun) -> str:
    """Returns why a check script said nothing about a program: it could not run, or the sandbox failed; else ""."""
    if run.verdict is Verdict.ERROR and run.detail.startswith(_CANNOT_RUN):
        return run.detail
    return why_lost([run.verdict], [run.detail])


def require_judged(reasons: Sequence[str], what: str) -> None:
    """Raises BadInput where none of a few programs or more was judged, for a reason that is not theirs.

    Several hosts decide by the reasons of all of them, inside of `Hosts.agreed`.

    Args:
      reasons: why each program that was run was not judged; empty where it was.
      what: the programs, in the plural.
    """
    if len(reasons) < MIN_PROGRAMS or "" in reasons:
        return
    ((reason, _),) = Counter(reasons).most_common(1)
    raise BadInput(
        f"all {len(reasons)} {what} failed for a reason that is not theirs: {reason}; `python -m codea1.sandbox` "
        "shows what works on this machine."
    )
