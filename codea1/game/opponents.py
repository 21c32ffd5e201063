"""Opponents from the past: which checkpoint of a player also plays, in which questions, and who wins.

Every draw has a key of its own and games are counted in the order of the round, so that hosts, and runs that are
resumed, agree.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from ml_collections import ConfigDict

from codea1.game.rewards import INFRA
from codea1.game.round import Round

SIDES = {"": (), "code": ("code",), "test": ("test",), "both": ("code", "test")}  # roles that past selves also play
UNIFORM, PRIORITISED = "uniform", "prioritised"
_DECAY = 0.99  # of the counts, with each game: the payoff of AlphaStar

Member = tuple[str, int]  # role, and step of the checkpoint


class Opponents:
    """The pools of a run's past players, one for each role of `config.opponents.side`, and how each of them does."""

    def __init__(self, config: ConfigDict) -> None:
        """Begins with no game played."""
        self._roles, self._every = SIDES[config.opponents.side], config.opponents.every
        self._draw, self._seed = config.opponents.draw, config.seed
        self._counts: dict[Member, tuple[float, float]] = {}  # wins of the learner who met it, and games; both decay

    def draw(self, step: int) -> dict[str, int]:
        """Returns which checkpoint plays in a step, by role; none while no step before it belongs to the pool."""
        members = range(self._every, step, self._every)
        return {
            role: random.Random(f"opponent/{self._seed}/{step}/{role}").choices(members, self._weights(role, members))[
                0
            ]
            for role in (self._roles if members else ())
        }

    def _weights(self, role: str, members: Sequence[int]) -> list[float]:
        """Returns how likely each member is to be drawn, up to a factor.

        Prioritised fictitious self-play (Vinyals et al. 2019): (1 - x)^2, with x the learner's win rate against it.
        """
        counts = [self._counts.get((role, member), (0.5, 1.0)) for member in members]
        weights = [(1 - wins / games) ** 2 for wins, games in counts]
        return weights if self._draw == PRIORITISED and sum(weights) > 1e-10 else [1.0] * len(members)

    def update(self, round_: Round) -> dict[str, float]:
        """Counts the games of a step whose rewards are in.

        Returns metrics: who of the past was met, by the step of its checkpoint, and the share of the games with it that
        the learner won.
        """
        won: dict[Member, list[bool]] = {}
        for member, is_won in games(round_):
            wins, count = self._counts.get(member, (0.0, 0.0))
            self._counts[member] = _DECAY * wins + is_won, _DECAY * count + 1
            won.setdefault(member, []).append(is_won)
        metrics = {f"opponents/{role}_member": float(step) for role, step in won}
        return metrics | {
            f"opponents/{role}_win_rate": sum(results) / len(results) for (role, _), results in won.items()
        }

    def state(self) -> list[list[Any]]:
        """Returns what `load` takes up, as JSON can hold it."""
        return [[*member, *counts] for member, counts in self._counts.items()]

    def load(self, state: Sequence[Sequence[Any]]) -> None:
        """Takes up the counts of a checkpoint."""
        self._counts = {(role, step): (wins, count) for role, step, wins, count in state}


def deal(question_ids: Sequence[str], roles: Sequence[str], share: float, key: str) -> dict[str, set[str]]:
    """Returns the questions in which a past self plays each role: `share` of them, rounded, and others for each role.

    `key` is of the draw: run and step.
    """
    drawn = sorted(question_ids, key=lambda id: random.Random(f"opponent/{key}/{id}").random())
    count = round(share * len(drawn))
    return {role: set(drawn[place * count : (place + 1) * count]) for place, role in enumerate(roles)}


def games(round_: Round) -> Iterator[tuple[Member, bool]]:
    """Yields every game with a past player, and whether the learner won it; what the sandbox lost is no game.

    A Code LLM plays a game with each solution, and wins where it loads and no right test of its suites fails it. A Test
    LLM plays one with each suite, and wins where a right test of it fails the solution.
    """
    for solution in round_.solutions:
        own = solution.sample.checkpoint
        if own is not None:
            for suite in solution.suites:
                if suite.reward and suite.reward.masked != INFRA:
                    yield ("code", own), suite.exposes
        of_past = [(suite.sample.checkpoint, suite) for suite in solution.suites if suite.sample.checkpoint is not None]
        if of_past and solution.reward and solution.reward.masked != INFRA:
            is_won = bool(solution.program_valid) and not any(suite.exposes for _, suite in of_past)
            yield ("test", of_past[0][0]), is_won
