"""What advantages of a round are taken from: whole groups, and over the batch what trains."""

from collections.abc import Hashable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from codea1.game.round import Round
from codea1.game.selection import variance
from codea1.learn.advantages import ADVANTAGES
from codea1.runtime.hosts import Hosts
from codea1.training.step import Step, train_samples
from tests.game_round_test import STRICT, played


class Learner(SimpleNamespace):
    """What a player says of advantages, by one scheme."""

    def shaped_reward(self, reward: float, response_length: int) -> float:
        return reward

    def learns_from(self, finish_reason: str) -> bool:
        return True

    def advantages(self, rewards: Sequence[float | None], groups: Sequence[Hashable], tokens: Sequence[int], *_):
        return ADVANTAGES[self.scheme](rewards, groups, tokens)


def compared(scheme: str, trained_solutions: int, round_: Round | None = None) -> tuple[Round, dict[str, Learner]]:
    """A played round with the advantages that its step gives it, and the players."""
    players = {name: Learner(scheme=scheme, roles=(name,)) for name in ("code", "test")}
    rules = SimpleNamespace(
        max_rounds=1, trained_solutions=trained_solutions, reward=STRICT, selection=variance, seed=0
    )
    step = Step(1, players, rules, None, None, None, Hosts())
    step.round = round_ or played()
    step.assign_advantages()
    return step.round, players


@pytest.mark.parametrize("scheme", ["batch", "reinforce++-baseline"])
def test_suites_that_topvar_discards_have_no_part_in_the_statistics_of_the_batch(scheme: str):
    # Suites are paid 0.75 and 0.5; 0.25 and 0; 0.5; and nothing.
    round_, players = compared(scheme, trained_solutions=1)
    np.testing.assert_allclose([each.advantage for each in train_samples(round_, players["test"])], [1, -1], rtol=1e-6)
    round_, players = compared(scheme, trained_solutions=8)
    advantages = np.array([each.advantage for each in train_samples(round_, players["test"])])
    rewards = np.array([0.75, 0.5, 0.25, 0.0, 0.5])
    centred = {"batch": rewards - 0.4, "reinforce++-baseline": np.array([1, -1, 1, -1, 0])}[scheme]
    np.testing.assert_allclose(advantages, centred / centred.std(), rtol=1e-6, atol=1e-9)


def test_advantages_within_a_group_are_those_of_the_group_whoever_is_selected():
    (round_, _), (other, _) = (compared("grpo", trained_solutions=count) for count in (1, 8))
    assert [suite.advantage for suite in round_.suites] == [suite.advantage for suite in other.suites]
