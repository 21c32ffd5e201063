"""Datasets whose rows become training questions, each as its files have it; see `codea1.lab.data.conversion`."""

import ast
import json
import os
import re
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace

from codea1.data.loader import entry_point, parsed
from codea1.data.rows import Row, rows_or_errors
from codea1.game.asserts import Rejected, read_fixed_tests
from codea1.game.calls import source_of
from codea1.game.question import Question
from codea1.lab.data.columns import NOT_TEXTS, LeftOut, are_texts, require
from codea1.lab.data.conversion import Format, Rows
from codea1.lab.data.drafts import NO_FUNCTION, NO_TESTS, UNPARSED, UNPARSED_TESTS, declaration, declared, defined_in
from codea1.lab.data.sets import SETS
from codea1.runtime.errors import BadInput, MissingFile
from codea1.sandbox.child.entries import level_order, tree
from codea1.storage.objects import is_remote
from codea1.values.entry_points import class_and_method
from codea1.values.literals import Budget, NotLiteral, literal_value

NO_PAIR = "one of its tests is no pair of arguments and answer"
NOT_ONE_FUNCTION = "its tests are not of one function"
NOT_HARD = "not hard: too many trials passed"
NO_SHARE = "its share of trials that passed is NaN"
INCOMPLETE = "a field is empty"
NO_ASSERT = "no plain assert on a call with plain data"
MANY_ANSWERS = "its statement takes answers that its tests do not"

HARD = 1 / 3  # KodCode's own bound: below this share of trials that pass, a question is called hard
_ROUNDING = 0.0005  # of the shares in its files, in which a third, 0.333 there, is labelled medium
# What a statement says of the answer, not of its input or of steps on the way: its order is free, any of several is
# right, or a number close to it. In a sentence with "by" the order is that of parts, as in "by concatenating digits".
_FREE = re.compile(
    r"\breturn(?:ed)?\b(?:(?!\bby\b)[^.])* in any (?:arbitrary )?order|\border\b[^.]* returned\b[^.]* not matter\b"
    r"|\breturn (?:any|the \w+ of any such)\b|\bfind any\b[^.]* return\b"
    r"|\b(?:answers?|solutions?)\b[^.]* accepted\b",
    re.IGNORECASE,
)
KODCODE: dict[str, type | tuple[type, ...]] = {  # its columns
    "question_id": object,
    **dict.fromkeys(("question", "solution", "test"), (str, type(None))),
    "gpt_pass_percentage": (int, float, type(None)),
    "test_info": (list, type(None)),
}


def _require(row: Row, where: str, **kinds: type | tuple[type, ...]) -> None:
    """Raises BadInput where a field of a row is missing or of another type."""
    for name, kind in kinds.items():
        if name not in row:
            raise BadInput(f"{where}: the field {name!r} is missing.")
        if not isinstance(row[name], kind):
            raise BadInput(f"{where}: {name} is {type(row[name]).__name__}.")


def _under_test(program: str, completed: str | None, check_script: str | None, name: str) -> str:
    """Returns the function under test as the loader will have it. Raises LeftOut: the program does not define it."""
    try:
        return entry_point(program, completed, check_script, name)
    except ValueError:
        raise LeftOut(NO_FUNCTION) from None


def _script_of(asserts: Sequence[str], set_up: str = "") -> str:
    """Returns the check script of asserts that call `candidate`, or what is under test by its name."""
    return f"{set_up}\n\ndef check(candidate):\n{indent(chr(10).join(asserts), '    ')}\n"


def _stated(body: Sequence[ast.stmt], name: str) -> tuple[str, ...]:
    """Returns the sources of the asserts among statements that state what a call gives, each call once."""
    tests = (test for test in read_fixed_tests(body, name) if not isinstance(test, Rejected))
    return tuple({test.identity: test.text for test in tests}.values())


def read_mbpp(row: Row, where: str) -> Question:
    """Returns a row of mbpp.jsonl or sanitized-mbpp.json (Austin et al., 2021): a task, a solution, and asserts."""
    if "prompt" in row and are_texts(row.get("test_imports")):
        row = {**row, "text": row["prompt"], "test_setup_code": "\n".join(row["test_imports"])}
    _require(row, where, task_id=int, text=str, code=str, test_list=list, test_setup_code=str)
    lists = {"test_list": row["test_list"], "challenge_test_list": row.get("challenge_test_list") or []}
    for key, texts in lists.items():
        require(are_texts(texts), NOT_TEXTS.format(key))
    program, asserts = row["code"].replace("\r\n", "\n"), [*chain(*lists.values())]
    require(parsed(program), UNPARSED)
    require(asserts, NO_TESTS)
    modules = [module for source in asserts if (module := parsed(source))]
    require(modules, UNPARSED_TESTS)
    nodes, defined = [node for module in modules for node in module.body], defined_in(program)
    called = [node.func for tree in nodes for node in ast.walk(tree) if isinstance(node, ast.Call)]
    name = next((node.id for node in called if isinstance(node, ast.Name) and node.id in defined), "")
    require(name, NO_FUNCTION)
    script, tests = _script_of(asserts, row["test_setup_code"]), _stated(nodes, name)
    problem = declared(row["text"], declaration(program, name))
    id = f"mbpp/{row['task_id']}"
    return Question(id, None, problem, row["text"], program, name, script, tests, data_source="mbpp")


