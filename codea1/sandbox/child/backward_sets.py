"""Sets that iterate backwards: an answer that differs with them depends on the order of a set.

Python promises no order, but gives numbers the same one under every hash seed. So `list(set(xs))` answers the same in
every run, while an honest program with another order fails the test.

Standard library only: this runs inside the sandbox too.
"""

import ast
import builtins
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

from codea1.values.literals import NotLiteral, parse_source

_NAMES = {"set": "__backward_set__", "frozenset": "__backward_frozenset__"}
_KEYS = "__backward_keys__"
_OPERATORS = ("and", "or", "sub", "xor")
_VIEWS = ("keys", "items")


class _LikeItsBase(type):
    """Makes a class that passes for the built-in class that it is made of."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.__mro__[1]) if cls in SETS.values() else super().__instancecheck__(value)

    def __eq__(cls, other: object) -> bool:
        return other is cls or (cls in SETS.values() and other is cls.__mro__[1])

    __hash__ = type.__hash__


def _backward(base: Any) -> type:
    """Returns a subclass of `set` or `frozenset` whose members come in the opposite order, also in what it makes."""

    def again(name: str) -> Callable:
        method = getattr(base, name)

        def call(self: Any, *others: Any) -> Any:
            made = method(self, *others)
            return SETS[base](made) if isinstance(made, base) else made

        return call

    def iterate(self: Any) -> Iterator:
        return reversed(list(base.__iter__(self)))

    def show(self: Any) -> str:
        members = f"{{{', '.join(map(repr, self))}}}" if self else ""
        return members if base is set and members else f"{base.__name__}({members})"

    def reduce(self: Any, protocol: int) -> Any:  # for copies and pickles
        if type(self) is SETS[base]:
            return _again, (base is set, list(base.__iter__(self)))
        return base.__reduce_ex__(self, protocol)

    operators = [f"__{side}{name}__" for name in _OPERATORS for side in ("", "r")]
    named = ["copy", "union", "intersection", "difference", "symmetric_difference"]
    methods: dict[str, Any] = {name: again(name) for name in operators + named}
    methods |= {"__iter__": iterate, "__repr__": show, "__reduce_ex__": reduce, "__module__": "builtins"}
    if base is set:
        methods |= {"pop": _pop, "__slots__": ("waiting",)}
    return _LikeItsBase(base.__name__, (base,), methods)


def _pop(self: Any) -> Any:
    """Removes the last member. A list of the members waits for the next call, or emptying a set were quadratic."""
    while self:
        waiting = self.waiting = getattr(self, "waiting", None) or list(set.__iter__(self))
        member = waiting.pop()
        if member in self:
            self.remove(member)
            return member
    raise KeyError("pop from an empty set")


SETS: dict[type, type] = {}
SETS |= {base: _backward(base) for base in (set, frozenset)}


def _again(is_set: bool, members: list) -> Any:
    """Returns a copy of a set that iterates backwards."""
    return SETS[set if is_set else frozenset](members)


def _backward_keys(made: Any) -> Any:
    """Returns what an operator made of a dict's keys or items: a set of them backwards, anything else as it is."""
    return SETS[set](made) if type(made) is set else made


class _Rewriter(ast.NodeTransformer):
    """Has a program make its sets backwards, except by names that it gives another meaning."""

    def __init__(self, tree: ast.Module) -> None:
        bound = {getattr(node, name, None) for node in ast.walk(tree) for name in ("arg", "name", "asname")}
        bound |= {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        }
        self._views = _names_of_views(tree)
        self._names = {name: new for name, new in _NAMES.items() if name not in bound}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_Set(self, node: ast.Set) -> ast.expr:
        self.generic_visit(node)
        return _call(_NAMES["set"], ast.List(node.elts, ast.Load()))

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        self.generic_visit(node)
        return _call(_NAMES["set"], ast.ListComp(node.elt, node.generators))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _call(_KEYS, node) if _is_of_keys(node, self._views) else node


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS


def _names_of_views(tree: ast.Module) -> set[str]:
    """Returns the names to which a dict's keys or items are assigned."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(map(_is_view, getattr(node.value, "elts", [node.value]))):
            names |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names


def _is_of_keys(node: ast.BinOp, names: set[str]) -> bool:
    """Returns whether an operator may make a set of a dict's keys or items, which may have one of these names."""
    return any(_is_view(side) or getattr(side, "id", "") in names for side in (node.left, node.right))


def _call(name: str, argument: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [argument], [])


def turn_backward() -> None:
    """Makes `compiled` turn the sets of the programs that this process compiles from now on."""
    names = {_NAMES[base.__name__]: backward for base, backward in SETS.items()}
    vars(builtins).update(names, **{_KEYS: _backward_keys})


def compiled(source: str, file: str) -> CodeType:
    """Compiles a program, after `turn_backward` so that its sets iterate backwards. Raises what `compile` does."""
    source = source.removeprefix("\ufeff")  # a byte order mark, with which files may begin
    tree: Any = source
    if _KEYS in vars(builtins):
        tree = ast.parse(source, file)
        tree = ast.fix_missing_locations(_Rewriter(tree).visit(tree))
    return compile(tree, file, "exec", dont_inherit=True)


@lru_cache(maxsize=4096)
def makes_sets(source: str) -> bool:
    """Returns whether a program, or one that stands in it as a text, has an expression that makes a set."""
    try:
        tree = parse_source(source)
    except NotLiteral:
        return False
    views = _names_of_views(tree)
    return any(
        isinstance(node, (ast.Set, ast.SetComp))
        or (isinstance(node, ast.Name) and node.id in _NAMES)
        or (isinstance(node, ast.BinOp) and _is_of_keys(node, views))
        or (isinstance(node, ast.Constant) and "\n" in str(node.value) and makes_sets(str(node.value)))
        for node in ast.walk(tree)
    )
