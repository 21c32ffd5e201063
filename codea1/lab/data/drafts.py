"""Questions of rows before their tests are known: what is under test, and what is asked, tested and judged then."""

import ast
import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from codea1.data.loader import entry_point, parsed
from codea1.game.asserts import Rejected, read_fixed_tests
from codea1.game.calls import CallTest, source_of
from codea1.game.question import Question
from codea1.lab.data.columns import NOT_TEXTS, UNPAIRED, IOPairs, LeftOut, are_texts, require
from codea1.lab.data.solutions import Solved, script_of_tests
from codea1.values.entry_points import PROGRAMS, STDOUT, STDOUT_TOKENS, class_and_method, has_decimals

UNPARSED = "its solution does not parse as Python"
NO_FUNCTION = "its solution does not define the function under test"
UNPARSED_TESTS = "its tests do not parse as Python"
NO_TESTS = "it has no tests"
NO_ARGUMENTS = "one of its inputs is no list of arguments"
NO_STATED = "no test states data"
TOO_LARGE = "each of its tests has an input or output of more than 64 KiB"
NOT_TOLD = "no solution tells whether a list in its outputs is one, a tuple, or stands around an answer"
BAD_CHECK = "its tests have no one check of the function under test"

MAX_WRONG = 8  # wrong programs of a row that are tried as mutants
# What judges of functions and methods import before a program, which may use `List` without an import.
PREAMBLE = "".join(
    f"from {module} import *\n"
    for module in ("typing", "collections", "functools", "heapq", "bisect", "itertools", "math", "builtins")
)
_CLASS = r"(?m)^\s*class (\w+)[^\n]*\n(?:(?!\s*class ).*\n)*?\s+def {}\("  # that has a method


def declared(task: str, line: str) -> str:
    """Returns a task in words with the first line of the function that it asks for."""
    return f"{task.rstrip()}\n\nThe function is declared as `{line}`."


