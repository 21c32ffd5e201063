"""What gradings have in common that one child reports on: a verdict, or what a verdict is made of."""

import traceback
from abc import abstractmethod
from collections.abc import Sequence

from codea1.sandbox import frames
from codea1.sandbox.host.results import Limits, ScriptRun
from codea1.sandbox.host.run import (
    HANG_UP_SECONDS,
    WATCH_SECONDS,
    Channel,
    Desk,
    Run,
    how_it_ended,
    kernel_cpu_limit,
    wall_limit,
    was_killed,
)
from codea1.sandbox.host.zygote import Child, Ended
from codea1.values.verdict import Verdict

ENDED = "script ended"
_TOLD = (Verdict.PASS, Verdict.FAIL, Verdict.ERROR)  # what a child can know


class JudgedRun(Run):
    """Children that share one CPU budget, and a channel to one of them that says something until there is a verdict."""

    is_asked = False  # the child waits for answers to what it says

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.kernel_limit = kernel_cpu_limit(limits.cpu_seconds_per_script)

    @abstractmethod
    def launch(self, desk: Desk) -> tuple[Sequence[Child], Channel]:
        """Starts the children; the channel is to the one that sends the frame."""

    @abstractmethod
    def take(self, desk: Desk, frame: frames.Frame) -> None:
        """Calls `stop` where this frame decides. Raises ValueError or ProtocolViolation for what honest children never
        send."""

    @abstractmethod
    def lost(self, ended: Sequence[Ended]) -> tuple[str, Ended] | None:
        """The child whose early end is what `detail` says, and what to call it; None when that says something else."""

    def begin(self, desk: Desk) -> None:
        self.verdict: Verdict | None = None
        self.detail = ""
        self.ended: dict[Child, Ended] = {}
        self.processes, self.channel = self.launch(desk)
        self.started, self.hung_up_at = desk.now, 0.0
        self.expect_zygote(desk)
        self.send(desk)

    def send(self, desk: Desk, request: bytes = b"") -> None:
        """Sends what is unsent, and then `request`, as soon as there is room."""
        if request:
            self.channel.unsent = memoryview(request)
        self.channel.send()
        if self.channel.unsent or self.channel.watched or self.is_asked:
            desk.watch(self.channel, self)

    def on_started(self, desk: Desk) -> None:
        if all(child.pid for child in self.processes) and self.verdict is None:
            super().on_started(desk)
            self.started = desk.now

    def on_socket(self, desk: Desk) -> None:
        if self.channel.unsent:
            self.send(desk)
        self._receive(desk)

    def _receive(self, desk: Desk) -> None:
        try:
            for frame in self.channel.receive():
                if frame is None:
                    self.hang_up(desk)
                    break
                self.take(desk, frame)
                if self.verdict is not None:
                    break
        except Exception as error:  # whatever is wrong with a claim, or with what reads it, costs this grading alone
            if not isinstance(error, frames.ProtocolViolation | ValueError):
                traceback.print_exc()
            desk.count("violations")
            self.stop(desk, Verdict.ERROR, "script broke the protocol")

    def stop(self, desk: Desk, verdict: Verdict, detail: str) -> None:
        """Ends all children; the run's result is this verdict, and `detail` says what there is to say of it."""
        self.verdict, self.detail = verdict, detail[: frames.MAX_WORDS]
        desk.unwatch(self.channel)
        self.expect_zygote(desk)
        for child in self.processes:
            desk.end(child)

    def check(self, desk: Desk) -> float:
        if self.patience:
            return self.patience - desk.now
        if self.hung_up_at:
            left = self.hung_up_at + HANG_UP_SECONDS - desk.now
            if left <= 0:
                self.stop(desk, Verdict.ERROR, ENDED)
            return max(left, 0.0)
        if not self.channel.watched:
            quiet = self.started + WATCH_SECONDS - desk.now
            if quiet > 0:
                return quiet
            desk.watch(self.channel, self)
        limit = self.limits.cpu_seconds_per_script
        spent = sum(child.cpu_seconds() for child in self.processes)
        left = min(limit - spent, self.started + wall_limit(limit) - desk.now)
        if left <= 0:
            self.on_socket(desk)  # a verdict that has arrived meanwhile counts
            if self.verdict is None:
                self.stop(desk, Verdict.TIMEOUT, f"more than {limit:g} CPU seconds, or asleep")
        return max(left, 0.0)

    def on_ended(self, desk: Desk, ended: Ended) -> None:
        self.ended[ended.child] = ended
        if self.verdict is None and not self.hung_up_at:  # by itself: with everything said, or not
            self._receive(desk)
        if self.verdict is None and self.hung_up_at:
            self.stop(desk, Verdict.ERROR, ENDED)
        if len(self.ended) < len(self.processes):
            return
        if self.verdict is Verdict.TIMEOUT:
            desk.count("timeouts")
        if lost := self.lost([self.ended[child] for child in self.processes]):
            name, end = lost
            if was_killed(end) and desk.try_again(self):
                return
            self.detail = f"{name} {how_it_ended(end)}"
        spent = sum(each.cpu_seconds for each in self.ended.values())
        self.future.set_result(self.result(self.verdict, self.detail, spent))
        desk.finish(self)

    def fail(self, why: str) -> None:
        self.future.set_result(self.result(Verdict.INFRA, why, 0.0))

    def result(self, verdict: Verdict, detail: str, cpu_seconds: float) -> ScriptRun:
        """What the future gives."""
        return ScriptRun(verdict, detail, cpu_seconds)


def told(verdict: str) -> Verdict:
    """The verdict that a child says. Raises ValueError for one that no child can know."""
    if verdict not in _TOLD:
        raise ValueError(f"a child cannot say {verdict!r}")
    return Verdict(verdict)
