"""Which calls of a function are one input: what its parameters are bound to, however the call is spelled."""

import ast
import inspect
from dataclasses import dataclass
from functools import lru_cache
from inspect import Parameter
from itertools import repeat

from codea1.game.tests import MAX_VALUE_BYTES, Call
from codea1.values import NotPlainData, decode_exact, encode_exact
from codea1.values.literals import Budget, NotLiteral, literal_value, parse_source

_SAME_SIGNATURE = {"cache", "lru_cache", "functools.cache", "functools.lru_cache"}  # decorators that leave it as it is


@dataclass(frozen=True)
class Signature:
    """The parameters of the function under test."""

    parameters: inspect.Signature | None  # defaults: exact encodings, None where unreadable; None: compare as written

    def key(self, call: Call) -> bytes:
        """Returns bytes that two calls share exactly when they give all parameters the same values.

        A call that Python would refuse to bind, and every call without a signature, has its arguments as written.
        """
        if self.parameters is None:
            return call.arguments
        positional, named = decode_exact(call.arguments)
        values = [*map(encode_exact, positional)]
        try:
            bound = self.parameters.bind(*values, **{name: encode_exact(value) for name, value in named.items()})
        except TypeError:
            return call.arguments
        bound.apply_defaults()
        return encode_exact(bound.arguments)  # a dict, which no call's arguments as written are


AS_WRITTEN = Signature(None)


@lru_cache(maxsize=4096)
def read_signature(program: str, entry_point: str) -> Signature:
    """Reads the signature of a program's entry point from its source; nothing is executed.

    The last definition at top level counts. Returns AS_WRITTEN where that is not a plain `def`: a name that is
    assigned, imported, a class, or bound in a branch, a decorator that may change the signature, a source that cannot
    be parsed.
    """
    try:
        body = parse_source(program).body
        definition = None
        for statement in body:
            if isinstance(statement, ast.FunctionDef) and statement.name == entry_point:
                definition = statement
            elif _binds(statement, entry_point):
                definition = None
        if definition is None or not all(map(_keeps_signature, definition.decorator_list)):
            return AS_WRITTEN
        return Signature(inspect.Signature(_parameters(definition.args)))
    except (NotLiteral, ValueError, RecursionError):  # ValueError: a parameter's name is repeated
        return AS_WRITTEN


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether a statement at top level may give the name another value than it had."""
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


def _keeps_signature(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function) in _SAME_SIGNATURE


def _parameters(arguments: ast.arguments) -> list[inspect.Parameter]:
    kinds = [Parameter.POSITIONAL_ONLY] * len(arguments.posonlyargs)
    kinds += [Parameter.POSITIONAL_OR_KEYWORD] * len(arguments.args)
    defaults = [None] * (len(kinds) - len(arguments.defaults)) + arguments.defaults
    listed = [
        *zip(kinds, [*arguments.posonlyargs, *arguments.args], defaults, strict=True),
        (Parameter.VAR_POSITIONAL, arguments.vararg, None),
        *zip(repeat(Parameter.KEYWORD_ONLY), arguments.kwonlyargs, arguments.kw_defaults, strict=False),
        (Parameter.VAR_KEYWORD, arguments.kwarg, None),
    ]
    return [
        Parameter(node.arg, kind, default=Parameter.empty if default is None else _encoded(default))
        for kind, node, default in listed
        if node is not None
    ]


def _encoded(node: ast.expr) -> bytes | None:
    """The encoding of a default; None where it is no literal, or one that no test could state."""
    try:
        return encode_exact(literal_value(node, Budget()), MAX_VALUE_BYTES)
    except (NotLiteral, NotPlainData):
        return None
