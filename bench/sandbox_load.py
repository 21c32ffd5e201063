"""Programs near their limits, alone and on a machine with many times as much to do as it has cores: who flips?

  python -m bench.sandbox_load [--gradings 500] [--load 8] [--slots 64] [--isolation auto]

A third of the programs use four fifths of their CPU limit, a third sleep four fifths of their time limit, a third use
one and a half times their CPU limit. The load are processes that never wait, each in a session of its own. Last, what
endless loops in all slots leave of a core to one thread of this process.
"""

import argparse
import collections
import hashlib
import os
import subprocess
import sys
import time

from bench.sandbox_soak import TESTS
from codea1.sandbox.host import Limits
from codea1.sandbox.host.conversation import wall_limit
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool

LIMITS = Limits(cpu_seconds_per_test=0.1, cpu_seconds_per_suite=0.5, memory_bytes=256 << 20)
BURNS = "import time\ndef f(x):\n  while time.process_time() < {}: pass\n  return x + 1\n# {}"
SLEEPS = "import time\ndef f(x):\n  time.sleep({})\n  return x + 1\n# {}"
KINDS = (  # programs, and their right verdict
    (BURNS, 0.8 * LIMITS.cpu_seconds_per_test, "pass"),
    (SLEEPS, 0.8 * wall_limit(LIMITS.cpu_seconds_per_test), "pass"),
    (BURNS, 1.5 * LIMITS.cpu_seconds_per_test, "timeout"),
)
LOOPS = "def f(x):\n  while True: pass\n# {}"
SPINS = [sys.executable, "-c", "while True: pass"]


def speed(seconds: float) -> float:
    """Returns hashes a second of this thread."""
    begin, count = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 500)
        count += 1
    return count / seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradings", type=int, default=500)
    parser.add_argument("--load", type=int, default=8, help="processes that spin, for each core")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--isolation", default="auto")
    arguments = parser.parse_args()
    flips: collections.Counter[str] = collections.Counter()
    with SandboxPool(arguments.slots, LIMITS, arguments.isolation) as pool:
        grader = Grader(pool)
        count = arguments.load * len(os.sched_getaffinity(0))
        load = [subprocess.Popen(SPINS, start_new_session=True) for _ in range(count)]
        begin = time.monotonic()
        try:
            asked = [(KINDS[i % 3], i) for i in range(arguments.gradings)]
            graded = [(grader.grade(text.format(much, i), TESTS), right) for (text, much, right), i in asked]
            for future, right in graded:
                (verdict,) = future.result().verdicts
                flips[f"{verdict}, not {right}"] += verdict != right
        finally:
            for process in load:
                process.kill()
                process.wait()
        counters = {name: pool.counters()[name] for name in ("timeouts", "starved", "infra")}
        print(f"{pool.isolation}, {arguments.slots} slots, {count} processes beside: {time.monotonic() - begin:.0f} s")
    limits = Limits(cpu_seconds_per_test=30, cpu_seconds_per_suite=30)
    with SandboxPool(arguments.slots, limits, arguments.isolation) as pool:
        alone, grader = speed(2), Grader(pool)
        for i in range(arguments.slots):
            grader.grade(LOOPS.format(i), TESTS)
        time.sleep(1)
        print(f"beside endless loops in all slots a thread of the trainer keeps {speed(4) / alone:.2f} of its speed")
    print(f"{flips.total()} of {arguments.gradings} verdicts flipped {dict(+flips)}; {counters}")
    return 1 if flips.total() else 0


if __name__ == "__main__":
    sys.exit(main())
