"""What a process that hangs tells, and how it ends."""

import subprocess
import sys
import time

from codea1.runtime import phases
from codea1.runtime.errors import RESTART_EXIT_CODE
from codea1.runtime.phases import LIMITS, doing, progress, watchdog
from tests.conftest import ROOT

HANGS = """
import threading
from codea1.runtime.phases import LIMITS, doing, watchdog
def wait_for_godot():
    threading.Event().wait()
LIMITS["sandbox"] = 0.4
with watchdog(0.4, host=3), doing("step 7"), doing("sandbox"):
    wait_for_godot()
"""


def test_what_hangs_is_told_and_the_process_asks_to_be_restarted():
    done = subprocess.run([sys.executable, "-c", HANGS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == RESTART_EXIT_CODE
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("watchdog: host 3 has made no progress for")
    assert "step 7 > sandbox" in first
    assert "wait_for_godot" in done.stderr
    assert done.stderr.count("has made no progress") == 1
    assert last == "watchdog: host 3 ends, to be started again (exit code 75)"


def test_whoever_gets_on_is_left_alone(capfd, monkeypatch):
    monkeypatch.setitem(LIMITS, "sandbox", 1.0)
    with watchdog(0.0), doing("sandbox"):
        for _ in range(24):
            time.sleep(0.05)
            progress()
        with doing("something without a limit"):
            time.sleep(1.2)
        time.sleep(0.05)
    assert capfd.readouterr().err == ""


def test_a_limit_counts_from_where_the_inner_activity_ended(capfd, monkeypatch):
    monkeypatch.setitem(LIMITS, "rollout", 1.0)
    with watchdog(0.0), doing("rollout"):
        for _ in range(4):
            with doing("collective"):
                time.sleep(0.4)
    assert capfd.readouterr().err == ""
    assert phases.told() == ""


def test_what_nests_is_listed_from_the_outside_in():
    with doing("outer"), doing("inner"):
        assert phases.told() == "outer > inner"


def test_every_limit_is_of_something_that_is_done():
    code = "".join(path.read_text() for path in (ROOT / "codea1").rglob("*.py"))
    assert {name for name in LIMITS if f'doing("{name}")' in code} == set(LIMITS)
