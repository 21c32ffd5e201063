"""Progress of a run on the terminal: the step, the last validation, the time left, and what happens now."""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

GAME_COLUMNS = {  # metric: title, format
    "code/reward": ("code reward", "{:.3f}"),
    "test/reward": ("test reward", "{:.3f}"),
    "code/pass_rate_new": ("pass rate", "{:.3f}"),
    "test/validity": ("validity", "{:.3f}"),
    "code/sampler_kl": ("code gap", "{:.0e}"),
    "test/sampler_kl": ("test gap", "{:.0e}"),
    "book/size": ("book size", "{:,.0f}"),
    "perf/tokens_per_second": ("tokens/s", "{:,.0f}"),
}
VALIDATED = {  # metric: title, format
    "validation/code_pass_at_1": ("pass@1", "{:.1%}"),
    "validation/test_mul": ("Mul", "{:.1%}"),
}
SLOW = 60.0  # seconds; a step that takes longer has a line of its own
SUPERVISED_COLUMNS = {
    "cross_entropy": ("cross entropy", "{:.3f}"),
    "tokens_per_second": ("target tokens/s", "{:,.0f}"),
}


class Progress:
    """A live bar on a terminal; elsewhere (a log file, a pipe) a line now and then. A context manager.

    While it is open, `print` and everything written to stdout and stderr appear above the bar.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        *,
        every: int = 1,
        columns: Mapping[str, tuple[str, str]] = GAME_COLUMNS,
        console: Console | None = None,
    ):
        """Prepares the display of a run of `total` steps of which `done` lie behind it.

        Args:
          every: where there is no terminal, a line is printed for each step divisible by it, slow ones and the last.
          columns: what is shown of the metrics: name to title and format.
          console: where to show; stdout when None.
        """
        self._total, self._done, self._every = total, done, every
        self._columns = columns
        self._console = console or Console()
        self._first: tuple[int, float] | None = None  # step and time in s at the end of the first step seen
        self._left: float | None = None
        self._bar = Bar(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            expand=True,
        )
        self._task = self._bar.add_task("", total=total, completed=done, left="")
        self._latest: Mapping[str, Any] = {}
        self._untrained: Mapping[str, Any] = {}  # metrics of step 0, which is before training
        self._validated = ""  # the last validation, shown with that of step 0
        self._note = ""
        self._live: Live | None = None

    def __enter__(self) -> "Progress":
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._note = ""
            self._live.stop()  # and shows the last view

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Shows that `step` is done, with the values of its metrics; ends the note."""
        self._done, self._note = step, ""
        self.remember(step, metrics)
        seconds = metrics.get("time/total", 0.0)
        if step > 0:
            self._estimate(step, seconds)
        if self._live is not None:
            self._bar.update(self._task, completed=step, left=self._time_left())
        elif step % self._every == 0 or step == self._total or seconds >= SLOW:
            self.print(self._line())

    def remember(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Takes the metrics of a step to be shown from now on; nothing is printed."""
        values = []
        for metric, (title, form) in VALIDATED.items():
            now, before = (_shown(row.get(metric), form) for row in (metrics, self._untrained))
            values += [f"{title} {now}" + f" (before: {before})" * bool(before)] * bool(now)
        if values:
            self._validated = f"validation at step {step}: {', '.join(values)}"
        if step == 0:
            self._untrained = metrics
        self._latest = {**self._latest, **metrics}

    def note(self, text: str) -> None:
        """Shows what happens now, before something slow, until the next note or step."""
        self._note = text
        if self._live is not None:
            self._live.refresh()
        else:
            self.print(text)

    def print(self, *parts: Any) -> None:
        """Prints text as it is, or anything that rich can draw, without disturbing the bar."""
        is_text = all(isinstance(part, str) for part in parts)
        self._console.print(*parts, markup=False, highlight=False, soft_wrap=is_text)

    def _estimate(self, step: int, seconds: float) -> None:
        # From the end of the first step on: the first one may compile, so that it alone tells of slow steps only.
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)
            self._left = seconds * (self._total - step) if seconds >= SLOW else None
        elif step > self._first[0]:
            self._left = (now - self._first[1]) / (step - self._first[0]) * (self._total - step)

    def _time_left(self) -> str:
        if self._left is None or self._done >= self._total:
            return ""
        return f"{timedelta(seconds=round(self._left))} left"

    def _values(self) -> list[tuple[str, str]]:
        return [(title, _shown(self._latest.get(metric), form)) for metric, (title, form) in self._columns.items()]

    def _line(self) -> str:
        parts = [f"{title} {value}" for title, value in self._values() if value]
        line = [f"step {self._done}/{self._total}", self._validated, *parts, self._time_left()]
        return "  ".join(filter(None, line))

    def _view(self) -> Group:
        table = Table.grid(padding=(0, 2), expand=True)
        for title, _ in self._values():
            table.add_column(header=title, justify="right", no_wrap=True)
        table.add_row(*(Text(title, style="dim") for title, _ in self._values()))
        table.add_row(*(Text(value or "-", style="bold") for _, value in self._values()))
        note = [Spinner("dots", Text(self._note))] if self._note else []
        validated = [Text(self._validated)] if self._validated else []
        return Group(self._bar, table, *validated, *note)


def _shown(value: Any, form: str) -> str:
    if value is None or value != value:  # NaN: not measured in this step
        return ""
    return form.format(float(value))
