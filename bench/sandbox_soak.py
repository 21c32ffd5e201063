"""A long mixed load with processes killed under it: no verdict may be wrong or missing, nothing may grow or stay.

  python -m bench.sandbox_soak [--gradings 20000] [--kills 200] [--slots 2] [--isolation auto]
  python -m bench.sandbox_soak --long --kills 0      # arguments of 40 KB for each program, and a ground truth for them

Half of the programs are right, a fifth wrong, the rest from the hostile suite of bench/hostile; with --long none is
hostile. While they are graded, zygotes and children are killed at random; after that, trainers with gradings under way
are killed, too. One grader remembers what its limits allow, 16 MiB.
"""

import argparse
import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.hostile.attack import all_programs
from bench.sandbox import descendants
from codea1.game.calls import Call, CallTest
from codea1.sandbox.host import Limits
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.values import encode_exact

LIMITS = Limits(
    cpu_seconds_per_test=0.25,
    cpu_seconds_per_suite=0.5,
    memory_bytes=256 << 20,
    output_bytes=1 << 20,
    memo_bytes=16 << 20,
)
IN_FLIGHT = 64  # and twice the slots
TESTS = [CallTest(Call("f", encode_exact(((3,), {}))), encode_exact(4))]
LONG = 10_000  # characters of an argument
GROUND_TRUTH = "def f(x, text=''): return x + 1"
TRAINERS = 5
TRAINER = """
import time
from bench.sandbox_soak import LIMITS, TESTS
from codea1.sandbox.frames import Reply
from codea1.sandbox.host.pool import SandboxPool
pool = SandboxPool(2, LIMITS, "auto")
for i in range(40):
    pool.run_calls(f"import time\\ndef f(x):\\n  while True: time.sleep(0)\\n# {i}", [TESTS[0].call], reply=Reply.EXACT)
print(*[zygote._process.pid for zygote in pool._dispatcher._zygotes.values()], flush=True)
time.sleep(60)
"""


def programs(count: int, random_: random.Random, *, honest: bool) -> Iterator[tuple[str, str, set[str]]]:
    """(name, source, right verdicts). Hostile programs are those that need nothing around them, and no long sleep."""
    hostile = [
        (name, source, right)
        for name, source, right in all_programs()
        if "@" not in source and "benign" not in name and "scratch" not in name and right != {"timeout"}
    ]
    for number in range(count):
        kind = random_.random() * (0.7 if honest else 1.0)
        if kind < 0.5:
            yield "right", f"{GROUND_TRUTH}\n# {number}", {"pass"}
        elif kind < 0.7:
            yield "wrong", f"def f(x, text=''): return x\n# {number}", {"fail"}
        else:
            name, source, right = random_.choice(hostile)
            yield name, f"{source}\n# {number}", right


def tests(number: int) -> list[CallTest]:
    """Four tests with long arguments that no other number has."""
    calls = [Call("f", encode_exact(((3, f"{number}.{i}" + "x" * LONG), {}))) for i in range(4)]
    return [CallTest(call, encode_exact(4)) for call in calls]


class Killer(threading.Thread):
    """Kills a zygote or a child now and then, `kills` times."""

    def __init__(self, pool: SandboxPool, kills: int, every: float, random_: random.Random) -> None:
        super().__init__(daemon=True)
        self.pool, self.left, self.every, self.random = pool, kills, every, random_
        self.killed: collections.Counter[str] = collections.Counter()

    def run(self) -> None:
        while self.left > 0:
            time.sleep(self.random.expovariate(1 / self.every))
            dispatcher = self.pool._dispatcher
            children = [child.pid for child in list(dispatcher._owners) if child.pid]
            zygotes = [zygote._process.pid for zygote in list(dispatcher._zygotes.values())]
            kind, pids = self.random.choice([("children", children), ("zygotes", zygotes)])
            if pids:
                try:
                    os.kill(self.random.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed[kind] += 1
                self.left -= 1


def soak(pool: SandboxPool, count: int, random_: random.Random, *, long: bool) -> tuple[collections.Counter, list[str]]:
    """(verdicts of programs, what was wrong)"""
    grader = Grader(pool)
    verdicts: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    waiting: collections.deque = collections.deque()

    def take() -> None:
        name, right, future = waiting.popleft()
        (verdict,) = set(future.result().verdicts)
        verdicts[verdict.value] += 1
        if verdict not in right and verdict != "infra":
            wrong.append(f"{name}: {verdict} {future.result().details}")

    for done, (name, source, right) in enumerate(programs(count, random_, honest=long)):
        asked = tests(done) if long else TESTS
        if long:
            grader.ground_truth(GROUND_TRUTH, [test.call for test in asked]).result()
        waiting.append((name, right, grader.grade(source, asked, ground_truth=GROUND_TRUTH)))
        if len(waiting) >= max(IN_FLIGHT, 2 * pool.slots):
            take()
        if done % max(1, count // 10) == 0:
            print(f"  {done:6} {sizes(pool)}", flush=True)
    while waiting:
        take()
    return verdicts, wrong


def sizes(pool: SandboxPool) -> str:
    """Memory and descriptors of this process, and of the zygote that has most."""
    pids = [str(zygote._process.pid) for zygote in list(pool._dispatcher._zygotes.values())]
    most = [0, 0]
    with contextlib.suppress(OSError):  # one was killed just now
        if pool.isolation.namespaces:  # these wait for a zygote each
            children = [Path(f"/proc/{pid}/task/{pid}/children").read_text() for pid in pids]
            pids = " ".join(children).split()
        most = [max(map(measure, pids), default=0) for measure in (memory_kib, descriptors)]
    own = f"{memory_kib('self')} KiB, {descriptors('self')} descriptors"
    return f"{own}; zygotes up to {most[0]} KiB, {most[1]} descriptors"


def descriptors(pid: str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_kib(pid: str) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not dead: orphans wait for the machine's init to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill_trainers() -> int:
    """Kills programs that have gradings under way; returns how many processes outlived them by two seconds."""
    left = 0
    for _ in range(TRAINERS):
        trainer = subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, text=True)
        everyone = descendants(set(map(int, trainer.stdout.readline().split())))
        time.sleep(random.random())
        trainer.kill()
        trainer.wait()
        time.sleep(2)
        left += sum(map(is_alive, everyone))
    return left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradings", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--every", type=float, default=0.3, help="seconds between kills, about")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--long", action="store_true")
    arguments = parser.parse_args()
    start = time.monotonic()
    all_wrong: list[str] = []
    with SandboxPool(arguments.slots, LIMITS, arguments.isolation) as pool:
        print(pool.isolation_note)
        for kills in sorted({0, arguments.kills}):
            print(f"{arguments.gradings} gradings, {kills} kills:")
            killer = Killer(pool, kills, arguments.every, random.Random(arguments.seed))
            killer.start()
            verdicts, wrong = soak(pool, arguments.gradings, random.Random(arguments.seed), long=arguments.long)
            killer.left = 0
            print(f"  killed {dict(killer.killed)}; verdicts {dict(verdicts)}; wrong: {wrong or 'none'}")
            all_wrong += wrong
        print(f"counters {pool.counters()}")
        processes = descendants({zygote._process.pid for zygote in pool._dispatcher._zygotes.values()})
    left = sum(map(is_alive, processes))
    print(f"{left} processes left; {time.monotonic() - start:.0f} s")
    outlived = kill_trainers()
    print(f"{TRAINERS} trainers killed; {outlived} processes outlived them")
    return 1 if all_wrong or left or outlived else 0


if __name__ == "__main__":
    sys.exit(main())
