"""A programming question with its ground truth, and the signature that says which calls of it are one input.

Two calls are one input where the parameters are bound to the same, however the calls are spelled.
"""

import ast
import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from codea1.game.calls import MAX_VALUE_BYTES, Call
from codea1.values import NotPlainData, decode_exact, encode_exact, encode_input
from codea1.values.entry_points import (
    LINKED,
    MANY_LINKED,
    MANY_TREES,
    PROGRAMS,
    STDOUT_ANY_ORDER,
    STDOUT_TOKENS,
    TOLERANCE,
    TREE,
    class_and_method,
)
from codea1.values.literals import Budget, NotLiteral, literal_value, parse_source

Statement = TypeVar("Statement", ast.FunctionDef, ast.ClassDef)

_SAME_SIGNATURE = {"cache", "lru_cache", "functools.cache", "functools.lru_cache"}  # decorators that leave it as it is
_RUNS = "with sets backwards"  # of a ground truth; another text has tests that were kept before validated again
_COMPARED = {  # how, where that is not as text
    STDOUT_TOKENS: (
        "White space and the case of letters make no difference, nor does one of "
        f"{TOLERANCE:g}, absolute or relative, between numbers with a decimal point."
    ),
    STDOUT_ANY_ORDER: "The order of lines makes no difference, nor does that of words in a line.",
}


@dataclass(frozen=True)
class Question:
    """A row of a dataset, once read.

    Code-A1 itself uses no golden tests: they are the reward of the golden-tests baseline. Check script, golden tests
    and mutants are empty where the dataset has none.
    """

    id: str
    prompt: tuple[dict[str, str], ...] | None  # chat messages the dataset brings for the Code LLM; None: use a template
    problem: str  # what the Code LLM is asked, as code or text
    description: str  # what the Test LLM is shown of the problem
    ground_truth: str  # whole program that defines entry_point
    entry_point: str  # what is under test: the name of a function, `Class().method`, or `stdout`, a whole program's
    check_script: str | None = None  # defines check(candidate), the benchmark's own judge
    golden_tests: tuple[str, ...] = ()  # sources of assert statements
    mutants: tuple[str, ...] = ()  # whole programs, each with one known mistake
    data_source: str = ""  # the dataset's own tag, e.g. "mbppplus"
    preamble: str = ""  # source that runs before every program: what the dataset says is there
    checker: str = ""  # defines accepts(given, expected, printed): is what was printed right, if not as expected?

    @property
    def paid_mutants(self) -> tuple[str, ...]:
        """The mutants that rewards may read: every other one."""
        return self.mutants[::2]

    @property
    def hidden_mutants(self) -> tuple[str, ...]:
        """The mutants that no reward reads, so that they tell what the rewards are worth."""
        return self.mutants[1::2]

    @property
    def ground_truth_digest(self) -> str:
        """Digest of the ground truth and how it is run: where it is the same, so are the answers to calls."""
        text = json.dumps([_RUNS, self.entry_point, self.module(self.ground_truth)])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def form(self) -> str:
        """What a program for it is: a function, class or program."""
        if self.entry_point in PROGRAMS:
            return "program"
        return "class" if class_and_method(self.entry_point) else "function"

    @property
    def calling(self) -> str:
        """What who writes tests must know of calling the entry point; empty for what Python says itself."""
        if self.entry_point in PROGRAMS:
            all_of_it = f"`{self.entry_point}(text)` is all that the program prints when `text` is its standard input."
            return f"{all_of_it} {_COMPARED[self.entry_point]}" if self.entry_point in _COMPARED else all_of_it
        parameters, answer = node_kinds(self.ground_truth, self.entry_point)
        if any((answer, *parameters.values())):
            return "In tests, a linked list is a list, and a binary tree one in level order, None for a missing child."
        return ""

    def module(self, program: str) -> str:
        """Returns what the sandbox loads for a program, so that it defines the entry point as tests call it."""
        method = class_and_method(self.entry_point)
        if method:
            define, more = "define_method", (*method, *node_kinds(self.ground_truth, self.entry_point))
        elif self.entry_point in PROGRAMS:
            define, more = "define_stdout", ()
        elif self.preamble:
            define, more = "define", ()
        else:
            return program
        arguments = ", ".join(map(repr, (self.preamble, program, *more)))
        return f"from codea1.sandbox.child.entries import {define}\n{define}(globals(), {arguments})\n"


@dataclass(frozen=True)
class Signature:
    """The parameters of the function under test."""

    bind: Callable[..., dict] | None  # see `_binder`; None: which argument belongs to which is not known
    as_written: bool = False  # two calls are one input where their arguments are written alike, and only there

    def key(self, call: Call, answer: bytes) -> tuple[bytes, bytes]:
        """Returns what two calls share exactly when they test one input: what is given, and what is answered.

        They give the same when they give all parameters values that `encode_input` does not tell apart, of standard
        inputs the same words. The ground truth must not tell them apart either: `answer` is the exact encoding of what
        it returns. So `f([2, 1])` and `f((2.0, True))` are not paid twice unless the function is about types. Answers
        in a form, such as `sorted(f(x))`, say nothing of that and are left empty. A call that Python would refuse to
        bind is known by its arguments.
        """
        if self.as_written:
            return call.arguments, b""
        encode = _encode_words if call.function in PROGRAMS else encode_input
        positional, named = decode_exact(call.arguments)
        given: object
        given = values, options = [*map(encode, positional)], {name: encode(value) for name, value in named.items()}
        if self.bind is not None:
            with contextlib.suppress(TypeError):
                given = self.bind(*values, **options)
        return encode_exact(given), b"" if call.form else encode_input(decode_exact(answer))


