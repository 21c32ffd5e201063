"""Programs in processes with virtual devices of their own: of a host alone, or of two hosts together."""

import contextlib
import functools
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from tests.conftest import ROOT

CACHE = {
    "JAX_COMPILATION_CACHE_DIR": os.path.expanduser("~/.cache/codea1/jax-tests"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PLATFORMS": "cpu",
    "PYTHONPATH": str(ROOT),
}


@functools.cache
def _server(index: int) -> socket.socket:
    """Starts the server that forks the host of this index, and returns the socket for requests to it.

    Each index has its own, so that hosts hash strings differently, as processes of their own do.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, str(ROOT / "tests" / "fork_server.py"), str(theirs.fileno())]
    subprocess.Popen(command, cwd=ROOT, env=os.environ | CACHE, pass_fds=[theirs.fileno()])
    theirs.close()
    return ours


class Process:
    """`python PROGRAM FLAGS` as a fork of a server."""

    def __init__(self, program: Sequence[str], *flags: str, devices: int, index: int = 0) -> None:
        """Starts it on so many virtual devices, as the host of this index."""
        flag = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
        environment = os.environ | CACHE | {"XLA_FLAGS": flag}
        request = {"arguments": [*program, *flags], "environment": environment}
        self._files = [tempfile.TemporaryFile("a+", errors="replace") for _ in range(2)]  # noqa: SIM115
        self._report, report = os.pipe()
        pipes = [*(file.fileno() for file in self._files), report]
        socket.send_fds(_server(index), [json.dumps(request).encode()], pipes)
        os.close(report)
        self._code: int | None = None
        self._pid = int(self._read_line(timeout=120))

    def wait(self, timeout: float = 400) -> int:
        """Returns its exit code, or minus the signal that ended it. Raises TimeoutError."""
        if self._code is None:
            self._code = int(self._read_line(timeout))
        return self._code

    @property
    def has_ended(self) -> bool:
        """Whether `wait` would return at once."""
        return self._code is not None or bool(select.select([self._report], [], [], 0)[0])

    def kill(self) -> None:
        """Ends it with SIGKILL, unless it has ended."""
        if not self.has_ended:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self._pid, signal.SIGKILL)

    def printed(self) -> tuple[str, str]:
        """Returns what it has written to stdout and to stderr."""
        for file in self._files:
            file.seek(0)
        return tuple(file.read() for file in self._files)

    def _read_line(self, timeout: float) -> str:
        deadline, line = time.monotonic() + timeout, b""
        while not line.endswith(b"\n"):
            if not select.select([self._report], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError(f"still running after {timeout} s:\n{''.join(self.printed())[-3000:]}")
            byte = os.read(self._report, 1)
            if not byte:
                raise RuntimeError("the server of forks has ended")
            line += byte
        return line.decode()


def start(
    count: int, program: Sequence[str], *flags: str, devices: int = 2, of_host_1: tuple[str, ...] = ()
) -> list[Process]:
    """Starts so many with the flags that make them one; the second may have more of its own."""
    join = *flags, f"--coordinator_address={free_address()}", f"--num_processes={count}"
    return [
        Process(program, *join, *of_host_1 * (index == 1), f"--process_id={index}", devices=devices, index=index)
        for index in range(count)
    ]


start_two = functools.partial(start, 2)


def free_address() -> str:
    """Returns an address on this machine with a port that is free now, below those that the kernel gives to others."""
    while True:
        address = "127.0.0.1", 20_000 + secrets.randbelow(12_000)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(address)
            return "{}:{}".format(*address)


def outputs(runs: Sequence[Process], timeout: float = 400) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of each. None is left running."""
    try:
        return [(run.wait(timeout), *run.printed()) for run in runs]
    finally:
        for run in runs:
            run.kill()


def finish(*runs: Process) -> list[str]:
    """Returns what each printed, once all of them have succeeded."""
    done = outputs(runs)
    assert [code for code, _, _ in done] == [0] * len(runs), "\n".join(errors[-3000:] for _, _, errors in done)
    return [printed for _, printed, _ in done]


def assert_shown_once(lines: str, main: str, other: str) -> None:
    """The main host printed all these lines and the other host none; threads of gloo write in between."""
    shown = [line for line in lines.splitlines() if line.strip()]
    assert shown
    assert [line for line in shown if line not in main] == []
    assert [line for line in shown if line in other] == []


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `python ARGUMENTS` on one device."""
    (done,) = outputs([Process(arguments, devices=1)])
    return done
