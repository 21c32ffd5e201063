"""A league as tables, a picture and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Group

from codea1.evaluation.statistics import Interval
from codea1.lab.league.league import Standings, standings
from codea1.lab.report.figures import CODE, INK, TEST, picture, style
from codea1.lab.report.tables import TextTable


@dataclass(frozen=True)
class League:
    """The games of some Code LLMs with some Test LLMs. A run that brings both has one name on both sides."""

    split: str
    question_ids: Sequence[str]
    codes: Sequence[str]  # names
    tests: Sequence[str]
    kills: np.ndarray  # [codes, tests, questions]: share of programs that a right test fails; NaN where none was judged
    validity: np.ndarray  # [codes, tests, questions]: right tests over those asked for
    failing: np.ndarray  # [codes, questions]: share of programs that fail the question's check script

    @cached_property
    def standings(self) -> Standings:
        """Ratings, and what they leave unexplained."""
        both = [name for name in self.codes if name in self.tests]
        return standings(self.kills, [(self.codes.index(name), self.tests.index(name)) for name in both])

    def json(self) -> dict[str, Any]:
        """Returns all values, per question in the order of `question_ids`, and the standings."""
        found = self.standings
        ratings = {
            side: {name: rating._asdict() for name, rating in zip(names, own, strict=True)}
            for side, names, own in (("code", self.codes, found.codes), ("test", self.tests, found.tests))
        }
        return {
            "split": self.split,
            "question_ids": self.question_ids,
            "code": self.codes,
            "test": self.tests,
            "kill": self.kills,
            "validity": self.validity,
            "check_failing": self.failing,
            "ratings": ratings,
            "interaction": found.interaction,
            "reversals": [
                {"code": [self.codes[a], self.codes[b]], "test": [self.tests[j], self.tests[k]]}
                for a, b, j, k in found.reversals
            ],
            "cyclic": found.cyclic,
        }

    def markdown(self) -> str:
        """Returns the table and what follows from it, with the picture league.png."""
        parts = ["# League", self._title, self._table().markdown(), self._remarks, "![League](league.png)"]
        return "\n\n".join(filter(None, parts)) + "\n"

    def table(self) -> Group:
        """Returns the same for a terminal."""
        return self._table().terminal(self._title, self._remarks)

    def picture(self) -> bytes:
        """Returns a PNG: the payoffs as a heat map, and the ratings with their intervals."""
        codes, tests = len(self.codes), len(self.tests)
        size = (6.5 + 0.7 * tests, max(2.4, 1.6 + 0.35 * (codes + tests)))
        figure = Figure(figsize=size, dpi=110, layout="constrained")
        payoffs, ratings = figure.subplots(1, 2)
        means = _means(self.kills)
        payoffs.imshow(means, cmap="Oranges", vmin=0, vmax=1, aspect="auto")
        for (code, test), share in np.ndenumerate(means):
            color = "white" if share > 0.6 else INK
            payoffs.text(test, code, f"{100 * share:.0f}", ha="center", va="center", fontsize=9, color=color)
        style(payoffs, "Programs that a right test fails, %", xlabel="Test LLM")
        payoffs.grid(False)
        payoffs.set_xticks(range(tests), self.tests, rotation=30, ha="right")
        payoffs.set_yticks(range(codes), self.codes)
        style(ratings, "Ratings, log odds, with 95 % intervals", xlabel="harder to break, or better at breaking")
        sides = ((self.standings.codes, CODE, "Code LLM"), (self.standings.tests, TEST, "Test LLM"))
        row = 0
        for own, color, label in sides:
            bars = [[rating.mean - rating.low for rating in own], [rating.high - rating.mean for rating in own]]
            rows = range(row, row + len(own))
            ratings.errorbar([rating.mean for rating in own], rows, xerr=bars, fmt="o", color=color, label=label)
            row += len(own)
        ratings.set_yticks(range(row), [*self.codes, *self.tests])
        ratings.invert_yaxis()
        ratings.legend(fontsize=9, frameon=False, labelcolor=INK, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.12))
        return picture(figure, "png")

    @property
    def _title(self) -> str:
        return (
            f"Programs that a right test fails, in %, on {len(self.question_ids)} questions of the {self.split} split. "
            "A Code LLM survives a Test LLM with probability sigmoid(its rating - the other's)."
        )

    @property
    def _remarks(self) -> str:
        found = self.standings
        remarks = []
        if not np.isnan(found.interaction):
            remarks.append(
                f"Ratings leave {100 * found.interaction:.0f} % of the variance of the log odds unexplained; the order "
                f"of {len(found.reversals)} pairs of Code LLMs depends on the Test LLM."
            )
        if not np.isnan(found.cyclic):
            remarks.append(
                f"Of what runs with both players have over each other, {100 * found.cyclic:.0f} % is cyclic."
            )
        return " ".join(remarks)

    def _table(self) -> TextTable:
        """Returns the payoffs, with what each player does by itself beside them."""
        rows = []
        for name, failing, kills, rating in zip(
            self.codes, _means(self.failing), _means(self.kills), self.standings.codes, strict=True
        ):
            rows.append([name, *(_number(share) for share in (failing, *kills)), _rating(rating)])
        of_tests = _means(self.validity.swapaxes(0, 1).reshape(len(self.tests), -1))
        rows.append(["validity", "", *map(_number, of_tests), ""])
        rows.append(["rating", "", *map(_rating, self.standings.tests), ""])
        return TextTable(["Code LLM", "fails its check", *self.tests, "rating"], rows)


def _means(values: np.ndarray) -> np.ndarray:
    """Returns the means over the last axis of what is defined there; NaN where nothing is."""
    counts = (~np.isnan(values)).sum(-1)
    return np.where(counts, np.nansum(values, axis=-1) / np.maximum(counts, 1), np.nan)


def _number(share: float) -> str:
    return "-" if np.isnan(share) else f"{100 * share:.1f}"


def _rating(rating: Interval) -> str:
    return f"{rating.mean:+.2f} [{rating.low:+.2f}, {rating.high:+.2f}]"
