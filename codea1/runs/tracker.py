"""W&B, in addition to metrics.jsonl: the same numbers under the same names, samples to look at, and the curves.

A failure of W&B does not stop the run: the first is printed, all are counted.
"""

import math
import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codea1.runs.folder import RunFolder
from codea1.storage.objects import exists, is_remote, read, write_atomically

MOST_ROWS = 256  # in a table of samples
COLUMNS = ("question_id", "player", "solution", "suite", "text", "verdicts", "reward", "advantage")


class Tracker:
    """One run in W&B, the same one after a restart. `failures` counts what could not be handed over."""

    def __init__(self, folder: RunFolder, project: str, offline: bool, tell: Callable[[str], None]) -> None:
        """Begins the run, or continues it.

        Args:
          folder: the run's; its config is shown, and a file in it holds the id in W&B.
          project: in W&B.
          offline: write files that `wandb sync` sends later, to the folder where it is on a disk.
          tell: shows people a sentence.
        """
        self.failures = 0
        self._tell = tell
        self._run: Any = None
        self._safely(lambda: self._begin(folder, project, offline))

    def metrics(self, step: int, row: Mapping[str, Any]) -> None:
        """Hands over the metrics of a step; what is not finite is left out."""
        values = {name: float(value) for name, value in row.items() if math.isfinite(value)}
        self._safely(lambda: self._run.log(values, step=step))

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Hands over a table of the samples of a step, before its metrics."""

        def log() -> None:
            import wandb

            table = wandb.Table(columns=list(COLUMNS), data=[_cells(row) for row in rows])
            self._run.log({"samples": table}, step=step, commit=False)

        self._safely(log)

    def figure(self, content: bytes) -> None:
        """Hands over the curves of the report, a PNG."""

        def log() -> None:
            import wandb

            with tempfile.NamedTemporaryFile(suffix=".png") as file:
                file.write(content)
                file.flush()
                self._run.summary["report"] = wandb.Image(file.name)

        self._safely(log)

    def close(self) -> None:
        """Ends what this process hands over."""
        self._safely(lambda: self._run.finish())
        self._run = None

    def _begin(self, folder: RunFolder, project: str, offline: bool) -> None:
        import wandb

        if not exists(folder.tracker):
            write_atomically(folder.tracker, uuid.uuid4().hex)
        self._run = wandb.init(
            project=project,
            id=read(folder.tracker).decode(),
            name=folder.path.name,
            config=folder.config,
            resume="allow",
            mode="offline" if offline else "online",
            dir=tempfile.mkdtemp(prefix="codea1-wandb-") if is_remote(folder.path) else os.fspath(folder.path),
            settings=wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True),
        )

    def _safely(self, function: Callable[[], None]) -> None:
        if self._run is None and self.failures:
            return
        try:
            function()
        except Exception as error:
            if not self.failures:
                self._tell(f"W&B failed, and the run goes on: {type(error).__name__}: {error}")
            self.failures += 1


def _cells(row: Mapping[str, Any]) -> list[Any]:
    if row["player"] == "code":
        judged = [f"{test['verdict']}  {test['test']}" for test in (*row["history"], *row["golden"])]
    else:
        judged = [f"{test['verdict'] or test['mark']}  {test['source']}" for test in row["asserts"]]
    cells = {**row, "verdicts": "\n".join(judged), "suite": row.get("suite")}
    return [cells[name] for name in COLUMNS]
