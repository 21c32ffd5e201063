"""Programs of our own judged by our LiveCodeBench and by its package, and why they differ where they do.

  python -m bench.livecodebench_agreement --package=CHECKOUT

CHECKOUT is a clone of github.com/LiveCodeBench/LiveCodeBench, bare or not, of which `testing_util.py` is taken, and
what makes the prompt of chat models. Each program runs there in a process of its own, as the package has it. Ends with
1 where the prompts differ, a difference is not one of those that are explained here, or one of these is none.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from codea1.game.prompts import DEFAULT
from codea1.lab.benchmarks.livecodebench import LiveCodeBench, load_tasks
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.sandbox.isolation import AUTO
from codea1.values.verdict import Verdict

CHECKER, PROMPTS = "lcb_runner/evaluation/testing_util.py", "lcb_runner/prompts/code_generation.py"
THEIR_SYSTEM, THEIR_PROMPT = "PromptConstants", "get_generic_question_template_answer"

PEER = """
import json, multiprocessing, os, sys
from testing_util import run_test

sys.set_int_max_str_digits(50000)  # as the module does that calls it

def child(sample, program, pipe):
    for descriptor in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    pipe.send(run_test(sample, test=program, timeout=6))

for line in sys.stdin:
    sample, program, count = json.loads(line)
    ours, theirs = multiprocessing.Pipe(False)
    process = multiprocessing.get_context("fork").Process(target=child, args=(sample, program, theirs))
    process.start()
    theirs.close()
    process.join(7 * count + 5)
    results, words = [-1], {"error_message": "no answer"}
    try:
        if ours.poll():
            results, words = ours.recv()
    except EOFError:
        pass
    process.kill()
    passed = all((result.item(0) if hasattr(result, 'item') else result) > 0 for result in results)
    print(json.dumps([passed, words.get("error") or words.get("error_message", "")]), flush=True)
