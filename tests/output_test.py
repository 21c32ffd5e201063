"""A run goes on where what it shows cannot be written."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

RUN = """
from rich.console import Console
from codea1.runtime import command, output
from codea1.training.progress import Progress
def main():
    output.may_be_lost()
    with Progress(3, console=Console(force_terminal={live})) as progress:
        for step in range(1, 4):
            progress.note("validating")
            progress.update(step, {{"code/reward": 0.5}})
            print("a line", flush=True)
            progress.print("another")
    print("not flushed")
    {end}
command.run(main)
"""


def run(live: bool, end: str, stdout: int, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    """The exit code of a command that shows three steps, and what it wrote to stderr."""
    command = [sys.executable, "-c", RUN.format(live=live, end=end)]
    done = subprocess.run(command, cwd=ROOT, stdout=stdout, stderr=stderr, text=True, check=False)
    os.close(stdout)
    return done.returncode, done.stderr or ""


def closed_pipe() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize(("to", "why"), [(full_disk, "No space left on device"), (closed_pipe, "Broken pipe")])
@pytest.mark.parametrize("live", [False, True])
def test_what_is_shown_may_be_lost_and_is_told_of_once(live, to, why):
    assert run(live, "", to()) == (
        0,
        f"<stdout> cannot be written ({why}): the run goes on, what it shows is lost.\n",
    )


def test_the_exit_code_is_the_runs_own_where_nothing_can_be_written():
    stderr = full_disk()
    end = 'from codea1.runtime.errors import BadInput; raise BadInput("a mistake.")'
    assert run(False, end, closed_pipe(), stderr)[0] == 2
    assert run(True, "", full_disk(), stderr)[0] == 0
    os.close(stderr)
