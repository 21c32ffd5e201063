"""Mutants of a program by the operators of cosmic-ray, so that mutation scores are comparable with published ones.

Positions come from the syntax tree and the tokens, the change is made in the text: as in cosmic-ray an operator that is
replaced by one of another precedence regroups what is around it. Its variable operators, which want arguments, are left
out, as it leaves them out when it has none. What it does with a bare `*` or `/` between parameters and with `**` in a
dict, it takes them for binary operators, is kept: such a mutant does not parse and any suite kills it.
"""

import ast
import io
import random
import sys
import tokenize
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import attrgetter

from codea1.data.loader import parsed

BINARY = {
    "+": "Add",
    "-": "Sub",
    "*": "Mul",
    "/": "Div",
    "//": "FloorDiv",
    "%": "Mod",
    "**": "Pow",
    ">>": "RShift",
    "<<": "LShift",
    "|": "BitOr",
    "&": "BitAnd",
    "^": "BitXor",
}
COMPARISON = {
    "==": "Eq",
    "!=": "NotEq",
    "<": "Lt",
    "<=": "LtE",
    ">": "Gt",
    ">=": "GtE",
    "is": "Is",
    "is not": "IsNot",
}
UNARY = {"+": "UAdd", "-": "USub", "~": "Invert", "not": "Not"}
KEYWORDS = {
    "True": ("ReplaceTrueWithFalse", "False"),
    "False": ("ReplaceFalseWithTrue", "True"),
    "and": ("ReplaceAndWithOr", "or"),
    "or": ("ReplaceOrWithAnd", "and"),
    "break": ("ReplaceBreakWithContinue", "continue"),
    "continue": ("ReplaceContinueWithBreak", "break"),
}
UNDEFINED_EXCEPTION = "CosmicRayTestingException"  # what no program raises or defines

_WITH_NONE = {"==": ("is not",), "!=": ("is",), "is": ("is not",), "is not": ("is",)}  # all that None is compared by
_WITH_NUMBER = ("==", "!=", "<", "<=", ">", ">=")
_FSTRINGS_ARE_TOKENS = sys.version_info < (3, 12)  # one token each, not its parts


@dataclass(frozen=True)
class Mutant:
    """A program that differs from another in one place."""

    operator: str  # cosmic-ray's name of what was done
    line: int  # where, from 1
    source: str


@dataclass(frozen=True)
class _Token:
    start: int  # characters from the beginning of the program
    end: int
    text: str
    is_number: bool


@dataclass(frozen=True)
class _Edit:
    operator: str
    start: int
    end: int
    text: str


def mutants(source: str) -> list[Mutant]:
    """Returns every mutant of a program, in the order of the places. Raises SyntaxError where it does not parse."""
    program = _Program(source)
    return [program.edited(edit) for edit in sorted(_edits(program), key=_START)]


def drawn_mutants(program: str, count: int, key: str) -> tuple[str, ...]:
    """Returns `count` different mutants of a program that parse, drawn by `key` alone; all where they are fewer.

    A mutant may be equivalent to the program: no test can tell. Raises SyntaxError where the program does not parse.
    """
    sources = list(dict.fromkeys(mutant.source for mutant in mutants(program)))
    random.Random(key).shuffle(sources)
    return tuple(islice(filter(parsed, sources), count))


_Placed = ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.keyword | ast.alias  # have a place in the source


_START = attrgetter("start")


