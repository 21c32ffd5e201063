"""BigCodeBench (Zhuo et al. 2024, arXiv 2406.15877), complete and instruct, full and hard: calibrated, as published.

A program shares its process with the unittest class that judges it, so only models that were not trained on it can be
measured. Tasks use some 70 libraries, which the user installs with codea1.
"""

import ast
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from codea1.game.answers import continued
from codea1.game.prompts import Message, PromptTemplates
from codea1.game.question import Question
from codea1.lab.benchmarks.benchmarks import (
    CODE_BENCHMARKS,
    CodeBenchmark,
    benchmark_rows,
    missing_modules,
    require_python,
    require_text,
    require_unique,
)
from codea1.lab.sandbox.benchmarks import BenchmarkPool, required_tests
from codea1.runtime.errors import BadInput
from codea1.sandbox.host import Limits, ScriptRun

_FIELDS = ("task_id", "complete_prompt", "instruct_prompt", "canonical_solution", "code_prompt", "test", "entry_point")
_LIMITS = Limits(cpu_seconds_per_script=241.0, script_memory_bytes=30 << 30)  # the package's own
_INSTRUCTION = (
    "Please provide a self-contained Python script that solves the following problem in a markdown code block:"
)
_RESPONSE = (
    "Below is a Python script with a self-contained function that solves the problem and passes corresponding tests:"
)


class BigCodeBench(CodeBenchmark):
    """One of the four benchmarks."""

    prefill = f"{_RESPONSE}\n```python\n"
    stops = ("\n```\n", "\nif __name__", "\ndef main(", "\nprint(")

    def __init__(self, name: str, rows: Sequence[dict[str, Any]], pool: BenchmarkPool) -> None:
        """Takes `rows` with the official fields; "instruct" in the name chooses the prompt."""
        self.name = name
        self._is_instruct = "instruct" in name
        self._rows = {row["task_id"]: row for row in rows}
        self.questions = [self._question(row) for row in rows]
        self._pool = pool

    def messages(self, question: Question, templates: PromptTemplates) -> list[Message]:
        del templates  # the benchmark has its own
        task = question.description.strip()
        shown = task if self._is_instruct else f"```\n{task}\n```"
        return [{"role": "user", "content": f"{_INSTRUCTION}\n{shown}\n"}]

    def program(self, question: Question, answer: str) -> str:
        """Returns the program after a stub with the imports and signature that the task gives: calibrated."""
        return _stub(self._rows[question.id]) + sanitize(answer, question.entry_point)

    def continued(self, question: Question, completion: str) -> str:
        return self.program(question, continued(f"{question.problem}\n", completion))

    def judge(self, question: Question, program: str) -> Future[ScriptRun]:
        return self._pool.run_unittest(program, self._rows[question.id]["test"], limits=_LIMITS)

    def unjudged(self) -> dict[str, str]:
        reasons = {}
        for task_id, row in self._rows.items():
            if absent := missing_modules(_stub(row), row["test"], _ground_truth(row)):
                reasons[task_id] = f"this Python has no module {', '.join(absent)}"
        return reasons

    def _question(self, row: dict[str, Any]) -> Question:
        return Question(
            id=row["task_id"],
            prompt=None,
            problem=row["complete_prompt"],
            description=row["instruct_prompt" if self._is_instruct else "complete_prompt"],
            ground_truth=_ground_truth(row),
            entry_point=row["entry_point"],
            data_source=self.name,
        )


def load_tasks(path: str) -> list[dict[str, Any]]:
    """Returns the rows of the official file, checked. Raises BadInput: names the file and row of what is malformed."""
    rows = []
    for where, row in benchmark_rows(path, CODE_BENCHMARKS["bigcodebench_complete"]):
        require_text(row, _FIELDS, where)
        require_python(_stub(row), f"{where} ({row['task_id']}): its code_prompt")
        require_python(_ground_truth(row), f"{where} ({row['task_id']}): its canonical_solution")
        try:
            required_tests(row["test"])
        except (ValueError, SyntaxError) as error:
            raise BadInput(f"{where} ({row['task_id']}): its test cannot be used: {error}.") from None
        rows.append(row)
    require_unique([row["task_id"] for row in rows], path)
    return rows


def _stub(row: Mapping[str, Any]) -> str:
    """Returns the imports and the signature that a task gives, without a body."""
    return f"{row['code_prompt']}\n    pass\n"


def _ground_truth(row: Mapping[str, Any]) -> str:
    return f"{row['complete_prompt']}\n{row['canonical_solution']}"


def sanitize(answer: str, entry_point: str) -> str:
    """Returns the program in `answer`; the longest run of lines that parses where nothing of it is needed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about programs that are not ours
        text, tree = _longest_program(answer.strip().split("\n"))
    return "\n".join(_needed(text, tree, entry_point)).strip() or text


def _longest_program(lines: list[str]) -> tuple[str, ast.Module]:
    """Returns the first run of lines that parses with most lines that are not blank; an empty one where none does."""
    before = list(itertools.accumulate((bool(line.strip()) for line in lines), initial=0))  # lines that are not blank
    best, text, most = ast.Module([], []), "", 0
    for start in range(len(lines)):
        end = len(lines)
        while before[end] - before[start] > most:
            run = "\n".join(lines[start:end])
            try:
                best, text, most = ast.parse(run), run, before[end] - before[start]
            except SyntaxError as error:  # every shorter run that has this line fails, too
                end = min(end, start + (error.lineno or end)) - 1
            except (ValueError, RecursionError, MemoryError):
                end -= 1
    return text, best


def _needed(text: str, tree: ast.Module, entry_point: str) -> Iterator[str]:
    """Yields the sources of the imports, and then of the definitions that are reached from the entry point."""
    definitions: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield ast.get_source_segment(text, node) or ""
        elif name := _defined_name(node):
            definitions.setdefault(name, node)
    reached: set[str] = set()
    names = {entry_point}
    while names:
        reached |= names
        nodes = [node for name in names & definitions.keys() for node in ast.walk(definitions[name])]
        names = {node.id for node in nodes if isinstance(node, ast.Name)} - reached
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)} - reached
    for name, node in definitions.items():
        if name in reached:
            yield ast.get_source_segment(text, node) or ""


def _defined_name(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.decorator_list:
        return node.name
    targets = node.targets[:1] if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    is_assignment = isinstance(node, ast.Assign | ast.AnnAssign)
    return targets[0].id if is_assignment and isinstance(targets[0], ast.Name) else None
