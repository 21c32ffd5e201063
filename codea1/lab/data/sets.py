"""Datasets whose rows have a task, programs and tests in columns of some name: a table of them, and one reader.

A test is a pair of an input and an output, of a whole program or of a function, or an assert. See
`codea1.lab.data.conversion`.
"""

import ast
import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from textwrap import indent
from typing import Any, TypeGuard

from codea1.data.loader import entry_point, parsed
from codea1.data.rows import rows_or_errors
from codea1.game.answers import extract_python_block
from codea1.game.asserts import Rejected, read_fixed_tests
from codea1.game.calls import CallTest, source_of
from codea1.game.question import Question
from codea1.lab.data.conversion import MAX_SOLUTIONS, Format, Row, Rows, Solved, declared, digest_of, script_of_tests
from codea1.lab.packed import unpacked_text
from codea1.runtime.errors import BadInput
from codea1.values.entry_points import ACCEPTS, PROGRAMS, STDOUT, STDOUT_TOKENS, class_and_method, has_decimals

NO_FUNCTION = "its solution does not define the function under test"
UNPARSED = "its solution does not parse as Python"
UNPARSED_TESTS = "its tests do not parse as Python"
NO_SOLUTION = "it has no solution"
NO_TESTS = "it has no tests"
UNPAIRED = "it has more inputs than outputs, or fewer"
NOT_TEXTS = "its {} is not a list of texts"
NO_ARGUMENTS = "one of its inputs is no list of arguments"
NO_STATED = "no test states data"
TOO_LARGE = "each of its tests has an input or output of more than 64 KiB"
NOT_TOLD = "no solution tells whether a list in its outputs is one, a tuple, or stands around an answer"
NO_NAME = "what names its function is no text"
OTHER_LANGUAGE = "it asks for another language than Python"
BAD_CHECK = "its tests have no one check of the function under test"
NO_CHECKER = "its checker does not define output_judging_function"

MAX_WRONG = 8  # wrong programs of a row that are tried as mutants
PYTHON = (3, "python3", "py3", "python")  # in lower case: what sets call it; CodeContests counts its languages
# What judges of functions and methods import before a program, which may use `List` without an import.
PREAMBLE = "".join(
    f"from {module} import *\n"
    for module in ("typing", "collections", "functools", "heapq", "bisect", "itertools", "math", "builtins")
)
# HardTests' judge of what is printed, as a checker; what it is given comes in another order.
_JUDGE = "output_judging_function"
_ACCEPTS = f"\n\n\ndef {ACCEPTS}(given, expected, printed):\n    return bool({_JUDGE}(given, printed, expected))\n"
_PACKED = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}\s*")  # base64, which neither JSON nor asserts are
_RIGHT, _WRONG = "right programs", "wrong programs"  # columns of joined rows
_CLASS = r"(?m)^\s*class (\w+)[^\n]*\n(?:(?!\s*class ).*\n)*?\s+def {}\("  # that has a method


@dataclass(frozen=True)
class SecondTable:
    """The table of a set that has its programs, where another has the tests; it may have the task too."""

    name: str
    first: str  # name of the table that has the tests
    key: str  # column of both that names a question
    programs: str
    passed: str = ""  # whether a program is right; without the column all are


@dataclass(frozen=True)
class Columns:
    """What the columns of a set hold; a point stands before a field of a column. Empty: there is no such column."""

    problem: tuple[str, ...]  # the task as text, or a chat that ends with it: the first of these that a row has
    tests: tuple[str, ...]
    outputs: str = ""  # where the tests' own column has their inputs alone
    solutions: str = ""
    wrong: str = ""  # programs with a mistake
    starter: str = ""  # what a program begins with
    function: str = ""  # what is under test, where tests do not say
    id: tuple[str, ...] = ()  # the first of these that a row has
    checker: str = ""  # source that defines `output_judging_function`, where several answers are right
    second: SecondTable | None = None


