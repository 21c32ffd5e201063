"""Datasets whose rows have a task, programs and tests in columns of some name: a table of them, and one reader.

A test is a pair of an input and an output, of a whole program or of a function, or an assert. See
`codea1.lab.data.conversion`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

from codea1.data.loader import parsed
from codea1.data.rows import Row, rows_or_errors
from codea1.lab.data.columns import Columns, IOPairs, SecondTable, are_texts, programs_of, unpacked, value_of
from codea1.lab.data.conversion import Format, Rows, digest_of
from codea1.lab.data.drafts import MAX_WRONG, UNPARSED, Draft, defined_in
from codea1.lab.data.solutions import MAX_SOLUTIONS, Solved
from codea1.runtime.errors import BadInput
from codea1.values.entry_points import ACCEPTS

NO_SOLUTION = "it has no solution"
NO_NAME = "what names its function is no text"
NO_CHECKER = "its checker does not define output_judging_function"

# HardTests' judge of what is printed, as a checker; what it is given comes in another order.
_JUDGE = "output_judging_function"
_ACCEPTS = f"\n\n\ndef {ACCEPTS}(given, expected, printed):\n    return bool({_JUDGE}(given, printed, expected))\n"
_RIGHT, _WRONG = "right programs", "wrong programs"  # columns of joined rows


def read_row(row: Row, where: str, columns: Columns, name: str) -> Solved | str:
    """Returns the question of a row, or why it has none.

    The first solutions that parse are tried as the ground truth. In a set without solutions it is empty. What a whole
    program prints is compared as the row's function says; else as text, or as tokens where an output has decimals.

    Args:
      name: of the set.

    Raises BadInput: a column is missing, or holds what none of the known forms is.
    """
    task = value_of(row, next((each for each in columns.problem if each in row), columns.problem[-1]), where)
    if isinstance(task, list):  # of messages
        task = task[-1].get("content") if task and isinstance(task[-1], dict) else None
    if not isinstance(task, str):
        raise BadInput(f"{where}: {columns.problem[-1]} is {type(task).__name__}.")
    solutions = programs_of(value_of(row, columns.solutions, where), f"{where}: {columns.solutions}", passing=True)
    wrong = programs_of(value_of(row, columns.wrong, where), f"{where}: {columns.wrong}", passing=False)
    tests = [unpacked(value_of(row, each, where), f"{where}: {each}") for each in columns.tests]
    if columns.outputs:
        outputs = unpacked(value_of(row, columns.outputs, where), f"{where}: {columns.outputs}")
        tests = [{"inputs": tests[0], "outputs": outputs}]
    given = value_of(row, columns.function, where) if columns.function.partition(".")[0] in row else None
    if not isinstance(given, str | None):
        return NO_NAME
    if columns.solutions and not solutions:
        return NO_SOLUTION
    programs = [*islice((each for each in solutions if parsed(each) is not None), MAX_SOLUTIONS)]  # some are Python 2
    if solutions and not programs:
        return UNPARSED
    id = next((row[each] for each in columns.id if row.get(each) is not None), None)
    id = digest_of(task.encode(errors="replace").decode())[:16] if id is None else id
    starter = str((columns.starter and row.get(columns.starter)) or "")
    checker = (row.get(columns.checker.partition(".")[0]) and value_of(row, columns.checker, where)) or ""
    if checker and (not isinstance(checker, str) or _JUDGE not in defined_in(checker)):
        return NO_CHECKER
    checker = checker and checker + _ACCEPTS
    wrong = [each for each in wrong if parsed(each) is not None]
    draft = Draft(f"{name}/{id}", name, task, starter, given or "", programs, wrong, checker)
    if all(isinstance(each, str) or are_texts(each) for each in tests) and any(tests):
        return draft.of_asserts([*chain.from_iterable([each] if isinstance(each, str) else each for each in tests)])
    pairs = IOPairs()
    for each, column in zip(tests, columns.tests, strict=True):
        if reason := pairs.add(each, f"{where}: {column}"):
            return reason
    return draft.of_pairs(pairs)


def joined(format: Format, files: Sequence[str], columns: Columns, name: str) -> tuple[Format, Sequence[str]]:
    """Returns the format of a set in two tables where rows have the columns of both, and the files with tests.

    Of the second table the programs that are tried are kept in memory, by question. Without its files the rows are as
    they are, where they have the task.

    Raises BadInput: a file cannot be read or is of neither table, or the set is not whole.
    """
    second = columns.second
    assert second is not None
    task = columns.problem[0]
    first_rows = (
        (file, next((row for _, row in rows_or_errors(file) if isinstance(row, dict)), None)) for file in files
    )
    heads = {file: row.keys() for file, row in first_rows if row is not None}
    others = [file for file, head in heads.items() if columns.tests[0] not in head]
    for file in others:
        if not {second.key, second.programs} <= heads[file]:
            raise BadInput(
                f"{file} has neither {columns.tests[0]!r}, as {second.first} does, nor {second.key!r} and "
                f"{second.programs!r}, as {second.name} does."
            )
    tables = [file for file in files if file not in others]
    if not tables:
        raise BadInput(f"{files[0]} has no tests: name the files of {second.first} beside those of {second.name}.")
    if not others:
        if without := next((file for file in tables if task not in heads.get(file, [task])), None):
            raise BadInput(f"{without} has no {task!r}: name the files of {second.name} too.")
        return format, tables
    known: dict[str, dict[str, Any]] = {}
    for file in others:
        wanted = {second.key, second.programs, second.passed, task} & heads[file]
        for where, row in rows_or_errors(file, columns=sorted(wanted)):
            if isinstance(row, BadInput):
                raise row
            _add_programs(known, row, where, second, task)

    def rows(path: str) -> Rows:
        for where, row in rows_or_errors(path):
            if not isinstance(row, BadInput):
                row = {**known.get(str(row.get(second.key)), {_RIGHT: [], _WRONG: []}), **row}
            yield where, row

    read = partial(read_row, columns=replace(columns, solutions=_RIGHT, wrong=_WRONG), name=name)
    return replace(format, rows=rows, read=read), tables


def _add_programs(known: dict[str, dict[str, Any]], row: Row, where: str, second: SecondTable, task: str) -> None:
    """Adds a row of a second table to what is known of its question: as many programs that parse as are tried."""
    value = value_of(row, second.programs, where)
    found = known.setdefault(str(value_of(row, second.key, where)), {_RIGHT: [], _WRONG: []})
    if task in row:
        found[task] = row[task]
    is_right = bool(value_of(row, second.passed, where)) if second.passed else True
    kept, most = (found[_RIGHT], MAX_SOLUTIONS) if is_right else (found[_WRONG], MAX_WRONG)
    programs = programs_of([value] if isinstance(value, str) else value, f"{where}: {second.programs}", passing=True)
    kept += islice((each for each in programs if each not in kept and parsed(each) is not None), most - len(kept))


def format_of_json(problem: str, solution: str, tests: str, function: str) -> Format:
    """Returns the format of rows with columns of these names; without solutions or functions those are empty."""
    columns = Columns((problem,), (tests,), solutions=solution, function=function)

    def read(row: Row, where: str) -> Solved | str:
        value_of(row, function, where)  # where it is named, all rows have it
        return read_row(row, where, columns, "json")

    settings = f"problem={problem}, solution={solution}, tests={tests}, entry_point={function}"
    return Format(rows_or_errors, read, "not stated", "rows of a file", settings=settings)


_APPS = Columns(
    ("question", "description"),
    ("input_output",),
    solutions="solutions",
    starter="starter_code",
    function="function_name",
    id=("problem_id", "task_id", "id", "url"),
)
_INTELLECT = Columns(
    ("problem_statement", "prompt"), ("verification_info",), solutions="gold_standard_solution", id=("problem_id",)
)
_VERL = Columns(("prompt",), ("reward_model.ground_truth",))
_SETS = {  # columns, licence, source; docs/data.md says where the columns were seen
    "stdin": (replace(_APPS, starter=""), "of its source", "a file in the form of APPS"),
    "apps": (_APPS, "MIT", "codeparrot/apps"),
    "taco": (_APPS, "Apache-2.0", "BAAI/TACO"),
    "acecode": (
        Columns(("question",), ("test_cases",), solutions="inferences", wrong="inferences", id=("id",)),
        "MIT",
        "TIGER-Lab/AceCode-87K",
    ),
    "code_contests": (
        Columns(
            ("description",),
            ("public_tests", "private_tests", "generated_tests"),
            solutions="solutions",
            wrong="incorrect_solutions",
            id=("name",),
        ),
        "CC-BY-4.0",
        "deepmind/code_contests",
    ),
    "code_contests_plus": (
        Columns(
            ("description",),
            ("test_cases",),
            solutions="correct_submissions",
            wrong="incorrect_submissions",
            id=("id",),
        ),
        "CC-BY-4.0",
        "ByteDance-Seed/Code-Contests-Plus",
    ),
    "deepcoder": (
        Columns(("problem",), ("tests",), solutions="solutions", starter="starter_code"),
        "MIT",
        "agentica-org/DeepCoder-Preview-Dataset",
    ),
    "verifiable_coding": (_INTELLECT, "of its sources", "PrimeIntellect/verifiable-coding-problems"),
    "synthetic1": (_INTELLECT, "Apache-2.0", "PrimeIntellect/SYNTHETIC-1"),
    "rstar_coder": (
        Columns(
            ("question",),
            ("inputs",),
            "outputs",
            starter="starter_code",
            function="func_name",
            id=("question_id",),
            second=SecondTable(
                "seed_sft", "seed_testcase or synthetic_rl_testcase", "question_id", "code", passed="is_passed"
            ),
        ),
        "CC-BY-4.0",
        "microsoft/rStar-Coder",
    ),
    "hardtests": (
        Columns(
            ("question_content",),
            ("test_cases",),
            id=("pid",),
            checker=f"test_cases_kit.{_JUDGE}",
            second=SecondTable("hardtests_problems", "hardtests_tests", "pid", "solutions"),
        ),
        "MIT",
        "sigcp/hardtests_problems",
    ),
    "eurus2": (_VERL, "MIT", "PRIME-RL/Eurus-2-RL-Data"),
    "skywork_or1": (_VERL, "of its sources", "Skywork/Skywork-OR1-RL-Data"),
}
SETS = {
    name: Format(
        rows_or_errors,
        partial(read_row, columns=columns, name=name),
        licence,
        source,
        join=partial(joined, columns=columns, name=name) if columns.second else None,
    )
    for name, (columns, licence, source) in _SETS.items()
}
WITHOUT_TESTS = {  # sets that are asked for, and why they are not read
    "opencodereasoning": "nvidia/OpenCodeReasoning has no tests, and in split_1 no tasks: it is a model's answers to "
    "those of other sets; convert apps, taco or code_contests, which have the tests."
}
