"""What benchmarks share: how their files are read, what those of the Code LLM are, which modules are missing."""

import ast
import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import cache
from importlib.util import find_spec
from os import fspath

from codea1.data.loader import Row
from codea1.data.rows import json_rows, parquet_rows, staged_file
from codea1.game.answers import extract_program
from codea1.game.prompts import Message, PromptTemplates, code_messages
from codea1.game.question import Question
from codea1.runtime.errors import BadInput, MissingFile
from codea1.sandbox.host import ScriptRun
from codea1.storage.objects import location


def benchmark_rows(path: str, where_from: str = "") -> Iterator[tuple[str, Row]]:
    """Yields the rows of a local or gs:// file, each with its place for messages.

    A .parquet file is read as one; any other is JSON Lines, or one JSON array, whatever it is called.

    Args:
      where_from: a sentence on where to get the file, for the message where it is missing.

    Raises:
      StorageFailed: the bucket fails.
      BadInput: there is no such file, or it is not of that form.
    """
    rows = parquet_rows if path.endswith(".parquet") else json_rows
    try:
        yield from rows(path, staged_file(fspath(location(path, "a benchmark's file")), None))
    except MissingFile as error:
        raise MissingFile(f"{error} {where_from}".rstrip()) from None


def require_file(path: str, name: str, where_from: str) -> None:
    """Raises BadInput where no file was given for the benchmark `name`."""
    if not path:
        raise BadInput(f"--file is missing: it names the data of {name}. {where_from}")


def require_text(row: Row, names: Sequence[str], where: str) -> None:
    """Raises BadInput unless each of these fields holds text."""
    for name in names:
        if not isinstance(row.get(name), str):
            raise BadInput(f"{where}: the field {name!r} is {'missing' if row.get(name) is None else 'not text'}.")


def require_unique(ids: Sequence[str], path: str) -> None:
    """Raises BadInput where there is no question, or one comes twice."""
    if not ids:
        raise BadInput(f"{path} holds no question of this benchmark.")
    if repeated := [id for id, count in Counter(ids).items() if count > 1]:
        raise BadInput(f"{path}: question {repeated[0]} comes twice.")


def require_python(source: str, what: str) -> None:
    """Raises BadInput where a source does not compile; `what` it is, with its place, begins the sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about programs that are not ours
            compile(source, "<program>", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise BadInput(f"{what} does not compile: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"{what} does not compile: {type(error).__name__}.") from None


class CodeBenchmark(ABC):
    """Questions with ground truths that a program must agree with."""

    name: str  # as evaluations are named after it
    questions: Sequence[Question]
    prefill = ""  # what the assistant's answer begins with
    stops: Sequence[str] = ()  # each ends an answer where it first stands, and is not part of it

    def messages(self, question: Question, templates: PromptTemplates) -> list[Message]:
        """Returns the chat that asks for a program."""
        return code_messages(templates, question)

    def program(self, question: Question, answer: str) -> str:
        """Returns the program in what a model said after `prefill`."""
        return extract_program(answer).source

    def continued(self, question: Question, completion: str) -> str:
        """Returns the program that a completion of the question's code makes."""
        return question.problem + completion

    @abstractmethod
    def judge(self, question: Question, program: str) -> Future[ScriptRun]:
        """Runs a program: PASS, or why it does not."""

    def missing_modules(self) -> dict[str, list[str]]:
        """Returns modules that questions need and this Python does not have, by question."""
        return {}


def missing_modules(*sources: str) -> list[str]:
    """Returns the top-level modules that sources import by absolute names and that are not there.

    Raises SyntaxError, or what else `ast.parse` does: a source is no program.
    """
    return sorted(name for name in {name for source in sources for name in _imported(source)} if not _is_there(name))


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@cache
def _is_there(name: str) -> bool:
    return name in sys.modules or find_spec(name) is not None  # what runs already may have no spec, as __main__