class _Program:
    """A source with its syntax tree and its tokens, all places in characters from its beginning."""

    def __init__(self, source: str) -> None:
        self.source = source.replace("\r\n", "\n").replace("\r", "\n")
        self.nodes = list(ast.walk(ast.parse(self.source)))
        self._lines = self.source.split("\n")
        self._line_starts = list(accumulate((len(line) + 1 for line in self._lines), initial=0))
        self.tokens = _tokens(self.source, self._line_starts)
        if _FSTRINGS_ARE_TOKENS:
            self._read_fstrings()
        self.tokens.sort(key=_START)

    def start(self, node: _Placed) -> int:
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: _Placed) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def tokens_from(self, start: int, end: int | None = None) -> list[_Token]:
        """Returns the tokens that begin in a range."""
        first = bisect_left(self.tokens, start, key=_START)
        return self.tokens[first : None if end is None else bisect_left(self.tokens, end, key=_START)]

    def next(self, start: int, *texts: str) -> _Token:
        """Returns the first token at or after a place that reads like one of `texts`."""
        return next(token for token in self.tokens_from(start) if token.text in texts)

    def before(self, place: int) -> _Token:
        """Returns the last token that begins before a place."""
        return self.tokens[bisect_left(self.tokens, place, key=_START) - 1]

    def edited(self, edit: _Edit) -> Mutant:
        before, after = self.source[: edit.start], self.source[edit.end :]
        return Mutant(edit.operator, before.count("\n") + 1, _apart(_apart(before, edit.text), after))

    def _offset(self, line: int, column_bytes: int) -> int:
        text = self._lines[line - 1]
        column = column_bytes if text.isascii() else len(text.encode()[:column_bytes].decode())
        return self._line_starts[line - 1] + column

    def _read_fstrings(self) -> None:
        """Adds the tokens of expressions in f-strings; forgets those expressions of which the tree has wrong places.

        Trees of 3.11 err in strings of several lines.
        """
        misplaced: set[ast.AST] = set()
        for node in self.nodes:
            if isinstance(node, ast.FormattedValue):
                start, end = self.start(node.value), self.end(node.value)
                text = self.source[start:end]
                if _says(text, node.value):
                    tokens = _tokens(text, [0])
                    self.tokens += [_Token(start + t.start, start + t.end, t.text, t.is_number) for t in tokens]
                else:
                    misplaced.update(ast.walk(node.value))
        self.nodes = [node for node in self.nodes if node not in misplaced]


def _tokens(source: str, line_starts: list[int]) -> list[_Token]:
    """Returns all but comments and line ends."""
    return [
        _Token(
            line_starts[token.start[0] - 1] + token.start[1],
            line_starts[token.end[0] - 1] + token.end[1],
            token.string,
            token.type == tokenize.NUMBER,
        )
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.OP)
    ]


def _says(text: str, node: ast.expr) -> bool:
    """Returns whether a text of one line is the source of an expression."""
    try:
        return "\n" not in text and ast.dump(ast.parse(text, mode="eval").body) == ast.dump(node)
    except SyntaxError:
        return False


def _apart(left: str, right: str) -> str:
    """Returns both, with a space between where they would make one word."""
    return f"{left} {right}" if _in_word(left[-1:]) and _in_word(right[:1]) else left + right


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _edits(program: _Program) -> Iterator[_Edit]:
    yield from _binary_operators(program)
    yield from _keywords_and_numbers(program)
    for node in program.nodes:
        if isinstance(node, ast.Compare):
            yield from _comparisons(program, node)
        elif isinstance(node, ast.UnaryOp):
            yield from _unary_operator(program, node)
        elif isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):
            yield from _added_not(program, node)
        elif isinstance(node, ast.For | ast.AsyncFor):
            after_in = program.next(program.end(node.target), "in").end
            yield _Edit("ZeroIterationForLoop", after_in, program.next(program.end(node.iter), ":").start, " []")
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            for name in node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]:
                yield _Edit("ExceptionReplacer", program.start(name), program.end(name), UNDEFINED_EXCEPTION)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                yield _Edit("RemoveDecorator", *_whole_decorator(program, decorator), "")


def _binary_operators(program: _Program) -> Iterator[_Edit]:
    others = _no_binary_operators(program)
    for token in program.tokens:
        if token.text in BINARY and token.start not in others:
            for text, name in BINARY.items():
                if text != token.text:
                    operator = f"ReplaceBinaryOperator_{BINARY[token.text]}_{name}"
                    yield _Edit(operator, token.start, token.end, text)


