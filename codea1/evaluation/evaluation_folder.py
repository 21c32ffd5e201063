"""Where an evaluation keeps what it has done, so that one that was cut off goes on from there.

config.json      what is evaluated and how; another evaluation is refused the folder
attempts.jsonl   one line per program: question_id, index, program
results.jsonl    one line per judged program: question_id, index, verdict, detail, cpu_seconds

and of a best-of-N, in a folder of its own:

suites.jsonl     what the Test LLM wrote beside each program
choices.jsonl    how many of the tests each program of a question passes
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any

from codea1.evaluation.attempts import Attempt
from codea1.runs.folder import RunFolder
from codea1.runs.lock import locked
from codea1.storage import json_lines
from codea1.storage.objects import GrowingFile, location

Key = tuple[str, int]  # a question's id and the index of an attempt, or a task's and a round
Row = dict[str, Any]

PROGRAMS = ("attempts", "results")
BEST_OF_N = ("suites", "choices")


class EvaluationFolder:
    """A context manager with one writer: other processes are kept out from before it is read until it is closed."""

    def __init__(self, path: str, settings: Mapping[str, Any], names: Sequence[str]) -> None:
        """`names` are those of its files. Nothing is read yet. Raises BadInput where the path is none."""
        self.path = location(path, "the folder of the evaluation")
        self.settings = settings
        self._names = names
        self._files: dict[str, GrowingFile] = {}
        self._rows: dict[str, dict[Key, Row]] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> "EvaluationFolder":
        """Raises BadInput: it cannot be written, holds an evaluation with other settings, or is in use."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(RunFolder.open(str(self.path), self.settings)))
            for name in self._names:
                self._rows[name] = self._read(name)
                stack.callback(self._files[name].close)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._open.close()

    @property
    def attempts(self) -> list[Attempt]:
        """All programs there are, in the order of their keys."""
        rows = sorted(self._rows["attempts"].items())
        return [Attempt(question_id, index, row["program"]) for (question_id, index), row in rows]

    def attempts_at(self, question_ids: Collection[str]) -> list[Attempt]:
        """Those programs that are for these questions."""
        return [attempt for attempt in self.attempts if attempt.question_id in question_ids]

    def rows(self, name: str) -> Mapping[Key, Row]:
        """What one of the files holds."""
        return self._rows[name]

    def add_attempt(self, attempt: Attempt) -> None:
        """Keeps a program."""
        self.add("attempts", (attempt.question_id, attempt.index), {"program": attempt.program})

    def add(self, name: str, key: Key, row: Mapping[str, Any]) -> None:
        """Adds a line to one of the files."""
        self._rows[name][key] = whole = {"question_id": key[0], "index": key[1], **row}
        self._files[name].append(json_lines.encode(whole).encode())

    def _read(self, name: str) -> dict[Key, Row]:
        lines = json_lines.whole_lines(self.path / f"{name}.jsonl")
        self._files[name] = GrowingFile(self.path / f"{name}.jsonl", "".join(line for line, _ in lines).encode())
        return {(row["question_id"], row["index"]): row for _, row in lines}
