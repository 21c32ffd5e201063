"""UnLeakedTestBench by hand: the suites of a file, suites made from executed values, and cosmic-ray on the same.

  python -m bench.ult given FILE [--functions=100]
  python -m bench.ult executed FILE [--functions=100] [--testeval]
  python -m bench.ult as_data FILE
  python -m bench.ult cosmic_ray FILE --peers=PYTHON [--functions=20] [--seconds=240] [--results=FILE.jsonl]
  python -m bench.ult counts FILE --peers=PYTHON
  python -m bench.ult golden --peers=PYTHON > tests/golden/cosmic_ray_mutants.json

PYTHON is the interpreter of an environment with cosmic-ray and pytest:
  python3 -m venv peers && peers/bin/pip install cosmic-ray==8.7.0 pytest==9.2.0
`executed` takes the inputs of the suites in the file, and inputs near them where those are fewer than five that the
program answers, and asserts what it answers; with `--testeval` FILE is TestEval's, and the inputs are drawn by the
annotations of the program's parameters. `as_data` judges the asserts on literals in the file as training judges
tests, by values that the trusted side compares, and compares the verdicts. `cosmic_ray` runs cosmic-ray as upstream
does (a mod.py, a test.py of five test functions, `pytest test.py`, 10 s a mutant, one after the other) and ours with
one slot, in turn, on the programs with the fewest mutants, of those that chance has no part in; it ends after so many
seconds, and goes on where it was when it is started again.
"""

import argparse
import ast
import copy
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

from rich.console import Console
from rich.progress import track

from codea1.evaluation.result_files import summary
from codea1.game.asserts import parse_assert, read_statement
from codea1.game.calls import Call, CallTest
from codea1.game.question import Question
from codea1.lab.benchmarks.benchmarks import TESTEVAL, ULT, SuiteBenchmark, SuiteTask, load_suites, missing_modules
from codea1.lab.benchmarks.suite_scores import TEST_SECONDS, SuiteRuns, metrics, score_suites
from codea1.lab.mutants import mutants
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.sandbox.host.grading import Grader
from codea1.values import NotPlainData, decode_exact, encode_exact
from codea1.values.literals import Budget
from codea1.values.verdict import Verdict

Suites = dict[str, list[str]]

COUNT = """
import json, sys
import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
counts = []
for source in json.load(sys.stdin):
    nodes = list(ast_nodes(get_ast(source)))
    counts.append({})
    for name in cosmic_ray.plugins.operator_names():
        kind = cosmic_ray.plugins.get_operator(name)
        if not kind.arguments():
            operator = kind()
            found = sum(1 for node in nodes for _ in operator.mutation_positions(node))
            if found:
                counts[-1][name.removeprefix("core/")] = found
json.dump(counts, sys.stdout)
"""
CONFIG = """
[cosmic-ray]
module-path = "mod.py"
timeout = 10
excluded-modules = []
test-command = "{python} -m pytest test.py"
[cosmic-ray.distributor]
name = "local"
"""
GOLDEN = {
    "arithmetic": "def f(a, b=2):\n    c = a * b - 1.5\n    c += a ** 2 // 3\n    return -c % b | ~a\n",
    "comparisons": (
        "def f(x, y=None):\n    if y is None and x != 0:\n        return 1 < x <= 10 or not x == y\n"
        "    elif x in (True, False):\n        return x is not None\n    return x >= -3 if y else x != y\n"
    ),
    "loops": (
        "import os.path\nfrom math import *\ndef f(*items, key=len, **others):\n    total = 0\n"
        "    for i, item in enumerate(items):\n        while total < 5:\n            total += key(item, *items)\n"
        "            if item:\n                break\n        else:\n            continue\n        total -= i\n"
        "    return [x for x in items if x != total], {**others, 'n': total}, total @ total\n"
    ),
    "errors": (
        "import functools\n@functools.lru_cache(maxsize=8)\ndef f(x, /, y: int | None = 3, *, z):\n"
        "    value: int | str = 0x1F\n    try:\n        assert x > y, 'no'\n        return int(x)\n"
        "    except (ValueError, TypeError) as error:\n        raise KeyError(x) from error\n"
        "    except functools.E:\n        return lambda *a: a[0] << 1\n    except:\n        return value\n"
    ),
    "strings": (
        "def f(name, parts):\n    # 1 + 1 is no code\n    text = f'{name!r}: {len(parts) + 1:>{4}} of {parts[0]}'\n"
        '    text += "ä" * 3 + f"""{name}"""\n    return text if name and (not parts) else text[::-1]\n'
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["given", "executed", "as_data", "cosmic_ray", "counts", "golden"])
    parser.add_argument("file", nargs="?")
    parser.add_argument("--testeval", action="store_true")
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--functions", type=int, help="the first so many, or with cosmic_ray (20) the smallest")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--results", type=Path, default=Path("ult_cosmic_ray.jsonl"))
    arguments = parser.parse_args()
    if arguments.what == "golden":
        print_golden(arguments.peers)
        return
    if arguments.testeval:
        tasks = TESTEVAL.load(arguments.file)[: arguments.functions]
        with BenchmarkPool(isolation="auto") as pool:
            suites = executed_suites(TESTEVAL, tasks, calls_by_annotation, pool)
            score(TESTEVAL, [task for task in tasks if task.id in suites], suites, pool)
        return
    tasks = ULT.load(arguments.file)
    given = load_suites(arguments.file, tasks)
    if arguments.what == "counts":
        compare_counts(tasks, arguments.peers)
        return
    with BenchmarkPool(1 if arguments.what == "cosmic_ray" else 0, isolation="auto") as pool:
        if arguments.what == "given":
            score(ULT, tasks[: arguments.functions], given, pool)
            return
        if arguments.what == "as_data":
            compare_with_data(tasks, given, pool)
            return
        suites = executed_suites(ULT, tasks, lambda task: calls_near(task, given[task.id]), pool)
        tasks = [task for task in tasks if task.id in suites]
        if arguments.what == "executed":
            score(ULT, tasks[: arguments.functions], suites, pool)
        else:
            compare(tasks, suites, pool, arguments)


