"""TRL: the verifier of `examples/scripts/openenv/opencode.py`, with the sandbox of the same file."""

import json
import os
import shutil
import subprocess
import tempfile
import types
from pathlib import Path

import peers

names = ("_RUNNER_SRC", "PER_TEST_TIMEOUT", "N_TESTS_EVAL", "_run_dense_tests", "LocalSandboxHandle")
own = {"json": json, "os": os, "shutil": shutil, "subprocess": subprocess, "Path": Path}
absent = {"SandboxHandle": None, "LocalBgJob": object, "ExecResult": types.SimpleNamespace}
theirs = peers.definitions("trl/examples/scripts/openenv/opencode.py", *names, **own, **absent)


def paid(question: dict, program: str) -> bool | None:
    if question["kind"] != "stdin":
        return None
    sandbox = theirs.LocalSandboxHandle(tempfile.mkdtemp(), cleanup=True)
    sandbox.write_text("/home/user/workdir/solution.py", program)
    tests = [{"input": test["stdin"], "output": test["stdout"]} for test in question["tests"]]
    score = theirs._run_dense_tests(sandbox, tests)
    sandbox.kill()
    return score == 1.0
