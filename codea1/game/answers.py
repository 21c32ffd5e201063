"""The players' answers as data: a program from a Code LLM's text, asserts from a Test LLM's text.

Every text here was written by a policy that is paid for the outcome. Reading it takes time linear in its length, runs
nothing and never raises.
"""

import ast
import re
import string
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice

from codea1.game.asserts import (
    Inlined,
    ParsedAssert,
    read_group,
    read_statement,
    split_groups,
    split_statements,
    tree_of,
)
from codea1.game.forms import Reader
from codea1.values.entry_points import PROGRAMS, class_and_method
from codea1.values.literals import MAX_SOURCE_BYTES, Budget

MAX_SUITE_CHARS = 64_000  # of the Test LLM's text that are read; 4,096 tokens rarely reach a third
MAX_ASSERTS = 128  # of one suite that are read

THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"  # around what a thinking model writes before its answer

_FENCE = "```"
_PYTHON_FENCE = "```python"
_PYTHON_BLOCK = re.compile(rf"{_PYTHON_FENCE}(.*?){_FENCE}", re.DOTALL)  # closed
_STATEMENT = re.compile(r"^(?:import|from|def|async def|class|@)\b", re.MULTILINE)  # that a program may begin with
_BEGINS = re.compile(r"(?:import|from|def|async def|class)\s+\w|@\w")  # such a statement
# The first block that is closed: by a fence that is not indented by four more, as one in the program's docstring is.
_BLOCK = re.compile(rf"^([ \t]*){_FENCE}[^`\n]*\n(?:.*\n)*?(?!\1(?: {{4}}|\t))[ \t]*{_FENCE}", re.MULTILINE)
_ASSERT = re.compile(r"^[ \t]*assert\b", re.MULTILINE)
_ENDS_THOUGHTS = re.compile(rf"(?<!['\"`\\]){THOUGHT_ENDS}(?!['\"`\\])")  # and is not quoted
_READS = re.compile(r"\b(?:input|stdin)\b")
_TEST = re.compile(r"\bassert|\braises\b")
_LINE = re.compile(r"\s*(?:[-*+]\s+|\d+[.):]\s*)?(`*)(assert\b.*)")
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


def without_thoughts(text: str) -> str:
    """Returns what follows the thoughts that a text begins with; nothing where they do not end.

    Where the prompt begins the thoughts, as templates of some models do, the text has their end alone.
    """
    if text.lstrip().startswith(THOUGHT_BEGINS):
        return text.partition(THOUGHT_ENDS)[2]
    end = _ENDS_THOUGHTS.search(text)
    return text[end.end() :] if end and THOUGHT_BEGINS not in text[: end.start()] else text


def end_of_block(answer: str) -> int:
    """Returns how many characters an answer has up to the end of its first closed code block, thoughts aside; or 0."""
    block = _BLOCK.search(answer, len(answer) - len(without_thoughts(answer)))
    return block.end() if block else 0


def end_of_asserts(answer: str, count: int) -> int:
    """Returns how many characters an answer has before the assert that follows its first `count`; 0 without one.

    Asserts begin a line; thoughts hold none.
    """
    surplus = islice(_ASSERT.finditer(answer, len(answer) - len(without_thoughts(answer))), count, None)
    return next((line.start() for line in surplus), 0)