def score(benchmark: SuiteBenchmark, tasks: list[SuiteTask], suites: Suites, pool: BenchmarkPool) -> None:
    """Prints what suites are worth, and why tests that ought to hold do not."""
    absent = Counter(module for task in tasks for module in missing_modules(benchmark.whole(task)))
    print(f"modules that programs import and this machine lacks: {dict(absent) or 'none'}")
    started = time.monotonic()
    judged = score_suites(benchmark, tasks, suites, pool)
    scored = track(judged, "suites", len(tasks), console=Console(stderr=True))
    scores = {score.task_id: score for score in scored}
    seconds = time.monotonic() - started
    whole = sum(each.verdicts.count(Verdict.PASS) == benchmark.num_tests for each in scores.values())
    verdicts = Counter(str(verdict) for each in scores.values() for verdict in each.verdicts)
    print(f"{len(tasks)} tasks, {whole} of them with {benchmark.num_tests} tests that pass; tests: {dict(verdicts)}")
    ran = sum(each.mutants for each in scores.values() if each.killed is not None)
    cpu = sum(each.seconds for each in scores.values())
    print(f"{ran} mutants run; {seconds:.0f} s, {cpu:.0f} s of CPU time in the sandbox")
    measured = metrics(benchmark, [scores[task.id] for task in tasks])
    for name, metric in summary(measured, 0, benchmark.name, [task.id for task in tasks])["metrics"].items():
        print(f"{name:28} {100 * metric['mean']:6.2f} [{100 * metric['low']:.2f}, {100 * metric['high']:.2f}]")


def executed_suites(
    benchmark: SuiteBenchmark,
    tasks: list[SuiteTask],
    calls_of: Callable[[SuiteTask], Iterable[Call]],
    pool: BenchmarkPool,
) -> Suites:
    """Returns a suite of K asserts on what the program itself answers, for each task that answers so many inputs."""
    grader = Grader(pool)
    asked = {}
    for task in tasks:
        calls = list(dict.fromkeys(calls_of(task)))[:200]
        of_calls = calls[0].entry_point if calls else task.entry_point
        question = Question(task.id, None, "", task.description, benchmark.whole(task), of_calls)
        asked[task.id] = calls, grader.ground_truth(question.module(question.ground_truth), calls)
    suites = {}
    for task_id, (calls, future) in asked.items():
        answered = zip(calls, future.result(), strict=True)
        tests = [CallTest(call, answer.value).text for call, answer in answered if answer.usable]
        if len(tests) >= benchmark.num_tests:
            suites[task_id] = tests[: benchmark.num_tests]
    if benchmark is TESTEVAL:
        in_function = "def test():\n    solution = Solution()\n    assert solution."
        suites = {id: [test.replace("assert Solution().", in_function, 1) for test in suites[id]] for id in suites}
    print(f"{len(suites)} of {len(tasks)} programs answer {benchmark.num_tests} inputs")
    return suites


