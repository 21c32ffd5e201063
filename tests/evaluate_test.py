"""The flags of codea1.benchmark: one that is missing or idle is told, and nothing is made."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

# All of a command in one process: to import it takes longer than what it says.
SCRIPT = """
import importlib, json, sys
sys.modules["jax"] = None  # mistakes are reported without it
from absl import flags
from absl.testing import flagsaver
from codea1.runtime.errors import BadInput
main = importlib.import_module(f"codea1.{sys.argv[1]}").main
for arguments in json.loads(sys.argv[2]):
    with flagsaver.flagsaver():
        flags.FLAGS(["command", *arguments])
        try:
            main()
        except BadInput as error:
            print(error)
"""
RUN, MODEL, COMPLETIONS = "--run=no/run", "--model=no/model", "--completions=c.jsonl"
CODE, ULT, FILE, OUTPUT = "--benchmark=mbppplus", "--benchmark=ult", "--file=f.jsonl", "--output=out"
WHO = "give one of --run, --model and --completions."
LIVE, MODEL_ASKED = "--benchmark=livecodebench", (MODEL, OUTPUT, CODE, FILE)
NO_OUTPUT = "--output is missing: it names the folder for the results."
NO_FILE = "--file is missing: it names the data of mbppplus. Get MbppPlus.jsonl.gz from "
NO_FILE += "https://github.com/evalplus/mbppplus_release/releases/tag/v0.2.0."
REFUSED = {
    "benchmark": {
        ("--samples=3",): WHO,
        (RUN, MODEL): WHO,
        (MODEL, COMPLETIONS): WHO,
        (MODEL, OUTPUT): "--benchmark is missing: it names what is asked.",
        (MODEL, CODE): NO_OUTPUT,
        (COMPLETIONS, CODE): NO_OUTPUT,
        (RUN, CODE): NO_FILE,
        (RUN, ULT): "--file is missing: it names the data of ult. Get datasets/ULT.jsonl of "
        "github.com/huangd1999/UnLeakedTestBench.",
        (*MODEL_ASKED, "--step=best"): "--step: only with --run.",
        (*MODEL_ASKED, "--part"): "--part: only with --completions.",
        (COMPLETIONS, CODE, FILE, OUTPUT, "--samples=4", "--seed=1"): "--samples, --seed: only with --run or --model.",
        (RUN, ULT, FILE, "--best_of=own"): "--best_of: only with benchmarks of programs.",
        (*MODEL_ASKED, "--num_tests=4"): "--num_tests: only with --best_of, ult and testeval.",
        (*MODEL_ASKED, "--best_of=own"): "--best_of=own is the Test LLM of a run: give the folder of one.",
        (RUN, "--benchmark=bigcodebench_complete", FILE, "--semantics=scripts"): (
            "--semantics: only with humanevalplus and mbppplus."
        ),
        (RUN, CODE, FILE, "--until=2025-01-31"): "--until: only with livecodebench.",
        (RUN, LIVE, FILE, "--from=2025-31-01"): "--from=2025-31-01 is no day such as 2025-01-31.",
        (RUN, LIVE, FILE, "--from=20250201", "--until=2025-01-31"): "--until=2025-01-31 is before --from=2025-02-01.",
    },
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_missing_or_decides_nothing_is_said(command):
    arguments = [sys.executable, "-c", SCRIPT, command, json.dumps([*REFUSED[command]])]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == [*REFUSED[command].values()], done.stderr
