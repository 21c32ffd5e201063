"""What runs in the sandbox: a program's calls, by whose outcomes rewards are computed, or a script for one verdict."""

import socket
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum, auto

from codea1.sandbox import frames
from codea1.sandbox.host import AnyCall, Limits, Outcome, OutcomeKind, ProgramRun, ScriptRun
from codea1.sandbox.host.conversation import Closed, Conversation, OutOfTime, profile_of, wall_limit
from codea1.sandbox.host.dispatcher import GradingTask, Starved, Waiting
from codea1.sandbox.host.zygote import Child
from codea1.values import decode_fields, encode_exact
from codea1.values.verdict import Verdict

ENDED = "script ended"

_KINDS: dict[bytes, OutcomeKind] = {
    frames.VALUE: "value",
    frames.ERROR: "error",
    frames.OPAQUE: "opaque",
    frames.TOO_LARGE: "too_large",
}
_FRAME_BYTES = 512  # generous: what a frame without a value takes
_SLACK_SECONDS = 0.1  # of CPU time that a child may have used after an answer, before it was read
_TOO_LONG = b"the process took too long"
_CANDIDATE_ENDED = "candidate ended"  # as codea1.sandbox.child.script says it
_KNOWN_TO_CHILDREN = (Verdict.PASS, Verdict.FAIL, Verdict.ERROR)
_VERDICT_BYTES = 4096


class _Stop(Enum):
    """Why a child was ended."""

    DONE = auto()
    NOT_LOADED = auto()
    CLOSED = auto()
    TIMEOUT = auto()
    BUDGET = auto()
    VIOLATION = auto()


