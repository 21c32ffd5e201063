"""Datasets whose rows have a task, programs and tests in columns of some name: a table of them, and one reader.

A test is a pair of an input and an output, of a whole program or of a function, or an assert. See
`codea1.lab.data.conversion`.
"""

from functools import partial
from itertools import chain, islice

from codea1.data.loader import parsed
from codea1.data.rows import Row, rows_or_errors
from codea1.lab.data.columns import Columns, IOPairs, are_texts, programs_of, require, unpacked, value_of
from codea1.lab.data.conversion import Format, digest_of
from codea1.lab.data.drafts import UNPARSED, Draft
from codea1.lab.data.solutions import MAX_SOLUTIONS, Solved
from codea1.runtime.errors import BadInput

NO_SOLUTION = "it has no solution"
NO_NAME = "what names its function is no text"


def read_row(row: Row, where: str, columns: Columns, name: str) -> Solved:
    """Returns the question of a row.

    The first solutions that parse are tried as the ground truth. In a set without solutions it is empty. What a whole
    program prints is compared as the row's function says; else as text, or as tokens where an output has decimals.

    Args:
      name: of the set.

    Raises:
      BadInput: a column is missing, or holds what none of the known forms is.
      LeftOut: the row has no question.
    """
    task = value_of(row, next((column for column in columns.problem if column in row), columns.problem[-1]), where)
    if isinstance(task, list):  # of messages
        task = task[-1].get("content") if task and isinstance(task[-1], dict) else None
    if not isinstance(task, str):
        raise BadInput(f"{where}: {columns.problem[-1]} is {type(task).__name__}.")
    solutions = programs_of(value_of(row, columns.solutions, where), f"{where}: {columns.solutions}", passing=True)
    wrong = programs_of(value_of(row, columns.wrong, where), f"{where}: {columns.wrong}", passing=False)
    tests = [unpacked(value_of(row, column, where), f"{where}: {column}") for column in columns.tests]
    given = value_of(row, columns.function, where) if columns.function.partition(".")[0] in row else None
    require(isinstance(given, str | None), NO_NAME)
    require(solutions or not columns.solutions, NO_SOLUTION)
    programs = [*islice((text for text in solutions if parsed(text) is not None), MAX_SOLUTIONS)]  # some are Python 2
    require(programs or not solutions, UNPARSED)
    id = next((row[column] for column in columns.id if row.get(column) is not None), None)
    id = digest_of(task.encode(errors="replace").decode())[:16] if id is None else id
    starter = str((columns.starter and row.get(columns.starter)) or "")
    wrong = [program for program in wrong if parsed(program) is not None]
    draft = Draft(f"{name}/{id}", name, task, starter, given or "", programs, wrong)
    if all(isinstance(test, str) or are_texts(test) for test in tests) and any(tests):
        return draft.of_asserts([*chain.from_iterable([test] if isinstance(test, str) else test for test in tests)])
    pairs = IOPairs()
    for test, column in zip(tests, columns.tests, strict=True):
        pairs.add(test, f"{where}: {column}")
    return draft.of_pairs(pairs)


def format_of_json(problem: str, solution: str, tests: str, function: str) -> Format:
    """Returns the format of rows with columns of these names; without solutions or functions those are empty."""
    columns = Columns((problem,), (tests,), solutions=solution, function=function)

    def read(row: Row, where: str) -> Solved:
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
_SETS = {  # columns, licence, source; docs/data.md says where the columns were seen
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
    "deepcoder": (
        Columns(("problem",), ("tests",), solutions="solutions", starter="starter_code"),
        "MIT",
        "agentica-org/DeepCoder-Preview-Dataset",
    ),
}
SETS = {
    name: Format(rows_or_errors, partial(read_row, columns=columns, name=name), licence, source)
    for name, (columns, licence, source) in _SETS.items()
}
