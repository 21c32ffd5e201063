"""The players' answers as data: a program from a Code LLM's text, asserts from a Test LLM's text.

Every text here was written by a policy that is paid for the outcome. Reading it takes time linear in its length, runs
nothing and never raises.
"""

import ast
import contextlib
import string
from collections.abc import Iterator
from dataclasses import dataclass

from codea1.game.asserts import Inlined, ParsedAssert, Rejected, read_fixed_tests, read_statement, split_statements
from codea1.game.calls import CallTest
from codea1.values.literals import Budget, NotLiteral, parse_source

MAX_SUITE_CHARS = 64_000  # of the Test LLM's text that are read; 4,096 tokens rarely reach a third
MAX_ASSERTS = 128  # of one suite that are read

THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"  # around what a thinking model writes before its answer

_FENCE = "```"
_PYTHON_FENCE = "```python"
_PRINTABLE = frozenset(string.printable)


@dataclass(frozen=True)
class ExtractedProgram:
    """The program of a Code LLM's answer."""

    source: str
    fenced: bool  # it stood in a closed code block


@dataclass(frozen=True)
class ParsedSuite:
    """The asserts of a Test LLM's answer, in the order written."""

    asserts: tuple[ParsedAssert, ...]
    fenced: bool  # they stood in closed ```python blocks
    nonprintable_ratio: float  # share of the answer's characters that are not ASCII printable


NOT_READ = ParsedSuite((), fenced=False, nonprintable_ratio=0.0)


def without_thoughts(text: str) -> str:
    """Returns what follows the thoughts that a text begins with; nothing where they do not end."""
    return text.partition(THOUGHT_ENDS)[2] if text.lstrip().startswith(THOUGHT_BEGINS) else text


def extract_program(answer: str) -> ExtractedProgram:
    """Takes the first closed ```python block, else the first closed block of any kind, else the whole answer.

    Thoughts are no part of it.
    """
    answer = without_thoughts(answer)
    for fence in (_PYTHON_FENCE, _FENCE):
        _, opened, rest = answer.partition(fence)
        block, closed, _ = rest.partition(_FENCE)
        if opened and closed:
            source = block if fence == _PYTHON_FENCE else _without_language(block)
            return ExtractedProgram(source.strip("\n"), True)
    return ExtractedProgram(answer.strip("\n"), False)


def extract_python_block(answer: str) -> ExtractedProgram:
    """Takes the first ```python block, if it is closed before another one opens, else the whole answer.

    So the Code-A1 reference implementation does when it is executed: a block without a language stays in its fences,
    which do not parse. Thoughts, which the reference does not know, are no part of it.
    """
    answer = without_thoughts(answer)
    _, _, rest = answer.partition(_PYTHON_FENCE)
    block, closed, _ = rest.partition(_PYTHON_FENCE)[0].partition(_FENCE)
    return ExtractedProgram((block if closed else answer).strip("\n"), bool(closed))


def parse_suite(answer: str, entry_point: str, *, all_forms: bool = False) -> ParsedSuite:
    """Reads the asserts of all closed ```python blocks; without a block, those lines that start with `assert`.

    Thoughts are no part of the answer.
    In blocks an assert may span lines inside brackets, and a name that was assigned before stands for its expression
    where it is a bare argument of the call. Without a block each line stands alone. With `all_forms` those of
    `read_fixed_tests` count, besides `f(x) == v`.
    """
    answer = without_thoughts(answer)
    fenced, statements = _statements(answer[:MAX_SUITE_CHARS])
    inlined: Inlined = {}
    budget = Budget()
    asserts: list[ParsedAssert] = []
    for statement in statements:
        asserts += read_statement(statement, entry_point, inlined, budget, fenced=fenced, all_forms=all_forms)
        if len(asserts) >= MAX_ASSERTS:
            break
    num_nonprintable = sum(char not in _PRINTABLE for char in answer)
    return ParsedSuite(tuple(asserts[:MAX_ASSERTS]), fenced, num_nonprintable / max(len(answer), 1))


def stated_tests(answer: str, entry_point: str) -> list[CallTest | Rejected]:
    """Reads the tests of an answer in the forms that people write them in too; see `read_fixed_tests`.

    Where they stand is found as by `parse_suite`. What does not parse is left out.
    """
    statements: list[ast.stmt] = []
    for source in _statements(without_thoughts(answer)[:MAX_SUITE_CHARS])[1]:
        with contextlib.suppress(NotLiteral):
            statements += parse_source(source.strip()).body
    return read_fixed_tests(statements, entry_point)[:MAX_ASSERTS]


def _statements(text: str) -> tuple[bool, Iterator[str]]:
    """Returns whether a text has closed ```python blocks, and their statements, or else its lines of asserts."""
    blocks = list(_python_blocks(text))
    if blocks:
        return True, split_statements("\n".join(blocks))
    return False, (line.strip() for line in text.split("\n") if line.strip().startswith("assert"))


def _without_language(block: str) -> str:
    language, newline, rest = block.partition("\n")
    return rest if newline and language.strip().isalnum() else block


def _python_blocks(text: str) -> Iterator[str]:
    end = 0
    while (opened := text.find(_PYTHON_FENCE, end)) >= 0:
        start = opened + len(_PYTHON_FENCE)
        closed = text.find(_FENCE, start)
        if closed < 0:
            return
        yield text[start:closed]
        end = closed + len(_FENCE)
