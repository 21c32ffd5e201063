"""Samples: what was generated, executed and rewarded in each step, one row per sample."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from codea1.runs.folder import RunFolder
from codea1.storage import json_lines
from codea1.storage.objects import names, remove, write_atomically


class Samples:
    """The per-sample rows of one run, a file per step."""

    def __init__(self, folder: RunFolder):
        self._directory = folder.samples

    def write(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes all rows of a step at once, in place of any that are there.

        Args:
          rows: plain values, numpy ones included; NaN and infinities become null.
        """
        write_atomically(self._path(step), "".join(json_lines.encode(row) for row in rows))

    def steps(self) -> list[int]:
        """Returns the steps that have rows, in order."""
        found = (re.fullmatch(r"step_(\d+)\.jsonl", name) for name in names(self._directory))
        return sorted(int(match[1]) for match in found if match)

    def read(self, step: int) -> Iterator[dict[str, Any]]:
        """Yields the rows of a step as they were written; none where the step has no file.

        Raises:
          BadInput: a line is not a JSON object.
        """
        for _, row in json_lines.whole_lines(self._path(step)):
            yield row

    def remove_after(self, step: int) -> None:
        """Removes the rows of every step after `step`: the run goes on from there."""
        for later in self.steps():
            if later > step:
                remove(self._path(later))

    def _path(self, step: int) -> epath.Path:
        return self._directory / f"step_{step:06d}.jsonl"
