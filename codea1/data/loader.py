"""Datasets to questions: of prepared worlds, and of files with the fields of the official Code-A1 data.

Every row is checked before anything slow starts; the first bad one ends the load with its file, row and question.
"""

import ast
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from codea1.data.rows import Row, dataset_rows, file_rows
from codea1.data.sources import PROCEDURAL, SPLITS, world_file, world_folder, world_of
from codea1.game.prompts import ROLES
from codea1.game.question import Question
from codea1.runtime import removed
from codea1.runtime.errors import BadInput, MissingFile
from codea1.storage.objects import is_remote
from codea1.values.entry_points import ACCEPTS, PROGRAMS, STDOUT, class_and_method

_REQUIRED = ("prompt", "GT_code", "data_source", "extra_info")
_DESCRIPTIONS = ("clean_description", "description")  # of the training file and of the validation file
_FILES = (".parquet", ".jsonl", ".json", ".jsonl.gz", ".json.gz")
_QUESTION_MARK = "Question:\n"  # what stands before the problem in the official prompts


def load_questions(
    source: str,
    split: str | None = None,
    limit: int | None = None,
    data_folder: str | None = None,
    *,
    may_lack_truth: bool = False,
) -> list[Question]:
    """Returns all questions of a dataset, in its order.

    Args:
      source: "procedural" or "procedural/WORLD", which `codea1.lab worlds` prepared; or the path or gs:// URL of a file
        of rows (see `file_rows`) or of the folder of a dataset that tensorflow-datasets prepared as array_record files.
      split: "train", "validation" or "test" of a dataset; files have one split and ignore it.
      limit: only the first so many; None or 0 for all.
      data_folder: where worlds are prepared, and what is in buckets is copied to; None for ~/.cache/codea1.
      may_lack_truth: a row may have an empty GT_code, where nothing asks a ground truth.

    Raises:
      StorageFailed: a bucket fails.
      BadInput: names the file, row and question of a missing file, missing column, ground truth that is missing, does
        not parse or does not define the function under test, repeated id, or of a source without any question.
    """
    questions: dict[str, Question] = {}
    for where, row in rows_of(source, split, data_folder):
        question = _question(row, where, may_lack_truth)
        if question.id in questions:
            raise BadInput(f"{where}: question {question.id} comes twice.")
        questions[question.id] = question
        if len(questions) == limit:
            break
    if not questions:
        raise BadInput(f"{source} holds no question.")
    return list(questions.values())


def rows_of(source: str, split: str | None, data_folder: str | None) -> Iterator[tuple[str, Row]]:
    """Returns the rows of a dataset, each with its place for messages; see `load_questions`."""
    if world := world_of(source):
        return _world_rows(world, split, data_folder)
    if source.endswith(_FILES):
        return file_rows(source, data_folder)
    if is_remote(source) or os.path.isdir(source):
        return dataset_rows(source, split, data_folder)
    raise BadInput(
        f"data source {source!r} is neither {PROCEDURAL!r} nor a folder, nor a file with one of the endings "
        f"{', '.join(_FILES)}."
    )