def are_texts(value: object) -> TypeGuard[list[str]]:
    """Returns whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def script_of(asserts: Sequence[str], set_up: str = "") -> str:
    """Returns the check script of asserts that call `candidate`, or what is under test by its name."""
    return f"{set_up}\n\ndef check(candidate):\n{indent(chr(10).join(asserts), '    ')}\n"


def stated(body: Sequence[ast.stmt], name: str) -> tuple[str, ...]:
    """Returns the sources of the asserts among statements that state what a call gives, each call once."""
    tests = (test for test in read_fixed_tests(body, name) if not isinstance(test, Rejected))
    return tuple({test.identity: test.text for test in tests}.values())


def declaration(program: str, name: str) -> str:
    """Returns the first line of a function as Python writes it."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    defined = (node for node in ast.parse(program).body if isinstance(node, kinds) and node.name == name)
    function = copy.deepcopy(next(defined))
    function.body, function.decorator_list = [ast.Pass()], []
    return ast.unparse(function).rpartition("\n")[0]


def read_row(row: Row, where: str, columns: Columns, name: str) -> Solved | str:
    """Returns the question of a row, or why it has none.

    The first solutions that parse are tried as the ground truth. In a set without solutions it is empty. What a whole
    program prints is compared as the row's function says; else as text, or as tokens where an output has decimals.

    Args:
      name: of the set.

    Raises BadInput: a column is missing, or holds what none of the known forms is.
    """
    task = _field(row, next((each for each in columns.problem if each in row), columns.problem[-1]), where)
    task = _last_message(task) if isinstance(task, list) else task
    if not isinstance(task, str):
        raise BadInput(f"{where}: {columns.problem[-1]} is {type(task).__name__}.")
    solutions = _programs(_field(row, columns.solutions, where), f"{where}: {columns.solutions}", passing=True)
    wrong = _programs(_field(row, columns.wrong, where), f"{where}: {columns.wrong}", passing=False)
    tests = [_unpacked(_field(row, each, where), f"{where}: {each}") for each in columns.tests]
    if columns.outputs:
        outputs = _unpacked(_field(row, columns.outputs, where), f"{where}: {columns.outputs}")
        tests = [{"inputs": tests[0], "outputs": outputs}]
    given = _field(row, columns.function, where) if columns.function.partition(".")[0] in row else None
    if not isinstance(given, str | None):
        return NO_NAME
    if columns.solutions and not solutions:
        return NO_SOLUTION
    programs = [*islice((each for each in solutions if parsed(each) is not None), MAX_SOLUTIONS)]  # some are Python 2
    if solutions and not programs:
        return UNPARSED
    id = next((row[each] for each in columns.id if row.get(each) is not None), None)
    id = digest_of(task.encode(errors="replace").decode())[:16] if id is None else id
    draft = _Draft(
        f"{name}/{id}", name, task, str((columns.starter and row.get(columns.starter)) or ""), given or "", programs
    )
    draft.wrong = [each for each in wrong if parsed(each) is not None]
    if judge := row.get(columns.checker.partition(".")[0]) and _field(row, columns.checker, where):
        if not isinstance(judge, str) or _JUDGE not in _defined(judge):
            return NO_CHECKER
        draft.checker = judge + _ACCEPTS
    if all(isinstance(each, str) or are_texts(each) for each in tests) and any(tests):
        return draft.of_asserts([*chain.from_iterable([each] if isinstance(each, str) else each for each in tests)])
    pairs = _Pairs()
    for each, column in zip(tests, columns.tests, strict=True):
        if reason := pairs.add(each, f"{where}: {column}"):
            return reason
    return draft.of_pairs(pairs)


def _field(row: Row, name: str, where: str) -> Any:
    """Returns what a column holds; None where the set has no such column. Raises BadInput: the row lacks it."""
    value: Any = row
    for part in [name] if name in row else filter(None, name.split(".")):
        value = _unpacked(value, f"{where}: {name}") if isinstance(value, str) else value
        if not isinstance(value, Mapping) or part not in value:
            raise BadInput(f"{where}: the field {name!r} is missing.")
        value = value[part]
    return value if name else None


def _last_message(chat: list) -> object:
    return chat[-1].get("content") if chat and isinstance(chat[-1], dict) else None


