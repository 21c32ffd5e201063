"""Past players: who is drawn, which questions they play, what their games count, and that nobody learns from them."""

from collections import Counter
from dataclasses import replace

import pytest

from codea1.config import default_config
from codea1.game.opponents import Opponents, deal, games
from codea1.game.round import Round, statistics
from codea1.runs.samples import rows
from codea1.training.step import train_samples
from tests.game_round_test import STRICT, TRANSCRIPTS, played
from tests.training_advantages_test import compared

NAMES = [f"q{number}" for number in range(40)]


def pool(side: str, draw: str, seed: int = 0) -> Opponents:
    config = default_config()
    config.seed, config.opponents.side, config.opponents.draw, config.opponents.every = seed, side, draw, 10
    return Opponents(config)


def test_a_share_of_the_questions_is_dealt_to_each_side_and_no_question_to_both():
    dealt = deal(NAMES, ["code", "test"], 0.3, "0/7")
    assert [len(own) for own in dealt.values()] == [12, 12]
    assert not dealt["code"] & dealt["test"]
    assert deal(NAMES[::-1], ["code", "test"], 0.3, "0/7") == dealt
    assert deal(NAMES, ["test"], 0.3, "0/7") == {"test": dealt["code"]}
    assert deal(NAMES, ["code", "test"], 0.3, "0/8") != dealt != deal(NAMES, ["code", "test"], 0.3, "1/7")
    assert deal(NAMES, ["code", "test"], 0.5, "0/7")["test"] == {*NAMES} - deal(NAMES, ["code"], 0.5, "0/7")["code"]
    times = Counter(name for step in range(200) for name in deal(NAMES, ["test"], 0.5, f"0/{step}")["test"])
    assert all(60 < times[name] < 140 for name in NAMES)


def test_members_are_the_checkpoints_before_the_step():
    for side, roles in (("", []), ("code", ["code"]), ("test", ["test"]), ("both", ["code", "test"])):
        opponents = pool(side, "uniform")
        assert opponents.draw(1) == opponents.draw(10) == {}
        assert opponents.draw(11) == dict.fromkeys(roles, 10)
        drawn = [opponents.draw(step) for step in range(31, 41)]
        assert all({*each.values()} <= {10, 20, 30} for each in drawn)
        assert drawn == [pool(side, "uniform").draw(step) for step in range(31, 41)]
    assert len({tuple(each.items()) for each in drawn}) > 3
    assert [pool("test", "uniform", seed).draw(41) for seed in range(9)] != [opponents.draw(41)] * 9


def test_prioritised_members_are_those_that_the_learner_loses_against():
    opponents = pool("test", "prioritised")
    # It won 1 game of 4 with the first and 3 of 4 with the third, and has not met the second.
    opponents.load([["test", 10, 1.0, 4.0], ["test", 30, 3.0, 4.0], ["code", 20, 0.0, 9.0]])
    assert opponents._weights("test", (10, 20, 30)) == [9 / 16, 1 / 4, 1 / 16]
    assert opponents._weights("code", (10, 20, 30)) == [1 / 4, 1.0, 1 / 4]
    drawn = Counter(opponents.draw(step)["test"] for step in range(31, 41) for opponents._seed in range(200))
    assert [drawn[member] / 2000 for member in (10, 20, 30)] == pytest.approx([9 / 14, 4 / 14, 1 / 14], abs=0.04)
    opponents.load([["test", 10, 5.0, 5.0], ["test", 20, 4.0, 4.0]])
    assert opponents._weights("test", (10, 20)) == [1.0, 1.0]  # it always wins
    opponents = pool("test", "uniform")
    opponents.load([["test", 10, 1.0, 4.0]])
    assert opponents._weights("test", (10, 20)) == [1.0, 1.0]


def of_past(code: int | None, test: int | None) -> Round:
    """The round of `played`, answered by past players as a step records it."""
    round_ = played()
    for solution in round_.solutions:
        solution.sample, solution.selected = replace(solution.sample, checkpoint=code), code is None
        for suite in solution.suites:
            suite.sample = replace(suite.sample, checkpoint=test)
    return round_


def test_who_wins():
    # Right tests of both suites fail solution 0; solution 1 passes its only right test; 2 cannot be loaded; the sandbox
    # lost the suite on 3; 4 has none.
    assert [suite.exposes for suite in played().suites][:5] == [True, True, False, False, True]
    assert list(games(played())) == []
    assert list(games(of_past(None, 20))) == [(("test", 20), won) for won in (False, True, False)]
    assert list(games(of_past(20, None))) == [(("code", 20), won) for won in (True, True, False, False, True)]


def test_counts_decay_with_each_game_and_are_taken_up_again():
    opponents = pool("both", "prioritised")
    assert opponents.update(played()) == {}
    metrics = opponents.update(of_past(None, 20)) | opponents.update(of_past(10, None))
    assert metrics == {
        "opponents/test_member": 20.0,
        "opponents/test_win_rate": pytest.approx(1 / 3),
        "opponents/code_member": 10.0,
        "opponents/code_win_rate": pytest.approx(3 / 5),
    }
    wins, count = opponents._counts["test", 20]
    assert (wins, count) == (pytest.approx(0.99), pytest.approx(1 + 0.99 + 0.99**2))
    again = pool("both", "prioritised")
    again.load(opponents.state())
    opponents.update(of_past(None, 20))
    again.update(of_past(None, 20))
    assert again.state() == opponents.state()
    assert opponents._counts["test", 20][0] == pytest.approx(0.99 + wins * 0.99**3)


@pytest.mark.parametrize("scheme", ["batch", "grpo"])
def test_nobody_learns_from_a_past_player_and_no_metric_of_its_role_counts_it(scheme):
    current, players = compared(scheme, trained_solutions=1)
    for code, test, role in ((20, None, "code"), (None, 20, "test")):
        learner = {"code": "test", "test": "code"}[role]
        mixed, _ = compared(scheme, trained_solutions=1, round_=both(code, test))
        # The role of the past player learns, and is measured, as if the second question had not been asked.
        assert train_samples(mixed, players[role]) == train_samples(current, players[role]) != []
        alone, together = statistics(current), statistics(mixed)
        for name in alone:
            if name.startswith(f"{role}/") and name not in ("code/questions", "test/prompt_too_long"):
                assert together[name] == alone[name], name
        assert together["code/questions"] == 2
        # The other role learns from both questions.
        assert len(train_samples(mixed, players[learner])) == 2 * len(train_samples(current, players[learner])) > 0
        past = [row for row in rows(mixed, TRANSCRIPTS) if row["checkpoint"] is not None]
        assert {(row["player"], row["checkpoint"]) for row in past} == {(role, 20)}
        assert not any(row["selected"] or row["advantage"] for row in past)
        assert len([row for row in rows(mixed, TRANSCRIPTS) if row["player"] == role]) == 2 * len(past)


def both(code: int | None, test: int | None) -> Round:
    """A question that current players answered, and one with past players."""
    current, past = played(), of_past(code, test)
    for record in past.solutions:
        record.assign_rewards(STRICT)
    (question,) = past.questions
    question.question = replace(question.question, id="of the past")
    current.questions.append(question)
    return current
