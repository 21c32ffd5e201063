"""Verdicts that somebody recorded of a model's programs, beside ours, and beside plain Python where the two differ.

  python -m bench.recorded_verdicts FILE.jsonl...

The files are FloridSleeves/LLMDebugger's input_data/*/seed/*/seed.jsonl: solution, test, entry_point, is_solved. Each
program runs against its row's own check script in the sandbox. Where the verdict is not the recorded one, program and
script also run as one file under plain Python.
"""

import subprocess
import sys
import tempfile
from collections import Counter

from codea1.data.rows import file_rows
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.values.verdict import Verdict

SECONDS = 20.0  # of plain Python


def plain(program: str, script: str, entry_point: str) -> str:
    """Returns "pass" or the last line that plain Python prints."""
    with tempfile.TemporaryDirectory() as folder:
        source = f"{program}\n{script}\ncheck({entry_point})\n"
        try:
            done = subprocess.run(
                [sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return "timeout"
    return "pass" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]


def main(*files: str) -> None:
    with SandboxPool(isolation=AUTO) as pool:
        grader = Grader(pool)
        for file in files:
            rows = [row for _, row in file_rows(file)]
            running = [grader.check(row["solution"], row["test"], row["entry_point"]) for row in rows]
            counts: Counter[str] = Counter()
            for row, future in zip(rows, running, strict=True):
                run = future.result()
                passes = run.verdict is Verdict.PASS
                counts[f"recorded {row['is_solved']}, here {passes}"] += 1
                if passes != row["is_solved"]:
                    python = plain(row["solution"], row["test"], row["entry_point"])
                    print(f"{row['task_id']}: recorded {row['is_solved']}, here {run.verdict.value} {run.detail!r}")
                    print(f"  plain Python: {python}")
            print(f"{file}: {dict(counts)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
