"""Asserts read as data: text into statements, a statement into the call that it makes and the answer that it states.

What does not count as a test carries the reason.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from codea1.game.calls import MAX_VALUE_BYTES, Call, CallTest
from codea1.game.question import Question
from codea1.values import NotPlainData, TooLarge, encode_exact
from codea1.values.checkers import PROGRAMS
from codea1.values.entry_points import tidied
from codea1.values.literals import MAX_SOURCE_BYTES, Budget, NotLiteral, call_arguments, literal_value, parse_source

Inlined = dict[str, ast.expr]  # names that were assigned before, with their expressions

UNREADABLE = "does not parse"
NOT_ONE_ASSERT = "not a single assert"
NO_COMPARISON = "not a comparison"
CHAINED = "a chained comparison"
NO_CALL = "no call on the left"
NOT_ENTRY_POINT = "not the entry point"
BAD_ARGUMENTS = "arguments are not plain data"
LARGE_ARGUMENTS = "arguments are too large"
BAD_ANSWER = "answer is not plain data"
LARGE_ANSWER = "answer is too large"

_OPERATORS: dict[type[ast.cmpop], str] = {
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

_MAX_GOLDEN_BYTES = 16 * MAX_VALUE_BYTES  # of a source: a byte of arguments or answer has at most seven characters
_TOKENS = re.compile(r"\\.|\"{3}|'{3}|[\"'#()\[\]{}]")


@dataclass(frozen=True)
class Rejected:
    """A source that is not one test."""

    reason: str


@dataclass(frozen=True)
class ParsedAssert:
    """What one assert states, before any reward judges it."""

    source: str  # as written
    call: Call | None = None  # None: it does not call the entry point with plain data
    answer: bytes | None = None  # exact encoding of the first right-hand side; None: not plain data
    rejection: str = ""  # why it is not `assert entry_point(plain data) == plain data`; empty when it is
    dropped: bool = False  # the reference's extraction loses it without counting it

    @property
    def test(self) -> CallTest | None:
        """The test with the stated answer, None when it is rejected: for fixed tests (see `MarkedAssert.test`)."""
        if self.rejection or self.call is None or self.answer is None:
            return None
        return CallTest(self.call, self.answer)


def split_statements(text: str) -> Iterator[str]:
    """Yields the statements of `text`: whole lines, joined while a bracket or a triple-quoted string is open.

    A line that starts with `assert` always begins a statement, whatever was left open before it. What grows
    beyond MAX_SOURCE_BYTES, and so will not be read, ends there. Linear in the length of the text.
    """
    lines: list[str] = []
    size = depth = 0
    quote = ""
    for line in text.split("\n"):
        if lines and line.lstrip().startswith(("assert ", "assert(")):
            yield "\n".join(lines)
            lines, size, depth, quote = [], 0, 0, ""
        if not lines and not line.strip():
            continue
        lines.append(line)
        size += len(line) + 1
        depth, quote = _scan(line, depth, quote)
        complete = depth <= 0 and not quote and not line.endswith("\\")
        if complete or size > MAX_SOURCE_BYTES:
            yield "\n".join(lines)
            lines, size, depth, quote = [], 0, 0, ""
    if lines:
        yield "\n".join(lines)


def _scan(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Follows open brackets and an open triple quote through one line."""
    for found in _TOKENS.finditer(line):
        token = found[0]
        if quote:
            if token.startswith(quote):
                quote = ""
        elif token[0] in "\"'":
            quote = token
        elif token == "#":
            break
        elif token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
    return depth, quote if len(quote) == 3 else ""


def parse_assert(source: str, entry_point: str, max_bytes: int = MAX_SOURCE_BYTES) -> CallTest | Rejected:
    """Reads one test that people wrote or a file holds, as `read_fixed_tests` does. A message after it is ignored."""
    try:
        body = parse_source(source.strip(), max_bytes).body
    except NotLiteral:
        return Rejected(UNREADABLE)
    if [*map(type, body)] != [*[ast.Assign] * (len(body) - 1), ast.Assert]:
        return Rejected(NOT_ONE_ASSERT)
    (test,) = read_fixed_tests(body, entry_point)
    return test


def read_fixed_tests(body: Iterable[ast.stmt], entry_point: str) -> list[CallTest | Rejected]:
    """Reads the asserts among statements, where they state what a call of literals gives.

    Besides `f(x) == v`: `v == f(x)`; `f(x) is v` for True, False and None; `f(x)` and `not f(x)` as True and False; and
    names that stand for an argument or a result since a simple assignment. Any other statement, which may change what
    they stand for, ends that.
    """
    inlined: Inlined = {}
    budget = Budget()
    tests: list[CallTest | Rejected] = []
    for node in body:
        if isinstance(node, ast.Assert):
            stated = ast.Assert(_as_comparison(node.test, entry_point, inlined))
            parsed = _read_assert(stated, "", entry_point, inlined, budget, fenced=True)
            tests.append(parsed.test or Rejected(parsed.rejection))
        else:
            _follow(node, inlined)
    return tests


def _follow(node: ast.stmt, inlined: Inlined) -> None:
    """Remembers what a simple assignment names, a call with its arguments as they are; other statements end that."""
    if assigned := _simple_assignment(node):
        name, value = assigned
        inlined[name] = _with_arguments(value, inlined) if isinstance(value, ast.Call) else value
    else:
        inlined.clear()


def _with_arguments(call: ast.Call, inlined: Inlined) -> ast.Call:
    arguments = [_inline(argument, inlined) for argument in call.args]
    return ast.Call(
        call.func, arguments, [ast.keyword(each.arg, _inline(each.value, inlined)) for each in call.keywords]
    )


