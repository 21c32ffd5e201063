"""What tests of the sandbox share: calls of a program's `f`, and what came of them."""

import contextlib
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from codea1.game.calls import Call
from codea1.sandbox.frames import Reply
from codea1.sandbox.host import Limits, ProgramRun
from codea1.sandbox.host.pool import SandboxPool
from codea1.values import decode_exact, encode_exact

ROOT = Path(__file__).parents[1]
LIMITS = Limits(cpu_seconds_per_test=0.5, cpu_seconds_per_suite=2.0, memory_bytes=256 << 20, output_bytes=1 << 20)


def run_python(python: str, *arguments: str, user: int | None = None) -> subprocess.CompletedProcess:
    """Runs Python in the root of the repository, as another user where one is named."""
    other = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    return subprocess.run([python, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, **other)


def python_for(user: int | None) -> str:
    """A Python that a user can run, able to import the sandbox."""
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if run_python(python, "-c", "import codea1.sandbox.host.pool", user=user).returncode == 0:
                return python
    pytest.skip("no Python here can be run by another user")


def pool_of(kind: type[SandboxPool], limits: Limits = LIMITS) -> Callable:
    """A fixture: a pool of two slots for the tests of a file."""

    @pytest.fixture(scope="module")
    def pool() -> Iterator[SandboxPool]:
        with kind(2, limits, isolation="auto") as pool:
            yield pool

    return pool


def forging(report: str) -> str:
    """Source that says itself what the sandbox's part of a process says when it is done."""
    return f"""
import os, struct
from codea1.values import encode_exact
payload = encode_exact({report})
os.write(3, struct.pack('>IIc', len(payload), 0, b'R') + payload)
"""


def call(*args: object, name: str = "f", **kwargs: object) -> Call:
    return Call(name, encode_exact((args, kwargs)))


def run(
    pool: SandboxPool, program: str, calls: Sequence[Call], reply: Reply = Reply.EXACT, **options: object
) -> ProgramRun:
    return pool.run_calls(textwrap.dedent(program), calls, reply=reply, **options).result(60)


def values(run: ProgramRun) -> list[object]:
    assert [outcome.kind for outcome in run.outcomes] == ["value"] * len(run.outcomes), run
    return [decode_exact(outcome.payload) for outcome in run.outcomes]


def kinds(run: ProgramRun) -> list[str]:
    return [outcome.kind for outcome in run.outcomes]


def wait_until(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
