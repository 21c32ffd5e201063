"""Which questions are, nearly, questions of an evaluation set: training on them would be training on the test.

Any of three signs is enough. Both have the same id, whatever its case. Half of an evaluation question's runs of WORDS
words, its examples aside, stand in the other's text. Or the two ground truths are the same program but for names,
docstrings, annotations and layout.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set

from codea1.game.question import Question

WORDS = 5  # of a run
SHARE = 0.5  # of an evaluation question's runs that make another one near
_WORD = re.compile(r"[a-z0-9]+")
_EXAMPLE = re.compile(r"(?m)^\s*(assert |>>> |def ).*$")  # MBPP+ puts the signature and a test into its statements


class NearDuplicates:
    """The questions of evaluation sets, looked up by the words of a question and the program of its ground truth."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._by_run: dict[tuple[str, ...], set[int]] = defaultdict(set)
        self._programs: set[str] = set()
        self._ids: set[str] = set()
        self._num_runs: list[int] = []
        for number, question in enumerate(questions):
            runs = word_runs(_EXAMPLE.sub("", question.description))
            for run in runs:
                self._by_run[run].add(number)
            self._ids.add(question.id.lower())
            self._num_runs.append(len(runs))
            self._programs.add(shape_of(question.ground_truth))

    def has(self, id: str, description: str, ground_truth: str) -> bool:
        """Returns whether a question is nearly one of them."""
        if id.lower() in self._ids or shape_of(ground_truth) in self._programs:
            return True
        shared = Counter(number for run in word_runs(description) for number in self._by_run.get(run, ()))
        return any(count / self._num_runs[number] >= SHARE for number, count in shared.items())


def word_runs(text: str) -> set[tuple[str, ...]]:
    """Returns the runs of WORDS words of a text, in lower case and without punctuation; a shorter text is one run."""
    words = _WORD.findall(text.lower())
    if not words:
        return set()
    return {tuple(words[start : start + WORDS]) for start in range(max(len(words) - WORDS + 1, 1))}


def shape_of(program: str) -> str:
    """Returns what a program that parses is without its names, docstrings, annotations and layout.

    One that is nested too deep to be walked is left as it is.
    """
    tree = ast.parse(program)
    try:
        return ast.dump(_Anonymous(set(_bound_names(tree))).visit(tree))
    except RecursionError:
        return program


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yields names that the program itself gives: not those of builtins or modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


class _Anonymous(ast.NodeTransformer):
    """Calls the bound names by the order in which they first stand; attributes and keywords keep theirs."""

    def __init__(self, bound: Set[str]) -> None:
        self._bound = bound
        self._names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._anonymous(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._anonymous(node.arg))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name, node.returns = self._anonymous(node.name), None
        return self._without_docstring(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._without_docstring(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return self.generic_visit(node)
        return self.generic_visit(ast.Assign([node.target], node.value))

    def _without_docstring(self, node: ast.FunctionDef | ast.Module) -> ast.AST:
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)

    def _anonymous(self, name: str) -> str:
        return self._names.setdefault(name, f"name_{len(self._names)}") if name in self._bound else name