@dataclass(eq=False)
class CallRun:
    """Sends the program and all calls at once and takes the answers as they come.

    A call during which the child hangs or dies costs only itself: a new child resumes at the next call, until the
    grading's CPU budget is spent.
    """

    program: str
    calls: Sequence[AnyCall]  # packed when they are sent: while they wait, gradings share their arguments
    reply: frames.Reply
    hash_seed: int
    backward: bool
    call_seconds: Sequence[float]  # CPU limits of the calls, each at most the limit per test
    limits: Limits

    def steps(self, task: GradingTask) -> Waiting[ProgramRun]:
        """Grades, from the beginning."""
        self.outcomes: list[Outcome] = []
        self.loaded = False
        self.load_error = ""
        self.spent = 0.0  # CPU seconds of the children that ended
        self.asleep_at = task.now + wall_limit(self.limits.cpu_seconds_per_suite)  # that is enough for all calls
        is_done = False
        while not is_done:
            yield from self._ask_child(task)
            is_done = (
                len(self.outcomes) == len(self.calls)
                or self.spent >= self.limits.cpu_seconds_per_suite
                or task.now >= self.asleep_at
            )
        self._fill(Outcome("not_run"))
        return ProgramRun(self.loaded, self.load_error, self.outcomes, self.spent)

    def lost(self, why: str) -> ProgramRun:
        """Returns the result that says the sandbox failed."""
        return ProgramRun(None, why, [Outcome("infra", why.encode())] * len(self.calls), 0.0)

    def _ask_child(self, task: GradingTask) -> Waiting[None]:
        """Has a new child load the program and answer the calls that have no outcome, as many of them as it can."""
        left = max(0, self.limits.output_bytes - sum(len(outcome.payload) for outcome in self.outcomes))
        rest = list(enumerate(self.calls))[len(self.outcomes) :]
        request = frames.pack_program(
            self.program, self.reply, seed=self.hash_seed, output_bytes=left, backward=self.backward
        )
        conversation = Conversation(
            task,
            profile_of(self.program, self.hash_seed),
            request + b"".join(frames.pack_call(i, call.entry_point, call.arguments) for i, call in rest),
            cpu_seconds=self.limits.cpu_seconds_per_suite - self.spent,
            memory_bytes=self.limits.memory_bytes,
            max_bytes=left + _FRAME_BYTES * (len(rest) + 1),
            max_payload=left,
        )
        asked = task.now
        with closing(conversation):
            yield from conversation.started()
            self.asleep_at += task.now - asked  # that was its zygote's time
            stop = yield from self._take_answers(task, conversation)
            yield from conversation.end()
        ended = conversation.child.ended
        assert ended is not None
        self.spent += ended.cpu_seconds
        used = ended.cpu_seconds - self.mark
        if stop is _Stop.CLOSED and used >= self._limit():
            stop = _Stop.TIMEOUT
        match stop:
            case _Stop.DONE:
                # The last answers may have been timed by a clock that was read before: the child's last one counts.
                first, before, allowed = self.last_look
                used = ended.cpu_seconds - before
                self._note_late(first, used, allowed)
                self.outcomes[first:] = [replace(outcome, cpu_seconds=used) for outcome in self.outcomes[first:]]
            case _Stop.NOT_LOADED:
                self._fill(Outcome("error", self.load_error.encode()))
            case _Stop.VIOLATION:
                task.count("violations")
                self.outcomes.clear()
                self._fill(Outcome("error", b"the process broke the protocol"))
            case _Stop.BUDGET if self.loaded:
                self._fill(Outcome("not_run"))
            case _Stop.CLOSED:
                task.accept_end(ended)
                task.count("deaths")
                self._interrupt(Outcome("error", f"the process {ended}".encode(), used))
            case _Stop.TIMEOUT | _Stop.BUDGET:
                task.count("timeouts")
                self._interrupt(Outcome("timeout", _TOO_LONG, used))

    def _take_answers(self, task: GradingTask, conversation: Conversation) -> Waiting[_Stop]:
        """Takes what a child answers, until there is a reason to end it."""
        self.answered = False  # the program frame, by this child
        self.mark = 0.0  # the child's CPU clock when it last answered
        # Before the last answers: how many there were, the clock, and the seconds that the child might then use.
        self.last_look = 0, 0.0, 0.0
        progress = task.now

        def call_left(clock: float) -> float:
            limit = self._limit()
            return min(limit - (clock - self.mark), progress + wall_limit(limit) - task.now)

        def seconds_left(clock: float) -> float:
            of_grading = self.limits.cpu_seconds_per_suite - self.spent - clock
            return min(call_left(clock), of_grading, self.asleep_at - task.now)

        stop = None
        try:
            while stop is None:
                arrived = yield from conversation.receive(seconds_left)
                used, first, allowed = conversation.clock - self.mark, len(self.outcomes), _SLACK_SECONDS
                before, self.mark, progress = self.mark, conversation.clock, task.now
                for frame in arrived:
                    allowed += self._limit()
                    stop = self._take(frame, used)
                    if stop is not None:
                        break
                else:
                    allowed += self._limit()  # of what the child has gone on to
                self._note_late(first, used, allowed)
                self.last_look = first, before, allowed
        except frames.ProtocolViolation:
            return _Stop.VIOLATION
        except Closed:
            return _Stop.CLOSED
        except OutOfTime:
            return _Stop.TIMEOUT if call_left(conversation.clock) <= 0 else _Stop.BUDGET
        return stop

    def _take(self, frame: frames.Frame, used: float) -> _Stop | None:
        """Takes one answer; returns why there is no use in more. Raises ProtocolViolation."""
        if self.answered:
            if frame.index != len(self.outcomes) or frame.kind not in _KINDS:
                raise frames.ProtocolViolation
            self.outcomes.append(Outcome(_KINDS[frame.kind], frame.payload, used))
        elif frame.index != frames.LOAD or frame.kind not in (frames.LOADED, frames.ERROR):
            raise frames.ProtocolViolation
        elif frame.kind == frames.ERROR:
            self.load_error = frame.payload.decode("utf-8", "replace")
            return _Stop.NOT_LOADED
        else:
            self.answered = self.loaded = True
        return _Stop.DONE if len(self.outcomes) == len(self.calls) else None

    def _note_late(self, first: int, used: float, allowed: float) -> None:
        """Notes where one of the outcomes from `first` took too long: that was the first, if all is well here."""
        if used > allowed and len(self.outcomes) > first:
            self.outcomes[first] = Outcome("timeout", _TOO_LONG, used)

    def _limit(self) -> float:
        """Returns the CPU seconds that the child's present call, or loading, may take."""
        return self.call_seconds[len(self.outcomes)] if self.answered else self.limits.cpu_seconds_per_test

    def _interrupt(self, outcome: Outcome) -> None:
        """Notes what came of the call, or of loading the program, that the child did not answer."""
        if self.answered:
            self.outcomes.append(outcome)
        else:
            self.load_error = outcome.payload.decode()
            self._fill(outcome)

    def _fill(self, outcome: Outcome) -> None:
        self.outcomes += [outcome] * (len(self.calls) - len(self.outcomes))


