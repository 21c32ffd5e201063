"""Asserts: read as data, and marked by the ground truth's answers.

Text is split into statements, and a statement read as the call that it makes and the answer that it states. What does
not count as a test carries the reason.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from codea1.game.calls import MAX_VALUE_BYTES, NOT_ENTRY_POINT, Call, CallTest, Rejected, read_answer, read_call
from codea1.game.forms import CHAINED, NO_CALL, NO_COMPARISON, OPERATORS, Claim, Reader, claim_of
from codea1.game.question import Question, Signature
from codea1.sandbox.host.grading import GroundTruthAnswer
from codea1.values.entry_points import WITHIN, same_answer
from codea1.values.literals import MAX_SOURCE_BYTES, Budget, NotLiteral, parse_source

Inlined = dict[str, ast.expr]  # names that were assigned before, with their expressions
Seen = dict[bytes, set[bytes]]  # the inputs of a suite's asserts so far, each with its answers: see `Signature.key`

UNREADABLE = "does not parse"
NOT_ONE_ASSERT = "not a single assert"

_MAX_GOLDEN_BYTES = 16 * MAX_VALUE_BYTES  # of a source: a byte of arguments or answer has at most seven characters
_CLAUSE = re.compile(r"\s*(?:else|elif|except|finally)\b")  # goes on with the statement before it
_TOKENS = re.compile(r"\\.|\"{3}|'{3}|[\"'#()\[\]{}]")


@dataclass(frozen=True)
class ParsedAssert:
    """What one assert states, before any reward judges it."""

    source: str  # as written
    call: Call | None = None  # None: it does not call the entry point with plain data
    answer: bytes | None = None  # exact encoding of the first right-hand side; None: not plain data
    rejection: str = ""  # why it is no test; empty when it is one
    # In a code block, where the reference's extraction loses what is not `assert <call> <operator> ...` without
    # counting it; outside of one `parse_suite` takes it back.
    dropped: bool = False

    @property
    def test(self) -> CallTest | None:
        """The test with the stated answer, None when it is rejected: for fixed tests (see `MarkedAssert.test`)."""
        if self.rejection or self.call is None or self.answer is None:
            return None
        return CallTest(self.call, self.answer)


class Mark(StrEnum):
    """What became of one assert."""

    RIGHT = "right"  # the answer it states is the ground truth's; officially under any comparison, not only `==`
    WRONG_ANSWER = "wrong answer"  # the ground truth answers the call with another value
    DUPLICATE = "duplicate"  # an earlier assert has the same input
    UNUSABLE = "unusable"  # the ground truth gives no comparable answer
    REJECTED = "rejected"  # not a form the reward accepts
    DROPPED = "dropped"  # the official extraction loses it without counting it
    SURPLUS = "surplus"  # beyond the number of asserts asked for, where those do not count
    INFRA = "infra"  # the sandbox failed to run the ground truth


@dataclass(frozen=True)
class MarkedAssert:
    """An assert with its mark and the ground truth's answer."""

    parsed: ParsedAssert
    mark: Mark
    detail: str = ""  # the reason of a rejection or of an unusable answer
    truth: bytes | None = None  # exact encoding of the ground truth's answer, where it gives one
    runs: bool = False  # its call runs on the solution, with `truth` as the expected value

    @property
    def is_right(self) -> bool:
        """Whether the assert, as it is written, is unique and states the ground truth's answer with `==`."""
        return self.mark is Mark.RIGHT and not self.parsed.rejection

    @property
    def test(self) -> CallTest | None:
        """What runs on the solution: the call with the ground truth's answer; None where the call does not run."""
        if not self.runs:
            return None
        assert self.parsed.call is not None
        assert self.truth is not None
        return CallTest(self.parsed.call, self.truth)


def tests_of(marked: Iterable[MarkedAssert]) -> list[CallTest]:
    """Returns the tests of those asserts that run, in their order."""
    return [test for item in marked if (test := item.test)]


def split_statements(text: str) -> Iterator[str]:
    """Yields the statements of `text`: whole lines, joined while a bracket or a triple-quoted string is open.

    A line that starts with `assert` always begins a statement, whatever was left open before it. What grows
    beyond MAX_SOURCE_BYTES, and so will not be read, ends there. Linear in the length of the text.
    """
    lines: list[str] = []
    size, depth, quote, ends = 0, 0, "", False
    for line in text.split("\n"):
        if lines and (ends or line.lstrip().startswith(("assert ", "assert("))):
            yield "\n".join(lines)
            lines, size, depth, quote = [], 0, 0, ""
        if not lines and not line.strip():
            continue
        lines.append(line)
        size += len(line) + 1
        depth, quote = _scan(line, depth, quote)
        ends = (depth <= 0 and not quote and not line.endswith("\\")) or size > MAX_SOURCE_BYTES
    if lines:
        yield "\n".join(lines)