def _world_rows(world: str, split: str | None, data_folder: str | None) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a split of a world, with their places for messages. Raises BadInput that says what to do."""
    if gone := removed.removed_name("the world", world, removed.WORLDS):
        raise BadInput(gone)
    if split not in SPLITS:
        raise BadInput(f"world {world} has no split {split!r}; it has {', '.join(SPLITS)}.")
    folder = world_folder(world, data_folder)
    makes = f"`python -m codea1.lab worlds {world} --folder={data_folder or '~/.cache/codea1'}` makes"
    try:
        yield from file_rows(str(world_file(world, split, data_folder)))
    except MissingFile:
        raise BadInput(f"the questions of world {world} are not in {folder}: {makes} them.") from None
    except BadInput as error:
        raise BadInput(f"{error} Once {folder} is removed, {makes} it again.") from None


def _question(row: Row, where: str, may_lack_truth: bool) -> Question:
    _check_fields(row, where, may_lack_truth)
    extra = row["extra_info"]
    where = f"{where} ({extra['question_id']})"
    prompt = tuple({"role": message["role"], "content": message["content"]} for message in row["prompt"])
    problem = row.get("problem")
    if problem is None:  # files without the column have it in the last message alone
        _, mark, problem = prompt[-1]["content"].partition(_QUESTION_MARK)
        problem = problem if mark else prompt[-1]["content"]
    check_script = row.get("test") or None
    tested = str(extra.get("function_name"))
    try:
        if tested.startswith(f"{STDOUT}_") and tested not in PROGRAMS:
            raise ValueError(f"its function_name {tested!r} is none of {', '.join(PROGRAMS)}")
        if row.get("checker"):
            _check_checker(row["checker"], tested)
        if not row["GT_code"]:
            program = ""
        elif tested in PROGRAMS or class_and_method(tested):
            program = row["GT_code"]
            _check_definition(program, tested)
        else:
            program, completed = complete_program(problem, row["GT_code"])
            tested = entry_point(program, completed, check_script, tested)
    except ValueError as error:
        raise BadInput(f"{where}: {error}.") from None
    return Question(
        id=str(extra["question_id"]),
        prompt=prompt,
        problem=problem,
        description=next(row[name] for name in _DESCRIPTIONS if row.get(name) is not None),
        ground_truth=program,
        entry_point=tested,
        check_script=check_script,
        golden_tests=_texts(row.get("GT_test")),
        mutants=_texts(row.get("mutants")),
        data_source=row["data_source"],
        preamble=row.get("preamble") or "",
        checker=row.get("checker") or "",
    )


def _check_fields(row: Row, where: str, may_lack_truth: bool) -> None:
    for name in _REQUIRED:
        if name not in row:
            raise BadInput(f"{where}: the column {name!r} is missing.")
    if all(row.get(name) is None for name in _DESCRIPTIONS):
        raise BadInput(f"{where}: the column {' or '.join(map(repr, _DESCRIPTIONS))} is missing or empty.")
    extra = row["extra_info"]
    if not isinstance(extra, Mapping) or extra.get("question_id") in (None, ""):
        raise BadInput(f"{where}: extra_info has no question_id.")
    where = f"{where} ({extra['question_id']})"
    if not isinstance(row["GT_code"], str) or not (row["GT_code"].strip() or (may_lack_truth and not row["GT_code"])):
        raise BadInput(f"{where}: there is no ground truth in GT_code, which all but method=golden needs.")
    prompt = row["prompt"]
    is_chat = isinstance(prompt, list) and len(prompt) > 0 and all(map(_is_message, prompt))
    if not is_chat:
        raise BadInput(f"{where}: the prompt is not a list of messages with a role ({', '.join(ROLES)}) and content.")
    for name in ("problem", "test", "data_source", "preamble", "checker", *_DESCRIPTIONS):
        if row.get(name) is not None and not isinstance(row[name], str):
            raise BadInput(f"{where}: {name} is not text.")
    for name in ("GT_test", "mutants"):
        texts = row.get(name)
        if not isinstance(texts, str | list | None) or not all(isinstance(text, str) for text in texts or ()):
            raise BadInput(f"{where}: {name} is neither text nor a list of texts.")


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("role") in ROLES and isinstance(value.get("content"), str)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(text for text in ([value] if isinstance(value, str) else value or ()) if text.strip())


def _check_checker(checker: str, entry_point: str) -> None:
    """Raises ValueError where a checker does not define its function, or what is under test prints nothing."""
    if entry_point not in PROGRAMS:
        raise ValueError(f"it has a checker, and its function_name {entry_point!r} is none of {', '.join(PROGRAMS)}")
    tree = parsed(checker)
    if tree is None:
        raise ValueError("its checker does not parse as Python")
    if ACCEPTS not in {function.name for function in _functions(tree)}:
        raise ValueError(f"its checker does not define {ACCEPTS}(given, expected, printed)")


def _check_definition(program: str, entry_point: str) -> None:
    """Raises ValueError where a program does not parse, or lacks the class and method under test."""
    tree = parsed(program)
    if tree is None:
        raise ValueError("its ground truth does not parse as Python")
    if method := class_and_method(entry_point):
        owners = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == method[0]]
        if method[1] not in {function.name for owner in owners for function in _functions(owner)}:
            raise ValueError(f"its ground truth does not define {entry_point}")


_CHECK = re.compile(r"^def check\(\s*(\w+)", re.MULTILINE)


def complete_program(problem: str, code: str) -> tuple[str, str | None]:
    """Returns the whole program of a ground truth, which may be the bare body of the function that the problem begins.

    Returns:
      The program, and the name of the completed function where the ground truth is a bare body.

    Raises:
      ValueError: the ground truth does not parse or defines no function, alone and after the problem.
    """
    whole = parsed(code)
    if _functions(whole):
        return code, None
    program = problem + code
    functions = _functions(parsed(program))
    if functions:
        begun = [function.name for function in functions if function.lineno <= len(problem.splitlines())]
        return program, begun[-1] if begun else None
    raise ValueError("its ground truth defines no function" if whole else "its ground truth does not parse as Python")


def entry_point(program: str, completed: str | None, check_script: str | None, function_name: str) -> str:
    """Returns the name of the function under test, which the program defines.

    It is the function that the ground truth completes; else what the check script tests; else what the row says. Where
    a program has several functions, a script that calls its parameter tests what the parameter is named after or, where
    that is no function of the program's, such as candidate, what the row says: what else it calls are helpers. A script
    that does not tests the function that it calls: there its parameter and the row may be named after a helper.

    Args:
      program: as `complete_program` returns it.
      completed: likewise.
      check_script: defines check(candidate); None if the row has none.
      function_name: what the row says.

    Raises:
      ValueError: the check script does not parse or defines no check, or the program does not define the function.
    """
    defined = [function.name for function in _functions(parsed(program))]
    names = [completed] if completed else []
    if check_script is not None:
        parameter = _CHECK.search(check_script)
        if parameter is None:
            raise ValueError("its test defines no function check")
        # Scripts can hold a megabyte of data, so they are parsed only where it matters.
        several = len(defined) > 1 and not completed
        called = _called_by_check(check_script) if several else [parameter[1]]
        names += [parameter[1], function_name] if parameter[1] in called else called
    for name in [*names, function_name]:
        if name in defined:
            return name
    raise ValueError(f"its ground truth does not define the function under test, {function_name!r}")


def _called_by_check(check_script: str) -> list[str]:
    """Returns the names that check calls and that are not the script's own functions."""
    helpers = {function.name: function for function in _functions(parsed(check_script))}
    check = helpers.get("check")
    if check is None:
        raise ValueError("its test does not parse as Python")
    parameters = {argument.arg for argument in check.args.args}
    called = [
        node.func.id for node in ast.walk(check) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return [name for name in called if name in parameters or name not in helpers]


def _functions(tree: ast.Module | ast.ClassDef | None) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    body = tree.body if tree is not None else []
    return [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def parsed(source: str) -> ast.Module | None:
    """Returns the syntax tree of `source`; None where it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in docstrings
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
