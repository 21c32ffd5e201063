"""The sandbox as the rest of the program sees it: programs in, futures of what came of them out."""

import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Self

from codea1.runtime.errors import BadInput
from codea1.sandbox.frames import Reply
from codea1.sandbox.host import AnyCall, Limits, ProgramRun, ScriptRun
from codea1.sandbox.host.dispatcher import Dispatcher
from codea1.sandbox.host.runs import CallRun, CheckRun
from codea1.sandbox.host.zygote import Profile
from codea1.sandbox.isolation import AUTO, ISOLATIONS, Isolation
from codea1.sandbox.isolation.limits import why_unsupported
from codea1.values.verdict import Verdict

HASH_SEEDS = (0, 1)  # of the zygotes that start with the pool


class SandboxPool:
    """Runs untrusted programs in confined processes, `slots` gradings at a time. Thread-safe; a context manager.

    Every process is forked from a fresh interpreter that has run nothing untrusted, never from this one, lives for
    one grading at most, and is dead when the grading's future has its result. With `run_calls` nothing that a child
    says means "pass": it returns claims, which this side compares.
    """

    def __init__(self, slots: int = 0, limits: Limits | None = None, isolation: str = Isolation.FULL) -> None:
        """Starts the zygotes, and runs programs of each kind to see that they work.

        Args:
          slots: gradings at once; 0 takes one per CPU core this process may use.
          limits: what one grading may use.
          isolation: a level of `Isolation`, or "auto" for the strongest that this machine has.
        Raises:
          BadInput: this machine cannot confine untrusted code so, and why.
        """
        unsupported = why_unsupported()
        if unsupported:
            raise BadInput(f"{unsupported}.")
        if isolation not in ISOLATIONS:
            raise BadInput(f"sandbox isolation {isolation!r} is unknown; known are {', '.join(ISOLATIONS)}.")
        self.limits = limits or Limits()
        self.slots = slots or len(os.sched_getaffinity(0))
        self.refusals: dict[Isolation, str] = {}  # stronger levels than the one in use, and why they are not
        self.has_threads = True  # programs can start some
        levels = list(Isolation) if isolation == AUTO else [Isolation(isolation)]
        for level in levels:
            refusal = self._start(level)
            if not refusal:
                self.isolation = level
                return
            self.refusals[level] = refusal
        refusal = f"The sandbox cannot confine untrusted code on this machine: {self.refusals[levels[0]]}."
        if level is not Isolation.SECCOMP_ONLY:
            refusal += (
                f" To run with less isolation than {level.value!r}, choose the strongest there is with "
                f"--config.sandbox.isolation={AUTO}; `python -m codea1.sandbox` shows what is missing."
            )
        raise BadInput(refusal)

    def _start(self, isolation: Isolation) -> str:
        """Starts at one level; returns why that is not possible, or ""."""
        profiles = [Profile(with_numpy=False, hash_seed=seed) for seed in HASH_SEEDS]
        largest_child = max(self.limits.memory_bytes, self.limits.script_memory_bytes)
        self._dispatcher = Dispatcher(self.slots, isolation, profiles, largest_child)
        program = self.run_calls("import colorsys" if isolation.hides_files else "", [], reply=Reply.EXACT).result()
        script = self.run_script("def check(candidate): candidate()", "def f(): pass", "f").result()
        if program.loaded and script.verdict is Verdict.PASS:
            thread = "import threading\nthreading.Thread(target=len, args=['']).start()"
            self.has_threads = bool(self.run_calls(thread, [], reply=Reply.EXACT).result().loaded)
            return ""
        self.close()
        if program.loaded is False:
            return f"user {Profile(False, 0).uid} cannot read Python's library: {program.load_error}"
        return self._dispatcher.failure or script.detail or "its zygote does not start"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills every process of the sandbox. Gradings that have not finished fail."""
        self._dispatcher.close()

    @property
    def max_memory_bytes(self) -> int:
        """Bytes that all programs may use together; 0 where nothing bounds them but the machine."""
        return self._dispatcher.memory.max_bytes

    @property
    def isolation_note(self) -> str:
        """A sentence for people: how far programs are isolated and, where that is not fully, why."""
        threads = "" if self.has_threads else " Programs cannot start threads: this kernel cannot limit their number."
        if not self.refusals:
            return f"Sandbox isolation: {self.isolation}.{threads}"
        (level, why), *_ = self.refusals.items()
        return f"Sandbox isolation: only {self.isolation}; {level} is not available here: {why}.{threads}"

    def run_calls(
        self,
        program: str,
        calls: Sequence[AnyCall],
        *,
        reply: Reply,
        hash_seed: int = 0,
        backward: bool = False,
        call_seconds: Sequence[float] | None = None,
    ) -> Future[ProgramRun]:
        """Runs a program's definitions and then the calls, in order, in one process.

        Args:
          program: Python source; it runs as a module that is not `__main__`.
          calls: what to call. One that hangs or kills the process costs only itself.
          reply: the encoding of returned values.
          hash_seed: PYTHONHASHSEED, and the seed of `random`.
          backward: whether sets iterate backwards, see `child.backward_sets`.
          call_seconds: CPU limit of each call; the limit per test bounds each and is the default.
        """
        most = self.limits.cpu_seconds_per_test
        seconds = [most] * len(calls) if call_seconds is None else [min(limit, most) for limit in call_seconds]
        return self._dispatcher.submit(
            CallRun(program, list(calls), reply, hash_seed, backward, call_seconds=seconds, limits=self.limits)
        )

    def run_script(self, script: str, program: str, entry_point: str) -> Future[ScriptRun]:
        """Runs a benchmark's check script, which defines a function `check(candidate)`, against a program.

        Script and program live in separate processes. The script's `candidate` calls the program's `entry_point` with
        arguments and results as plain data; what an argument becomes inside the program does not come back.
        """
        return self._dispatcher.submit(CheckRun(script, program, entry_point, self.limits))

    def counters(self) -> dict[str, float]:
        """Returns how often each of `dispatcher.EVENTS` has happened, and the sums of `dispatcher.SECONDS`."""
        return dict(self._dispatcher.counters)