def _unpacked(value: Any, where: str) -> Any:
    """Returns what a text in JSON, packed or not, or in Python's own notation stands for; asserts stay text.

    Raises BadInput: it is none of these.
    """
    if not isinstance(value, str) or not value.strip():
        return value or []
    try:
        return json.loads(value)
    except RecursionError:
        raise BadInput(f"{where} is JSON nested too deeply.") from None
    except ValueError as error:
        if _PACKED.fullmatch(value):
            return _unpacked(unpacked_text(value.strip(), where), where)
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            if "assert" in value or "raises(" in value:
                return value
            raise BadInput(f"{where} is not JSON: {error}.") from None


def _records(value: dict | list) -> list[dict[str, Any]]:
    """Returns a list of records, which Parquet may hold as a record of lists. Raises ValueError: of unequal lengths."""
    if isinstance(value, dict):
        columns = {name: each for name, each in value.items() if isinstance(each, list)}
        return [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]
    return value if all(isinstance(each, dict) for each in value) else []


def _programs(value: Any, where: str, *, passing: bool) -> list[str]:
    """Returns the Python programs of a column: a text, a list of texts, or records with their language or pass rate.

    Args:
      passing: those of records that passed all of their tests, or the others.

    Raises BadInput: it is neither, or a record of lists of unequal lengths.
    """
    if isinstance(value, str):
        value = _unpacked(value, where) if value.lstrip().startswith("[") else [value] if value.strip() else []
    if are_texts(value := value or []):
        return [extract_python_block(each).source if "```" in each else each for each in value]
    try:
        records = _records(value) if isinstance(value, list | dict) else []
    except ValueError:
        raise BadInput(f"{where} has lists of unequal lengths.") from None
    if not records and value and not isinstance(value, dict):
        raise BadInput(f"{where} is not a list of texts.")
    is_python = (str(each.get("language", "python")).lower() in map(str, PYTHON) for each in records)
    rates = (each.get("pass_rate", float(passing)) for each in records)
    chosen = [
        each for each, fits, rate in zip(records, is_python, rates, strict=True) if fits and (rate == 1) is passing
    ]
    texts = [next((each[name] for name in ("code", "solution", "completion") if name in each), None) for each in chosen]
    return _programs([each for each in texts if isinstance(each, str)], where, passing=passing)


