"""What advantages of a round are taken from: whole groups, and over the batch what trains."""

from collections.abc import Hashable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from codea1.learn.advantages import ADVANTAGES
from codea1.training.play import give_advantages
from codea1.training.samples import of_round
from tests.game_round_test import played


class Learner(SimpleNamespace):
    """What a player says of advantages, by one scheme."""

    def shaped_reward(self, reward: float, response_length: int) -> float:
        return reward

    def learns_from(self, finish_reason: str) -> bool:
        return True

    def advantages(self, rewards: Sequence[float | None], groups: Sequence[Hashable], tokens: Sequence[int]):
        return ADVANTAGES[self.scheme](rewards, groups, tokens)


@pytest.mark.parametrize("scheme", ["batch", "reinforce++-baseline"])
def test_suites_that_topvar_discards_have_no_part_in_the_statistics_of_the_batch(scheme: str):
    round_ = played()  # suites are paid 0.75 and 0.5; 0.25 and 0; 0.5; and nothing
    round_.select(1)
    players = {name: Learner(scheme=scheme, roles=(name,)) for name in ("code", "test")}
    give_advantages(round_, players)
    np.testing.assert_allclose([each.advantage for each in of_round(round_, players["test"])], [1, -1], rtol=1e-6)
    round_.select(8)
    give_advantages(round_, players)
    advantages = np.array([each.advantage for each in of_round(round_, players["test"])])
    rewards = np.array([0.75, 0.5, 0.25, 0.0, 0.5])
    centred = {"batch": rewards - 0.4, "reinforce++-baseline": np.array([1, -1, 1, -1, 0])}[scheme]
    np.testing.assert_allclose(advantages, centred / centred.std(), rtol=1e-6, atol=1e-9)


def test_advantages_within_a_group_are_those_of_the_group_whoever_is_selected():
    round_, other = played(), played()
    round_.select(1)
    other.select(8)
    for each in (round_, other):
        give_advantages(each, {name: Learner(scheme="grpo", roles=(name,)) for name in ("code", "test")})
    assert [suite.advantage for suite in round_.suites] == [suite.advantage for suite in other.suites]
