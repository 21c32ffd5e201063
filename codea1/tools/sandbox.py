"""The sandbox from the command line.

python -m codea1.sandbox                    what isolation this machine has, whether it works, how fast it is
python -m codea1.sandbox grade CASES.jsonl  one JSON verdict a line for the grading cases of a file
"""

import argparse
import sys

from codea1.runtime.errors import with_exit_code
from codea1.sandbox.doctor import examine
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation.levels import AUTO, Isolation
from codea1.tools.cases import grade_cases, read_cases


@with_exit_code
def main() -> int:
    """Runs the command line; returns the exit code: 1 where nothing can be run."""
    parser = argparse.ArgumentParser(
        prog="python -m codea1.sandbox", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    grade = commands.add_parser("grade", help="grade each case: does the candidate pass the test?")
    grade.add_argument("cases", help="a JSONL file with name, entry_point, ground_truth, candidate and test")
    arguments = parser.parse_args()
    if arguments.command is None:
        return 0 if examine() else 1
    _grade(arguments.cases)
    return 0


def _grade(path: str) -> None:
    cases = read_cases(path)
    with SandboxPool(isolation=AUTO) as pool:
        if pool.isolation is not Isolation.FULL:
            print(pool.isolation_note, file=sys.stderr)
        for verdict in grade_cases(cases, Grader(pool)):
            print(verdict.json, flush=True)


if __name__ == "__main__":
    sys.exit(main())
