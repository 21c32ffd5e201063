"""Runs of `bench.kill_harness`: processes of a whole run, really killed."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.host_processes import CACHE

# By this seed one is killed while it samples, and one while it saves; SIGTERM comes while it writes.
SHORT = {"kills": 2, "terms": 1, "steps": 4, "seed": 24}
LONG = {"kills": 200, "terms": 20, "steps": 8, "seed": 0}


@pytest.mark.parametrize("asked", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "long"])
def test_a_run_killed_again_and_again_is_the_run_that_never_was(asked, tmp_path):
    flags = [f"--{name}={value}" for name, value in asked.items()]
    command = [sys.executable, "-m", "bench.kill_harness", *flags, f"--workdir={tmp_path}"]
    environment = os.environ | CACHE
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "log.txt").read_text()[-3000:]
    assert f"{asked['kills']} kills and {asked['terms']} times told to end" in done.stdout
    assert re.search(r"run 1: ended lives \d+; the same", done.stdout)