"""

Tests = list[tuple[str, str]]  # input and output as the rows have them

# By id: the function's name, empty for whole programs, and the tests.
QUESTIONS: dict[str, tuple[str, Tests]] = {
    "total": ("", [("3\n1 2 3\n", "6\n"), ("1\n-5\n", "-5\n"), ("4\n1 1 1 1\n", "4")]),
    "mean": ("", [("1 2\n", "1.5\n"), ("2 2 2\n", "2\n"), ("0.1 0.2\n", "0.15\n")]),
    "stairs": ("", [("3\n", "#\n##\n###\n"), ("1\n", "#\n")]),
    "words": ("", [("b a\nd c\n", "a b\nc d\n"), ("z\n", "z\n")]),
    "depth": ("", [("10\n", "10\n"), ("20000\n", "20000\n")]),
    "large": ("", [(" ".join(map(str, range(50_000))) + "\n", f"{sum(range(50_000))}\n"), ("1 2\n", "3\n")]),
    "silent": ("", [("0\n", "\n"), ("2\n", "x\nx\n")]),
    "pair": ("pair", [("[2, 7, 11]\n9", "[0, 1]"), ("[3, 3]\n6", "[0, 1]")]),
    "rows": ("rows", [("3", "[[1], [1, 2], [1, 2, 3]]"), ("1", "[[1]]")]),
    "half": ("half", [("3", "1.5"), ("4", "2"), ("0", "0.0")]),
    "even": ("even", [("4", "true"), ("3", "false")]),
    "seen": ("seen", [("[1, 2, 1]", "2"), ("[5]", "1"), ("[]", "0")]),
}


class Job(NamedTuple):
    """A program for a question; `why` the two judge it differently, empty where they should not."""

    question: str
    program: str
    why: str = ""


# What the package does otherwise.
OTHER_STDIN = "it reads the descriptor itself, where the package has nothing to read"
NO_FILE = "the package's sys.stdin is no file that one can iterate over"
AGAIN = "in the package sys.stdin.buffer gives the first line, and read() the whole input, each time"
EXIT_CODE = "an exit code counts here, as it does for contests' judges; the package does not look at it"
NO_QUIT = "the package takes `quit` away"
BODY = "the package makes the program the body of a function, whose names are no globals"
UNSEEN = "the package sees what goes through sys.stdout as text, and nothing else"
FUTURE = "the package puts its imports before the program's"
GUARD = "the package opens a main guard only where it is the last statement"
SHARED = "here the inputs have one process, and what a program does to builtins stays"
EQUAL = "the package asks the program's own object whether it is equal to the answer"

METHOD = "class Solution:\n    def {}(self, {}):\n        "

JOBS = [
    # Whole programs, in the ways people read and print.
    Job("total", "n = int(input())\nprint(sum(map(int, input().split())))"),
    Job("total", "import sys\nprint(sum(map(int, sys.stdin.read().split()[1:])))"),
    Job("total", "import sys\ninput = sys.stdin.readline\ninput()\nprint(sum(map(int, input().split())))"),
    Job("total", "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split()[1:])))"),
    Job("total", "import sys\nprint(sum(map(int, sys.stdin.readlines()[1].split())))"),
    Job("total", "import sys\nrest = [*sys.stdin]\nprint(sum(map(int, rest[1].split())))", NO_FILE),
    Job("total", "print(sum(map(int, open(0).read().split()[1:])))", OTHER_STDIN),
    Job("total", "with open(0) as f:\n    f.readline()\n    print(sum(map(int, f.readline().split())))", OTHER_STDIN),
    Job("total", "import os\nprint(sum(map(int, os.read(0, 999).split()[1:])))", OTHER_STDIN),
    Job("total", "from sys import stdin\nstdin.readline()\nprint(sum(map(int, stdin.readline().split())))"),
    Job("total", "stdin.readline()\nprint(sum(map(int, stdin.readline().split())))"),
    Job("total", "import sys\nr = sys.stdin.buffer.readline\nr()\nprint(sum(map(int, r().split())))", AGAIN),
    Job("total", "import sys\nsys.stdin.read()\nprint(sum(map(int, sys.stdin.read().split()[1:])))", AGAIN),
    Job("total", "input()\nt = 0\nfor x in input().split():\n    t += int(x)\nprint(t, end='   \\n\\n\\n')"),
    Job("total", "input()\nprint('   ', sum(map(int, input().split())))"),
    Job("total", "input()\nprint(float(sum(map(int, input().split()))))"),
    Job("total", "input()\nprint(sum(map(int, input().split())), 'in all')"),
    Job("total", "input()\nprint(sum(map(int, input().split())) + 1)"),
    Job("total", "print(6)"),
    Job("total", "input()\nprint(sum(map(int, input().split())) * (len(str(10**9000)) > 9000))"),
    Job("total", "input()\nprint(sum(map(int, input().split())))\nraise ValueError('at the end')"),
    Job("total", "import sys\ninput()\nprint(sum(map(int, input().split())))\nsys.exit()"),
    Job("total", "input()\nprint(sum(map(int, input().split())))\nexit(0)"),
    Job("total", "import sys\ninput()\nprint(sum(map(int, input().split())))\nsys.exit(1)", EXIT_CODE),
    Job("total", "input()\nprint(sum(map(int, input().split())))\nquit()", NO_QUIT),
    Job("total", "import os\ninput()\nos.write(1, b'%d' % sum(map(int, input().split())))", UNSEEN),
    Job("total", "import sys\ninput()\nsys.stdout.write(str(sum(map(int, input().split()))))"),
    Job("total", "import sys\ninput()\nsys.stdout.buffer.write(b'%d' % sum(map(int, input().split())))", UNSEEN),
    Job("total", "import sys\ninput()\nt = sum(map(int, input().split()))\nprint('x', file=sys.stderr)\nprint(t)"),
    Job(
        "total",
        "def main():\n    input()\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()",
    ),
    Job(
        "total",
        'def main():\n    input()\n    print(sum(map(int, input().split())))\nif __name__ == "__main__": main()',
    ),
    Job(
        "total",
        "def main():\n    input()\n    print(sum(map(int, input().split())))\n"
        "if __name__ == '__main__':\n    main()\nx = 1",
        GUARD,
    ),
    Job(
        "total",
        "t = 0\ndef add(x):\n    global t\n    t += x\ninput()\n[*map(add, map(int, input().split()))]\nprint(t)",
        BODY,
    ),
    Job("total", "from __future__ import annotations\ninput()\nprint(sum(map(int, input().split())))", FUTURE),
    Job(
        "total",
        "def sum(v):\n    t = 0\n    for x in v: t += x\n    return t\ninput()\nprint(sum(map(int, input().split())))",
    ),
    Job("total", "print = lambda *a: None\ninput()\nprint(sum(map(int, input().split())))"),
    Job("total", "import builtins\nbuiltins.sum = lambda v: 6\ninput()\nprint(sum(map(int, input().split())))", SHARED),
    Job("total", "while True: pass"),
    Job("total", "import time\ntime.sleep(100)"),
    Job("total", "input(\n"),
    Job("total", ""),
    Job(
        "total",
        "import sys\nt, lines = 0, 0\nwhile line := sys.stdin.readline():\n"
        "    t += lines and sum(map(int, line.split()))\n    lines += 1\nprint(t)",
    ),
    Job(
        "total",
        "from sys import stdin\nt, lines = 0, 0\nwhile line := stdin.readline():\n"
        "    t += lines and sum(map(int, line.split()))\n    lines += 1\nprint(t)",
    ),
    Job(
        "total",
        "import threading\ndef main():\n    input()\n    print(sum(map(int, input().split())))\n"
        "t = threading.Thread(target=main)\nt.start()\nt.join()",
    ),
    Job("mean", "v = [*map(float, input().split())]\nprint(sum(v) / len(v))", ""),
    Job("mean", "v = [*map(float, input().split())]\nprint(round(sum(v) / len(v), 2))"),
    Job("mean", "v = [*map(float, input().split())]\nprint(f'{sum(v) / len(v):.6f}')"),
    Job("mean", "v = [*map(Decimal, input().split())]\nprint(sum(v) / len(v))"),
    Job("mean", "from decimal import Decimal\nv = [*map(Decimal, input().split())]\nprint(sum(v) / len(v))"),
    Job("mean", "v = [*map(float, input().split())]\nprint(f'{sum(v) / len(v):e}')"),
    Job("stairs", "for i in range(int(input())):\n    print('#' * (i + 1))"),
    Job("stairs", "for i in range(int(input())):\n    print('#' * (i + 1), end='  \\n')"),
    Job("stairs", "n = int(input())\nprint('\\n\\n', *['#' * (i + 1) for i in range(n)], sep='\\n')"),
    Job("stairs", "n = int(input())\nprint(*['#' * (i + 1) for i in range(n)], sep='\\n\\n')"),
    Job("stairs", "n = int(input())\nprint(*['#' * (i + 1) for i in range(n)])"),
    Job("words", "import sys\nfor line in sys.stdin:\n    print(*sorted(line.split()))", NO_FILE),
    Job("words", "try:\n    while True:\n        print(*sorted(input().split()))\nexcept EOFError:\n    pass"),
    Job("words", "import fileinput\nfor line in fileinput.input():\n    print(*sorted(line.split()))"),
    Job("words", "import sys\nprint(*[' '.join(sorted(l.split())) for l in sys.stdin.read().splitlines()], sep='\\n')"),
    Job("depth", "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(int(input())))"),
    Job(
        "depth",
        "import sys\nsys.setrecursionlimit(1000)\n"
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(int(input())))",
    ),
    Job(
        "depth",
        "class Node:\n    def f(self, n): return 0 if n == 0 else 1 + self.f(n - 1)\nprint(Node().f(int(input())))",
    ),
    Job("large", "print(sum(map(int, input().split())))"),
    Job("large", "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))"),
    Job("large", "print(1)"),
    Job("silent", "for _ in range(int(input())):\n    print('x')"),
    Job("silent", "print('x\\nx')"),
    # Methods.
    Job(
        "pair",
        METHOD.format("pair", "v: List[int], t: int")
        + "return next([i, j] for j in range(len(v)) for i in range(j) if v[i] + v[j] == t)",
    ),
    Job(
        "pair",
        METHOD.format("pair", "v, t")
        + "return next((i, j) for j in range(len(v)) for i in range(j) if v[i] + v[j] == t)",
    ),
    Job("pair", METHOD.format("pair", "v, t") + "return [1, 0]"),
    Job("pair", METHOD.format("pair", "v, t") + "return {0, 1}"),
    Job("pair", METHOD.format("pair", "v, t") + "print('here')\n        return [0, 1]"),
    Job("pair", METHOD.format("pair", "v, t") + "return [False, True]"),
    Job("pair", METHOD.format("pair", "v, t") + "yield 0\n        yield 1"),
    Job("pair", METHOD.format("pair", "v") + "return [0, 1]"),
    Job("pair", METHOD.format("other", "v, t") + "return [0, 1]"),
    Job("pair", "def pair(v, t):\n    return [0, 1]"),
    Job("pair", "import numpy as np\n" + METHOD.format("pair", "v, t") + "return np.array([0, 1])"),
    Job("pair", METHOD.format("pair", "v, t") + "sys.exit()"),
    Job("pair", METHOD.format("pair", "v, t") + "while True: pass"),
    Job("pair", METHOD.format("pair", "v, t") + "raise KeyError(t)"),
    Job(
        "pair",
        "class Any(list):\n    def __eq__(self, other): return True\n" + METHOD.format("pair", "v, t") + "return Any()",
        EQUAL,
    ),
    Job("rows", METHOD.format("rows", "n") + "return [[*range(1, i + 2)] for i in range(n)]"),
    Job("rows", METHOD.format("rows", "n") + "return tuple([*range(1, i + 2)] for i in range(n))"),
    Job("rows", METHOD.format("rows", "n") + "return [tuple(range(1, i + 2)) for i in range(n)]"),
    Job("rows", METHOD.format("rows", "n") + "return deque([*range(1, i + 2)] for i in range(n))"),
    Job("half", METHOD.format("half", "x") + "return x / 2"),
    Job("half", METHOD.format("half", "x") + "return x / 2 + 1e-12"),
    Job("half", METHOD.format("half", "x") + "return str(x / 2)"),
    Job("half", "import numpy\n" + METHOD.format("half", "x") + "return numpy.float64(x) / 2"),
    Job("half", "from fractions import Fraction\n" + METHOD.format("half", "x") + "return Fraction(x, 2)"),
    Job("even", METHOD.format("even", "x") + "return x % 2 == 0"),
    Job("even", METHOD.format("even", "x") + "return 1 - x % 2"),
    Job("even", METHOD.format("even", "x") + "return not x % 2 or None"),
    Job("seen", METHOD.format("seen", "v") + "return len(set(v))"),
    Job(
        "seen",
        "class Solution:\n    def __init__(self): self.s = set()\n"
        "    def seen(self, v):\n        self.s |= {*v}\n        return len(self.s)",
    ),
    Job(
        "seen",
        "class Solution:\n    @cache\n    def f(self, n): return n\n    def seen(self, v): return self.f(len(set(v)))",
    ),
    Job("seen", "S = set()\n" + METHOD.format("seen", "v") + "S.update(v)\n        return len(S)"),
]


def row(id: str, name: str, tests: Tests) -> dict[str, str]:
    cases = [
        {"input": given, "output": printed, "testtype": "functional" if name else "stdin"} for given, printed in tests
    ]
    return {
        "question_id": id,
        "question_content": id,
        "starter_code": METHOD.format(name, "x") if name else "",
        "contest_date": "2025-01-01T00:00:00",
        "difficulty": "easy",
        "public_test_cases": json.dumps(cases[:1]),
        "private_test_cases": json.dumps(cases[1:]),
        "metadata": json.dumps({"func_name": name} if name else {}),
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--package", required=True, help="a clone of LiveCodeBench")
    package = arguments.parse_args().package
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.jsonl")
        rows.write_text("".join(json.dumps(row(id, *question)) + "\n" for id, question in QUESTIONS.items()))
        Path(folder, "testing_util.py").write_text(_source(package, CHECKER))
        lines = "".join(json.dumps(_asked(job)) + "\n" for job in JOBS)
        peer = subprocess.run([sys.executable, "-c", PEER], cwd=folder, input=lines, stdout=-1, text=True)
        theirs = [json.loads(line) for line in peer.stdout.splitlines()]
        with BenchmarkPool(isolation=AUTO) as pool:
            benchmark = LiveCodeBench(load_tasks([str(rows)], ("", "")), pool)
            by_id = {question.id: question for question in benchmark.questions}
            asked = _their_prompts(package)
            unexplained = sum(benchmark.messages(each, DEFAULT) != asked(each.id) for each in benchmark.questions)
            print(f"{unexplained} of {len(by_id)} prompts differ")
            runs = [benchmark.judge(by_id[job.question], job.program) for job in JOBS]
            ours = [run.result() for run in runs]
    counted: Counter[str] = Counter()
    for job, run, (passed, words) in zip(JOBS, ours, theirs, strict=True):
        kind = "methods" if QUESTIONS[job.question][0] else "whole programs"
        differs = (run.verdict is Verdict.PASS) != passed
        counted[kind] += 1
        counted[f"{kind} that agree"] += not differs
        counted["passed by both"] += passed and not differs
        if differs or job.why:
            unexplained += differs != bool(job.why)
            judged = f"ours {run.verdict.value} {run.detail}; package {'pass' if passed else 'fail'} {words}"
            print(f"--- {job.question}: {judged}")
            print(f"    {job.why or 'NOT EXPLAINED'}{'' if differs else ', BUT THEY AGREE'}\n{job.program}")
    print(f"{len(JOBS)} programs of {len(QUESTIONS)} questions: {dict(counted)}")
    sys.exit(unexplained > 0)


def _source(package: str, path: str) -> str:
    command = ["git", "-C", package, "show", f"HEAD:{path}"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def _their_prompts(package: str) -> Callable[[str], list[dict[str, str]]]:
    """What the package asks a chat model, by a question's id. The rest of its module wants packages and models."""
    wanted = (THEIR_SYSTEM, THEIR_PROMPT)
    nodes = [each for each in ast.parse(_source(package, PROMPTS)).body if getattr(each, "name", "") in wanted]
    names: dict[str, Any] = {"CodeGenerationProblem": None}
    exec(compile(ast.Module(nodes, []), PROMPTS, "exec"), names)

    def asked(id: str) -> list[dict[str, str]]:
        made = row(id, *QUESTIONS[id])
        user = names[THEIR_PROMPT](SimpleNamespace(**made))
        system = names[THEIR_SYSTEM].SYSTEM_MESSAGE_GENERIC
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    return asked


def _asked(job: Job) -> tuple[dict[str, str], str, int]:
    name, tests = QUESTIONS[job.question]
    inputs, outputs = ([*half] for half in zip(*tests, strict=True))
    sample = {"inputs": inputs, "outputs": outputs, "fn_name": name or None}
    return {"input_output": json.dumps(sample)}, job.program, len(tests)


if __name__ == "__main__":
    main()
