"""How much of our own code the tests hold: mutants of `codea1.game` and `codea1.learn`, and the tests that claim them.

  python -m bench.mutants_of_ours [--results=FILE] [--modules game.rewards learn.losses ...] [--others=200] [--jobs=2]
  python -m bench.mutants_of_ours --quick=200 [--results=FILE] [--jobs=2]

With --quick, how much of it `make test` holds: so many of the mutants below, always the same ones and none that is
listed as an equal program, against the quick ones of their tests (tests/conftest.py), and those that survive against
all of their tests; exit code 1 where the quick ones kill less than 85 % of what all kill.

Mutants are those of `codea1.lab.mutants`, less what does not parse and what changes annotations alone: all of
the modules in ALL, and of the rest `--others` that are drawn by a hash. A mutant is killed when a test fails, or when
it takes five times the processor time of the tests as they are. Survivors that no input tells from the original stand
in mutants_of_ours.json, each with the reason; exit code 1 where there is another one, or where one of those is killed.

Each mutant has a process of its own, forked from this one, which has imported what takes long and nothing of `game` and
`learn`; a loader gives it the changed source. With --results an interrupted run goes on where it was, and survivors are
tried again once their tests have changed.
"""

import argparse
import ast
import contextlib
import fnmatch
import functools
import gc
import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

# As in tests/conftest.py, which most of these tests do without.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # looking for plugins takes longer than many tests

import hypothesis
import jax
import pytest

from codea1.lab.mutants import mutants
from codea1.lab.report.tables import TextTable

ROOT = Path(__file__).resolve().parent.parent
LISTED = Path(__file__).with_suffix(".json")

# Which tests claim a module; the nearest come first, because the first that fails ends a mutant.
_REWARDS = "game_rewards game_round_selection game_asserts_marks game_round"
CLAIMS = {
    module: tuple(f"{name}_test.py" for name in names.split())
    for module, names in {
        "game.rewards": _REWARDS,
        "game.outcomes": _REWARDS,
        "learn.advantages": "learn_advantages learn_overlong",
        "learn.surrogates": "learn_surrogates learn_losses",
        "learn.losses": "learn_losses learn_batch",
        "game.mistake_book": "game_mistake_book game_eviction game_book_pages game_round",
        "game.answers": "game_answers game_asserts_marks",
        "game.asserts": "game_asserts game_asserts_marks game_calls game_answers game_rewards game_round",
        "game.book_pages": "game_book_pages game_mistake_book",
        "game.methods": "game_methods",
        "game.prompts": "game_prompts",
        "game.question": "game_question_signature game_prompts game_round",
        "game.round": "game_round game_round_selection",
        "game.calls": "game_calls game_answers",
        "learn.batch": "learn_batch learn_update",
        "learn.gae": "learn_gae",
        "learn.log_probs": "learn_log_probs learn_update",
        "learn.optimizer": "learn_optimizer learn_update",
        "learn.update": "learn_update learn_values",
        "learn.values": "learn_values",
    }.items()
}
ALL = tuple(CLAIMS)[:8]  # whose mutants all run
# Imported once for all mutants: what takes long and imports nothing of `codea1.game` and `codea1.learn`. `tests` has
# jaxtyping's import hook, which finds modules by itself: `_Changed` must come before it to change modules of `learn`.
UNCHANGED = ("flax.nnx", "optax", "codea1.models.qwen2", "codea1.values.literals", "codea1.values.verdict", "tests")

TIME_LIMIT = "time limit"


@dataclass(frozen=True)
class Task:
    """One mutant, or a module as it is."""

    module: str  # in codea1
    source: str
    operator: str = ""  # empty: as it is
    line: int = 0
    within: str = ""  # the function or class that the line is in
    before: str = ""  # the line, stripped
    after: str = ""

    @property
    def key(self) -> str:
        """Of one that is killed: more tests kill no fewer."""
        return _digest(self.module, self.source)

    @property
    def key_with_tests(self) -> str:
        """Of one that survives these tests."""
        return _digest(self.key, *_tests_of(self.module))

    @property
    def place(self) -> str:
        return f"codea1/{self.module.replace('.', '/')}.py:{self.line}"