def declaration(program: str, name: str) -> str:
    """Returns the first line of a function as Python writes it."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    defined = (node for node in ast.parse(program).body if isinstance(node, kinds) and node.name == name)
    function = copy.deepcopy(next(defined))
    function.body, function.decorator_list = [ast.Pass()], []
    return ast.unparse(function).rpartition("\n")[0]


def defined_in(program: str) -> list[str]:
    """Returns what tests of a program can call: functions, and methods as `Class().method`."""
    names = []
    for node in (parsed(program) or ast.Module([], [])).body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.ClassDef):
            names += [f"{node.name}().{child.name}" for child in node.body if isinstance(child, ast.FunctionDef)]
    return names


@dataclass
class Draft:
    """A row's question before its tests are known."""

    id: str
    name: str  # of the set
    task: str
    starter: str
    function: str  # under test, as the row says; "": the tests say it
    programs: list[str]  # that are tried as the ground truth; none in a set without solutions
    wrong: list[str]  # that are tried as mutants

    def of_pairs(self, pairs: IOPairs) -> Solved:
        """Returns the question with pairs for tests. Raises LeftOut."""
        require(pairs.inputs, NO_TESTS)
        called = pairs.function or self.function
        if called and called not in PROGRAMS:
            return self._of_calls(called, pairs)
        for key in ("inputs", "outputs"):
            are_read = all(isinstance(text, str) or are_texts(text) for text in getattr(pairs, key))
            require(are_read, NOT_TEXTS.format(key))
        require(len(pairs.inputs) == len(pairs.outputs), UNPAIRED)
        halves = (pairs.inputs, pairs.outputs)  # of texts, or of lists of lines
        texts = [[text if isinstance(text, str) else "\n".join(text) for text in half] for half in halves]
        called = called or (STDOUT_TOKENS if any(map(has_decimals, texts[1])) else STDOUT)
        asserts = (f"assert {called}({given!r}) == {printed!r}" for given, printed in zip(*texts, strict=True))
        return self._solved(called, self.task, _read(called, asserts), script_of_held=False)

    def _of_calls(self, name: str, pairs: IOPairs) -> Solved:
        require(len(pairs.inputs) == len(pairs.outputs), UNPAIRED)
        called = self._entry_point(name)
        try:
            calls = [(", ".join(map(source_of, arguments)), answer) for arguments, answer in pairs.calls()]
        except (ValueError, RecursionError):
            raise LeftOut(NO_ARGUMENTS) from None
        require(self.programs or not any(isinstance(answer, list) for _, answer in calls), NOT_TOLD)
        asserts = (f"assert {called}({arguments}) == {source_of(answer)}" for arguments, answer in calls)
        return self._solved(called, self._declared(called), _read(called, asserts), as_json=True)

    def of_asserts(self, sources: Sequence[str]) -> Solved:
        """Returns the question with the asserts of texts for tests.

        What defines `check(candidate)` is its check script. Raises LeftOut.
        """
        sound = [source for source in sources if parsed(source)]
        module = parsed(source := "\n".join(sound))
        if not module or not module.body:
            raise LeftOut(UNPARSED_TESTS)
        checks = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
        checks = [check for check in checks if check.args.args]
        parameters = {check.args.args[0].arg for check in checks}
        functions = (node.func for node in ast.walk(module) if isinstance(node, ast.Call))
        calls = [function.id for function in functions if isinstance(function, ast.Name)]
        defined = {name for program in self.programs for name in defined_in(program)} or {*calls} - parameters
        name = self.function or next((other for other in calls if other in defined), "")
        called = self._entry_point(name)
        if checks:
            is_function = self.programs and not class_and_method(called)
            try:
                name = entry_point(self.programs[0], None, source, called) if is_function else called
            except ValueError:
                name = ""
            require(len(checks) == 1 and name == called, BAD_CHECK)
            for node in ast.walk(checks[0]):  # after a loop, asserts on the parameter are not read
                if isinstance(node, ast.Name) and node.id in parameters:
                    node.id = called
        unsound = [Rejected(UNPARSED_TESTS)] * (len(sources) - len(sound))
        read = [*read_fixed_tests(module.body, called), *unsound]
        return self._solved(called, self._declared(called), read, script=source if checks else "")

    def _entry_point(self, name: str) -> str:
        """Returns what tests call, and drops the programs that do not define it. Raises LeftOut: none does."""
        require(name, NO_FUNCTION)
        if not self.programs:
            owner = re.search(_CLASS.format(re.escape(name)), f"{self.starter}\n{self.task}")
            return f"{owner[1]}().{name}" if owner else name
        defined = (other for program in self.programs for other in defined_in(program))
        called = next((other for other in defined if other in (name, f"{other.partition('.')[0]}.{name}")), "")
        require(called, NO_FUNCTION)
        self.programs = [program for program in self.programs if called in defined_in(program)]
        self.wrong = [program for program in self.wrong if called in defined_in(program)]
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
    ) -> Solved:
        """Returns the question with the tests that were read; see `Solved`. Raises LeftOut.

        Args:
          script: of asserts: the check script that they define, empty where they define none.
        """
        tests = {test.identity: test for test in read if not isinstance(test, Rejected)}.values()
        require(tests or (script and self.programs), TOO_LARGE if script is None else NO_STATED)
        unread = 0 if script else sum(isinstance(test, Rejected) for test in read)
        script_of_held = script_of_held and bool(self.programs) and not script
        script = script or (None if script_of_held else script_of_tests(tests))
        truth, preamble = self.programs[0] if self.programs else "", PREAMBLE if as_json else ""
        stated, mutants = tuple(test.text for test in tests), tuple(dict.fromkeys(self.wrong))[:MAX_WRONG]
        question = Question(
            self.id, None, problem, self.task, truth, called, script, stated, mutants, self.name, preamble
        )
        return Solved(question, tuple(self.programs[1:]), unread, as_json, script_of_held)


def _read(called: str, asserts: Iterable[str]) -> list[CallTest | Rejected]:
    return [*chain.from_iterable(read_fixed_tests(ast.parse(source).body, called) for source in asserts)]
