"""The forms in which people and models state what a call gives, besides `f(x) == v`, as data.

    y == f(x)    f(x)    not f(x)    f(x) is None    f(x) is True
    list(f(x)) == y, and so with tuple, set, sorted; round(f(x), 2) == y
    abs(f(x) - y) < e    math.isclose(f(x), y)    f(x) == pytest.approx(y)
    with pytest.raises(ValueError): f(x)
    self.assertEqual(f(x), y), and other asserts of unittest that say one of these

Names stand for an argument, an answer, a result, an object of the class under test or the function itself, until a
statement that may change what they stand for. Every call is a test by itself, on a new object and with the arguments
that were written: a program that changes its arguments is not asked about what it left of them. What may not run, or
may fail without failing the suite, is no test: in `if False`, under `skip` or `xfail`, in `try` with `except`.
"""

import ast
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from codea1.game.calls import NOT_ENTRY_POINT, Call, Rejected, read_answer, read_call
from codea1.game.question import parameters_of
from codea1.values.entry_points import IS, RAISES, TRUTH, WITHIN
from codea1.values.literals import Budget, Named, NotLiteral, literal_value, named

# Largest tolerance, of an answer's size and at least of 1: a wider one would be right without knowing the answer.
MAX_TOLERANCE = 0.01
MOST_DIGITS = 9  # and one at least, to which an answer may be rounded

NO_COMPARISON = "not a comparison"
CHAINED = "a chained comparison"
NO_CALL = "no call on the left"
NO_NUMBER = "answer is not a number"
BAD_TOLERANCE = f"tolerance is none, or more than {MAX_TOLERANCE:.0%} of the answer"
BAD_RAISES = "not one call that raises one exception"
IN_TRY = "in `try` with `except`"

OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_WRAPPERS = ("list", "tuple", "set", "sorted", TRUTH)
_CHANGE_NOTHING = {  # functions of their arguments
    *("abs", "all", "any", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min"),
    *("print", "range", "repr", "round", "set", "sorted", "str", "sum", "tuple", "type", "zip"),
}
# Decorators and marks of tests that are not run or may fail, calls that end one, and contexts that catch what fails it.
_MARKS = ("skip", "skipif", "skipIf", "skipUnless", "xfail", "expectedFailure")
_ENDS = ("skip", "skipTest", "importorskip", "xfail", "fail", "exit", "quit", "_exit")
_CATCHES = ("raises", "assertRaises", "assertRaisesRegex", "suppress")
_EQUAL = ("assertEqual", "assertEquals", "assertListEqual", "assertTupleEqual", "assertSetEqual", "assertDictEqual")

_Asked = ast.Call | Call | Rejected  # a call of the entry point; the last two were read when a name got its result
_Meaning = Named | Call | Rejected | str  # what a name stands for; the last is an object or function, as written


@dataclass(frozen=True)
class Claim:
    """What one statement says of a call."""

    node: ast.stmt
    call: Call | None = None
    answer: bytes | None = None
    rejection: str = ""  # why it is no test; empty where it is one


def claim_of(node: ast.stmt, call: Call | Rejected, answer: bytes | Rejected, reasons: Iterable[str]) -> Claim:
    """Returns the claim that a call gives an answer; `reasons` are why it is no test, besides those of the two."""
    reasons = [*reasons, *(part.reason for part in (call, answer) if isinstance(part, Rejected))]
    return Claim(
        node,
        None if isinstance(call, Rejected) else call,
        None if isinstance(answer, Rejected) else answer,
        "; ".join(reasons),
    )


class Reader:
    """Reads the statements of a suite in order."""

    def __init__(self, entry_point: str, budget: Budget) -> None:
        self._entry_point, self._budget = entry_point, budget
        self._names: dict[str, _Meaning] = {}
        self._values: dict[str, Named] = {}  # those of the names that stand for plain data
        self._is_forgotten = False  # since the last scope began
        self._claims: list[Claim] = []
        self._ended = ""  # why the statements that follow are no tests, where something has ended the suite

    def read(self, body: Sequence[ast.stmt], *, is_outermost: bool = True) -> list[Claim]:
        """Returns what statements claim. Raises RecursionError for what is nested too deep."""
        self._claims = []
        ended = self._walk(body, self._ended)
        if is_outermost:
            self._ended = ended
        return self._claims

    def forget_all(self) -> None:
        """Follows a statement that may do anything."""
        self._is_forgotten = True
        self._names.clear()
        self._values.clear()

    def _walk(self, body: Iterable[ast.stmt], reason: str = "") -> str:
        """Reads statements, which are no tests where there is a reason; returns why those behind them would be none."""
        for node in body:
            first = len(self._claims)
            self._read(node)
            if reason:
                self._claims[first:] = [replace(claim, rejection=reason) for claim in self._claims[first:]]
            reason = reason or self._ending(node)
        return reason

    def _ending(self, node: ast.stmt) -> str:
        """Returns why tests behind a statement may not run: it ends their block, or does so under a condition."""
        if isinstance(node, ast.If):
            holds = self._holds(node.test)
            inner = [*([] if holds is False else node.body), *([] if holds else node.orelse)]
            return next(filter(None, map(_ending, inner)), "")
        return _ending(node)

    def _read(self, node: ast.stmt) -> None:
        match node:
            case ast.Assert(test=test):
                claim = self._stated(node, test)
                self._claims.append(claim)
                if claim.call is None and self._may_change(test):
                    self.forget_all()
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) as call) if (
                name.startswith("assert")
            ):
                self._claims.append(self._unittest(node, name, call))
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as context)], body=inner) if _last_name(
                context
            ) in ("raises", "assertRaises"):
                self._claims.append(self._raising(node, context.args, context.keywords, inner))
                if self._may_change(ast.Module(inner, [])):
                    self.forget_all()
            case ast.FunctionDef(body=inner) | ast.AsyncFunctionDef(body=inner):
                self._in_scope(inner, parameters_of(node), _among(_MARKS, node.decorator_list))
                self._forget(node.name)
            case ast.ClassDef(body=inner):
                self._in_scope(inner, reason=_among(_MARKS, node.decorator_list))
                self._forget(node.name)
            case ast.If(test=test, body=inner, orelse=otherwise):
                holds = self._holds(test)
                self._in_scope(inner, reason="" if holds else "under an `if` that may not hold")
                self._in_scope(otherwise, reason="" if holds is False else "under an `else` that may not run")
                is_plain = all(isinstance(child, ast.Assert | ast.Pass) for child in (*inner, *otherwise))
                if not is_plain or self._may_change(node.test):
                    self.forget_all()
            case ast.With(items=items, body=inner) | ast.AsyncWith(items=items, body=inner):
                self.forget_all()
                self._walk(inner, _among(_CATCHES, [item.context_expr for item in items]))
            case ast.For(iter=test) | ast.AsyncFor(iter=test) | ast.While(test=test):
                reason = "" if self._holds(test) else "in a loop that may not run"
                self._walk_blocks((reason, node.body), ("", node.orelse))
            case ast.Try(handlers=handlers) | ast.TryStar(handlers=handlers):
                blocks = [node.body, *(handler.body for handler in handlers), node.orelse]
                reason = IN_TRY if handlers else ""
                self._walk_blocks(*((reason, inner) for inner in blocks), ("", node.finalbody))
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value)
            case ast.Assign(targets=targets, value=value) if all(isinstance(target, ast.Name) for target in targets):
                self._assign(ast.Tuple(targets), value)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    self._forget((alias.asname or alias.name).partition(".")[0])
                if any(alias.name == "*" for alias in aliases):
                    self.forget_all()
            case ast.Expr() | ast.Pass() | ast.AnnAssign() | ast.Return():
                if self._may_change(node):
                    self.forget_all()
            case _:
                self.forget_all()

    def _walk_blocks(self, *blocks: tuple[str, Iterable[ast.stmt]]) -> None:
        """Reads blocks, each with why it has no tests, of which any may have run before another."""
        for reason, inner in blocks:
            self.forget_all()
            self._walk(inner, reason)
        self.forget_all()

    def _holds(self, test: ast.expr) -> bool | None:
        """Returns whether an expression is true, or a loop over it runs; None where that is not known."""
        match test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[other]):
                sides = {getattr(side, "id", getattr(side, "value", None)) for side in (left, other)}
                return True if sides == {"__name__", "__main__"} else None
        try:
            return bool(literal_value(test, self._budget, self._values))
        except NotLiteral:
            return None

    def _in_scope(self, body: Iterable[ast.stmt], parameters: Sequence[ast.arg] = (), reason: str = "") -> None:
        """Reads what has names of its own; a parameter `candidate` is the entry point, as `check` has it."""
        names, values, before = dict(self._names), dict(self._values), self._is_forgotten
        self._is_forgotten = False
        for parameter in parameters:
            self._forget(parameter.arg)
            if parameter.arg == "candidate":
                self._names[parameter.arg] = self._entry_point
        self._walk(body, reason)
        if self._is_forgotten:  # it may have changed what is outside too
            self.forget_all()
        else:
            self._names, self._values, self._is_forgotten = names, values, before

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        targets, values = [target], [value]
        if isinstance(target, ast.Tuple | ast.List):
            targets = target.elts
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        meanings = [self._meaning(item) for item in values] if len(targets) == len(values) else [None] * len(targets)
        is_simple = all(isinstance(target, ast.Name) for target in targets)
        is_read = all(isinstance(meaning, Named | Call | str) for meaning in meanings)
        if not is_simple or (not is_read and self._may_change(value)):
            self.forget_all()
        for name, meaning in zip(targets, meanings, strict=True):
            if isinstance(name, ast.Name):
                self._forget(name.id)
                if is_simple and meaning is not None:
                    self._names[name.id] = meaning
                    if isinstance(meaning, Named):
                        self._values[name.id] = meaning

    def _meaning(self, value: ast.expr) -> _Meaning | None:
        if isinstance(value, ast.Name) and value.id in self._names:
            return self._names[value.id]
        if isinstance(value, ast.Call) and self._is_asked(value):
            return read_call(value, self._entry_point, self._budget, self._values)
        if meant := self._meant(value) or self._object(value):
            return meant
        try:
            return named(value, self._budget, self._values)
        except NotLiteral:
            return None

    def _forget(self, name: str) -> None:
        self._names.pop(name, None)
        self._values.pop(name, None)

    def _may_change(self, node: ast.AST) -> bool:
        """Returns whether running this may change what names stand for."""

        def changes(node: ast.AST) -> bool:
            if isinstance(node, ast.Call):
                return getattr(node.func, "id", "") not in _CHANGE_NOTHING and not self._is_asked(node)
            return isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)

        return any(map(changes, ast.walk(node)))

    def _meant(self, node: ast.expr) -> str:
        """Returns the entry point, where this is it."""
        match node:
            case ast.Name(id=name):
                meant = self._names.get(name, name)
            case ast.Attribute(value=owner, attr=name):
                meant = f"{self._object(owner)}.{name}"
            case _:
                return ""
        return self._entry_point if meant == self._entry_point else ""

    def _object(self, node: ast.expr) -> str:
        """Returns an object of the class under test as it is made; empty for what is none."""
        match node:
            case ast.Name(id=name) if isinstance(made := self._names.get(name), str):
                return made
            case ast.Call(func=ast.Name(id=owner), args=[], keywords=[]) if self._entry_point.startswith(f"{owner}()."):
                return f"{owner}()"
        return ""

    def _is_asked(self, node: ast.Call) -> bool:
        return bool(self._meant(node.func))

    def _asked(self, node: ast.expr) -> _Asked | None:
        """Returns the call that this is the result of."""
        if isinstance(node, ast.Name):
            meaning = self._names.get(node.id)
            return meaning if isinstance(meaning, Call | Rejected) else None
        return node if isinstance(node, ast.Call) and self._is_asked(node) else None

    def _formed(self, node: ast.expr) -> tuple[str, _Asked] | None:
        """Returns a call's result with the form around it."""
        if asked := self._asked(node):
            return "", asked
        match node:
            case ast.Call(func=ast.Name(id=wrapper), args=[inner], keywords=[]) if wrapper in _WRAPPERS:
                form = wrapper
            case ast.Call(func=ast.Name(id="round"), args=[inner, ast.Constant(value=int(digits))], keywords=[]) if (
                0 < digits <= MOST_DIGITS
            ):
                form = f"round {digits}"
            case _:
                return None
        return (form, asked) if (asked := self._asked(inner)) else None

    def _stated(self, node: ast.stmt, test: ast.expr) -> Claim:
        """Returns what holds where an expression is true."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand) if asked := self._asked(operand):
                return self._equal(node, TRUTH, asked, ast.Constant(False))
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left, ast.Sub(), right)], keywords=[]),
                ops=[ast.Lt() | ast.LtE() as sign],
                comparators=[tolerance],
            ):
                if pair := self._pair(left, right):
                    width = self._number(tolerance)
                    distance = math.nan if width is None else width
                    return self._within(node, *pair, OPERATORS[type(sign)], lambda _: distance)
            case ast.Compare(ops=[ast.Eq()], comparators=[right]):
                for left, other in ((test.left, right), (right, test.left)):
                    if _last_name(left) == "approx" and isinstance(left, ast.Call) and (asked := self._asked(other)):
                        return self._approximate(node, asked, left)
            case ast.Call(func=function, args=[left, other]) if _last_name(test) == "isclose":
                if pair := self._pair(left, other):
                    of_numpy = isinstance(function, ast.Attribute) and _last_name(function.value) in ("np", "numpy")
                    return self._close(node, *pair, test.keywords, of_numpy=of_numpy)
        if isinstance(test, ast.Compare):
            return self._compared(node, test)
        if asked := self._asked(test):
            return self._equal(node, TRUTH, asked, ast.Constant(True))
        return Claim(node, rejection=NO_COMPARISON)

    def _compared(self, node: ast.stmt, test: ast.Compare) -> Claim:
        formed, value = self._formed(test.left), test.comparators[0]
        if formed is None and (formed := self._formed(value)):
            value = test.left
        if formed is None:
            return Claim(node, rejection=NOT_ENTRY_POINT if isinstance(test.left, ast.Call) else NO_CALL)
        first, *others = test.ops
        is_one_object = isinstance(value, ast.Constant) and isinstance(value.value, bool | None)
        is_equality = isinstance(first, ast.Eq) or (isinstance(first, ast.Is) and is_one_object and not formed[0])
        reasons = [CHAINED] if others else [] if is_equality else [f"operator {OPERATORS[type(first)]}"]
        form, asked = formed
        if isinstance(first, ast.Is) and isinstance(value, ast.Constant) and isinstance(value.value, bool):
            form = form or IS
        return self._equal(node, form, asked, value, reasons)

    def _equal(self, node: ast.stmt, form: str, asked: _Asked, value: ast.expr, reasons: Sequence[str] = ()) -> Claim:
        """Returns the claim that an answer, in a form, is a value; `reasons` are why it is no test."""
        call = asked
        if isinstance(call, ast.Call):
            call = read_call(call, self._entry_point, self._budget, self._values)
        if isinstance(call, Call) and form:
            call = replace(call, entry_point=f"{form} {self._entry_point}")
        answer = read_answer(value, self._entry_point, self._budget, self._values)
        return claim_of(node, call, answer, reasons)

    def _pair(self, left: ast.expr, other: ast.expr) -> tuple[_Asked, ast.expr] | None:
        """Returns which of two is the call's result, and the other."""
        if asked := self._asked(left):
            return asked, other
        return (asked, left) if (asked := self._asked(other)) else None

    def _approximate(self, node: ast.stmt, asked: _Asked, approx: ast.Call) -> Claim:
        value, *positional = approx.args or [ast.Constant(None)]
        given = self._numbers(("rel", "abs"), positional, approx.keywords)
        if given is None:
            return Claim(node, rejection=BAD_TOLERANCE)
        relative, least = given.get("rel", 0.0 if "abs" in given else 1e-6), given.get("abs", 1e-12)
        return self._within(node, asked, value, "<=", lambda size: max(relative * size, least))

    def _close(
        self, node: ast.stmt, asked: _Asked, value: ast.expr, keywords: Sequence[ast.keyword], *, of_numpy: bool
    ) -> Claim:
        """Returns the claim of `math.isclose`, or of numpy's, which adds both tolerances."""
        names, usual = (("rtol", "atol"), (1e-5, 1e-8)) if of_numpy else (("rel_tol", "abs_tol"), (1e-9, 0.0))
        given = self._numbers(names, (), keywords)
        if given is None:
            return Claim(node, rejection=BAD_TOLERANCE)
        relative, least = (given.get(name, default) for name, default in zip(names, usual, strict=True))
        both = sum if of_numpy else max
        return self._within(node, asked, value, "<=", lambda size: both((relative * size, least)))

    def _almost(self, node: ast.stmt, asked: _Asked, value: ast.expr, call: ast.Call) -> Claim:
        given = self._numbers(("places", "msg", "delta"), call.args[2:], call.keywords)
        if given is None or "msg" in given:
            return Claim(node, rejection=BAD_TOLERANCE)
        width = given.get("delta", 0.5 * 10 ** -min(given.get("places", 7.0), 100.0))
        return self._within(node, asked, value, "<=", lambda _: width)

    def _within(
        self, node: ast.stmt, asked: _Asked, value: ast.expr, sign: str, tolerance: Callable[[float], float]
    ) -> Claim:
        """Returns the claim that an answer is a number's neighbour; the tolerance may depend on the number's size."""
        number = self._number(value)
        if number is None:
            return Claim(node, rejection=NO_NUMBER)
        width, widest = tolerance(abs(number)), MAX_TOLERANCE * max(1.0, abs(number))
        if not 0 <= width <= widest or (width == 0 and sign == "<"):
            return Claim(node, rejection=BAD_TOLERANCE)
        return self._equal(node, f"{WITHIN} {sign} {width!r}", asked, value)

    def _number(self, node: ast.expr) -> float | None:
        """Returns the finite real number that an operand is; None where it is something else."""
        try:
            value = literal_value(node, self._budget, self._values)
            number = float(value) if isinstance(value, int | float | Fraction | Decimal) else math.nan
        except (NotLiteral, ArithmeticError, ValueError):
            return None
        return number if math.isfinite(number) else None

    def _numbers(
        self, names: Sequence[str], positional: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> dict[str, float] | None:
        """Returns the options of a call, by name; None where there are others or one is no number."""
        given = dict(zip(names, positional, strict=False)) | {keyword.arg or "": keyword.value for keyword in keywords}
        numbers = {name: number for name, node in given.items() if (number := self._number(node)) is not None}
        return numbers if len(positional) <= len(names) and set(numbers) == set(given) <= set(names) else None

    def _raising(
        self, node: ast.stmt, errors: Sequence[ast.expr], keywords: Sequence[ast.keyword], body: Sequence[ast.stmt]
    ) -> Claim:
        """Returns the claim that a body raises an exception."""
        match errors, keywords, body:
            case (
                [ast.Name(id=error)],
                [],
                [ast.Expr(value=ast.Call() as call) | ast.Assign(targets=[ast.Name()], value=ast.Call() as call)],
            ):
                if self._is_asked(call):
                    return self._equal(node, f"{RAISES} {error}", call, ast.Constant(True))
                return Claim(node, rejection=NOT_ENTRY_POINT)
        return Claim(node, rejection=BAD_RAISES)

    def _unittest(self, node: ast.stmt, name: str, call: ast.Call) -> Claim:
        """Returns what a method of `unittest.TestCase` asserts."""
        match name, call.args:
            case _, [first, other, *_] if name in _EQUAL:
                return self._stated(node, ast.Compare(first, [ast.Eq()], [other]))
            case "assertAlmostEqual", [first, other, *_] if pair := self._pair(first, other):
                return self._almost(node, *pair, call)
            case "assertIs", [first, other, *_]:
                return self._stated(node, ast.Compare(first, [ast.Is()], [other]))
            case "assertIsNone", [first, *_]:
                return self._stated(node, ast.Compare(first, [ast.Is()], [ast.Constant(None)]))
            case "assertTrue", [first, *_]:
                return self._stated(node, first)
            case "assertFalse", [first, *_]:
                return self._stated(node, ast.UnaryOp(ast.Not(), first))
        return Claim(node, rejection=NO_COMPARISON)


def _last_name(node: ast.expr) -> str:
    """Returns the name of a function, without the module that it may be in; of a call its function's."""
    function = node.func if isinstance(node, ast.Call) else node
    return getattr(function, "attr", getattr(function, "id", ""))


def _among(names: Sequence[str], expressions: Sequence[ast.expr]) -> str:
    """Returns why what is under decorators, marks or contexts is no test: one of them has such a name."""
    return next((f"under `{name}`" for name in map(_last_name, expressions) if name in names), "")


def _ending(node: ast.stmt) -> str:
    """Returns why no test follows a statement in its block; empty where one may."""
    match node:
        case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
            return f"after `{type(node).__name__.lower()}`"
        case ast.Assert(test=ast.Constant(value=value)) if not value:
            return "after an assert that fails"
        case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
            return _among(_MARKS, value.elts if isinstance(value, ast.List | ast.Tuple) else [value])
        case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call) if _last_name(call) in _ENDS:
            return f"after `{_last_name(call)}`"
    return ""
