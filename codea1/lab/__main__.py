"""What researchers do around training: `codea1 lab league ...` is `python -m codea1.lab league ...`.

codea1 lab study studies/adversary.toml --workdir=runs/study
codea1 lab league runs/a1_1 runs/golden_1 --output=runs/league
"""

from codea1.runtime.command import dispatch

COMMANDS = {
    "book": "the Mistake Book",
    "convert": "other datasets in the official form; mutants",
    "dump_tests": "suites of a Test LLM as fixed tests",
    "exploit": "what one player can still gain",
    "league": "players of several runs against each other",
    "minimal": "the whole game in one file",
    "replay": "a step's update again",
    "siege": "the forgery score of any grader",
    "study": "a declared study; the paper's tables",
    "sweep": "config values against each other",
    "worlds": "the questions of a world, for training to read",
}

if __name__ == "__main__":
    dispatch("codea1 lab", "codea1.lab.commands", __doc__, COMMANDS)
