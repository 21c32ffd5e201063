"""Attempts: programs for a benchmark's questions, of a file, made from ground truths, or written by a Code LLM."""

import ast
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from codea1.evaluation.asked import SamplingParams
from codea1.evaluation.benchmark import CodeBenchmark, benchmark_rows
from codea1.evaluation.evaluation import EvaluationFolder, Key
from codea1.game.prompts import PromptTemplates
from codea1.game.question import Question
from codea1.players.policy import Policy
from codea1.rollout.engine import Request
from codea1.runtime.errors import BadInput

TRUTHS = ("ground_truth", "flipped_ground_truth")


@dataclass(frozen=True)
class Attempt:
    """One program; an empty one counts as a failure."""

    question_id: str
    index: int  # among the attempts at the question
    program: str

    @property
    def key(self) -> Key:
        return self.question_id, self.index


def attempts_of_file(path: str, benchmark: CodeBenchmark) -> list[Attempt]:
    """Returns the completions of a file: rows with `task_id` and, as text, `solution` or else `completion`.

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
    """Returns one attempt at each question: its ground truth, or that with one operator flipped where it has any.

    `kind` is one of TRUTHS.
    """
    programs = {question.id: question.ground_truth for question in benchmark.questions}
    if kind == "flipped_ground_truth":
        programs = {id: flip_one_operator(program, id) or "" for id, program in programs.items()}
    return [Attempt(id, 0, program) for id, program in programs.items() if program]


def kept_attempts(folder: EvaluationFolder, question_ids: Collection[str]) -> list[Attempt]:
    """Returns the programs that a folder holds for these questions, in the order of questions and indices."""
    rows = sorted(folder.rows("attempts").items())
    return [Attempt(*key, row["program"]) for key, row in rows if key[0] in question_ids]


def sampled(
    benchmark: CodeBenchmark,
    questions: Sequence[Question],
    policy: Policy,
    templates: PromptTemplates,
    sampling: SamplingParams,
    done: Collection[Key],
) -> Iterator[Attempt]:
    """Yields the attempts at the questions that are not `done`, as they finish; empty where the prompt does not fit.

    All hosts make the same call. An attempt is the same whatever is done already.
    """
    by_id = {question.id: question for question in questions}
    requests = []
    for question in questions:
        indices = [index for index in range(sampling.samples) if (question.id, index) not in done]
        prompt_ids = policy.prompt_ids(benchmark.messages(question, templates), benchmark.prefill)
        if policy.fits(prompt_ids):
            requests += [Request(question.id, prompt_ids, first, count) for first, count in _runs(indices)]
        else:
            yield from (Attempt(question.id, index, "") for index in indices)
    for sample in policy.generate(requests, **sampling.options(f"code/{benchmark.name}")):
        answer = policy.tokenizer.decode(sample.token_ids)
        answer = answer[: min((end for end in map(answer.find, benchmark.stops) if end >= 0), default=len(answer))]
        program = benchmark.program(by_id[sample.question_id], answer) if answer.strip() else ""
        yield Attempt(sample.question_id, sample.index, program)


def _runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, how many) of those in a row."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs


FLIPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
}


def flip_one_operator(program: str, key: str) -> str | None:
    """Returns `program` with one operator of FLIPS replaced, chosen by `key`; None where it holds no such operator.

    The choice is a function of (program, key) alone. Formatting and comments are lost: the result is unparsed.

    Raises SyntaxError, or what else `ast.parse` does: `program` is none.
    """
    tree = ast.parse(program)
    places: list[tuple[ast.AST, int | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            places += [(node, index) for index, operator in enumerate(node.ops) if type(operator) in FLIPS]
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in FLIPS:
            places.append((node, None))
    if not places:
        return None
    choice = random.Random(key)
    node, index = choice.choice(places)
    if index is None:
        node.op = choice.choice(FLIPS[type(node.op)])()
    else:
        node.ops[index] = choice.choice(FLIPS[type(node.ops[index])])()
    return ast.unparse(tree)