def _encode_words(text: object) -> bytes:
    return encode_input(text.split() if isinstance(text, str) else text)


AS_WRITTEN = Signature(None, as_written=True)
UNKNOWN = Signature(None)
OF_A_PROGRAM = Signature(lambda text: {"text": text})


@lru_cache(maxsize=4096)
def read_signature(program: str, entry_point: str) -> Signature:
    """Reads the signature of a program's entry point from its source; nothing is executed.

    The last definition at top level counts, of a method in the last definition of its class. Returns UNKNOWN where
    that is not a plain `def`: a name that is assigned, imported, a class, or bound in a branch, a decorator that may
    change the signature, a source that cannot be parsed.
    """
    if entry_point in PROGRAMS:
        return OF_A_PROGRAM
    try:
        definition = _definition(program, entry_point)
        return UNKNOWN if definition is None else Signature(_binder(definition))
    except (NotLiteral, SyntaxError, RecursionError):  # SyntaxError: a parameter's name is repeated
        return UNKNOWN


@lru_cache(maxsize=4096)
def node_kinds(program: str, entry_point: str) -> tuple[dict[str, str], str]:
    """Returns which parameters of a method are linked lists and trees, and its answer: see `sandbox.child.entries`.

    Its annotations tell, such as `Optional[ListNode]` and `List[TreeNode]`. Without any, all kinds are empty.
    """
    try:
        definition = _definition(program, entry_point)
        if definition is None:
            return {}, ""
        parameters = {parameter.arg: _node_kind(parameter.annotation) for parameter in parameters_of(definition)}
        return parameters, _node_kind(definition.returns)
    except (NotLiteral, RecursionError):
        return {}, ""


def _node_kind(annotation: ast.expr | None) -> str:
    text = "" if annotation is None else ast.unparse(annotation)
    is_many = text.lower().startswith("list[")
    if "ListNode" in text:
        return MANY_LINKED if is_many else LINKED
    if "TreeNode" in text:
        return MANY_TREES if is_many else TREE
    return ""


def _definition(program: str, entry_point: str) -> ast.FunctionDef | None:
    """Returns the plain definition of what is under test, a method's without `self`. Raises NotLiteral: no Python."""
    body, name = parse_source(program).body, entry_point
    method = class_and_method(entry_point)
    if method:
        owner, name = method
        owners = _last(body, owner, ast.ClassDef)
        if owners is None or owners.decorator_list:
            return None
        body = owners.body
    definition = _last(body, name, ast.FunctionDef)
    if definition is None:
        return None
    functions = [node.func if isinstance(node, ast.Call) else node for node in definition.decorator_list]
    if not {*map(ast.unparse, functions)} <= _SAME_SIGNATURE:
        return None
    if method:
        given = definition.args
        del (given.posonlyargs or given.args)[:1]
        del given.defaults[: -len(given.posonlyargs + given.args) or None]  # that of `self`
    return definition


def _last(body: list[ast.stmt], name: str, kind: type[Statement]) -> Statement | None:
    """Returns the statement of this kind that gives a name its last value; None where another statement may."""
    definition = None
    for statement in body:
        if isinstance(statement, kind) and statement.name == name:
            definition = statement
        elif _binds(statement, name):
            definition = None
    return definition


def _binds(statement: ast.stmt, name: str) -> bool:
    """Returns whether a statement at top level may give the name another value than it had."""
    nodes = list(ast.walk(statement))
    if any(isinstance(node, ast.Global) and name in node.names for node in nodes):
        return True
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return statement.name == name  # what is in it has a scope of its own
    return any(_bound_name(node) in (name, "*") for node in nodes)


def _bound_name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.MatchMapping(rest=name):
            return name
        case ast.alias(name=name, asname=renamed):
            return renamed or name.partition(".")[0]
    return getattr(node, "name", None)  # a definition, a handler, a pattern


def parameters_of(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Returns the parameters of a function, in order, those that take what is left over included."""
    every = definition.args
    parameters = [*every.posonlyargs, *every.args, every.vararg, *every.kwonlyargs, every.kwarg]
    return [parameter for parameter in parameters if parameter is not None]


def _binder(definition: ast.FunctionDef) -> Callable[..., dict]:
    """Makes a function of these parameters that returns what they are bound to: Python itself binds.

    It has the names of the parameters and the encodings of their defaults, and nothing else of the program.
    """
    names = [parameter.arg for parameter in parameters_of(definition)]
    bare = definition.args  # of a tree that nothing else has
    for parameter in parameters_of(definition):
        parameter.annotation = None
    bare.defaults = [ast.Constant(_encoded(node)) for node in bare.defaults]
    bare.kw_defaults = [node and ast.Constant(_encoded(node)) for node in bare.kw_defaults]
    bound = ast.Dict([ast.Constant(name) for name in names], [ast.Name(name, ast.Load()) for name in names])
    function = ast.fix_missing_locations(ast.Expression(ast.Lambda(bare, bound)))
    return eval(compile(function, "<signature>", "eval"), {})


def _encoded(node: ast.expr) -> bytes | None:
    """Returns the encoding of a default; None where it is no literal, or one that no test could state."""
    try:
        value = literal_value(node, Budget())
        encode_exact(value, MAX_VALUE_BYTES)
        return encode_input(value)
    except (NotLiteral, NotPlainData):
        return None
