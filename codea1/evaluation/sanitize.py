"""What is a program in an answer, as EvalPlus and BigCodeBench take it out of one before they run it.

The longest run of lines that parses; of that, all imports, and those functions, classes and assignments that the
function under test needs. As theirs, it leaves out definitions with decorators and everything inside `if` and `try`.
"""

import ast
import itertools
import warnings
from collections.abc import Iterator, Mapping

_MAX_PARSES = 2_000  # of runs of lines, the longest first: an answer of 60 lines with no line that parses


def sanitize(answer: str, entry_point: str) -> str:
    """Returns the program in `answer`; the longest run of lines that parses where nothing of it is needed."""
    text, tree = _longest_program(answer.strip().split("\n"))
    return "\n".join(_needed(text, tree, entry_point)).strip() or text


def _longest_program(lines: list[str]) -> tuple[str, ast.Module]:
    """Empty where no run of lines parses, or none is found among the _MAX_PARSES longest."""
    runs = ((start, length) for length in range(len(lines), 0, -1) for start in range(len(lines) - length + 1))
    for start, length in itertools.islice(runs, _MAX_PARSES):
        text = "\n".join(lines[start : start + length])
        tree = _parsed(text)
        if tree is not None:
            return text, tree
    return "", ast.Module([], [])


def _parsed(source: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _needed(text: str, tree: ast.Module, entry_point: str) -> Iterator[str]:
    """The sources of the imports, and then of the definitions that are reached from the entry point."""
    definitions: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield ast.get_source_segment(text, node) or ""
        elif name := _defined_name(node):
            definitions.setdefault(name, node)
    reached = _reached(entry_point, definitions)
    for name, node in definitions.items():
        if name in reached:
            yield ast.get_source_segment(text, node) or ""


def _defined_name(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.decorator_list:
        return node.name
    targets = node.targets[:1] if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    is_assignment = isinstance(node, ast.Assign | ast.AnnAssign)
    return targets[0].id if is_assignment and isinstance(targets[0], ast.Name) else None


def _reached(entry_point: str, definitions: Mapping[str, ast.stmt]) -> set[str]:
    reached, waiting = {entry_point}, [entry_point]
    while waiting:
        node = definitions.get(waiting.pop())
        for name in _names(node) if node is not None else ():
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached


def _names(node: ast.stmt) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
