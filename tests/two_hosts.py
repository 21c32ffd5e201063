"""Programs on two hosts, each a process with virtual devices of its own."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from tests.conftest import ROOT


def start(program: Sequence[str], *flags: str, devices: int) -> subprocess.Popen:
    """Starts `python PROGRAM FLAGS`."""
    options = {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": os.path.expanduser("~/.cache/codea1/jax-tests"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": str(ROOT),
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *program, *flags], cwd=ROOT, env=os.environ | options, **pipes)


def start_two(
    program: Sequence[str], *flags: str, devices: int, of_host_1: tuple[str, ...] = ()
) -> list[subprocess.Popen]:
    """Starts the two with the flags that make them one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    join = f"--coordinator_address={address}", "--num_processes=2"
    own = (), of_host_1
    return [start(program, *flags, *own[index], *join, f"--process_id={index}", devices=devices) for index in range(2)]


def outputs(runs: list[subprocess.Popen], timeout: float = 400) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of each."""
    try:
        return [(run.wait(timeout), *run.communicate()) for run in runs]
    finally:
        for run in runs:
            run.kill()


def without_gloo(printed: str) -> str:
    """Returns what the program itself printed: threads of gloo write into each other's lines."""
    lines = printed.splitlines(keepends=True)
    return "".join(line for line in lines if line.strip() and "Gloo" not in line and "peer ranks" not in line)


def finish(*runs: subprocess.Popen) -> list[str]:
    """Returns what each printed itself."""
    done = outputs(list(runs))
    assert [code for code, _, _ in done] == [0] * len(runs), "\n".join(errors[-3000:] for _, _, errors in done)
    return [without_gloo(printed) for _, printed, _ in done]