def read_humanevalpack(row: Row, where: str) -> Question:
    """Returns a row of HumanEvalPack's Python (Muennighoff et al., 2023): its buggy solution is the mutant."""
    fields = ["task_id", "prompt", "canonical_solution", "buggy_solution", "test", "entry_point", "docstring"]
    _require(row, where, **dict.fromkeys(fields, str))
    problem, script, name = row["prompt"].lstrip("\n"), row["test"], row["entry_point"]
    program, mutant = problem + row["canonical_solution"], problem + row["buggy_solution"]
    require(parsed(program), UNPARSED)
    require(parsed(script), UNPARSED_TESTS)
    name = _under_test(program, name, script, name)
    tests = _stated(_check_body(script, ast.Name(name)), name)
    mutants = (mutant,) if parsed(mutant) else ()
    return Question(
        row["task_id"], None, problem, row["docstring"], program, name, script, tests, mutants, "humanevalpack"
    )


class _Renamed(ast.NodeTransformer):
    """Replaces a name by an expression, and LeetCode's nodes by lists."""

    def __init__(self, name: str, expression: ast.expr) -> None:
        self._name, self._expression = name, expression

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._expression if node.id == self._name else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="list_node"), args=[values]):
                return values
            case ast.Call(func=ast.Name(id="tree_node"), args=[values]):
                return _in_order(values)
            case ast.Call(func=ast.Name(id="is_same_list" | "is_same_tree"), args=[one, other]):
                return ast.Compare(one, [ast.Eq()], [other])
        return node


def _in_order(values: ast.expr) -> ast.expr:
    """Returns a tree's list as an answer has it: without None at its end."""
    try:
        written = literal_value(values, Budget())
    except NotLiteral:
        return values
    if not isinstance(written, list | None):
        return ast.Call(ast.Name("tree_node"), [values], [])  # no tree, and no literal
    root = tree(written or [], lambda value: SimpleNamespace(val=value, left=None, right=None))
    return ast.parse(source_of(level_order(root)), mode="eval").body


def _check_body(script: str, called: ast.expr) -> list[ast.stmt]:
    """Returns the statements of a script's `check`, which call `called` where they called its parameter."""
    body = (parsed(script) or ast.Module([], [])).body
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args:
            return [_Renamed(node.args.args[0].arg, called).visit(child) for child in node.body]
    return []


def read_leetcode(row: Row, where: str) -> Question:
    """Returns a row of LeetCodeDataset (Xia et al., 2025), whose solutions are methods of a class.

    Linked lists and trees are lists in its tests, and what stands before every solution becomes the preamble. Its tests
    want one answer, and a right program may give another where the statement says so: those rows are left out.
    """
    _require(row, where, **dict.fromkeys(["task_id", "prompt", "completion", "entry_point", "test", "query"], str))
    require(not _FREE.search(" ".join(row["query"].split())), MANY_ANSWERS)
    program, name, asked = row["completion"], row["entry_point"], row["query"]
    require(parsed(program), UNPARSED)
    require(parsed(row["test"]), UNPARSED_TESTS)
    require(class_and_method(name), NO_FUNCTION)
    body = _check_body(row["test"], ast.parse(name, mode="eval").body)
    require(body, NO_TESTS)
    called = _check_body(row["test"], ast.Name("candidate"))
    script = _script_of([ast.unparse(ast.fix_missing_locations(child)) for child in called])
    id, tests = f"leetcode/{row['task_id']}", _stated([*map(ast.fix_missing_locations, body)], name)
    return Question(
        id, None, asked, asked, program, name, script, tests, data_source="leetcode", preamble=row["prompt"]
    )


def read_kodcode(row: Row, where: str, max_pass_rate: float) -> Question:
    """Returns a row of KodCode-V1 (Xu et al., 2025): a question, a solution, a pytest file, and how GPT-4o fared.

    The paper trains on the hard ones, less than a third, that ask for a single function; which further filter it used
    is not known.

    Args:
      max_pass_rate: share of GPT-4o's trials that passed their own tests below which a question is hard.
    """
    _require(row, where, **KODCODE)
    infos, share = row["test_info"], row["gpt_pass_percentage"]
    if not all(isinstance(info, dict) for info in infos or ()):
        raise BadInput(f"{where} ({row['question_id']}): test_info is not a list of records.")
    require(all(row[name] is not None for name in KODCODE if name != "test_info"), INCOMPLETE)
    require(infos, NOT_ONE_FUNCTION)  # of a class, it is None
    require(share == share, NO_SHARE)  # NaN alone is another number than itself
    require(share < max_pass_rate - _ROUNDING, NOT_HARD)
    require(parsed(row["solution"]), UNPARSED)
    require(parsed(row["test"]), UNPARSED_TESTS)
    tested = [(info, asserts_of(row["test"], str(info.get("function_name")))) for info in infos]
    if len(tested) > 1:  # the function asked for and others, which the tests may leave out
        tested = [(info, tests) for info, tests in tested if tests]
        require(len(tested) == 1, NOT_ONE_FUNCTION)
    ((info, tests),) = tested
    name, asked, solution = str(info.get("function_name")), row["question"], row["solution"]
    _under_test(solution, None, None, name)
    require(tests, NO_ASSERT)
    problem = declared(asked, str(info.get("function_declaration") or f"def {name}(...):"))
    id = str(row["question_id"])
    return Question(id, None, problem, asked, solution, name, golden_tests=tests, data_source="kodcode_light")


