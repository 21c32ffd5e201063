"""A grading by a check script: two children that talk to each other, and one verdict."""

import socket
from collections.abc import Sequence

from codea1.sandbox import frames
from codea1.sandbox.host.judged_run import ENDED, JudgedRun, told
from codea1.sandbox.host.results import Limits
from codea1.sandbox.host.run import Channel, Desk, profile_of
from codea1.sandbox.host.zygote import Child, Ended
from codea1.values import decode_fields, encode_exact

_VERDICT_BYTES = 4096
_LOST = "candidate ended"


class CheckRun(JudgedRun):
    """The program lives in one child and the script in another, which sends the verdict."""

    def __init__(self, script: str, program: str, entry_point: str, check_name: str, limits: Limits) -> None:
        super().__init__(limits)
        self.profiles = profile_of(program), profile_of(script)
        self.request = frames.pack(0, frames.JOB, encode_exact((script, program, entry_point, check_name)))

    def launch(self, desk: Desk) -> tuple[Sequence[Child], Channel]:
        memory = self.limits.script_memory_bytes
        ours, theirs = socket.socketpair()
        script_end, program_end = socket.socketpair()
        with theirs, script_end, program_end:
            candidate = desk.spawn(self, self.profiles[0], [program_end], self.kernel_limit, memory)
            judge = desk.spawn(self, self.profiles[1], [theirs, script_end], self.kernel_limit, memory)
        return (candidate, judge), Channel(ours, self.request, _VERDICT_BYTES, _VERDICT_BYTES)

    def take(self, desk: Desk, frame: frames.Frame) -> None:
        verdict, detail = decode_fields(frame.payload, str, str)
        self.stop(desk, told(verdict), detail)

    def lost(self, ended: Sequence[Ended]) -> tuple[str, Ended] | None:
        candidate, script = ended
        return {_LOST: ("candidate", candidate), ENDED: ("script", script)}.get(self.detail)
