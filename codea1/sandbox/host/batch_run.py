"""A grading by many inputs: one child, digests of what it returns, and a comparison on the trusted side."""

import marshal
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from codea1.sandbox import frames
from codea1.sandbox.child.batch import MAX_DESCRIBED_BYTES, MAX_VALUES
from codea1.sandbox.host.judged_run import ENDED, JudgedRun
from codea1.sandbox.host.results import Limits
from codea1.sandbox.host.run import Channel, Desk, profile_of
from codea1.sandbox.host.zygote import Child, Ended
from codea1.values import decode_fields, encode_exact
from codea1.values.verdict import Verdict

_MAX_BYTES = 64 << 20  # of all that a child may say
_MAX_PAYLOAD = MAX_DESCRIBED_BYTES + 1024  # of one description; digests take less
_SLACK_SECONDS = 0.1  # beyond the limit of an input: a child answers for what took less only now and then


@dataclass(frozen=True)
class Description:
    """What a program's process says that a value is."""

    type_name: str  # module and name
    compared: bytes  # canonical digest of the value, or of the set of its members; empty where there is none
    exact: bytes  # its exact encoding; empty where it is not plain data or large


class Comparison(Protocol):
    """Decides, by what a program's process says that it returned."""

    def agrees(self, index: int, digest: bytes, seconds: float) -> bool:
        """Whether the digest (see `codea1.sandbox.child.batch.digest`) settles that the value of an input is right."""

    def accepts(self, index: int, value: Description) -> bool:
        """Whether a value is right whose digest settled nothing."""


class Inputs:
    """The inputs of a function, each with the CPU seconds that its call may take."""

    def __init__(self, rows: Sequence[Sequence], seconds: Sequence[float], *, as_set: bool = False) -> None:
        """`as_set`: what is compared is the set of a returned value's members. Raises ValueError for other types than
        those of literals."""
        self.marshalled = marshal.dumps([list(row) for row in rows], 2)
        self.count = len(rows)
        self.seconds = list(seconds)
        self.as_set = as_set


class BatchRun(JudgedRun):
    """The child waits after each frame of digests; what it is told next is to go on, or to describe some values."""

    is_asked = True

    def __init__(self, program: str, entry_point: str, inputs: Inputs, comparison: Comparison, limits: Limits) -> None:
        super().__init__(limits)
        self.program, self.entry_point, self.inputs, self.comparison = program, entry_point, inputs, comparison
        self.profile = profile_of(program)

    def launch(self, desk: Desk) -> tuple[Sequence[Child], Channel]:
        self.done = self.answered = 0  # inputs whose values are right, and those of which there is a digest
        self.raised = False  # the next input's call, as a frame without any digest says
        self.doubtful: deque[int] = deque()
        self.mark = 0.0  # the child's CPU clock when it last answered
        job = encode_exact((self.program, self.entry_point, self.inputs.as_set, self.inputs.marshalled))
        ours, theirs = socket.socketpair()
        with theirs:
            child = desk.spawn(self, self.profile, [theirs], self.kernel_limit, self.limits.script_memory_bytes)
        return [child], Channel(ours, frames.pack(0, frames.BATCH, job), _MAX_BYTES, _MAX_PAYLOAD)

    def take(self, desk: Desk, frame: frames.Frame) -> None:
        if self.channel.unsent:  # an honest child has read what it was told before it says more
            raise frames.ProtocolViolation
        self.mark = self.processes[0].cpu_seconds()
        if frame.kind == frames.ERROR:
            self._take_error(desk, frame)
        elif frame.kind == frames.VALUE and self.doubtful and frame.index == self.doubtful.popleft():
            if not self.comparison.accepts(frame.index, Description(*decode_fields(frame.payload, str, bytes, bytes))):
                self.stop(desk, Verdict.FAIL, f"input {frame.index}: another value than expected")
            elif not self.doubtful:
                self._go_on(desk)
        elif frame.kind == frames.DIGESTS and frame.index == self.done == self.answered:
            self._take_digests(desk, frames.unpack_digests(frame.payload))
        else:
            raise frames.ProtocolViolation

    def _take_error(self, desk: Desk, frame: frames.Frame) -> None:
        text = frame.payload.decode("utf-8", "replace")
        where = "on load" if frame.index == frames.LOAD else f"on input {self.done}"
        self.stop(desk, Verdict.ERROR, f"raised {where}: {text}")

    def _take_digests(self, desk: Desk, digests: Sequence[tuple[bytes, float]]) -> None:
        self.answered = self.done + len(digests)
        if self.answered > self.inputs.count or self.raised:
            raise frames.ProtocolViolation
        self.raised = not digests
        agrees = self.comparison.agrees
        self.doubtful += [i for i, each in enumerate(digests, self.done) if not agrees(i, *each)]
        if self.doubtful:
            self.send(desk, frames.pack_describe(list(self.doubtful)))
        else:
            self._go_on(desk)

    def _go_on(self, desk: Desk) -> None:
        self.done = self.answered
        if self.done == self.inputs.count:
            self.stop(desk, Verdict.PASS, "")
        else:
            self.send(desk, frames.pack(0, frames.GO_ON))

    def check(self, desk: Desk) -> float:
        left = super().check(desk)
        if self.verdict is not None or self.patience:
            return left
        limit = max(self.inputs.seconds[self.done : self.done + MAX_VALUES], default=0.0) + _SLACK_SECONDS
        of_input = limit - (self.processes[0].cpu_seconds() - self.mark)
        if of_input <= 0:
            self.stop(desk, Verdict.TIMEOUT, f"input {self.done} or a later one took more than {limit:g} CPU seconds")
        return max(min(left, of_input), 0.0)

    def lost(self, ended: Sequence[Ended]) -> tuple[str, Ended] | None:
        return ("the process", ended[0]) if self.detail == ENDED else None
