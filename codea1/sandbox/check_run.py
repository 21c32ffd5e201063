"""A grading by a check script: two children that talk to each other, and one verdict."""

import socket
import time

from codea1.sandbox import frames
from codea1.sandbox.results import Limits, ScriptRun
from codea1.sandbox.run import Channel, Desk, Run, how_it_ended, kernel_cpu_limit, profile_of, wall_limit
from codea1.sandbox.values import decode_exact, encode_exact
from codea1.sandbox.verdict import Verdict
from codea1.sandbox.zygote import Child, Ended

_VERDICT_BYTES = 4096
_LOST = "candidate ended"


class CheckRun(Run):
    """The program lives in one child and the script in another, which sends the verdict; both share one CPU budget."""

    def __init__(self, script: str, program: str, entry_point: str, check_name: str, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.profiles = profile_of(program), profile_of(script)
        self.request = frames.pack(0, frames.JOB, encode_exact((script, program, entry_point, check_name)))

    def begin(self, desk: Desk) -> None:
        self.verdict: Verdict | None = None
        self.detail = ""
        self.ended: dict[Child, Ended] = {}
        kernel_limit, memory = kernel_cpu_limit(self.limits.cpu_seconds_per_script), self.limits.script_memory_bytes
        ours, theirs = socket.socketpair()
        script_end, program_end = socket.socketpair()
        with theirs, script_end, program_end:
            self.candidate = desk.spawn(self, self.profiles[0], [program_end], kernel_limit, memory)
            self.judge = desk.spawn(self, self.profiles[1], [theirs, script_end], kernel_limit, memory)
        self.channel = Channel(ours, self.request, _VERDICT_BYTES)
        self.started = time.monotonic()
        self.expect_zygote()
        self.channel.send()
        desk.watch(self.channel, self)

    def on_started(self, now: float) -> None:
        if self.candidate.pid and self.judge.pid and self.verdict is None:
            super().on_started(now)
            self.started = now

    def on_socket(self, desk: Desk) -> None:
        if self.channel.unsent:
            self.channel.send()
            desk.watch(self.channel, self)
        try:
            received, is_open = self.channel.receive()
            if received:
                verdict, detail = decode_exact(received[0].payload)
                self._stop(desk, Verdict(verdict), str(detail))
            elif not is_open:
                self._stop(desk, Verdict.ERROR, "script ended")
        except (frames.ProtocolViolation, TypeError, ValueError):
            self._stop(desk, Verdict.ERROR, "script broke the protocol")

    def _stop(self, desk: Desk, verdict: Verdict, detail: str) -> None:
        self.verdict, self.detail = verdict, detail
        desk.unwatch(self.channel)
        self.expect_zygote()
        desk.end(self.candidate)
        desk.end(self.judge)

    def check(self, desk: Desk, now: float) -> float:
        if self.patience:
            return self.patience - now
        limit = self.limits.cpu_seconds_per_script
        left = min(
            limit - self.candidate.cpu_seconds() - self.judge.cpu_seconds(), self.started + wall_limit(limit) - now
        )
        if left <= 0:
            self.on_socket(desk)  # a verdict that has arrived meanwhile counts
            if self.verdict is None:
                self._stop(desk, Verdict.TIMEOUT, f"more than {limit:g} CPU seconds, or asleep")
        return max(left, 0.0)

    def on_ended(self, desk: Desk, ended: Ended) -> None:
        self.ended[ended.child] = ended
        if len(self.ended) < 2:
            return
        if self.verdict is Verdict.TIMEOUT:
            desk.count("timeouts")
        if self.detail == _LOST:
            self.detail = f"candidate {how_it_ended(self.ended[self.candidate].status)}"
        spent = sum(each.cpu_seconds for each in self.ended.values())
        self.future.set_result(ScriptRun(self.verdict, self.detail, spent))
        desk.finish(self)

    def fail(self) -> None:
        self.future.set_result(ScriptRun(Verdict.INFRA, "the sandbox failed", 0.0))
