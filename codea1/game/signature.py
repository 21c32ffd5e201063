"""Which calls of a function are one input: what its parameters are bound to, however the call is spelled."""

import ast
import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from codea1.game.calls import MAX_VALUE_BYTES, Call
from codea1.values import NotPlainData, decode_exact, encode_exact
from codea1.values.literals import Budget, NotLiteral, literal_value, parse_source

_SAME_SIGNATURE = {"cache", "lru_cache", "functools.cache", "functools.lru_cache"}  # decorators that leave it as it is


@dataclass(frozen=True)
class Signature:
    """The parameters of the function under test."""

    bind: Callable[..., dict] | None  # see `_binder`; None: calls are compared as they are written

    def key(self, call: Call) -> bytes:
        """Returns bytes that two calls share exactly when they give all parameters the same values.

        A call that Python would refuse to bind, and every call without a signature, has its arguments as written.
        """
        if self.bind is None:
            return call.arguments
        positional, named = decode_exact(call.arguments)
        values = [*map(encode_exact, positional)]
        try:
            bound = self.bind(*values, **{name: encode_exact(value) for name, value in named.items()})
        except TypeError:
            return call.arguments
        return encode_exact(bound)  # a dict, which no call's arguments as written are


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
        return Signature(_binder(definition.args))
    except (NotLiteral, SyntaxError, RecursionError):  # SyntaxError: a parameter's name is repeated
        return AS_WRITTEN


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


def _keeps_signature(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function) in _SAME_SIGNATURE


def _binder(arguments: ast.arguments) -> Callable[..., dict]:
    """Makes a function of these parameters that returns what they are bound to: Python itself binds.

    It has the names of the parameters and the encodings of their defaults, and nothing else of the program.
    """
    nodes = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    names = [node.arg for node in nodes if node is not None]
    bare = copy.deepcopy(arguments)
    for node in ast.walk(bare):
        if isinstance(node, ast.arg):
            node.annotation = None
    bare.defaults = [ast.Constant(_encoded(node)) for node in arguments.defaults]
    bare.kw_defaults = [node and ast.Constant(_encoded(node)) for node in arguments.kw_defaults]
    bound = ast.Dict([ast.Constant(name) for name in names], [ast.Name(name, ast.Load()) for name in names])
    function = ast.fix_missing_locations(ast.Expression(ast.Lambda(bare, bound)))
    return eval(compile(function, "<signature>", "eval"), {})


def _encoded(node: ast.expr) -> bytes | None:
    """Returns the encoding of a default; None where it is no literal, or one that no test could state."""
    try:
        return encode_exact(literal_value(node, Budget()), MAX_VALUE_BYTES)
    except (NotLiteral, NotPlainData):
        return None
