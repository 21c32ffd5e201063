"""What became of the first rows of a conversion, kept next to its output: one that ends early continues after them."""

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from etils import epath

from codea1.game.question import Question
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import checksum, checksums
from codea1.storage.json_lines import compressed, loads, whole_lines
from codea1.storage.objects import (
    exists,
    files,
    is_folder,
    location,
    names,
    read,
    remove_folder,
    remove_unfinished,
    write_atomically,
)

SANDBOX = "the sandbox failed on its programs"  # a reason why a row is left out, until it is tried again

_HEAD = "head.json"
_LAYOUT = 4  # of the parts; another one is not read
_SECONDS_PER_PART = 10.0  # of work that a kill loses


@dataclass(frozen=True)
class RowOutcome:
    """What became of one row."""

    where: str
    id: str  # its question's; of a row that cannot be read what it calls itself
    asks: str = ""  # digest of the task; empty where nothing was compared with it
    reason: str = ""  # why it is left out; empty where it is kept
    detail: str = ""  # of the reason, where there is more to say
    question: Question | None = None  # with what of it holds, where it is kept
    lost_script: str = ""  # why its check script is left out; empty where it is not
    unexposed: int = 0  # mutants left out that no test of theirs exposes
    unread: int = 0  # tests left out: they state no data, or too much
    passed: float = 1.0  # share of the row's tests that its program passes, of those that it passes or fails
    dropped: Mapping[str, int] = field(default_factory=dict)  # tests left out of a question that is kept, by reason
    is_slow: bool = False  # its solution takes a large part of the time that a test may take


def head_of(source: str, settings: str, inputs: Sequence[str], exclude: Sequence[str]) -> dict[str, Any]:
    """Returns what two conversions have in common that come to the same: form, settings, and content of their files.

    Raises StorageFailed.
    """
    return {
        "layout of parts": _LAYOUT,
        "form of files": source,
        "settings": settings,
        "files": [[file, _content(file)] for file in inputs],
        "files to stay away from": [[file, _content(file)] for file in exclude],
        "version of Python": platform.python_version(),
    }


def _content(file: str) -> dict[str, Any]:
    """Returns checksums by name: of a file, or of the programs and tests in a folder."""
    path = location(file, "data file")
    if not is_folder(path):
        return {path.name: checksum(path)}
    return checksums(path, [name for name in files(path) if name.endswith((".json", ".py"))])


class Parts:
    """The folder OUTPUT.parts: a head that says of what conversion, and files of outcomes with the rows' numbers."""

    def __init__(self, folder: epath.Path, head: Mapping[str, Any]) -> None:
        """Opens the folder or makes it.

        Raises:
          BadInput: it is another conversion's, or something else, or a part is damaged or missing.
          StorageFailed: it cannot be read or written.
        """
        self._folder = folder
        self._stored_at = time.monotonic()
        self.done: dict[int, RowOutcome] = {}  # by the row's number: what the folder held, and what came since
        self._new: list[int] = []  # those that no part holds
        self._stored = 0  # parts
        if exists(folder) and not is_folder(folder):
            raise BadInput(f"{folder} is there already, and is no folder of parts.")
        remove_unfinished(folder)
        if held := names(folder):
            self._check_head(json.loads(json.dumps(head)))
        else:
            write_atomically(folder / _HEAD, json.dumps(head, indent=1))
        for name in held:
            if name != _HEAD:
                self._take(name)

    @property
    def lost(self) -> set[int]:
        """The numbers of the rows that the sandbox failed on."""
        return {number for number, outcome in self.done.items() if outcome.reason == SANDBOX}

    def _check_head(self, head: Mapping[str, Any]) -> None:
        path = self._folder / _HEAD
        try:
            kept = loads(read(path))
            others = [name for name in head if kept.get(name) != head[name]]
        except (FileNotFoundError, ValueError, AttributeError):
            raise BadInput(f"{self._folder} is there already, and holds no parts of a conversion.") from None
        if others:
            raise BadInput(
                f"{self._folder} holds parts of a conversion with another value of: {', '.join(others)}; remove it to "
                "start from the beginning, or give the output another name."
            )

    def _take(self, name: str) -> None:
        if name != _name(self._stored):
            raise BadInput(f"{self._folder / name} is no part, or not the next one; remove {self._folder}.")
        for _, row in whole_lines(self._folder / name):
            kept = row["question"] and {
                field: tuple(value) if isinstance(value, list) else value for field, value in row["question"].items()
            }
            number = row.pop("number")
            self.done[number] = RowOutcome(**{**row, "question": kept and Question(**kept)})
        self._stored += 1

    def add(self, number: int, outcome: RowOutcome) -> None:
        """Takes what became of a row, for the first time or again, and now and then stores it. Raises StorageFailed."""
        self.done[number] = outcome
        self._new.append(number)
        if time.monotonic() - self._stored_at >= _SECONDS_PER_PART:
            self.store()

    def store(self) -> None:
        """Stores the outcomes that no part holds yet, as the next part. Raises StorageFailed."""
        if self._new:
            rows = ({"number": number, **asdict(self.done[number])} for number in self._new)
            write_atomically(self._folder / _name(self._stored), compressed(rows))
            self._stored, self._new = self._stored + 1, []
        self._stored_at = time.monotonic()

    def remove(self) -> None:
        """Removes the folder, when the output is complete. Raises StorageFailed."""
        remove_folder(self._folder)


def _name(part: int) -> str:
    """Returns the name of a part, counted from 0."""
    return f"{part:012d}.jsonl.zst"