class JudgedRun:
    """What gradings have in common that come to one verdict: children with one CPU budget, one of which reports."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def report(
        self, conversation: Conversation, seconds_left: Callable[[float], float]
    ) -> Waiting[tuple[Verdict, str]]:
        """Receives what leads to a verdict and returns (verdict, detail); here from one frame.

        May raise ValueError or ProtocolViolation for what honest children never send.
        """
        frame = next((yield from conversation.receive(seconds_left)))
        return self.read(frame.payload)

    def read(self, payload: bytes) -> tuple[Verdict, str]:
        """Reads the verdict in the one frame of a report. Raises ValueError."""
        verdict, detail = decode_fields(payload, str, str)
        return known_verdict(verdict), detail

    def judge(
        self, task: GradingTask, conversation: Conversation, children: Mapping[str, tuple[str, Child]]
    ) -> Waiting[ScriptRun]:
        """Awaits the report, ends all children, and returns the verdict.

        `children` has, by the detail of a verdict that means that a child ended early, its name and the child.
        """
        limit = self.limits.cpu_seconds_per_script
        with closing(conversation):
            yield from conversation.started()
            asleep_at = task.now + wall_limit(limit)
            try:
                verdict, detail = yield from self.report(
                    conversation, lambda clock: min(limit - clock, asleep_at - task.now)
                )
            except OutOfTime:
                verdict, detail = Verdict.TIMEOUT, f"more than {limit:g} CPU seconds, or asleep"
            except Closed:
                verdict, detail = Verdict.ERROR, ENDED
            except (OSError, Starved):  # the machine's: tried again later
                raise
            except Exception as error:  # whatever is wrong with a claim, or with what reads it, costs no other grading
                if not isinstance(error, frames.ProtocolViolation | ValueError):
                    traceback.print_exc()
                task.count("violations")
                verdict, detail = Verdict.ERROR, f"{children[ENDED][0]} broke the protocol"
            yield from conversation.end()
        if verdict is Verdict.TIMEOUT:
            task.count("timeouts")
        if detail in children:
            name, child = children[detail]
            assert child.ended is not None
            task.accept_end(child.ended)
            detail = f"{name} {child.ended}"
        return ScriptRun(verdict, detail[: frames.MAX_WORDS], conversation.cpu_seconds())

    def lost(self, why: str) -> ScriptRun:
        """Returns the result that says the sandbox failed."""
        return ScriptRun(Verdict.INFRA, why, 0.0)


class CheckRun(JudgedRun):
    """The program lives in one child and the script in another, which sends the verdict."""

    def __init__(self, script: str, program: str, entry_point: str, limits: Limits) -> None:
        super().__init__(limits)
        self.profile_of_program, self.profile_of_script = profile_of(program), profile_of(script)
        self.request = frames.pack(0, frames.JOB, encode_exact((script, program, entry_point)))

    def steps(self, task: GradingTask) -> Waiting[ScriptRun]:
        """Grades, from the beginning."""
        seconds, memory = self.limits.cpu_seconds_per_script, self.limits.script_memory_bytes
        script_end, program_end = socket.socketpair()
        with script_end, program_end:
            candidate = task.dispatcher.start_child(task, self.profile_of_program, [program_end], seconds, memory)
            conversation = Conversation(
                task,
                self.profile_of_script,
                self.request,
                cpu_seconds=seconds,
                memory_bytes=memory,
                max_bytes=_VERDICT_BYTES,
                max_payload=_VERDICT_BYTES,
                end_to_other=[script_end],
                others=[candidate],
            )
        children = {ENDED: ("script", conversation.child), _CANDIDATE_ENDED: ("candidate", candidate)}
        return (yield from self.judge(task, conversation, children))


def known_verdict(verdict: str) -> Verdict:
    """Returns the verdict that a child reports. Raises ValueError for one that no child can know."""
    if verdict not in _KNOWN_TO_CHILDREN:
        raise ValueError(f"a child cannot say {verdict!r}")
    return Verdict(verdict)