def calls_by_annotation(task: SuiteTask) -> Iterator[Call]:
    """Yields calls of a method with small random values of the types that its parameters are annotated with."""
    functions = (node for node in ast.walk(ast.parse(task.program)) if isinstance(node, ast.FunctionDef))
    method = next(node for node in functions if node.name == task.entry_point)
    kinds = [ast.unparse(argument.annotation) for argument in method.args.args[1:]]
    random = Random(task.id)

    def value(kind: str, size: int) -> object:
        if kind == "int":
            return random.randint(1, size + 2)
        if kind == "str":
            return "".join(random.choice("ab") for _ in range(size))
        inner = kind.removeprefix("List[").removesuffix("]")
        return [value(inner, size) for _ in range(size)]  # a list of lists is square

    for _ in range(400):
        size = random.randint(1, 5)
        yield Call(f"Solution().{task.entry_point}", encode_exact((tuple(value(kind, size) for kind in kinds), {})))


def compare_with_data(tasks: list[SuiteTask], suites: Suites, pool: BenchmarkPool) -> None:
    """Prints how often a test run as source and the same test judged as data passed."""
    grader = Grader(pool)
    pairs = []
    for task in tasks:
        for text in suites[task.id]:
            test = parse_assert(text, task.entry_point)
            if isinstance(test, CallTest):
                imports = ULT.imports_of(task.program, text)
                run = pool.run_suite(task.program, [text], module="mod", imports=imports, cpu_seconds=TEST_SECONDS)
                pairs.append((run, grader.grade(f"{imports}\n{task.program}", [test])))
    passed = Counter(
        (run.result().verdict is Verdict.PASS, graded.result().verdicts[0] is Verdict.PASS) for run, graded in pairs
    )
    print(f"{len(pairs)} asserts on literals; passed as source, as data: {dict(passed)}")


def calls_near(task: SuiteTask, tests: list[str]) -> Iterator[Call]:
    """The calls of some tests, and then those calls with one value changed a little."""
    calls = [
        parsed.call for test in tests for parsed in read_statement(test, task.entry_point, {}, Budget(), fenced=True)
    ]
    calls = [call for call in calls if call is not None]
    yield from calls
    for call in calls:
        positional, named = decode_exact(call.arguments)
        for changed in changes([list(positional), named]):
            try:
                yield Call(task.entry_point, encode_exact((tuple(changed[0]), changed[1])))
            except NotPlainData:
                continue