def asserts_of(pytest_file: str, function_name: str) -> tuple[str, ...]:
    """Returns what the test functions of a file assert about calls of a function with plain data, each call once.

    What needs more running than `read_fixed_tests` does, such as loops, fixtures and parametrised tests, is left out.
    """
    module = parsed(pytest_file)
    nodes = [node for node in module.body if isinstance(node, ast.FunctionDef)] if module else []
    functions = ([node] for node in nodes if node.name.startswith("test") and not node.args.args)
    tests: dict[tuple[str, bytes], str] = {}
    for test in chain.from_iterable(read_fixed_tests(body, function_name) for body in functions):
        if not isinstance(test, Rejected):
            tests.setdefault(test.identity, test.text)
    return tuple(tests.values())


def kodcode(max_pass_rate: float) -> Format:
    """Returns the format of KodCode's files, of whose questions those below a pass rate are kept.

    Rows whose ids differ in the letter at their end alone ask one thing: _I in words, _C by a docstring with answers.
    """
    return Format(
        _kodcode_rows,
        partial(read_kodcode, max_pass_rate=max_pass_rate),
        "CC-BY-NC-4.0",
        "KodCode/KodCode-V1",
        settings=f"max_pass_rate={max_pass_rate}",
        group=lambda question: re.sub(r"_[A-Z]$", "", question.id),
    )


def _kodcode_rows(path: str) -> Rows:
    """Yields the rows of a file; those of KodCode's own pipeline call the tests `test_code`."""
    for where, row in rows_or_errors(path, columns=[*KODCODE] if path.endswith(".parquet") else None):
        if not isinstance(row, BadInput) and "test_code" in row:
            row = {"test": row["test_code"], **row}
        yield where, row


def quixbugs_rows(folder: str) -> Rows:
    """Yields the programs of a clone of QuixBugs (Lin et al., 2017) that have tests as JSON, or what is wrong with one.

    Raises BadInput: there is no such folder on a disk, or it is not of that form.
    """
    root = Path(folder)
    if not root.exists() and not is_remote(folder):
        raise MissingFile(f"folder {folder} does not exist.")
    if not root.is_dir():
        raise BadInput(f"{folder} is no folder on a disk.")
    cases = sorted((root / "json_testcases").glob("*.json"))
    if not cases:
        raise BadInput(f"{folder} is no clone of QuixBugs: it has no json_testcases.")
    for path in cases:
        parts = [root / part / f"{path.stem}.py" for part in ("correct_python_programs", "python_programs")]
        try:
            right, wrong = (part.read_text() for part in parts)
            tests = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        except (OSError, ValueError, RecursionError) as error:
            yield os.fspath(path), BadInput(f"{path}: {error}.")
            continue
        yield os.fspath(path), {"name": path.stem, "right": right, "wrong": wrong, "tests": tests}


def read_quixbugs(row: Row, where: str) -> Question:
    """Returns one of QuixBugs' programs: the task is what stands behind the wrong one, which is the mutant."""
    tree, name = parsed(row["wrong"]), row["name"]
    if tree is None or parsed(row["right"]) is None:
        raise LeftOut(UNPARSED)
    words = [
        node.value.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    task = str(words[-1]).strip() if words else name
    _under_test(row["right"], None, None, name)
    require(row["tests"], NO_TESTS)
    require(all(isinstance(test, list) and len(test) == 2 for test in row["tests"]), NO_PAIR)
    code = ast.unparse(ast.Module([node for node in tree.body if not isinstance(node, ast.Expr)], []))
    given = [(arguments if isinstance(arguments, list) else [arguments], value) for arguments, value in row["tests"]]
    calls = ((f"{name}({', '.join(map(source_of, arguments))})", value) for arguments, value in given)
    tests = tuple(f"assert {call} == {source_of(value)}" for call, value in calls)
    problem = declared(task, declaration(row["right"], name))
    return Question(
        f"quixbugs/{name}", None, problem, task, row["right"], name, None, tests, (code,), data_source="quixbugs"
    )


FORMATS = {
    "mbpp": Format(rows_or_errors, read_mbpp, "CC-BY-4.0", "google-research/mbpp"),
    "humanevalpack": Format(rows_or_errors, read_humanevalpack, "MIT", "bigcode/humanevalpack"),
    "leetcode": Format(rows_or_errors, read_leetcode, "MIT; the tasks are LeetCode's", "newfacade/LeetCodeDataset"),
    "quixbugs": Format(quixbugs_rows, read_quixbugs, "MIT", "jkoppel/QuixBugs", answers_are_json=True),
    **SETS,
}
