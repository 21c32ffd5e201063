"""The sandbox from the command line.

  python -m codea1.sandbox                    what isolation this machine has, whether it works, how fast it is
  python -m codea1.sandbox grade CASES.jsonl  one JSON verdict a line: does the candidate pass the test?

A line of CASES.jsonl has name, entry_point, ground_truth, candidate and test. The exit code is 1 where nothing can be
run or the self-test disagrees.
"""

import json
import sys
from dataclasses import asdict

from codea1.lab.sandbox.cases import grade_cases, read_cases
from codea1.lab.sandbox.doctor import examine
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO, Isolation


def main(*words: str) -> None:
    if not words:
        sys.exit(0 if examine() else 1)
    if words[0] != "grade" or len(words) != 2:
        raise BadInput(f"{' '.join(words)!r} is unknown here; known is grade CASES.jsonl.")
    cases = read_cases(words[1])
    with SandboxPool(isolation=AUTO) as pool:
        if pool.isolation is not Isolation.FULL:
            print(pool.isolation_note, file=sys.stderr)
        for verdict in grade_cases(cases, Grader(pool)):
            print(json.dumps(asdict(verdict)), flush=True)


if __name__ == "__main__":
    command.run(main, many=True)
