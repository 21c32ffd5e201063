"""HumanEval+ and MBPP+ (EvalPlus, Liu et al. 2023, arXiv 2305.01210), judged as EvalPlus judges.

What a program must return is what the ground truth returns here, in the sandbox. A program passes when it is right on
the base inputs and, in a fresh process, on the plus inputs.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from codea1.data.rows import Row
from codea1.game.question import Question
from codea1.lab.benchmarks.benchmarks import (
    CODE_BENCHMARKS,
    EVALPLUS,
    CodeBenchmark,
    benchmark_rows,
    require_python,
    require_text,
    require_unique,
)
from codea1.lab.benchmarks.evalplus_oracle import SETS, Expected, Oracle, Recorder
from codea1.lab.sandbox.benchmarks import BenchmarkPool, Inputs
from codea1.runtime.errors import BadInput
from codea1.runtime.futures import Awaiting, Memo, digest, start
from codea1.sandbox.host import Limits, ScriptRun
from codea1.sandbox.host.pool import SandboxPool
from codea1.values.verdict import Verdict

DATASETS = dict(zip(EVALPLUS, ("humaneval", "mbpp"), strict=True))  # what EvalPlus calls them

MIN_SECONDS, TRUTH_FACTOR = 4.0, 4.0  # an input may take so long, or so many times what the ground truth takes
MAX_SECONDS = 60.0  # of all inputs of a list, and then one second more
MEMORY_BYTES = 4 << 30
_TRUTH_LIMITS = Limits(cpu_seconds_per_script=600.0, script_memory_bytes=MEMORY_BYTES)


@dataclass(frozen=True)
class Problem:
    """One question's inputs; each is the arguments of a call."""

    question: Question
    base: Sequence[Sequence]
    plus: Sequence[Sequence]
    atol: float


class EvalPlus(CodeBenchmark):
    """One of the two benchmarks; `questions` are its problems'."""

    def __init__(self, name: str, problems: Sequence[Problem], pool: BenchmarkPool) -> None:
        self.name = name
        self.questions = [problem.question for problem in problems]
        self._problems = {problem.question.id: problem for problem in problems}
        self._pool = pool
        self._lists = Memo(math.inf)  # it is needed for every program

    @property
    def judgements(self) -> dict[str, Callable[[Row], float]]:
        """The same, and by the base inputs alone: what a program fails beyond them begins with "plus: "."""
        passes = super().judgements[""]
        return {"": passes, "base_": lambda row: passes(row) or row["detail"].startswith("plus: ")}

    def judge(self, question: Question, program: str) -> Future[ScriptRun]:
        def steps() -> Awaiting[ScriptRun]:
            ran = yield from self._on_list(question, program, "base")
            if ran.verdict is Verdict.PASS and self._problems[question.id].plus:
                ran = yield from self._on_list(question, program, "plus")
            return ran

        return start(steps())

    def _on_list(self, question: Question, program: str, which: str) -> Awaiting[ScriptRun]:
        judged = yield self._judged(question, which)
        if judged.failure:
            return judged.failure
        ran = yield self._pool.run_batch(program, question.entry_point, judged.inputs, judged.oracle, judged.limits)
        return dataclasses.replace(ran, detail=ran.detail and f"{which}: {ran.detail}")

    def _judged(self, question: Question, which: str) -> "Future[_Judge]":
        """Returns what judges a list of inputs; the ground truth runs on the first call, or after it was lost."""

        def size(judged: _Judge) -> int | None:
            return None if judged.failure and judged.failure.verdict is Verdict.INFRA else 0

        promised, is_new = self._lists.claim(which, digest(question.id, which), size)
        return start(self._recorded(question, which), promised) if is_new else promised

    def _recorded(self, question: Question, which: str) -> "Awaiting[_Judge]":
        problem = self._problems[question.id]
        rows = problem.base if which == "base" else problem.plus
        recorder = Recorder(problem.atol)
        as_set = self.name == "mbppplus" and question.entry_point in SETS
        inputs = Inputs(rows, [MAX_SECONDS] * len(rows), as_set=as_set)
        ran = yield self._pool.run_batch(question.ground_truth, question.entry_point, inputs, recorder, _TRUTH_LIMITS)
        expected = [recorder.expected.get(i, Expected(b"", 0.0)) for i in range(len(rows))]
        seconds = [max(MIN_SECONDS, TRUTH_FACTOR * run.seconds) for run in expected]
        limits = Limits(cpu_seconds_per_script=min(MAX_SECONDS, sum(seconds)) + 1.0, script_memory_bytes=MEMORY_BYTES)
        failure = None
        if ran.verdict is not Verdict.PASS:
            verdict = Verdict.INFRA if ran.verdict is Verdict.INFRA else Verdict.INVALID
            failure = ScriptRun(verdict, f"its own solution {ran.verdict.value}: {ran.detail}", 0.0)
        oracle = Oracle(DATASETS[self.name], question.entry_point, problem.atol, rows, expected)
        return _Judge(Inputs(rows, seconds, as_set=as_set), oracle, limits, failure)


