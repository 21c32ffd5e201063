import subprocess
import sys
from pathlib import Path

import pytest

from codea1.runs.folder import RunFolder
from codea1.runs.lock import locked
from codea1.runtime.errors import BadInput
from tests.conftest import ROOT

HOLD = """
import sys, time
from codea1.runs.folder import RunFolder
from codea1.runs.lock import locked
with locked(RunFolder.existing(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_training_is_refused_until_the_first_has_gone(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path), {})
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BadInput, match="another process works there"), locked(folder):
            pass
    finally:
        holder.kill()
        holder.wait()
    for _ in range(2):
        with locked(folder):
            pass
