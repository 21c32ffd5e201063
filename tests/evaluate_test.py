"""The command line of codea1.evaluate: what does not belong together is refused, and nothing is made of it."""

import json
import subprocess
import sys

from tests.conftest import ROOT

# All in one process: to import the program takes longer than what it says.
SCRIPT = """
import json, sys
sys.modules["jax"] = None  # mistakes are reported without it
from absl import flags
from absl.testing import flagsaver
from codea1 import evaluate
from codea1.runtime.errors import BadInput
for arguments in json.loads(sys.argv[1]):
    with flagsaver.flagsaver():
        flags.FLAGS(["evaluate", *arguments])
        try:
            evaluate.main()
        except BadInput as error:
            print(error)
"""
RUN, COMPLETIONS = "--run=no/run", "--completions=c.jsonl"
CODE, ULT, OUTPUT = "--benchmark=mbppplus", "--benchmark=ult", "--output=out"
REFUSED = {
    ("--samples=3",): "give one of --run, --model and --completions.",
    (RUN, COMPLETIONS): "give one of --run, --model and --completions.",
    (COMPLETIONS, OUTPUT): "--benchmark is missing: it names what is asked.",
    (RUN, "--samples=32"): "--samples: only with a --benchmark.",
    (RUN, OUTPUT, "--best_of", "--temperature=0", "--file=f.jsonl"): (
        "--file, --output, --temperature, --best_of: only with a --benchmark."
    ),
    (RUN, CODE, "--split=test"): "--split: only without a --benchmark.",
    (COMPLETIONS, OUTPUT, CODE, "--step=best"): "--step: only with a --run.",
    (COMPLETIONS, CODE): "--output is missing: it names the folder for the results.",
    (COMPLETIONS, OUTPUT, CODE, "--best_of"): "--best_of needs a Test LLM: give --test_model.",
    (COMPLETIONS, OUTPUT, CODE, "--test_model=m"): "--test_model: only with --best_of.",
    (COMPLETIONS, OUTPUT, CODE, "--norounds"): "--rounds: only with a benchmark of the Test LLM.",
    (COMPLETIONS, OUTPUT, CODE, "--num_tests=4"): "--num_tests: only with --best_of or --suites.",
    (RUN, ULT, "--num_tests=4"): "--num_tests: only with --rounds=false.",
    (COMPLETIONS, OUTPUT, CODE, "--samples=1", "--temperature=0", "--top_p=1"): (
        "--samples, --temperature, --top_p: only without --completions."
    ),
    (COMPLETIONS, OUTPUT, ULT, "--norounds", "--seed=1", "--slots=2"): (
        "--seed, --slots, --rounds: only where a model is asked."
    ),
    (RUN, ULT, "--best_of", "--samples=1", "--semantics=scripts"): (
        "--semantics, --samples, --best_of: only with a benchmark of the Code LLM."
    ),
    (COMPLETIONS, OUTPUT, ULT): "--file is missing: it names the data of ult. Get datasets/ULT.jsonl of "
    "github.com/huangd1999/UnLeakedTestBench.",
    (COMPLETIONS, OUTPUT, CODE): "--file is missing: it names the data of mbppplus. Get MbppPlus.jsonl.gz from "
    "https://github.com/evalplus/mbppplus_release/releases/tag/v0.2.0.",
}


def test_flags_that_would_say_nothing_are_refused(tmp_path):
    arguments = json.dumps([*REFUSED])
    done = subprocess.run([sys.executable, "-c", SCRIPT, arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == [*REFUSED.values()], done.stderr