@dataclass(frozen=True)
class _Judge:
    """All that judging by one list of inputs takes."""

    inputs: Inputs
    oracle: Oracle
    limits: Limits
    failure: ScriptRun | None  # the result of every program, where the ground truth gave no answers


class CheckScripts(CodeBenchmark):
    """HumanEval+ and MBPP+ as the Code-A1 reference judges them: by each row's own check script.

    Against EvalPlus's own judgement: an empty list counts as one of floats, types and lengths are not compared, a
    script has one time limit, and three scripts check nothing. No program passes that of HumanEval/32.
    """

    def __init__(self, name: str, questions: Sequence[Question], pool: SandboxPool) -> None:
        """Raises BadInput where there is no question, or one without a script."""
        if not questions:
            raise BadInput(f"the file holds no question of {name}.")
        for question in questions:
            if not question.check_script:
                raise BadInput(f"question {question.id} has no check script; EvalPlus's own file needs none.")
        self.name, self.questions, self._pool = name, questions, pool

    def judge(self, question: Question, program: str) -> Future[ScriptRun]:
        assert question.check_script is not None
        return self._pool.run_script(question.check_script, question.module(program), question.entry_point)


def load_problems(name: str, path: str) -> list[Problem]:
    """Returns the problems of EvalPlus's own file.

    Raises BadInput: names the file and row of what is missing or malformed.
    """
    problems = [_of_row(name, row, where) for where, row in benchmark_rows(path, CODE_BENCHMARKS[name])]
    require_unique([problem.question.id for problem in problems], path)
    return problems


def _of_row(name: str, row: Any, where: str) -> Problem:
    require_text(row, ("task_id", "prompt", "entry_point", "canonical_solution"), where)
    row = {**row}
    for field in ("base_input", "plus_input"):
        if row.get(field) == {}:  # so the official Mbpp/793 has it, and EvalPlus runs no input then
            row[field] = []
        if not isinstance(row.get(field), list) or not all(isinstance(value, list) for value in row[field]):
            raise BadInput(f"{where}: the field {field!r} is not a list of lists of arguments.")
    if not isinstance(row.get("atol"), int | float):
        raise BadInput(f"{where}: the field 'atol' is not a number.")
    question = Question(
        id=row["task_id"],
        prompt=None,
        problem=row["prompt"],
        description=row["prompt"],
        ground_truth=row["prompt"] + row["canonical_solution"],
        entry_point=row["entry_point"],
        data_source=name,
    )
    require_python(question.ground_truth, f"{where} ({question.id}): its canonical_solution")
    try:
        lists = {field: deserialised(question.id, row[field]) for field in ("base_input", "plus_input")}
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadInput(f"{where}: its inputs are not those of {question.id}: {error}.") from None
    return Problem(question, lists["base_input"], lists["plus_input"], float(row["atol"]))


def _tuples(values: Any) -> list:
    return [tuple(value) for value in values]


def _deep(value: Any) -> Any:
    return tuple(_deep(item) for item in value) if isinstance(value, list) else value


def _sets(lists: Any) -> list:
    return [set(value) if isinstance(value, list) and value else {} for value in lists]


_CHANGES: dict[Callable[[Any], Any], str] = {
    _tuples: "2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809",
    lambda row: [_tuples(value) for value in row]: "63 64 70 94 120 237 272 299 400 409 417 438 473 614 780",
    lambda row: [_tuples(row[0]), row[1]]: "75 413 444 753",
    lambda row: [row[0], tuple(row[1])]: "106 750",
    lambda row: [_sets(row[0])]: "115",
    lambda row: (float(row[0]), complex(row[1])): "124",
    lambda row: [tuple(row[0]), row[1]]: "250 405 446 617 720 763 808",
    lambda row: [tuple(_tuples(value)) for value in row]: "259 401 445",
    lambda row: [tuple(tuple(value) if isinstance(value, list) else value for value in row[0])]: "278",
    lambda row: [tuple(row[0]), row[1], row[2]]: "307",
    lambda row: [{key: tuple(value) for key, value in row[0].items()}, *row[1:]]: "722",
    lambda row: [complex(row[0])]: "252",
    _deep: "580 615 791",
}
_BY_TASK = {f"Mbpp/{number}": change for change, numbers in _CHANGES.items() for number in numbers.split()}


def deserialised(task_id: str, inputs: Sequence[list]) -> Sequence[Sequence]:
    """Returns a task's inputs as its ground truth takes them. Raises what Python does for inputs of another shape."""
    change = _BY_TASK.get(task_id)
    return [change(row) for row in inputs] if change else inputs