def _no_binary_operators(program: _Program) -> set[int]:
    """Returns the places of tokens that look like binary operators and are none."""
    places = set()
    for node in program.nodes:
        if isinstance(node, ast.UnaryOp | ast.Starred) or (isinstance(node, ast.keyword) and node.arg is None):
            places.add(program.start(node))
        elif isinstance(node, ast.arguments):
            places |= {program.before(program.start(arg)).start for arg in (node.vararg, node.kwarg) if arg is not None}
        elif isinstance(node, ast.alias) and node.name == "*":
            places.add(program.start(node))
        elif isinstance(node, ast.AnnAssign):
            places |= set(_union_bars(program, node.annotation))
    return places


def _union_bars(program: _Program, annotation: ast.expr) -> Iterator[int]:
    while isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        yield program.next(program.end(annotation.left), "|").start
        annotation = annotation.left


def _keywords_and_numbers(program: _Program) -> Iterator[_Edit]:
    for token in program.tokens:
        if token.text in KEYWORDS:
            operator, text = KEYWORDS[token.text]
            yield _Edit(operator, token.start, token.end, text)
        elif token.is_number:
            value = ast.literal_eval(token.text)
            for changed in (value + 1, value - 1):
                yield _Edit("NumberReplacer", token.start, token.end, str(changed))


def _comparisons(program: _Program, node: ast.Compare) -> Iterator[_Edit]:
    for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
        between = program.tokens_from(program.end(left), program.start(right))
        words = [token for token in between if token.text not in "()"]
        operator = " ".join(token.text for token in words)
        if operator in COMPARISON:
            for text in _replacements(program, operator, words[-1].end, right):
                name = f"ReplaceComparisonOperator_{COMPARISON[operator]}_{COMPARISON[text]}"
                yield _Edit(name, words[0].start, words[-1].end, text)


def _replacements(program: _Program, operator: str, after: int, right: ast.expr) -> list[str]:
    """Returns what replaces a comparison operator; None and numbers are compared by what suits them alone."""
    allowed: tuple[str, ...] = tuple(COMPARISON)
    operand = program.tokens_from(after)[0]  # a bracket where the operand is in brackets
    if (operand.start, operand.end) == (program.start(right), program.end(right)):
        if operand.text == "None":
            allowed = _WITH_NONE.get(operator, ())
        elif operand.is_number:
            allowed = _WITH_NUMBER
    return [text for text in allowed if text != operator]


def _unary_operator(program: _Program, node: ast.UnaryOp) -> Iterator[_Edit]:
    token = program.tokens_from(program.start(node))[0]
    name = UNARY[token.text]
    if token.text != "not":
        for text, other in UNARY.items():
            if text != token.text:
                yield _Edit(f"ReplaceUnaryOperator_{name}_{other}", token.start, token.end, text)
    if token.text != "+":
        yield _Edit(f"ReplaceUnaryOperator_Delete_{name}", token.start, token.end, "")


def _added_not(program: _Program, node: ast.If | ast.While | ast.Assert | ast.IfExp) -> Iterator[_Edit]:
    start = program.end(node.body) if isinstance(node, ast.IfExp) else program.start(node)
    keyword = program.next(start, "if", "elif", "while", "assert")
    if keyword.text != "elif":  # which cosmic-ray leaves as it is
        yield _Edit("AddNot", keyword.end, keyword.end, " not")


def _whole_decorator(program: _Program, decorator: ast.expr) -> tuple[int, int]:
    """Returns the range from the `@` to the end of the last line, without the line end."""
    at = program.before(program.start(decorator))
    while at.text != "@":
        at = program.before(at.start)
    end = program.end(decorator)
    for token in program.tokens_from(end):
        if token.text != ")":
            break
        end = token.end
    return at.start, end