class _Pairs:
    """Inputs and outputs of a row, each as its set has them."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.function = ""
        self.by_line = False  # an input is a text with an argument on each line

    def add(self, value: Any, where: str) -> str:
        """Adds what a column holds; returns why the row cannot be used, if so. Raises BadInput."""
        if isinstance(value, dict) and "test_cases" in value:
            if str(value.get("language", "python")).lower() not in map(str, PYTHON):
                return OTHER_LANGUAGE
            value = _unpacked(value["test_cases"], where)
        if isinstance(value, dict) and not isinstance(value.get("fn_name"), list):
            self.function = self.function or str(value.get("fn_name") or "")
        if isinstance(value, dict) and ("inputs" in value or "outputs" in value):
            for key in ("inputs", "outputs") if value.get("inputs") else ():
                if not isinstance(value.get(key), list):
                    return NOT_TEXTS.format(key)
                getattr(self, key).extend(value[key])
            return ""
        try:
            records = _records(value) if isinstance(value, dict | list) else [{}]
        except ValueError:
            return UNPAIRED
        is_record_of_lists = isinstance(value, dict) and "input" in value
        if not all({"input", "output"} <= each.keys() for each in records) or not (
            records or not value or is_record_of_lists
        ):
            raise BadInput(f"{where} has no tests in a form that is known.")
        for each in records:
            about = _unpacked(each.get("metadata") or {}, where)
            named = each.get("fn_name") or (about.get("func_name") if isinstance(about, dict) else "")
            self.function = self.function or str(named or "")
            self.by_line |= each.get("testtype") == "functional"
            self.inputs.append(each["input"])
            self.outputs.append(each["output"])
        return ""

    def calls(self) -> Iterator[tuple[list, Any]]:
        """Yields arguments and answer of each test of a function. Raises ValueError: they are not written as such."""
        for given, answer in zip(self.inputs, self.outputs, strict=True):
            if not isinstance(given, str):
                arguments = given
            elif self.by_line:
                arguments, answer = [json.loads(line) for line in given.split("\n") if line.strip()], json.loads(answer)
            else:
                arguments, answer = json.loads(given), _value(answer)
            if not isinstance(arguments, list):
                raise ValueError("no list")
            yield arguments, answer


def _as_text(value: str | list[str]) -> str:
    """Returns an input or output that may be a list of lines."""
    return value if isinstance(value, str) else "\n".join(value)


def _defined(program: str) -> list[str]:
    """Returns what tests of a program can call: functions, and methods as `Class().method`."""
    names = []
    for node in (parsed(program) or ast.Module([], [])).body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.ClassDef):
            names += [f"{node.name}().{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)]
    return names


def _value(answer: Any) -> Any:
    try:
        return json.loads(answer) if isinstance(answer, str) else answer
    except ValueError:
        return answer


@dataclass
class _Draft:
    """A row's question before its tests are known."""

    id: str
    name: str  # of the set
    task: str
    starter: str
    function: str  # under test, as the row says; "": the tests say it
    programs: list[str]  # that are tried as the ground truth; none in a set without solutions
    wrong: list[str] = field(default_factory=list)
    checker: str = ""

    def of_pairs(self, pairs: _Pairs) -> Solved | str:
        """Returns the question with pairs for tests, or why there is none."""
        if not pairs.inputs:
            return NO_TESTS
        called = pairs.function or self.function
        if called and called not in PROGRAMS:
            return self._of_calls(called, pairs)
        for key in ("inputs", "outputs"):
            if not all(isinstance(each, str) or are_texts(each) for each in getattr(pairs, key)):
                return NOT_TEXTS.format(key)
        if len(pairs.inputs) != len(pairs.outputs):
            return UNPAIRED
        texts = [[*map(_as_text, half)] for half in (pairs.inputs, pairs.outputs)]
        called = called or (STDOUT_TOKENS if any(map(has_decimals, texts[1])) else STDOUT)
        asserts = (f"assert {called}({given!r}) == {printed!r}" for given, printed in zip(*texts, strict=True))
        return self._solved(called, self.task, _read(called, asserts), script_of_held=False)

    def _of_calls(self, name: str, pairs: _Pairs) -> Solved | str:
        if len(pairs.inputs) != len(pairs.outputs):
            return UNPAIRED
        if (called := self._entry_point(name)) is None:
            return NO_FUNCTION
        try:
            calls = [(", ".join(map(source_of, arguments)), answer) for arguments, answer in pairs.calls()]
        except (ValueError, RecursionError):
            return NO_ARGUMENTS
        if not self.programs and any(isinstance(answer, list) for _, answer in calls):
            return NOT_TOLD
        asserts = (f"assert {called}({arguments}) == {source_of(answer)}" for arguments, answer in calls)
        return self._solved(called, self._declared(called), _read(called, asserts), as_json=True)

    def of_asserts(self, sources: Sequence[str]) -> Solved | str:
        """Returns the question with the asserts of texts for tests, or why there is none.

        What defines `check(candidate)` is its check script.
        """
        sound = [each for each in sources if parsed(each)]
        module = parsed(source := "\n".join(sound))
        if not module or not module.body:
            return UNPARSED_TESTS
        checks = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
        checks = [check for check in checks if check.args.args]
        parameters = {check.args.args[0].arg for check in checks}
        functions = (node.func for node in ast.walk(module) if isinstance(node, ast.Call))
        calls = [each.id for each in functions if isinstance(each, ast.Name)]
        defined = {name for program in self.programs for name in _defined(program)} or {*calls} - parameters
        name = self.function or next((each for each in calls if each in defined), "")
        called = self._entry_point(name) if name else None
        if called is None:
            return NO_FUNCTION
        if checks:
            is_function = self.programs and not class_and_method(called)
            try:
                name = entry_point(self.programs[0], None, source, called) if is_function else called
            except ValueError:
                name = ""
            if len(checks) > 1 or name != called:
                return BAD_CHECK
            for node in ast.walk(checks[0]):  # after a loop, asserts on the parameter are not read
                if isinstance(node, ast.Name) and node.id in parameters:
                    node.id = called
        unsound = [Rejected(UNPARSED_TESTS)] * (len(sources) - len(sound))
        read = [*read_fixed_tests(module.body, called), *unsound]
        return self._solved(called, self._declared(called), read, script=source if checks else "")

    def _entry_point(self, name: str) -> str | None:
        """Returns what tests call, and drops the programs that do not define it; None where none does."""
        if not self.programs:
            owner = re.search(_CLASS.format(re.escape(name)), f"{self.starter}\n{self.task}")
            return f"{owner[1]}().{name}" if owner else name
        defined = (each for program in self.programs for each in _defined(program))
        called = next((each for each in defined if each in (name, f"{each.partition('.')[0]}.{name}")), None)
        self.programs = [program for program in self.programs if called in _defined(program)]
        self.wrong = [program for program in self.wrong if called in _defined(program)]
        return called

    def _declared(self, called: str) -> str:
        """Returns the task with what a program for it begins with."""
        if self.starter.strip():
            return f"{self.task.rstrip()}\n\n{self.starter.rstrip()}\n"
        if not self.programs:
            return self.task
        if method := class_and_method(called):
            tree = ast.parse(self.programs[0])
            owner = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == method[0])
            first = declaration(ast.unparse(ast.Module(owner.body, [])), method[1])
            return f"{self.task.rstrip()}\n\nclass {method[0]}:\n    {first}\n"
        return declared(self.task, declaration(self.programs[0], called))

    def _solved(
        self,
        called: str,
        problem: str,
        read: Sequence[CallTest | Rejected],
        *,
        script: str | None = None,
        as_json: bool = False,
        script_of_held: bool = True,
    ) -> Solved | str:
        """Returns the question with the tests that were read; see `Solved`.

        Args:
          script: of asserts: the check script that they define, empty where they define none.
        """
        tests = {test.identity: test for test in read if not isinstance(test, Rejected)}.values()
        if not tests and not (script and self.programs):
            return TOO_LARGE if script is None else NO_STATED
        script_of_held = script_of_held and bool(self.programs) and not script
        question = Question(
            self.id,
            None,
            problem,
            self.task,
            self.programs[0] if self.programs else "",
            called,
            script or (None if script_of_held or self.checker else script_of_tests(tests)),
            tuple(test.text for test in tests),
            tuple(dict.fromkeys(self.wrong))[:MAX_WRONG],
            data_source=self.name,
            preamble=PREAMBLE if as_json else "",
            checker=self.checker,
        )
        unread = 0 if script else sum(isinstance(test, Rejected) for test in read)
        return Solved(question, tuple(self.programs[1:]), unread, as_json, script_of_held)