def _scan(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Follows open brackets and an open triple quote through one line."""
    for match in _TOKENS.finditer(line):
        token = match[0]
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


def tree_of(source: str) -> ast.Module | None:
    """Returns the syntax tree of a source; None where it is too long, or not Python."""
    try:
        return parse_source(source)
    except NotLiteral:
        return None


def split_groups(text: str) -> Iterator[list[str]]:
    """Yields the statements of `text` in groups that can be parsed: one, with those that are indented below it.

    Its decorators belong to it. A text with triple quotes is one group, if it is Python: strings may hold asserts.
    """
    if ('"""' in text or "'''" in text) and tree_of(text):
        yield [text]
        return
    group: list[str] = []
    is_decorated = False  # by all that the group has so far
    for statement in split_statements(text):
        begins = group and len(_margin(statement)) <= len(_margin(group[0])) and not _CLAUSE.match(statement)
        if begins and not is_decorated:
            yield group
            group = []
        is_decorated = statement.lstrip().startswith(("@", "#") if is_decorated else "@") and (
            is_decorated or not group
        )
        group.append(statement)
    if group:
        yield group


def _margin(statement: str) -> str:
    return statement[: len(statement) - len(statement.lstrip())]


def parse_assert(source: str, entry_point: str, max_bytes: int = MAX_SOURCE_BYTES) -> CallTest | Rejected:
    """Reads one test that people wrote or a file holds, as `read_fixed_tests` does. A message after it is ignored."""
    try:
        body = parse_source(source.strip(), max_bytes).body
    except NotLiteral:
        return Rejected(UNREADABLE)
    *before, last = map(type, body) if body else [None]
    if set(before) - {ast.Assign} or last not in (ast.Assert, ast.With):
        return Rejected(NOT_ONE_ASSERT)
    tests = read_fixed_tests(body, entry_point)
    return tests[0] if len(tests) == 1 else Rejected(NOT_ONE_ASSERT)


def read_fixed_tests(body: Sequence[ast.stmt], entry_point: str) -> list[CallTest | Rejected]:
    """Reads the asserts among statements in all forms of `codea1.game.forms`."""
    try:
        claims = Reader(entry_point, Budget()).read(body)
    except RecursionError:
        return [Rejected(UNREADABLE)]
    return [_parsed(claim, "").test or Rejected(claim.rejection) for claim in claims]


def read_group(group: Sequence[str], reader: Reader) -> list[ParsedAssert]:
    """Reads a group of statements in all forms; where they do not parse together, each by itself."""
    source = "\n".join(group)
    if len(group) > 1 and (margin := _margin(source)):
        source = "\n".join(line.removeprefix(margin) for line in source.split("\n"))
    source = source.strip().removeprefix("\ufeff")  # as `parse_source` does: the tree's places count without it
    try:
        body = parse_source(source).body
        claims = reader.read(body, is_outermost=not _margin(group[0]))
    except (NotLiteral, RecursionError):
        if len(group) > 1:
            return [item for statement in group for item in read_group([statement], reader)]
        reader.forget_all()
        return _unreadable(source)
    if len(body) == 1 and [claim.node for claim in claims] == body:
        return [_parsed(claims[0], source)]
    lines = source.encode().split(b"\n")
    return [_parsed(claim, _written(claim.node, lines)) for claim in claims]


def _unreadable(source: str) -> list[ParsedAssert]:
    """Returns what does not parse, where it would be an assert."""
    is_assert = source.startswith("assert")
    return [ParsedAssert(source[:MAX_SOURCE_BYTES], rejection=UNREADABLE, dropped=True)] if is_assert else []


def _written(node: ast.stmt, lines: Sequence[bytes]) -> str:
    """Returns the source of a statement among the lines that were parsed."""
    first, *rest = lines[node.lineno - 1 : node.end_lineno]
    if not rest:
        return first[node.col_offset : node.end_col_offset].decode()
    return b"\n".join([first[node.col_offset :], *rest[:-1], rest[-1][: node.end_col_offset]]).decode()


def _parsed(claim: Claim, source: str) -> ParsedAssert:
    is_lost = claim.rejection in (NO_COMPARISON, NO_CALL) or not isinstance(claim.node, ast.Assert)
    return ParsedAssert(source, claim.call, claim.answer, claim.rejection, bool(claim.rejection) and is_lost)


def read_statement(statement: str, entry_point: str, inlined: Inlined, budget: Budget) -> list[ParsedAssert]:
    """Reads the asserts of one statement as the paper has them, and remembers its simple assignments.

    Several are joined by semicolons.

    Args:
      statement: source text of any length and content.
      entry_point: the function that a test must call.
      inlined: names assigned by earlier statements; this one's are added.
      budget: of the suite; once it is spent, operands are refused.
    """
    statement = statement.strip()
    tree = tree_of(statement)
    if tree is None:
        return _unreadable(statement)
    asserts = []
    for node in tree.body:
        match node:
            case ast.Assert():
                source = statement if len(tree.body) == 1 else _unparse(node, statement)
                claim = _read_assert(node, entry_point, inlined, budget)
                asserts.append(_parsed(claim, source))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                inlined[name] = value
    return asserts


def _unparse(node: ast.Assert, statement: str) -> str:
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):  # ValueError: an int of more digits than Python writes
        return statement


