"""A grading by calls: one program, a list of calls, one outcome each."""

from collections.abc import Sequence
from contextlib import closing
from enum import Enum, auto

from codea1.sandbox import frames
from codea1.sandbox.host import AnyCall, Limits, Outcome, OutcomeKind, ProgramRun
from codea1.sandbox.host.conversation import Closed, Conversation, OutOfTime, profile_of, wall_limit
from codea1.sandbox.host.dispatcher import GradingTask, Waiting

_KINDS: dict[bytes, OutcomeKind] = {
    frames.VALUE: "value",
    frames.ERROR: "error",
    frames.OPAQUE: "opaque",
    frames.TOO_LARGE: "too_large",
}
_FRAME_BYTES = 512  # generous: what a frame without a value takes
_SLACK_SECONDS = 0.1  # of CPU time that a child may have used after an answer, before it was read
_TOO_LONG = b"the process took too long"


class _Stop(Enum):
    """Why a child was ended."""

    DONE = auto()
    NOT_LOADED = auto()
    CLOSED = auto()
    TIMEOUT = auto()
    BUDGET = auto()
    VIOLATION = auto()


class CallRun:
    """Sends the program and all calls at once and takes the answers as they come.

    A call during which the child hangs or dies costs only itself: a new child resumes at the next call, until the
    grading's CPU budget is spent.
    """

    def __init__(
        self,
        program: str,
        calls: Sequence[AnyCall],
        *,
        reply: frames.Reply,
        hash_seed: int,
        call_seconds: Sequence[float],
        limits: Limits,
    ) -> None:
        """Takes the calls; `call_seconds` are their CPU limits, each at most the limit per test."""
        self.profile = profile_of(program, hash_seed)
        self.call_seconds, self.limits = call_seconds, limits
        self.program, self.reply, self.hash_seed = program, reply, hash_seed
        self.calls = calls  # packed when they are sent: while they wait, gradings share their arguments

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
        request = frames.pack_program(self.program, self.reply, seed=self.hash_seed, output_bytes=left)
        conversation = Conversation(
            task,
            self.profile,
            request + b"".join(frames.pack_call(i, call.entry_point, call.arguments) for i, call in rest),
            cpu_seconds=self.limits.cpu_seconds_per_suite - self.spent,
            memory_bytes=self.limits.memory_bytes,
            max_bytes=left + _FRAME_BYTES * (len(rest) + 1),
            max_payload=left,
            is_last_request=True,
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
                self.mark, progress = conversation.clock, task.now
                for frame in arrived:
                    allowed += self._limit()
                    stop = self._take(frame, used)
                    if stop is not None:
                        break
                else:
                    allowed += self._limit()  # of what the child has gone on to
                if used > allowed and len(self.outcomes) > first:  # one took too long: the first, if all is well here
                    self.outcomes[first] = Outcome("timeout", _TOO_LONG, used)
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
