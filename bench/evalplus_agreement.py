"""Mutated ground truths of HumanEval+ and MBPP+ judged by ours and by the `evalplus` package, and how fast each is.

  python -m bench.evalplus_agreement --file=MbppPlus.jsonl --benchmark=mbppplus --evalplus=PYTHON --programs=2000
  python -m bench.evalplus_agreement --file=HumanEvalPlus.jsonl --benchmark=humanevalplus --completions=FILE.jsonl ...

PYTHON is an interpreter that has evalplus 0.3.1. Both judge the same programs on the same inputs; both compute what is
expected from the same ground truths; both allow an input 4 s or four times what the ground truth took. Prints every
program on which the verdicts differ; then hands those that take under 3 s to one and to the other again, in rounds.
With `--completions`, lines of `task_id` and `solution`, those programs take the place of the mutants, and what none is
given for is left out.
"""

import argparse
import json
import pickle
import random
import resource
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path

from codea1.data.rows import file_rows
from codea1.lab.benchmarks.evalplus import DATASETS, EvalPlus, Problem, load_problems
from codea1.lab.mutants import drawn_mutants
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.isolation import AUTO
from codea1.values.verdict import Verdict

QUICK_SECONDS = 3.0

Job = tuple[int, str]  # number of a problem, and a program


def mutants(problems: Sequence[Problem], count: int, seed: int) -> list[Job]:
    """Different mutants, as equally many of each problem as it has, in random order."""
    drawn = [drawn_mutants(each.question.ground_truth, count, f"{seed}/{each.question.id}") for each in problems]
    dealt = zip_longest(*([(number, program) for program in own] for number, own in enumerate(drawn)))
    jobs = list(islice(filter(None, chain.from_iterable(dealt)), count))
    random.Random(seed).shuffle(jobs)
    return jobs


class Ours:
    """Our judge of both benchmarks."""

    def __init__(self, problems: Sequence[tuple[str, Problem]], pool: BenchmarkPool) -> None:
        self.problems = [problem for _, problem in problems]
        self.names = [name for name, _ in problems]
        self.benchmarks = {
            name: EvalPlus(name, [problem for each, problem in problems if each == name], pool) for name in DATASETS
        }

    def judge(self, jobs: Sequence[Job]) -> list[ScriptRun]:
        futures = [
            self.benchmarks[self.names[number]].judge(self.problems[number].question, program)
            for number, program in jobs
        ]
        return [future.result() for future in futures]


def cpu_seconds(runs: Sequence[ScriptRun], began: float) -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime - began + sum(run.cpu_seconds for run in runs)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--file", required=True)
    arguments.add_argument("--evalplus", required=True, metavar="PYTHON")
    arguments.add_argument("--benchmark", choices=DATASETS, required=True, help="whose file it is")
    arguments.add_argument("--completions")
    arguments.add_argument("--programs", type=int, default=2000)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--problems", type=int, default=0, help="only so many, spread over the file; 0: all")
    options = arguments.parse_args()
    named = [(options.benchmark, problem) for problem in load_problems(options.benchmark, options.file)]
    named = named[:: max(len(named) // options.problems, 1)] if options.problems else named
    given = [row for _, row in file_rows(options.completions)] if options.completions else []
    if given:
        named = [(name, problem) for name, problem in named if problem.question.id in {row["task_id"] for row in given}]
    problems = [problem for _, problem in named]
    numbers = {problem.question.id: number for number, problem in enumerate(problems)}
    jobs = list(dict.fromkeys((numbers[row["task_id"]], row["solution"]) for row in given))
    jobs = jobs or mutants(problems, options.programs, options.seed)
    print(f"{len(jobs)} different {'programs' if given else 'mutants'} of {len(problems)} problems")
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file, BenchmarkPool(isolation=AUTO) as pool:
        asked = [
            (DATASETS[name], each.question.ground_truth, each.question.entry_point, [*each.base, *each.plus], each.atol)
            for name, each in named
        ]
        file.write(pickle.dumps(asked))
        file.flush()
        peer = subprocess.Popen(
            [options.evalplus, str(Path(__file__).parent / "evalplus_peer.py"), file.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert peer.stdout.readline() == "ready\n"
        ours = Ours(named, pool)
        truths = [(number, problem.question.ground_truth) for number, problem in enumerate(problems)]
        compare(problems, truths, *both(ours, peer, truths, "ground truths"), "ground truths")
        runs, verdicts = both(ours, peer, jobs, "all")
        compare(problems, jobs, runs, verdicts, "all")
        # What takes long takes both as long as it takes, or the limit says: it tells nothing of them.
        quick = [job for job, run in zip(jobs, runs, strict=True) if run.cpu_seconds < QUICK_SECONDS]
        for number in range(1, options.rounds + 1):
            both(ours, peer, quick[number - 1 :: options.rounds], f"round {number}, none over {QUICK_SECONDS:g} s")
        peer.stdin.close()
        peer.wait()


def both(ours: Ours, peer: subprocess.Popen, jobs: Sequence[Job], what: str) -> tuple[list[ScriptRun], list]:
    """Both judgements of the programs; prints what each took."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    wall, cpu = time.perf_counter(), usage.ru_utime + usage.ru_stime
    runs = ours.judge(jobs)
    wall, cpu = time.perf_counter() - wall, cpu_seconds(runs, cpu)
    print(json.dumps(jobs), file=peer.stdin, flush=True)
    answer = json.loads(peer.stdout.readline())
    print(
        f"{what}: {len(jobs)} programs, a second: ours {len(jobs) / wall:.1f}, "
        f"evalplus {len(jobs) / answer['seconds']:.1f}, ratio {answer['seconds'] / wall:.2f}; "
        f"CPU-ms each: {1000 * cpu / len(jobs):.1f}, {1000 * answer['cpu_seconds'] / len(jobs):.1f}"
    )
    return runs, answer["verdicts"]


def compare(
    problems: Sequence[Problem],
    jobs: Sequence[Job],
    runs: Sequence[ScriptRun],
    verdicts: Sequence,
    what: str,
) -> None:
    """Prints how often the verdicts are the same, and every program on which they are not."""
    print(f"{what}, by verdict: {dict(Counter(run.verdict.value for run in runs))}")
    differing = 0
    for (number, program), run, (status, judged) in zip(jobs, runs, verdicts, strict=True):
        if (run.verdict is Verdict.PASS) != (status == "pass"):
            differing += 1
            inputs = [*problems[number].base, *problems[number].plus]
            print(f"--- {problems[number].question.id}: ours {run.verdict.value}: {run.detail}")
            print(f"    evalplus {status} after {judged} of {len(inputs)} inputs")
            print(program)
    print(f"{what}: {len(jobs) - differing} of {len(jobs)} verdicts agree")


if __name__ == "__main__":
    main()
