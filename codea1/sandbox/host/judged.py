"""Gradings that come to one verdict: a check script's. What rewards read is graded by `codea1.sandbox.host.calls`."""

import socket
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing

from codea1.sandbox import frames
from codea1.sandbox.host import Limits, ScriptRun
from codea1.sandbox.host.conversation import Closed, Conversation, OutOfTime, profile_of, wall_limit
from codea1.sandbox.host.dispatcher import GradingTask, Starved, Waiting
from codea1.sandbox.host.zygote import Child
from codea1.values import decode_fields, encode_exact
from codea1.values.verdict import Verdict

ENDED = "script ended"
_CANDIDATE_ENDED = "candidate ended"  # as codea1.sandbox.child.script says it
_KNOWN_TO_CHILDREN = (Verdict.PASS, Verdict.FAIL, Verdict.ERROR)
_VERDICT_BYTES = 4096


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
