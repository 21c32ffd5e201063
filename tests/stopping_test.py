"""What signals do to a process that is asked to stop."""

import os
import re
import signal
import subprocess
import sys

import pytest

from codea1.runtime.errors import RESTART_EXIT_CODE
from codea1.runtime.hosts import Hosts
from codea1.runtime.signals import Stopped, StopRequest
from tests.conftest import ROOT

# The main thread never comes back from C: as in a collective that another host does not join.
HELD_UP = """
import ctypes, sys
from codea1.runtime.signals import StopRequest
with StopRequest() as stop:
    stop.can_exit_now = sys.argv[1] == "nothing"
    print("ready", flush=True)
    ctypes.CDLL(None).sem_wait(ctypes.create_string_buffer(64))
"""


def held_up(lost: str, *under: str) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # libtpu, which other tests load, ignores SIGHUP, and what is ignored is inherited.
    command = ["env", "--default-signal=HUP", *under, sys.executable, "-c", HELD_UP, lost]
    process = subprocess.Popen(command, cwd=ROOT, **pipes)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_second_signal_ends_whatever_the_main_thread_does(number, code):
    process = held_up("something")
    process.send_signal(number)
    assert "a second signal ends the run at once" in process.stderr.readline()
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(20) == code
    process.communicate()


def test_a_terminal_gets_its_cursor_back():
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", HELD_UP, "nothing"], cwd=ROOT, stdout=theirs, stderr=theirs
    ) as process:
        shown = b""
        while b"ready" not in shown:
            shown += os.read(ours, 100)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == RESTART_EXIT_CODE
        assert b"\x1b[?25hSIGTERM: ended; nothing was lost." in os.read(ours, 1000)
    os.close(ours)
    os.close(theirs)


def test_a_closed_terminal_asks_to_stop_once_however_often_it_says_so():
    process = held_up("something")
    process.stderr.close()
    process.stdout.close()  # as the terminal's ends are
    process.send_signal(signal.SIGHUP)
    for _ in range(2):
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143


def test_under_nohup_sighup_stays_ignored():
    process = held_up("nothing", "nohup")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == RESTART_EXIT_CODE
    process.communicate()


def test_where_nothing_can_be_lost_the_first_signal_ends_the_process():
    process = held_up("nothing")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == RESTART_EXIT_CODE
    assert "nothing was lost" in process.communicate()[1]


def test_a_signal_is_heeded_at_a_safe_point_and_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with StopRequest() as stop:
        stop.can_exit_now = False
        stop.safe_point(Hosts())
        signal.raise_signal(signal.SIGTERM)
        assert stop._asked.wait(20)  # it comes by way of another thread
        with pytest.raises(Stopped):
            stop.safe_point(Hosts())
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_the_launcher_restarts_on_the_code_that_says_so():
    (code,) = re.findall(r"^RESTART_EXIT_CODE=(\d+)$", (ROOT / "launch" / "common.sh").read_text(), re.MULTILINE)
    assert int(code) == RESTART_EXIT_CODE