@dataclass(frozen=True)
class Outcome:
    """How a task ended."""

    killed_by: str  # a test, TIME_LIMIT, or how else the process ended; empty: it survived
    seconds: float  # of processor time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="file of JSON lines that a run adds to, and goes on from")
    parser.add_argument("--modules", nargs="+", choices=list(CLAIMS), default=list(CLAIMS))
    parser.add_argument("--others", type=int, default=200, help=f"mutants in all of the modules after {ALL[-1]}")
    parser.add_argument("--quick", type=int, default=0, help="so many mutants, against the quick tests alone")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    started = time.monotonic()
    listed = json.loads(LISTED.read_text())
    of_all = set(asked.modules) <= set(ALL)  # and nothing is drawn
    everything = {module: tasks_of(module) for module in (asked.modules if of_all else CLAIMS)}
    tasks = [task for task in drawn(everything, asked.others) if task.module in asked.modules]
    if asked.quick:
        equal = _listed(listed)
        tasks = sorted((task for task in tasks if _named(task) not in equal), key=lambda task: task.key)[: asked.quick]
    results = Results(asked.results)
    waiting = [task for task in tasks if not results.of(task)]
    print(f"{len(tasks)} mutants, {len(tasks) - len(waiting)} of them known", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        warm_up(Path(folder))
        if not asked.quick:
            run(waiting, results, folder, asked.jobs)
        else:
            in_quick = run_quick(tasks, results, folder, asked.jobs)
    print(f"{time.monotonic() - started:.0f} s\n")
    outcomes = {task: results.of(task) for task in tasks}
    sys.exit(report_quick(outcomes, in_quick) if asked.quick else report(outcomes, everything, listed))


class Results:
    """What is known of mutants, in a file where one is given."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._known = path, {}
        for line in path.read_text().splitlines() if path and path.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):  # a line that was not written to its end
                row = json.loads(line)
                self._known[row["key"]] = Outcome(row["killed_by"], row["seconds"])

    def of(self, task: Task) -> Outcome | None:
        return self._known.get(task.key) or self._known.get(task.key_with_tests)

    def add(self, task: Task, outcome: Outcome) -> None:
        key = task.key if outcome.killed_by else task.key_with_tests
        self._known[key] = outcome
        if self._path:
            row = {"key": key, **asdict(outcome), **asdict(task), "source": None}
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def tasks_of(module: str) -> list[Task]:
    """The mutants of a module that are programs, and others than the module and than each other."""
    source = _path(module).read_text()
    lines, names, tasks = source.split("\n"), _names(source), []
    statements = {
        line: (_first_line(node), node.end_lineno)
        for node in ast.parse(source).body
        for line in range(_first_line(node), node.end_lineno + 1)
    }
    seen = {(first, _meaning("\n".join(lines[first - 1 : last]))) for first, last in statements.values()}
    for mutant in mutants(source):
        changed = mutant.source.split("\n")
        first, last = statements[mutant.line]
        meaning = _meaning("\n".join(changed[first - 1 : last + len(changed) - len(lines)]))
        if meaning and (first, meaning) not in seen:
            seen.add((first, meaning))
            texts = lines[mutant.line - 1].strip(), changed[mutant.line - 1].strip()
            tasks.append(Task(module, mutant.source, mutant.operator, mutant.line, names[mutant.line], *texts))
    return tasks


def drawn(everything: dict[str, list[Task]], others: int) -> list[Task]:
    """All mutants of ALL, and so many of the rest, whatever lines they are in."""
    rest = [task for module, tasks in everything.items() if module not in ALL for task in tasks]
    rest.sort(key=lambda task: _digest(task.module, task.operator, task.before, task.after))
    chosen = set(rest[:others])
    return [task for module, tasks in everything.items() for task in tasks if module in ALL or task in chosen]


def _names(source: str) -> list[str]:
    """For each line, from 1, the innermost function or class that it is in."""
    names = [""] * (source.count("\n") + 2)
    for node in ast.walk(ast.parse(source)):  # the outer ones come first
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            outer = names[_first_line(node)]
            for line in range(_first_line(node), node.end_lineno + 1):
                names[line] = f"{outer}.{node.name}" if outer else node.name
    return names


def _first_line(node: ast.stmt) -> int:
    return min(each.lineno for each in (node, *getattr(node, "decorator_list", ())))


def _meaning(source: str) -> str:
    """The syntax tree without annotations; empty where it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(source)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        for name in {"annotation", "returns"} & set(node._fields):
            setattr(node, name, None)
    return ast.dump(tree)


@functools.cache  # the tests as they were when the run began
def _tests_of(module: str) -> list[str]:
    return [(ROOT / "tests" / name).read_text() for name in CLAIMS[module]]


def _path(module: str) -> Path:
    return ROOT / "codea1" / f"{module.replace('.', '/')}.py"


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def warm_up(folder: Path) -> None:
    """Imports what the tests need and no mutant changes; starts no JAX."""
    for name in UNCHANGED:
        import_module(name)
    jax.config.update("jax_compilation_cache_dir", str(folder / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # Whatever fails first will do, and the same mutants survive in every run.
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        "mutants", max_examples=25, derandomize=True, database=None, deadline=None, phases=phases
    )
    hypothesis.settings.load_profile("mutants")
    test = folder / "one_test.py"
    test.write_text("def test_one(): pass\n")
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main(["-q", "--noconftest", "-p", "no:cacheprovider", str(test)])
    loaded = {name for name in sys.modules if name.startswith(("codea1.game", "codea1.learn", "tests."))}
    if loaded:
        raise RuntimeError(f"these modules are imported already: {sorted(loaded)}")
    gc.freeze()


def run(tasks: Sequence[Task], results: Results, folder: str, jobs: int) -> None:
    """Runs modules as they are, to see what their tests take, and then the mutants."""
    originals = {module: Task(module, _path(module).read_text()) for module in {task.module: 0 for task in tasks}}
    first = [(task, 600.0) for task in originals.values() if not results.of(task)]
    for task, outcome in _run(first, folder, jobs):
        if outcome.killed_by:
            raise RuntimeError(f"the tests of {task.module} fail as it is: {outcome.killed_by}")
        results.add(task, outcome)
        print(f"{task.module:24} {outcome.seconds:6.1f} s as it is", flush=True)
    limited = [(task, 5 + 5 * results.of(originals[task.module]).seconds) for task in tasks]
    for task, outcome in _run(limited, folder, jobs):
        results.add(task, outcome)


def _run(tasks: Sequence[tuple[Task, float]], folder: str, jobs: int) -> Iterator[tuple[Task, Outcome]]:
    """Runs tasks, each with its limit in seconds of processor time, `jobs` at once."""
    waiting, running = list(reversed(tasks)), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task, limit = waiting.pop()
                running[_fork(task, limit, folder)] = task, limit, time.monotonic() + 60 + 20 * limit
            time.sleep(0.01)
            for child, (task, limit, deadline) in list(running.items()):
                late = time.monotonic() > deadline  # it sleeps
                if late:
                    os.killpg(child, signal.SIGKILL)
                pid, status, usage = os.wait4(child, os.WNOHANG)
                if pid:
                    del running[child]
                    seconds = usage.ru_utime + usage.ru_stime
                    by = _ended(child, status, folder, timed_out=late or seconds > limit - 2)
                    yield task, Outcome(by, round(seconds, 1))
    finally:
        for child in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)


def _ended(child: int, status: int, folder: str, *, timed_out: bool) -> str:
    """By what a process was killed, empty where all tests passed."""
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGKILL, -signal.SIGXCPU):
        if not timed_out:
            raise RuntimeError("a mutant's process was killed by another than this program")
        return TIME_LIMIT
    failed = Path(folder, str(child))
    by = failed.read_text() if failed.exists() else f"exit code {code}"
    failed.unlink(missing_ok=True)
    return by if code else ""


