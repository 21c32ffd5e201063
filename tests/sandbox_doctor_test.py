"""`python -m codea1.tools.sandbox`: a report on this machine, and on machines that lack a layer."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCTOR = "import sys; from codea1.sandbox import doctor; doctor._SPEED_GRADINGS = 4; sys.exit(not doctor.examine())"


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_report():
    done = run("-m", "codea1.tools.sandbox")
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    for name in ("isolation", "rlimits", "seccomp", "namespaces", "landlock", "scratch", "self-test", "speed"):
        assert name in names
    assert "12 of 12 programs judged as they should be" in done.stdout


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        ("UNSHARE", "to get namespaces: "),
        ("LANDLOCK_CREATE_RULESET", "to get Landlock: Linux 5.13"),
        ("UNSHARE, calls.LANDLOCK_CREATE_RULESET", "isolation   seccomp_only: weaker than full"),
    ],
)
def test_what_is_missing_and_how_to_get_it(denied, expected):
    done = run("-c", f"from tests import denied_calls as calls; calls.deny(calls.{denied}); {DOCTOR}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout
    assert "12 of 12" in done.stdout


def test_a_machine_without_seccomp():
    done = run("-c", f"from tests import denied_calls as calls; calls.deny_seccomp(); {DOCTOR}")
    assert done.returncode == 1
    assert "refused a seccomp filter" in done.stdout