def extract_program(answer: str, entry_point: str = "") -> ExtractedProgram:
    """Takes the last code block that defines the entry point, of several the last one that is Python.

    A block may be indented, in a list say, the last one may not be closed, and the first one may have been opened by
    the prompt. One that leaves the entry point's body out counts where no other defines it. Where no block defines the
    entry point, or none is given, it is the first closed one, and without any the whole answer, from the first
    statement on where prose stands before it. Blocks in other languages count only where there is none in Python or
    in no language.
    Thoughts are no part of the answer. One that is a program as it stands is one, whatever fences its texts hold. Of
    blocks that print, those that also read input are the program's.
    """
    answer = without_thoughts(answer).removeprefix("\ufeff")
    defines = _definition_of(entry_point).search if entry_point else lambda _: None
    is_program = not entry_point or defines(answer)
    if _FENCE in answer and is_program and len(answer) <= MAX_SOURCE_BYTES and _is_python(answer):
        return ExtractedProgram(answer.strip("\n"), False)
    blocks = list(_code_blocks(_opened(answer, defines if entry_point else _STATEMENT.search)))
    blocks = [block for block in blocks if block.is_python] or blocks
    closed = [block for block in blocks if block.is_closed]
    defining = [block for block in blocks if defines(block.source)]
    if len(defining) > 1:
        defining = [block for block in defining if _is_python(block.source)] or defining
        if entry_point in PROGRAMS:
            defining = [block for block in defining if _READS.search(block.source)] or defining
        defining = [block for block in defining if not _is_stub(block.source, entry_point)] or defining
    if chosen := defining[-1:] or closed[:1] or blocks[:1]:
        return ExtractedProgram(chosen[0].source, chosen[0].is_closed)
    source = _dedented(answer.strip("\n"))
    if (begins := _STATEMENT.search(source)) and not _is_python(source) and _is_python(source[begins.start() :]):
        source = source[begins.start() :]
    return ExtractedProgram(source, False)


def continued(prompt: str, completion: str) -> str:
    """Returns the program that a completion of a prompt's code makes, or is, without the code block it may stand in."""
    completion = without_thoughts(completion)
    if _FENCE not in completion or _is_python(prompt + completion):
        return prompt + completion
    before, inside, *_ = re.split(rf"{_FENCE}[^\n]*\n?", completion, maxsplit=2)
    if before.strip() and _is_python(prompt + before):  # the prompt opened the block
        return prompt + before
    return inside if _is_python(inside) and not _is_python(prompt + inside) else prompt + inside


@dataclass(frozen=True)
class _Block:
    language: str  # as it is written, "" for none
    source: str  # not indented, without empty lines around it
    is_closed: bool

    @property
    def is_python(self) -> bool:
        return not self.language or self.language.lower().lstrip("{.").startswith("py")


def _code_blocks(text: str) -> Iterator[_Block]:
    """Yields the fenced blocks of a text as Markdown has them, and as models do not close them.

    A fence is a line that ends in three backticks or more, or tildes, and perhaps a language. One that is indented by
    four more than the block's own is a part of the block, such as in the docstring of a function; one with a language
    begins a new block. The last line of code may end in the fence.
    """
    fence, language, indent = "", "", 0  # of the open block, if any
    lines: list[str] = []
    for line in text.split("\n"):
        inner = line.strip()
        if not fence and inner.startswith(_FENCE) and inner.endswith(_FENCE) and (inner := inner.strip("`")):
            language, _, source = inner.partition(" ")
            yield _Block(language, source, True)
            continue
        before, marks, info = _split_fence(line)
        column = len(before) - len(before.lstrip())
        is_own = marks.startswith(fence) and (not info if before.strip() else column < indent + 4)
        if not marks or (fence and not is_own):
            lines.append(line)
            continue
        if fence:
            yield _Block(language, _dedented("\n".join([*lines, before]).strip("\n")), not info)
        name, _, code = info.partition(" ")
        if not (name.lower().startswith("py") and _BEGINS.match(code)):
            is_code = bool(code) and not info.lower().startswith(("py", "{"))  # no language
            name, code = ("", info) if is_code else (info, "")
        language, lines = name, [code] if code else []
        fence, indent = marks if info or not fence else "", column
    if fence:
        yield _Block(language, _dedented("\n".join(lines).strip("\n")), False)