def _read_assert(node: ast.Assert, entry_point: str, inlined: Inlined, budget: Budget) -> Claim:
    compare = node.test
    if not isinstance(compare, ast.Compare):
        return Claim(node, rejection=NO_COMPARISON)
    if not isinstance(compare.left, ast.Call):
        return Claim(node, rejection=NO_CALL)
    first, *others = compare.ops
    operator = OPERATORS[type(first)]
    reasons = [CHAINED] if others else [] if operator == "==" else [f"operator {operator}"]
    call = _read_call(compare.left, entry_point, inlined, budget)
    answer = read_answer(compare.comparators[0], entry_point, budget)
    return claim_of(node, call, answer, reasons)


def _read_call(node: ast.Call, entry_point: str, inlined: Inlined, budget: Budget) -> Call | Rejected:
    match node.func:
        case ast.Name(id=function):
            pass
        case ast.Attribute(value=ast.Call(func=ast.Name(id=owner), args=[], keywords=[]), attr=name):
            function = f"{owner}().{name}"
        case _:
            function = ""
    if function != entry_point:
        return Rejected(NOT_ENTRY_POINT)
    arguments = [_inline(argument, inlined) for argument in node.args]
    keywords = [ast.keyword(keyword.arg, _inline(keyword.value, inlined)) for keyword in node.keywords]
    return read_call(ast.Call(node.func, arguments, keywords), entry_point, budget)


def _inline(node: ast.expr, inlined: Inlined) -> ast.expr:
    return inlined.get(node.id, node) if isinstance(node, ast.Name) else node


def golden_tests(question: Question) -> list[CallTest]:
    """Returns the fixed tests of a question that are plain asserts."""
    parsed = [parse_assert(source, question.entry_point, _MAX_GOLDEN_BYTES) for source in question.golden_tests]
    return [test for test in parsed if not isinstance(test, Rejected)]


def mark(
    item: ParsedAssert, answers: Mapping[Call, GroundTruthAnswer], signature: Signature, seen: Seen, *, run_wrong: bool
) -> MarkedAssert:
    """Marks an assert by the answer to its call, if that is data; adds its input to those `seen` in the suite.

    An input counts once, in whatever form its answers are compared: two forms may check the same. A wrong answer with a
    tolerance does not run: the tolerance was bounded by the stated number, and may be any multiple of the true one.
    """
    if item.call is None:
        return MarkedAssert(item, Mark.REJECTED, item.rejection)
    answer = answers[item.call]
    if not answer.usable:
        return MarkedAssert(item, Mark.INFRA if answer.reason == "infra" else Mark.UNUSABLE, answer.reason)
    if len(answer.value) > MAX_VALUE_BYTES:
        return MarkedAssert(item, Mark.UNUSABLE, "too large")
    given, answered = signature.key(item.call, answer.value)
    if given in seen and (not answered or not seen[given].isdisjoint((answered, b""))):  # empty: equals any answer
        return MarkedAssert(item, Mark.DUPLICATE, truth=answer.value)
    seen.setdefault(given, set()).add(answered)
    if item.answer is None or not same_answer(item.call.entry_point, item.answer, answer.value):
        runs = run_wrong and not item.call.form.startswith(WITHIN)
        return MarkedAssert(item, Mark.WRONG_ANSWER, item.rejection, answer.value, runs)
    return MarkedAssert(item, Mark.RIGHT, truth=answer.value, runs=True)
