"""Attempts: programs that somebody wrote for a benchmark's questions, any number for each."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from codea1.evaluation.benchmark_file import benchmark_rows
from codea1.evaluation.code_benchmark import CodeBenchmark
from codea1.evaluation.operator_flip import flip_one_operator
from codea1.runtime.errors import BadInput

TRUTHS = ("ground_truth", "flipped_ground_truth")


@dataclass(frozen=True)
class Attempt:
    """One program; an empty one is a failure that was nobody's to run."""

    question_id: str
    index: int  # among the attempts at the question
    program: str


def attempts_of_file(path: str, benchmark: CodeBenchmark) -> list[Attempt]:
    """The completions of a file: rows with `task_id` and, as text, `solution` or else `completion`.

    A solution is a whole program, alone or in a code block; a completion goes on where the question's code ends.

    Raises BadInput: the file, line or task that is malformed, unknown to the benchmark, or without a completion.
    """
    questions = {question.id.lower(): question for question in benchmark.questions}
    count: Counter[str] = Counter()
    attempts = []
    for where, row in benchmark_rows(path):
        if not isinstance(row.get("task_id"), str):
            raise BadInput(f"{where}: there is no task_id.")
        question = questions.get(row["task_id"].lower())
        if question is None:
            raise BadInput(f"{where}: the task {row['task_id']} is not in {benchmark.name}.")
        field = "solution" if "solution" in row else "completion"
        if not isinstance(row.get(field), str):
            raise BadInput(f"{where}: {field} is {'not text' if field in row else 'missing, and so is solution'}.")
        take = benchmark.program if field == "solution" else benchmark.continued
        program = take(question, row[field]) if row[field].strip() else ""
        attempts.append(Attempt(question.id, count[question.id], program))
        count[question.id] += 1
    if missing := [question.id for question in benchmark.questions if not count[question.id]]:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise BadInput(f"{path} has no completion for {len(missing)} of {len(questions)} tasks: {shown}.")
    return attempts


def attempts_of_truth(kind: str, benchmark: CodeBenchmark) -> list[Attempt]:
    """One attempt at each question: its ground truth, or that with one operator flipped where it has any.

    `kind` is one of TRUTHS.
    """
    programs = {question.id: question.ground_truth for question in benchmark.questions}
    if kind == "flipped_ground_truth":
        programs = {id: flip_one_operator(program, id) or "" for id, program in programs.items()}
    return [Attempt(id, 0, program) for id, program in programs.items() if program]


def by_question(attempts: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    """The attempts at each question, in the order of their indices."""
    found: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda attempt: attempt.index):
        found[attempt.question_id].append(attempt)
    return dict(found)