def _calls(node: ast.expr, entry_point: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name == entry_point
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id=owner), args=[], keywords=[]), attr=name)):
            return f"{owner}().{name}" == entry_point
    return False


def _simple_assignment(node: ast.stmt) -> tuple[str, ast.expr] | None:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
    return None


def _as_comparison(test: ast.expr, entry_point: str, inlined: Inlined) -> ast.expr:
    """Returns `call == value` for the other ways to state that, and what is none of them as it is."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        call, value = _inline(test.operand, inlined), ast.Constant(False)
    elif isinstance(test, ast.Compare):
        call, value = _inline(test.left, inlined), test.comparators[0]
        if not _calls(call, entry_point) and _calls(_inline(value, inlined), entry_point):
            call, value = _inline(value, inlined), call
        is_one_object = isinstance(value, ast.Constant) and isinstance(value.value, bool | None)
        is_identity = isinstance(test.ops[0], ast.Is) and is_one_object
        if len(test.ops) > 1 or not (is_identity or isinstance(test.ops[0], ast.Eq)):
            return test
    else:
        call, value = _inline(test, inlined), ast.Constant(True)
    return ast.Compare(call, [ast.Eq()], [value]) if isinstance(call, ast.Call) else test


def read_statement(
    statement: str, entry_point: str, inlined: Inlined, budget: Budget, *, fenced: bool, all_forms: bool = False
) -> list[ParsedAssert]:
    """Reads the asserts of one statement (several when joined by semicolons) and remembers its simple assignments.

    Args:
      statement: source text of any length and content.
      entry_point: the function that a test must call.
      inlined: names assigned by earlier statements; this one's are added.
      budget: of the suite; once it is spent, operands are refused.
      fenced: the statement stood in a code block, where the reference's extraction drops what is not
        `assert <call> <operator> ...` instead of counting it.
      all_forms: the forms of `read_fixed_tests` count too.
    """
    statement = statement.strip()
    try:
        body = parse_source(statement).body
    except NotLiteral:
        if not statement.startswith("assert"):
            return []
        return [ParsedAssert(statement[:MAX_SOURCE_BYTES], rejection=UNREADABLE, dropped=fenced)]
    asserts = []
    for node in body:
        if isinstance(node, ast.Assert):
            source = statement if len(body) == 1 else _unparse(node, statement)
            stated = ast.Assert(_as_comparison(node.test, entry_point, inlined)) if all_forms else node
            asserts.append(_read_assert(stated, source, entry_point, inlined, budget, fenced=fenced))
        elif all_forms:
            _follow(node, inlined)
        elif assigned := _simple_assignment(node):
            name, value = assigned
            inlined[name] = value
    return asserts


def _unparse(node: ast.Assert, statement: str) -> str:
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):  # ValueError: an int of more digits than Python writes
        return statement


def _read_assert(
    node: ast.Assert, source: str, entry_point: str, inlined: Inlined, budget: Budget, *, fenced: bool
) -> ParsedAssert:
    compare = node.test
    if not isinstance(compare, ast.Compare):
        return ParsedAssert(source, rejection=NO_COMPARISON, dropped=fenced)
    first, *others = compare.ops
    if not isinstance(compare.left, ast.Call):
        return ParsedAssert(source, rejection=NO_CALL, dropped=fenced)
    operator = _OPERATORS[type(first)]
    reasons = [CHAINED] if others else [] if operator == "==" else [f"operator {operator}"]
    call = _read_call(compare.left, entry_point, inlined, budget)
    answer = _read_answer(compare.comparators[0], entry_point, budget)
    reasons += [part.reason for part in (call, answer) if isinstance(part, Rejected)]
    return ParsedAssert(
        source,
        None if isinstance(call, Rejected) else call,
        None if isinstance(answer, Rejected) else answer,
        "; ".join(reasons),
    )


def _read_call(node: ast.Call, entry_point: str, inlined: Inlined, budget: Budget) -> Call | Rejected:
    if not _calls(node, entry_point):
        return Rejected(NOT_ENTRY_POINT)
    try:
        positional, named = call_arguments(_with_arguments(node, inlined), budget)
        if entry_point in PROGRAMS:
            positional = tuple(_ended(each) for each in positional)
        # By name: the order in which keywords are written makes no other test.
        return Call(entry_point, encode_exact((positional, dict(sorted(named.items()))), MAX_VALUE_BYTES))
    except TooLarge:
        return Rejected(LARGE_ARGUMENTS)
    except (NotLiteral, NotPlainData):
        return Rejected(BAD_ARGUMENTS)


def _inline(node: ast.expr, inlined: Inlined) -> ast.expr:
    return inlined.get(node.id, node) if isinstance(node, ast.Name) else node


def _ended(given: object) -> object:
    """Returns a standard input with its last line ended, so that written with or without that it is one input."""
    return f"{given}\n" if isinstance(given, str) and not given.endswith("\n") else given


def _read_answer(node: ast.expr, entry_point: str, budget: Budget) -> bytes | Rejected:
    try:
        answer = literal_value(node, budget)
        if entry_point in PROGRAMS and isinstance(answer, str):
            answer = tidied(answer)
        return encode_exact(answer, MAX_VALUE_BYTES)
    except TooLarge:
        return Rejected(LARGE_ANSWER)
    except (NotLiteral, NotPlainData):
        return Rejected(BAD_ANSWER)


def golden_tests(question: Question) -> list[CallTest]:
    """Returns the fixed tests of a question that are plain asserts."""
    parsed = [parse_assert(source, question.entry_point, _MAX_GOLDEN_BYTES) for source in question.golden_tests]
    return [test for test in parsed if not isinstance(test, Rejected)]