def _read(called: str, asserts: Iterable[str]) -> list[CallTest | Rejected]:
    return [*chain.from_iterable(read_fixed_tests(ast.parse(source).body, called) for source in asserts)]


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
            of_second = (
                {} if isinstance(row, BadInput) else known.get(str(row.get(second.key)), {_RIGHT: [], _WRONG: []})
            )
            yield where, row if isinstance(row, BadInput) else {**of_second, **row}

    read = partial(read_row, columns=replace(columns, solutions=_RIGHT, wrong=_WRONG), name=name)
    return replace(format, rows=rows, read=read), tables


def _add_programs(known: dict[str, dict[str, Any]], row: Row, where: str, second: SecondTable, task: str) -> None:
    """Adds a row of a second table to what is known of its question: as many programs that parse as are tried."""
    value = _field(row, second.programs, where)
    found = known.setdefault(str(_field(row, second.key, where)), {_RIGHT: [], _WRONG: []})
    if task in row:
        found[task] = row[task]
    is_right = bool(_field(row, second.passed, where)) if second.passed else True
    kept, most = (found[_RIGHT], MAX_SOLUTIONS) if is_right else (found[_WRONG], MAX_WRONG)
    programs = _programs([value] if isinstance(value, str) else value, f"{where}: {second.programs}", passing=True)
    kept += islice((each for each in programs if each not in kept and parsed(each) is not None), most - len(kept))


def format_of_json(problem: str, solution: str, tests: str, function: str) -> Format:
    """Returns the format of rows with columns of these names; without solutions or functions those are empty."""
    columns = Columns((problem,), (tests,), solutions=solution, function=function)

    def read(row: Row, where: str) -> Solved | str:
        _field(row, function, where)  # where it is named, all rows have it
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
