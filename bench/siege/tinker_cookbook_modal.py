"""tinker-cookbook: what `recipes/code_rl/code_grading.py` runs on Modal, here in a plain process."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import peers

source = "tinker-cookbook/tinker_cookbook/recipes/code_rl/lcb_utils.py"
theirs = peers.definitions(source, "TEST_UTIL", "TEST_CODE")


def paid(question: dict, program: str) -> bool:
    tests = json.dumps({"input_output": json.dumps(peers.live_code_bench(question))})
    files = {"test_cases.txt": tests, "code.py": program, "testing_util.py": theirs.TEST_UTIL}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**files, "run.py": theirs.TEST_CODE % {"timeout": 6}}.items():
            Path(folder, name).write_text(text)
        return not subprocess.run([sys.executable, "run.py"], cwd=folder, capture_output=True).returncode