def _opened(text: str, is_code: Callable[[str], object]) -> str:
    """Returns a text with the fence that its prompt opened: where code stands before a fence without a language."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        before, marks, info = _split_fence(line)
        if marks:
            head = "\n".join([*lines[:number], before])
            return f"{marks}\n{text}" if not info and is_code(head) and _is_python(head) else text
    return text


def _split_fence(line: str) -> tuple[str, str, str]:
    """Returns what stands before a fence, the fence, and the language after it; no fence where there is none."""
    line = line.rstrip()
    start = line.find(_FENCE)
    if start < 0 and line.lstrip().startswith("~~~"):
        start = line.find("~~~")
    if start < 0:
        return line, "", ""
    info = line[start:].lstrip(line[start])
    return (line, "", "") if line[start] in info else (line[:start], line[start : len(line) - len(info)], info.strip())


def _dedented(source: str) -> str:
    """Returns a source without the indentation of all its lines, a byte order mark and no-break spaces."""
    source = source.removeprefix("\ufeff")
    if "\xa0" in source and not _is_python(source):
        source = source.replace("\xa0", " ")
    return textwrap.dedent(source) if source[:1] in " \t" else source


def _is_python(source: str) -> bool:
    """Returns whether a source parses, or is too long to try."""
    return len(source) > MAX_SOURCE_BYTES or tree_of(source) is not None


def _is_stub(source: str, entry_point: str) -> bool:
    """Returns whether a source declares a function or method and leaves its body out."""
    tree, name = tree_of(source), entry_point.rpartition(".")[2]
    nodes = ast.walk(tree) if tree else ()
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    bodies = [node.body for node in functions if node.name == name]
    return bool(bodies) and all(_is_left_out(statement) for body in bodies for statement in body)


def _is_left_out(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Raise(exc=ast.Name(id=name) | ast.Call(func=ast.Name(id=name))):
            return name == "NotImplementedError"
    return False


@lru_cache(maxsize=4096)
def _definition_of(entry_point: str) -> re.Pattern[str]:
    """Returns what a program that defines an entry point contains, as far as its text tells."""
    if entry_point in PROGRAMS:
        return re.compile(r"\b(?:print|write|writelines|stdout(?!\())\b")
    method = class_and_method(entry_point)
    if method:
        return re.compile(rf"^class[ \t]+{re.escape(method[0])}\b", re.MULTILINE)
    name = re.escape(entry_point)
    return re.compile(rf"^(?:(?:async[ \t]+)?def[ \t]+{name}\b|{name}[ \t]*=[^=])", re.MULTILINE)


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
    where it is a bare argument of the call. Without a block each line stands alone.

    With `all_forms` those of `codea1.game.forms` count, besides `f(x) == v`, wherever models put them: see `_code`.
    """
    answer = without_thoughts(answer)
    text, budget = answer[:MAX_SUITE_CHARS], Budget()
    if all_forms:
        sources, fenced = _code(text.replace("\r\n", "\n").replace("\r", "\n"))
        reader = Reader(entry_point, budget)
        read = (read_group(group, reader) for source in sources for group in split_groups(source))
    else:
        blocks = _PYTHON_BLOCK.findall(text)
        fenced = bool(blocks)
        lines = (line.strip() for line in text.split("\n") if line.strip().startswith("assert"))
        statements = split_statements("\n".join(blocks)) if fenced else lines
        inlined: Inlined = {}
        read = (read_statement(statement, entry_point, inlined, budget) for statement in statements)
    asserts = islice(chain.from_iterable(read), MAX_ASSERTS)
    num_nonprintable = sum(char not in _PRINTABLE for char in answer)
    return ParsedSuite(
        tuple(item if fenced else replace(item, dropped=False) for item in asserts),
        fenced,
        num_nonprintable / max(len(answer), 1),
    )


def _code(text: str) -> tuple[list[str], bool]:
    """Returns the parts of a text that may hold tests, and whether they are closed code blocks.

    Those are blocks in Python, or without a language, of which the last need not be closed; where none holds an
    assert, the whole text, if it is Python, or else its lines of an assert, which may be numbered, listed or in
    back-ticks.
    """
    blocks = [block for block in _code_blocks(_opened(text, _TEST.search)) if block.is_python]
    if tests := [block for block in blocks if _TEST.search(block.source)]:
        return [block.source for block in blocks], all(block.is_closed for block in tests)
    if tree_of(text):
        return [text], False
    return [_unquoted(match) for line in text.split("\n") if (match := _LINE.match(line))], False


def _unquoted(line: re.Match[str]) -> str:
    """Returns the assert of a line without back-ticks around it; what they quote is Python, and may hold some."""
    quote, source = line.groups()
    if not quote:
        return source
    first = source.partition(quote)[0]
    return first if tree_of(first) else source.rpartition(quote)[0]