def _fork(task: Task, limit: float, folder: str) -> int:
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's, about forks: it has not started here
        child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            code = _child(task, limit, folder)
        finally:
            os._exit(code)
    return child


def _child(task: Task, limit: float, folder: str) -> int:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
    sys.meta_path.insert(0, _Changed(f"codea1.{task.module}", str(_path(task.module)), task.source))
    names = CLAIMS[task.module]
    if not names:
        return 0  # pytest would run all there are
    options = ["--noconftest"]
    options += ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    return pytest.main(
        [*options, *(f"tests/{name}" for name in names)], [_FirstFailure(Path(folder, str(os.getpid())))]
    )


class _Changed(MetaPathFinder):
    """Finds one module with another source."""

    def __init__(self, name: str, path: str, source: str) -> None:
        self.name, self.path, self.source = name, path, source

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        loader = _Source(name, self.path)
        loader.source = self.source
        return spec_from_file_location(name, self.path, loader=loader)


class _Source(SourceFileLoader):
    source: str

    def get_code(self, fullname: str) -> CodeType:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return compile(self.source, self.path, "exec")


class _FirstFailure:
    """A plugin of pytest that writes down which test fails."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self.path.write_text(report.nodeid)

    pytest_collectreport = pytest_runtest_logreport


def run_quick(tasks: Sequence[Task], results: Results, folder: str, jobs: int) -> set[Task]:
    """Runs mutants against the quick tests, and survivors against all; returns what the quick ones kill."""
    claims = dict(CLAIMS)
    CLAIMS.update({module: quick_files(tests) for module, tests in claims.items()})
    run([task for task in tasks if not results.of(task)], results, folder, jobs)
    killed = {task for task in tasks if results.of(task).killed_by}
    CLAIMS.update(claims)
    _tests_of.cache_clear()
    run([task for task in tasks if not results.of(task)], results, folder, jobs)
    return killed


def quick_files(tests: Sequence[str]) -> tuple[str, ...]:
    """Those of the files that `make test` runs, by the table in tests/conftest.py, which is read and not imported."""
    (table,) = (
        ast.literal_eval(statement.value)
        for statement in ast.parse((ROOT / "tests" / "conftest.py").read_text()).body
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "QUICK"
    )
    whole = [pattern for pattern, some in table.items() if not some]
    return tuple(name for name in tests if any(fnmatch.fnmatch(name, pattern) for pattern in whole))


def report_quick(outcomes: dict[Task, Outcome], in_quick: set[Task]) -> int:
    """Prints what the quick tests kill and what only others do; returns the exit code."""
    killed = [task for task, outcome in outcomes.items() if outcome.killed_by]
    seconds = sum(outcome.seconds for outcome in outcomes.values()) / len(outcomes)
    print(f"{len(outcomes)} mutants, {seconds:.1f} s of processor time for one")
    print(f"{len(killed)} die in `make test-all`, {len(in_quick)} of them in `make test`")
    for what, tasks in {
        "survives": outcomes.keys() - {*killed},
        "dies in test-all alone": {*killed} - in_quick,
    }.items():
        for task in sorted(tasks, key=lambda task: (task.module, task.line)):
            print(f"\n{task.place} {what} ({task.operator})\n  - {task.before}\n  + {task.after}")
    return int(len(in_quick) < 0.85 * len(killed))


def _listed(rows: Sequence[dict]) -> set[tuple[str, str, str, str]]:
    """The mutants that no input tells from the original, as `_named` names them."""
    return {(row["module"], row["within"], row["before"], after) for row in rows for after in row["after"]}


def report(outcomes: dict[Task, Outcome], everything: dict[str, list[Task]], listed: list[dict]) -> int:
    """Prints what became of the mutants; returns the exit code."""
    listed = [row for row in listed if row["module"] in everything]
    equal = _listed(listed)
    survivors = [task for task, outcome in outcomes.items() if not outcome.killed_by]
    unlisted = [task for task in survivors if _named(task) not in equal]
    killed_though = [task for task, outcome in outcomes.items() if outcome.killed_by and _named(task) in equal]
    gone = sorted(equal - {_named(task) for tasks in everything.values() for task in tasks})
    rows = []
    for module in everything:
        by = Counter(outcome.killed_by for task, outcome in outcomes.items() if task.module == module)
        if by:
            left = sum(task.module == module for task in unlisted)
            timed, passed = by[TIME_LIMIT], by[""]
            tests = by.total() - timed - passed
            rows.append([module, *map(str, (by.total(), tests, timed, passed - left, left))])
    heads = ("module", "mutants", "killed by tests", "by the time limit", "equal programs", "survivors")
    print(TextTable(heads, rows).markdown())
    for title, tasks in {"survives": unlisted, "is listed as equal, but killed": killed_though}.items():
        for task in sorted(tasks, key=lambda task: (task.module, task.line)):
            print(f"\n{task.place} {title} ({task.operator})\n  - {task.before}\n  + {task.after}")
    for module, within, before, after in gone:
        print(f"\n{module} {within} has no mutant that is listed as equal\n  - {before}\n  + {after}")
    return 1 if unlisted or killed_though or gone else 0


def _named(task: Task) -> tuple[str, str, str, str]:
    return task.module, task.within, task.before, task.after


if __name__ == "__main__":
    main()