def changes(value: object) -> Iterator[object]:
    """Values that differ from one in a number, a letter, a truth value or an item."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, value - 1, -value, 0)
    elif isinstance(value, str):
        yield from (value + "a", value[1:], value.swapcase(), "")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            for changed in changes(item):
                other = list(copy.deepcopy(value))
                other[index] = changed
                yield type(value)(other)
    elif isinstance(value, dict):
        for key, item in value.items():
            for changed in changes(item):
                yield {**copy.deepcopy(value), key: changed}


def compare(tasks: list[SuiteTask], suites: Suites, pool: BenchmarkPool, arguments: argparse.Namespace) -> None:
    """Runs what is left of the comparison within the time, and prints how it stands."""
    tasks, functions = sorted(tasks, key=lambda task: len(mutants(task.program))), arguments.functions or 20
    known = [json.loads(line) for line in arguments.results.open()] if arguments.results.exists() else []
    done = {row["task_id"]: row for row in known}
    started = time.monotonic()
    for task in tasks:
        if len(done) == functions:
            break
        if task.id not in done and time.monotonic() - started < arguments.seconds:
            theirs, their_seconds = by_cosmic_ray(task, suites[task.id], arguments.peers)
            if not theirs:
                print(f"task {task.id}: its suite does not pass three times under pytest: it is by chance")
                continue
            ours, our_seconds = by_us(task, suites[task.id], pool)
            row = {"task_id": task.id, "theirs": theirs, "ours": ours, "seconds": [their_seconds, our_seconds]}
            done[task.id] = row
            with arguments.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
    rows = [done[task.id] for task in tasks if task.id in done]
    different = Counter()
    gaps = []
    for row in rows:
        theirs, ours = row["theirs"], row["ours"]
        different.update(name for name in theirs for a, b in zip(theirs[name], ours[name], strict=True) if a != b)
        scores = [share(row[side]) for side in ("theirs", "ours")]
        gaps.append(abs(scores[0] - scores[1]))
        seconds = "  ".join(f"{each:7.2f} s" for each in row["seconds"])
        count = sum(map(len, ours.values()))
        killed = " ".join(f"{100 * score:6.2f} %" for score in scores)
        print(f"task {row['task_id']:>6} {count:4} mutants  killed {killed}  {seconds}")
    if not rows:
        return
    theirs, ours = (sum(row["seconds"][side] for row in rows) for side in (0, 1))
    means = [100 * sum(share(row[side]) for row in rows) / len(rows) for side in ("theirs", "ours")]
    total = sum(len(each) for row in rows for each in row["ours"].values())
    print(f"{len(rows)} of {functions} functions: cosmic-ray {means[0]:.2f} %, ours {means[1]:.2f} %")
    print(f"largest difference of one function {100 * max(gaps):.2f} points")
    print(f"judged differently: {sum(different.values())} of {total} mutants: {dict(different)}")
    print(f"{theirs:.1f} s against {ours:.1f} s: {theirs / ours:.0f} times as fast")


def share(killed: dict[str, list[bool]]) -> float:
    flat = [each for killed_by in killed.values() for each in killed_by]
    return sum(flat) / len(flat)


def by_us(task: SuiteTask, suite: list[str], pool: BenchmarkPool) -> tuple[dict[str, list[bool]], float]:
    """Whether each mutant is killed, by operator in the order of places, and the seconds that took."""
    started = time.monotonic()
    runs, _ = SuiteRuns(ULT, task, ULT.imports_of(task.program, *suite), pool).on_mutants(suite)
    seconds = time.monotonic() - started
    killed = defaultdict(list)
    for mutant, run in zip(mutants(task.program), runs, strict=True):
        killed[mutant.operator].append(run.verdict is not Verdict.PASS)
    return dict(killed), seconds


def by_cosmic_ray(task: SuiteTask, suite: list[str], python: str) -> tuple[dict[str, list[bool]], float]:
    """As `by_us`; nothing where the suite does not pass three times on the program itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        imports = ULT.imports_of(task.program, *suite)
        (folder / "mod.py").write_text(f"{imports}\n{task.program}\n")
        tests = [f"def test_{number}():\n    {test}\n" for number, test in enumerate(suite)]
        (folder / "test.py").write_text("\n".join([imports, f"from mod import {task.entry_point}", *tests]))
        (folder / "config.toml").write_text(CONFIG.format(python=python))
        baseline = [python, "-m", "pytest", "test.py"]
        if any(subprocess.run(baseline, cwd=folder, capture_output=True).returncode for _ in range(3)):
            return {}, 0.0
        started = time.monotonic()
        for command in (["init", "config.toml", "s.sqlite"], ["exec", "config.toml", "s.sqlite"]):
            subprocess.run([python, "-m", "cosmic_ray.cli", *command], cwd=folder, check=True, capture_output=True)
        seconds = time.monotonic() - started
        dumped = subprocess.run(
            [python, "-m", "cosmic_ray.cli", "dump", "s.sqlite"], cwd=folder, check=True, capture_output=True, text=True
        )
    places = defaultdict(list)
    for line in dumped.stdout.splitlines():
        item, result = json.loads(line)
        (mutation,) = item["mutations"]
        places[mutation["operator_name"].removeprefix("core/")].append(
            (mutation["start_pos"], mutation["occurrence"], result["test_outcome"] != "survived")
        )
    return {name: [killed for _, _, killed in sorted(each)] for name, each in places.items()}, seconds


def compare_counts(tasks: list[SuiteTask], python: str) -> None:
    """Prints how many mutants there are of all programs, and of how many programs not as many by every operator."""
    ours = [dict(Counter(mutant.operator for mutant in mutants(task.program))) for task in tasks]
    theirs = counts_of_cosmic_ray([f"{task.program}\n" for task in tasks], python)
    different = sum(a != b for a, b in zip(ours, theirs, strict=True))
    totals = [sum(sum(counts.values()) for counts in side) for side in (theirs, ours)]
    print(f"cosmic-ray {totals[0]}, ours {totals[1]}; {different} of {len(tasks)} programs differ in some operator")


def print_golden(python: str) -> None:
    """cosmic-ray's counts for the programs of GOLDEN, for the tests."""
    rows = zip(GOLDEN.items(), counts_of_cosmic_ray([*GOLDEN.values()], python), strict=True)
    print(json.dumps([{"name": name, "source": source, "counts": counts} for (name, source), counts in rows], indent=1))


def counts_of_cosmic_ray(sources: list[str], python: str) -> list[dict[str, int]]:
    found = subprocess.run([python, "-c", COUNT], input=json.dumps(sources), check=True, capture_output=True, text=True)
    return json.loads(found.stdout)


if __name__ == "__main__":
    main()
