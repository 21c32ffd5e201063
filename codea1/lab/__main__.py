"""What researchers do around training: `codea1 lab study ...` is `python -m codea1.lab study ...`.

codea1 lab study studies/paper.toml --workdir=runs/tables
codea1 lab convert kodcode train-*.parquet --output=data/kodcode_hard.parquet
"""

from codea1.runtime.command import dispatch

COMMANDS = {
    "book": "the Mistake Book",
    "convert": "other datasets in the official form; mutants",
    "dump_tests": "suites of a Test LLM as fixed tests",
    "siege": "the forgery score of any grader",
    "study": "a declared study; the paper's tables",
    "worlds": "the questions of a world, for training to read",
}

if __name__ == "__main__":
    dispatch("codea1 lab", "codea1.lab.commands", __doc__, COMMANDS)
