"""A grading by calls: one program, a list of calls, one outcome each."""

import socket
import time
from collections.abc import Sequence
from enum import Enum, auto

from codea1.sandbox import frames
from codea1.sandbox.results import Call, Limits, Outcome, OutcomeKind, ProgramRun
from codea1.sandbox.run import Channel, Desk, Run, how_it_ended, kernel_cpu_limit, profile_of, wall_limit, was_killed
from codea1.sandbox.zygote import Ended

_KINDS: dict[bytes, OutcomeKind] = {
    frames.VALUE: "value",
    frames.ERROR: "error",
    frames.OPAQUE: "opaque",
    frames.TOO_LARGE: "too_large",
}
_FRAME_BYTES = 512  # generous: what a frame without a value takes


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
        self.request = frames.pack_program(program, reply, seed=hash_seed, output_bytes=limits.output_bytes)
        self.calls = [frames.pack_call(i, call.entry_point, call.arguments) for i, call in enumerate(calls)]

    def begin(self, desk: Desk) -> None:
        self.outcomes: list[Outcome] = []
        self.loaded: bool | None = None
        self.load_error = ""
        self.spent = 0.0  # CPU seconds of the children that ended
        self._launch(desk)

    def _launch(self, desk: Desk) -> None:
        ours, theirs = socket.socketpair()
        kernel_limit = kernel_cpu_limit(self.limits.cpu_seconds_per_suite - self.spent)
        with theirs:
            self.child = desk.spawn(self, self.profile, [theirs], kernel_limit, self.limits.memory_bytes)
        rest = self.calls[len(self.outcomes) :]
        room = self.limits.output_bytes + _FRAME_BYTES * (len(rest) + 1)
        self.channel = Channel(ours, self.request + b"".join(rest), room)
        self.answered = False  # the program frame, by this child
        self.stop: _Stop | None = None
        self.mark = 0.0  # the child's CPU clock when it last answered
        self.progress = time.monotonic()
        self.expect_zygote()
        self.channel.send()
        desk.watch(self.channel, self)

    def on_started(self, now: float) -> None:
        if self.stop is None:
            super().on_started(now)
            self.progress = now  # the zygote's own start is nobody's time

    def on_socket(self, desk: Desk) -> None:
        if self.channel.unsent:
            self.channel.send()
            desk.watch(self.channel, self)
        try:
            received, is_open = self.channel.receive()
            for frame in received:
                if self.stop is None:
                    self._take(desk, frame)
        except frames.ProtocolViolation:
            self._stop(desk, _Stop.VIOLATION)
            return
        if not is_open and self.stop is None:
            self._stop(desk, _Stop.DIED)

    def _take(self, desk: Desk, frame: frames.Frame) -> None:
        clock = self.child.cpu_seconds()
        used, self.mark, self.progress = clock - self.mark, clock, time.monotonic()
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
        self.expect_zygote()
        desk.end(self.child)

    def check(self, desk: Desk, now: float) -> float:
        if self.stop is not None or not self.child.pid:
            return self.patience - now
        limit = self._limit()
        clock = self.child.cpu_seconds()
        left = limit - (clock - self.mark)
        left_asleep = self.progress + wall_limit(limit) - now
        left_of_suite = self.limits.cpu_seconds_per_suite - self.spent - clock
        if min(left, left_asleep, left_of_suite) > 0:
            return min(left, left_asleep, left_of_suite)
        answered = self.progress
        self.on_socket(desk)  # an answer that has arrived meanwhile counts
        if self.stop is None and self.progress == answered:
            self._stop(desk, _Stop.TIMEOUT if min(left, left_asleep) <= 0 else _Stop.BUDGET)
        return 0.0

    def _limit(self) -> float:
        """CPU seconds that what the child is at now may take."""
        return self.call_seconds[len(self.outcomes)] if self.answered else self.limits.cpu_seconds_per_test

    def on_ended(self, desk: Desk, ended: Ended) -> None:
        self.spent += ended.cpu_seconds
        died_early = self.stop is _Stop.DIED and ended.cpu_seconds - self.mark < self._limit()
        if died_early and was_killed(ended.status) and desk.try_again(self):
            return
        self._settle(desk, ended)
        left = len(self.calls) - len(self.outcomes)
        if left and self.spent < self.limits.cpu_seconds_per_suite:
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
                self._interrupt(Outcome("error", f"the process {how_it_ended(ended.status)}".encode(), used))
            case _Stop.TIMEOUT | _Stop.BUDGET | _Stop.DIED:
                desk.count("timeouts")
                self._interrupt(Outcome("timeout", b"the process took too long", used))

    def _interrupt(self, outcome: Outcome) -> None:
        if self.answered:
            self.outcomes.append(outcome)
        else:
            self.load_error = outcome.payload.decode()
            self._fill(outcome)

    def _fill(self, outcome: Outcome) -> None:
        self.outcomes += [outcome] * (len(self.calls) - len(self.outcomes))

    def fail(self) -> None:
        self.future.set_result(ProgramRun(None, "", [Outcome("infra")] * len(self.calls), 0.0))
