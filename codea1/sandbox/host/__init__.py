"""What the sandbox is asked and what it answers: the plain records that cross its boundary."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from codea1.values.verdict import Verdict

OutcomeKind = Literal["value", "error", "opaque", "too_large", "timeout", "not_run", "infra"]


class AnyCall(Protocol):
    """A call of a program's entry point."""

    @property
    def entry_point(self) -> str: ...

    @property
    def arguments(self) -> bytes:
        """encode_exact((positional arguments, keyword arguments))"""


class AnyTest(Protocol):
    """A call and the value it should give."""

    @property
    def call(self) -> AnyCall: ...

    @property
    def expected(self) -> bytes:
        """encode_exact(value)"""


class BareCall(NamedTuple):
    """What a process receives about a call: see `codea1.values.entry_points`."""

    entry_point: str
    arguments: bytes


@dataclass(frozen=True)
class Limits:
    """What gradings may use. Time is CPU time; a sleeping process is stopped by a generous wall limit."""

    cpu_seconds_per_test: float = 2.0  # of one call, and of loading a program
    cpu_seconds_per_suite: float = 12.0  # of all calls of one run, loading included
    # Of a run_script, or a grading of benchmarks, with all its children; the slowest honest ones take half.
    cpu_seconds_per_script: float = 60.0
    memory_bytes: int = 1 << 30  # of address space beyond the interpreter's own
    script_memory_bytes: int = 2 << 30  # the same for a check script and for its program
    output_bytes: int = 4 << 20  # of the answers to all calls of one run
    memo_bytes: int = 512 << 20  # of the trainer's memory, for the results that a grader remembers


@dataclass(frozen=True)
class Outcome:
    """What came of one call. `payload` is the encoded value, or else a few words in UTF-8 on what happened."""

    kind: OutcomeKind
    payload: bytes = b""
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class ProgramRun:
    """One program's calls. A program that did not load has `load_error` as the outcome of every call."""

    loaded: bool | None  # its definitions ran without raising; None: the sandbox failed, and so did every call
    load_error: str
    outcomes: list[Outcome]
    cpu_seconds: float  # of all processes of the run


@dataclass(frozen=True)
class ScriptRun:
    """One program judged as a whole: PASS, FAIL, ERROR, TIMEOUT or INFRA.

    `detail` of a check script's error starts with the child that raised, "candidate" or "script".
    """

    verdict: Verdict
    detail: str
    cpu_seconds: float
