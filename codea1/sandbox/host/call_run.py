"""A grading by calls: one program, a list of calls, one outcome each."""

import socket
from collections.abc import Sequence
from enum import Enum, auto

from codea1.sandbox import frames
from codea1.sandbox.host.results import Call, Limits, Outcome, OutcomeKind, ProgramRun
from codea1.sandbox.host.run import (
    HANG_UP_SECONDS,
    WATCH_SECONDS,
    Channel,
    Desk,
    Run,
    how_it_ended,
    kernel_cpu_limit,
    profile_of,
    wall_limit,
    was_killed,
)
from codea1.sandbox.host.zygote import Ended

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
    DIED = auto()
    TIMEOUT = auto()
    BUDGET = auto()
    VIOLATION = auto()


class CallRun(Run):
    """Sends the program and all calls at once and takes the answers as they come.

    A call during which the child hangs or dies costs only itself: a new child resumes at the next call, until the
    suite's CPU budget is spent.
    """

    def __init__(
        self,
        program: str,
        calls: Sequence[Call],
        *,
        reply: frames.Reply,
        hash_seed: int,
        call_seconds: Sequence[float],
        limits: Limits,
    ) -> None:
        """`call_seconds` are the CPU limits of the calls, each at most the limit per test."""
        super().__init__()
        self.profile = profile_of(program, hash_seed)
        self.call_seconds, self.limits = call_seconds, limits
        self.program, self.reply, self.hash_seed = program, reply, hash_seed
        self.calls = [frames.pack_call(i, call.entry_point, call.arguments) for i, call in enumerate(calls)]

    def begin(self, desk: Desk) -> None:
        self.outcomes: list[Outcome] = []
        self.loaded: bool | None = None
        self.load_error = ""
        self.spent = 0.0  # CPU seconds of the children that ended
        self.asleep_at = desk.now + wall_limit(self.limits.cpu_seconds_per_suite)  # that is enough for all calls
        self._launch(desk)

    def _launch(self, desk: Desk) -> None:
        ours, theirs = socket.socketpair()
        kernel_limit = kernel_cpu_limit(self.limits.cpu_seconds_per_suite - self.spent)
        rest = self.calls[len(self.outcomes) :]
        left = max(0, self.limits.output_bytes - sum(len(outcome.payload) for outcome in self.outcomes))
        request = frames.pack_program(self.program, self.reply, seed=self.hash_seed, output_bytes=left)
        self.channel = Channel(ours, request + b"".join(rest), left + _FRAME_BYTES * (len(rest) + 1), left)
        with theirs:
            self.child = desk.spawn(self, self.profile, [theirs], kernel_limit, self.limits.memory_bytes)
        self.answered = False  # the program frame, by this child
        self.stop: _Stop | None = None
        self.mark = 0.0  # the child's CPU clock when it last answered
        self.progress, self.hung_up_at = desk.now, 0.0
        self.expect_zygote(desk)
        self._send(desk)

    def _send(self, desk: Desk) -> None:
        self.channel.send()
        self.channel.say_no_more()
        if self.channel.unsent or self.channel.watched:
            desk.watch(self.channel, self)

    def on_started(self, desk: Desk) -> None:
        if self.stop is None:
            super().on_started(desk)
            self.progress = desk.now  # the zygote's own start is nobody's time

    def on_socket(self, desk: Desk) -> None:
        if self.channel.unsent:
            self._send(desk)
        if not self._receive(desk, self.child.cpu_seconds()) and self.stop is None:
            self.hang_up(desk)

    def _receive(self, desk: Desk, clock: float) -> bool:
        """Takes what has arrived while the child's CPU clock came to `clock`; whether more may come."""
        used, first, allowed = clock - self.mark, len(self.outcomes), _SLACK_SECONDS
        try:
            for frame in self.channel.receive():
                if frame is None:
                    return False
                allowed += self._limit()
                self.mark, self.progress = clock, desk.now
                self._take(desk, frame, used)
                if self.stop is not None:
                    break
        except frames.ProtocolViolation:
            self._stop(desk, _Stop.VIOLATION)
            return False
        if self.stop is None:
            allowed += self._limit()  # of what the child has gone on to
        if used > allowed and len(self.outcomes) > first:  # one of them took too long: the first, if all is well here
            self.outcomes[first] = Outcome("timeout", _TOO_LONG, used)
        return True

    def _take(self, desk: Desk, frame: frames.Frame, used: float) -> None:
        if not self.answered:
            self._take_load(desk, frame)
        elif frame.index != len(self.outcomes) or frame.kind not in _KINDS:
            raise frames.ProtocolViolation
        else:
            self.outcomes.append(Outcome(_KINDS[frame.kind], frame.payload, used))
        if self.answered and self.stop is None and len(self.outcomes) == len(self.calls):
            self._stop(desk, _Stop.DONE)

    def _take_load(self, desk: Desk, frame: frames.Frame) -> None:
        if frame.index != frames.LOAD or frame.kind not in (frames.LOADED, frames.ERROR):
            raise frames.ProtocolViolation
        if frame.kind == frames.ERROR:
            self.load_error = frame.payload.decode("utf-8", "replace")
            self._stop(desk, _Stop.NOT_LOADED)
        else:
            self.answered = self.loaded = True

    def _stop(self, desk: Desk, why: _Stop) -> None:
        self.stop = why
        desk.unwatch(self.channel)
        self.expect_zygote(desk)
        desk.end(self.child)

    def check(self, desk: Desk) -> float:
        if self.stop is not None or not self.child.pid:
            return self.patience - desk.now
        if self.hung_up_at:
            left = self.hung_up_at + HANG_UP_SECONDS - desk.now
            if left <= 0:
                self._stop(desk, _Stop.DIED)
            return max(left, 0.0)
        if not self.channel.watched:
            quiet = self.progress + WATCH_SECONDS - desk.now
            if quiet > 0:
                return quiet
            desk.watch(self.channel, self)
        limit = self._limit()
        clock = self.child.cpu_seconds()
        left = min(limit - (clock - self.mark), self.progress + wall_limit(limit) - desk.now)
        left_of_suite = min(self.limits.cpu_seconds_per_suite - self.spent - clock, self.asleep_at - desk.now)
        if min(left, left_of_suite) > 0:
            return min(left, left_of_suite)
        answered = len(self.outcomes), self.answered
        self.on_socket(desk)  # an answer that has arrived meanwhile counts
        if self.stop is None and answered == (len(self.outcomes), self.answered):
            self._stop(desk, _Stop.TIMEOUT if left <= 0 else _Stop.BUDGET)
        return 0.0

    def _limit(self) -> float:
        """CPU seconds that what the child is at now may take."""
        return self.call_seconds[len(self.outcomes)] if self.answered else self.limits.cpu_seconds_per_test

    def on_ended(self, desk: Desk, ended: Ended) -> None:
        if self.stop is None:  # by itself: with its answers given, or not
            self._receive(desk, ended.cpu_seconds)
            if self.stop is None:
                self._stop(desk, _Stop.DIED)
        self.spent += ended.cpu_seconds
        died_early = self.stop is _Stop.DIED and ended.cpu_seconds - self.mark < self._limit()
        if died_early and was_killed(ended) and desk.try_again(self):
            return
        self._settle(desk, ended)
        left = len(self.calls) - len(self.outcomes)
        if left and self.spent < self.limits.cpu_seconds_per_suite and desk.now < self.asleep_at:
            self._launch(desk)
            return
        self._fill(Outcome("not_run"))
        self.future.set_result(ProgramRun(bool(self.loaded), self.load_error, self.outcomes, self.spent))
        desk.finish(self)

    def _settle(self, desk: Desk, ended: Ended) -> None:
        """Writes down what the child's end means for the calls it left unanswered."""
        used = ended.cpu_seconds - self.mark
        match self.stop:
            case _Stop.NOT_LOADED:
                self._fill(Outcome("error", self.load_error.encode()))
            case _Stop.VIOLATION:
                desk.count("violations")
                self.outcomes.clear()
                self._fill(Outcome("error", b"the process broke the protocol"))
            case _Stop.BUDGET if self.loaded:
                self._fill(Outcome("not_run"))
            case _Stop.DIED if used < self._limit():
                desk.count("deaths")
                self._interrupt(Outcome("error", f"the process {how_it_ended(ended)}".encode(), used))
            case _Stop.TIMEOUT | _Stop.BUDGET | _Stop.DIED:
                desk.count("timeouts")
                self._interrupt(Outcome("timeout", _TOO_LONG, used))

    def _interrupt(self, outcome: Outcome) -> None:
        if self.answered:
            self.outcomes.append(outcome)
        else:
            self.load_error = outcome.payload.decode()
            self._fill(outcome)

    def _fill(self, outcome: Outcome) -> None:
        self.outcomes += [outcome] * (len(self.calls) - len(self.outcomes))

    def fail(self, why: str) -> None:
        self.future.set_result(ProgramRun(None, why, [Outcome("infra", why.encode())] * len(self.calls), 0.0))
