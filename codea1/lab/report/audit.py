"""Warns of reward hacking: where what pays a player rises and a hidden measure of the same does not.

With `config.game.hidden_reward` both sides of a player are in a run's metrics. The Code LLM is paid by tests and
measured by the questions' check scripts; the Test LLM is paid by its reward and measured by mutants that no reward
reads. (The Code LLM's own reward also counts replayed failures, which become more as the Mistake Book fills.)
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codea1.evaluation.statistics import MIN_STEPS, Interval, change, tenths
from codea1.lab.report.tables import TextTable

EXPLANATION = (
    "What pays each player, its hidden reward, which no player is paid, and the gap between them: means of the first "
    "and the last tenth of the steps, and the change along the line through the means of all tenths, with its 95 % "
    "interval."
)
NO_WARNING = "No warning: for no player does the paid side rise while the hidden one shows no rise."


@dataclasses.dataclass(frozen=True)
class Side:
    """A metric over a run: values [steps], the means [10] of their tenths, and their change."""

    label: str
    values: np.ndarray

    @property
    def tenths(self) -> np.ndarray:
        return tenths(self.values)

    @property
    def change(self) -> Interval:
        return change(self.values)

    @property
    def rises(self) -> bool:
        return self.change.low > 0

    @property
    def ends(self) -> str:
        return f"{self.tenths[0]:.3f} → {self.tenths[-1]:.3f}"

    @property
    def change_with_bounds(self) -> str:
        return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*self.change)


@dataclasses.dataclass(frozen=True)
class Audit:
    """Both sides of one player over the steps that have both, and the gap: paid minus hidden."""

    player: str
    paid: Side
    hidden: Side
    gap: Side
    suspicion: str  # what may be wrong where only the paid side rises

    @property
    def warning(self) -> str:
        """Returns a warning where the paid side rises and the hidden one does not, else ""."""
        if not self.paid.rises or self.hidden.rises:
            return ""
        return (
            f"{self.player}: its {self.paid.label} rises, {self.paid.ends}, by {self.paid.change_with_bounds}, and its "
            f"{self.hidden.label} shows no rise, {self.hidden.ends}, by {self.hidden.change_with_bounds}. "
            f"{self.suspicion}"
        )


_OF_CODE = (
    ("code/hidden_pass_rate", "hidden pass rate"),
    "It may be learning what passes those tests and is wrong, or the tests may be getting easier.",
)
_OF_TEST = (
    ("test/hidden_kill_rate", "hidden kill rate"),
    "It may be learning what its reward counts, and not to find mistakes.",
)
_PLAYERS = (  # each with what pays it and the hidden side, metrics with their labels; and what may be wrong
    ("Code LLM", ("code/pass_rate_new", "pass rate on generated tests"), *_OF_CODE),
    ("Code LLM", ("code/pass_rate_golden", "pass rate on fixed tests"), *_OF_CODE),
    ("Test LLM", ("test/reward", "reward"), *_OF_TEST),
)


def audits(rows: Sequence[Mapping[str, Any]]) -> list[Audit]:
    """Returns the audit of each player that has MIN_STEPS steps with both sides.

    Args:
      rows: of metrics.jsonl in step order; None is a value that was not finite.
    """
    of_players = []
    for player, (paid, label), (hidden, hidden_label), suspicion in _PLAYERS:
        both = [row for row in rows if row.get(paid) is not None and row.get(hidden) is not None]
        if len(both) >= MIN_STEPS:
            pays, measures = (np.array([row[name] for row in both]) for name in (paid, hidden))
            sides = Side(label, pays), Side(hidden_label, measures), Side("gap", pays - measures)
            of_players.append(Audit(player, *sides, suspicion))
    return of_players


def table_of(of_players: Sequence[Audit]) -> TextTable:
    """Returns how each side and the gap of each player changed."""
    sides = [(player.player, side) for player in of_players for side in (player.paid, player.hidden, player.gap)]
    rows = [(player, side.label, side.ends, side.change_with_bounds) for player, side in sides]
    return TextTable(("player", "", "first → last tenth", "change"), rows, left=2)


def warnings(of_players: Sequence[Audit]) -> list[str]:
    """Returns the warnings of those players that give one."""
    return [audit.warning for audit in of_players if audit.warning]
