"""Judges by a benchmark: `codea1 benchmark code ...` is `python -m codea1.benchmark code ...`.

codea1 benchmark code --run=RUN --step=best --benchmark=humanevalplus --file=HumanEvalPlus.jsonl
codea1 benchmark tests --model=FOLDER --benchmark=ult --file=ULT.jsonl --output=OUT
codea1 benchmark given --completions=FILE.jsonl --benchmark=mbppplus --file=MbppPlus.jsonl --output=OUT
"""

from codea1.runtime.command import dispatch

COMMANDS = {
    "code": "a Code LLM, by the programs that it writes",
    "tests": "a Test LLM, by the suites that it writes",
    "given": "programs and suites of files",
}

if __name__ == "__main__":
    dispatch("codea1 benchmark", "codea1.lab.commands.benchmark", __doc__, COMMANDS)
