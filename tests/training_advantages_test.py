"""What advantages of a round are taken from: whole groups, and over the batch what trains."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from codea1.config import DEFAULT
from codea1.game.round import QuestionRecord, Round, variance
from codea1.players.player import Player
from codea1.runtime.hosts import Hosts
from codea1.training.step import Step, train_samples
from tests.game_round_test import FAIL, PASS, QUESTION, STRICT, played, solution, suite


class Learner(SimpleNamespace):
    """What a player says of rewards and advantages, by its section of the config."""

    shaped_reward, learns_from, advantages = Player.shaped_reward, Player.learns_from, Player.advantages


def compared(
    scheme: str, trained_solutions: int, round_: Round | None = None, **section: object
) -> tuple[Round, dict[str, Learner]]:
    """A played round with the advantages that its step gives it, and the players."""
    settings = {name: DEFAULT.policy(name).with_changes({"advantage": scheme, **section}) for name in ("code", "test")}
    players = {name: Learner(_config=config, roles=(name,)) for name, config in settings.items()}
    rules = SimpleNamespace(
        max_rounds=1, trained_solutions=trained_solutions, reward=STRICT, selection=variance, seed=0
    )
    step = Step(1, players, rules, None, None, None, Hosts())
    return step.compare(round_ or played()), players


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


@pytest.mark.parametrize("scheme", ["grpo", "gdpo"])
def test_what_length_costs_is_learned(scheme: str):
    verdicts = [PASS, FAIL], [PASS, FAIL], [PASS, PASS]
    suites = [suite(n, each, "assert f(5) == 6", "assert f(6) == 7") for n, each in enumerate(verdicts)]
    suites[1].sample = dataclasses.replace(suites[1].sample, token_ids=(3,) * 9, log_probs=(0.0,) * 9)
    record = solution(0, suites, [])
    record.assign_rewards(STRICT)
    round_ = Round(1, [QuestionRecord(QUESTION, [record])])
    options = {"max_response_length": 10, "overlong_buffer": 2}
    _, players = compared(scheme, 1, round_, **options)
    samples = train_samples(round_, players["test"])
    assert [each.reward for each in samples] == [0.75, 0.75 - 1 / 2, 0.5]  # PPO's, too
    assert samples[0].advantage > samples[1].advantage


def test_advantages_within_a_group_are_those_of_the_group_whoever_is_selected():
    (round_, _), (other, _) = (compared("grpo", trained_solutions=count) for count in (1, 8))
    assert [suite.advantage for suite in round_.suites] == [suite.advantage for suite in other.suites]
