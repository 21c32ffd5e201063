"""A league: its statistics against numbers counted by hand, and saved players of tiny runs that play one."""

import json
import shutil

import numpy as np
import pytest
from scipy.special import expit, logit

from codea1.lab.league.league import bradley_terry, standings
from codea1.runs.folder import RunFolder
from tests.host_processes import run as command


def constant(rates: list[list[float]], questions: int = 1000) -> np.ndarray:
    """Kills [codes, tests, questions] at these rates on every question: there is no noise, and the 1/2 is nothing."""
    return np.repeat(np.array(rates)[..., None], questions, axis=-1)


def drawn(codes: list[float], tests: list[float], questions: int, seed: int, spread: float = 1.0) -> np.ndarray:
    """Kills by these ratings on questions that are harder or easier for all Code LLMs."""
    rng = np.random.default_rng(seed)
    survives = expit(np.subtract.outer(codes, tests)[..., None] + spread * rng.normal(size=questions))
    return (rng.random(survives.shape) > survives).astype(float)


PAIRS = [(0, 0), (1, 1), (2, 2)]


def test_ratings_are_those_that_the_games_were_drawn_from():
    codes, tests = [1.5, 0.0, -0.7, 3.0], [0.4, -0.4]
    found = standings(constant(1 - expit(np.subtract.outer(codes, tests))), [])
    assert [rating.mean for rating in found.codes] == pytest.approx(codes, abs=0.03)
    assert [rating.mean for rating in found.tests] == pytest.approx(tests, abs=0.01)
    assert found.interaction == pytest.approx(0, abs=1e-4)
    assert found.reversals == []


def test_one_pair_has_the_odds_of_its_games_with_half_a_game_more_of_each():
    (code,), (test,) = bradley_terry(np.array([[3.0]]), np.array([[0.0]]))
    assert (code, test) == (pytest.approx(np.log(3.5 / 0.5)), 0)


def test_ratings_of_likelihood_account_for_every_player_s_wins_however_uneven():
    survived, killed = np.array([[96, 96, 0], [90, 1, 3], [50, 96, 2]]), np.array([[0, 0, 96], [6, 95, 9], [46, 0, 94]])
    codes, tests = bradley_terry(survived, killed)
    expected = (survived + killed + 1) * expit(np.subtract.outer(codes, tests))
    np.testing.assert_allclose(expected.sum(0), (survived + 0.5).sum(0), rtol=1e-6)
    np.testing.assert_allclose(expected.sum(1), (survived + 0.5).sum(1), rtol=1e-6)


def test_games_that_were_not_judged_do_not_count():
    kills = np.array([[[1, 0, 0, np.nan, np.nan]]])
    (code,) = standings(kills, []).codes
    assert code.mean == pytest.approx(np.log(2.5 / 1.5))


def test_intervals_hold_what_more_questions_would_show_nineteen_times_of_twenty():
    codes, tests = [0.8, 0.0, -0.5], [0.6, -0.6]
    kills = drawn(codes, tests, 200_000, seed=0).sum(-1)
    wanted = np.concatenate(bradley_terry(200_000 - kills, kills))
    held = []
    for seed in range(1, 201):
        found = standings(drawn(codes, tests, 60, seed), [])
        held += [
            rating.low < mean < rating.high for rating, mean in zip((*found.codes, *found.tests), wanted, strict=True)
        ]
    assert 0.91 < np.mean(held) < 0.98


def test_what_depends_on_the_pair_is_interaction():
    # Log odds of +-1 that ratings cannot explain, and row effects of +-2 that they can: 1 of 5 parts.
    odds = np.array([[2 + 1, 2 - 1], [-2 - 1, -2 + 1]])
    assert standings(constant(1 - expit(odds)), []).interaction == pytest.approx(1 / 5, abs=0.001)
    assert np.isnan(standings(constant([[0.2, 0.4]]), []).interaction)


def test_noise_is_no_interaction():
    shares = [standings(drawn([0.5, 0, 0.5], [0.4, 0, 0.4], 40, seed), []) for seed in range(50)]
    apart = [standings(drawn([0.5, 0, 0.5], [0.4, 0, 0.4], 40, seed, spread=0), []) for seed in range(50)]
    for found in (shares, apart):
        assert np.nanmedian([each.interaction for each in found]) < 0.15


def test_an_order_that_depends_on_the_opponent_is_a_reversal():
    questions = np.arange(40)
    often, seldom = (questions % 10 < 8).astype(float), (questions % 10 < 2).astype(float)
    kills = np.array([[seldom, often, often], [often, often, seldom], [seldom, often, often]])
    assert standings(kills, []).reversals == [(0, 1, 0, 2), (1, 2, 2, 0)]


@pytest.mark.parametrize(("beaten", "share"), [(0.8, 1.0), (0.5, 0.0)])
def test_rock_paper_scissors_is_all_cyclic_and_ratings_are_not(beaten, share):
    # Each run's tests kill the next one's programs, and it is not killed back; or all depends on strength alone.
    cycle = logit(beaten) * (np.eye(3)[[1, 2, 0]] - np.eye(3)[[2, 0, 1]])
    strength = np.subtract.outer([0.3, -0.2, 1.0], [0.1, 0.5, -0.6]) if not share else 0
    assert standings(constant(1 - expit(cycle + strength)), PAIRS).cyclic == pytest.approx(share, abs=1e-4)


def test_half_of_a_lead_is_cyclic():
    # Of A, the gradient of (1, 0, -1) has squares 2 (1 + 1 + 4) and a cycle of 1 has 2 * 3: 6 parts of 18.
    lead = np.subtract.outer([1, 0, -1], [1, 0, -1]) + np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0]])
    kills = constant(1 - expit(lead / 2))
    assert standings(kills, PAIRS).cyclic == pytest.approx(1 / 3, abs=1e-3)
    swapped = standings(kills[:, [1, 0, 2]], [(0, 1), (1, 0), (2, 2)])
    assert swapped.cyclic == pytest.approx(1 / 3, abs=1e-3)
    assert np.isnan(standings(kills, PAIRS[:2]).cyclic)


def league(*arguments: str) -> tuple[int, str]:
    """Exit code of the command, and what it printed."""
    code, out, errors = command("-m", "codea1.lab", "league", *map(str, arguments))
    return code, out if code == 0 else errors


def changed(run: RunFolder, name: str, **fields: object) -> RunFolder:
    """A copy of a run, beside it, with another config."""
    path = run.path.parent / name
    shutil.copytree(run.path, path)
    (path / "config.json").write_text(json.dumps(run.config | fields))
    return RunFolder.existing(str(path))


def test_every_code_llm_and_every_file_plays_every_test_llm(run, tmp_path):
    golden = changed(run, "golden", method="golden")
    frozen = changed(run, "frozen", frozen="test")
    (tmp_path / "bank.jsonl").write_text("")
    code, errors = league(run.path, f"--programs={tmp_path / 'bank.jsonl'}", f"--output={tmp_path / 'out'}")
    assert (code, errors) == (
        2,
        f"error: {tmp_path}/bank.jsonl has no program for the 3 questions of the validation split.\n",
    )
    arguments = [f"{run.path}@6", f"{run.path}@0", golden.path, f"{frozen.path}@3", f"{frozen.path}@6"]
    code, printed = league(*arguments, f"--output={tmp_path / 'out'}")
    assert code == 0, printed
    found = json.loads((tmp_path / "out" / "league.json").read_text())
    # A frozen player is the same at all steps, and a run of golden tests brings a Code LLM alone.
    assert found["code"] == ["run@0", "run@6", "golden@6", "frozen@3", "frozen@6"]
    assert found["test"] == ["run@0", "run@6", "frozen@3"]
    assert np.shape(found["kill"]) == np.shape(found["validity"]) == (5, 3, 3)
    assert np.shape(found["check_failing"]) == (5, 3)
    assert "run@6" in printed
    assert (tmp_path / "out" / "league.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "out" / "league.md").read_text()
    assert "| golden@6 |" in text
    # Right programs survive and pass; wrong ones pass no check, and what their question has none of is undefined.
    texts = "Here:\n```python\ndef f(a): pass\n```", "1 +"
    rows = [{"task_id": found["question_ids"][0], "solution": text} for text in texts]
    (tmp_path / "bank.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, printed = league(run.path, f"--programs={tmp_path / 'bank.jsonl'}", f"--output={tmp_path / 'out'}")
    assert code == 0, printed
    found = json.loads((tmp_path / "out" / "league.json").read_text())
    assert (found["code"], found["test"]) == (["run@6", "bank.jsonl"], ["run@6"])
    assert found["check_failing"][1] == [1.0, None, None]
    assert found["kill"][1][0][1:] == [None, None]
    assert found["kill"][1][0][0] is not None


def test_steps_that_no_run_takes_are_refused(tmp_path):
    said = "error: --steps: only for a RUN without @STEP.\n"
    assert league("runs/a@3", "runs/b@best", "--steps=0,3", f"--output={tmp_path / 'out'}") == (2, said)


def test_what_cannot_play_is_one_sentence(run, tmp_path):
    golden = changed(run, "golden", method="golden")
    other = changed(run, "other", game=run.config["game"] | {"num_tests": 3})
    (tmp_path / "bank.jsonl").write_text('{"task_id": 3, "solution": ""}\n')
    output = f"--output={tmp_path / 'out'}"
    for arguments, said in (
        ([run.path], "--output is missing: it names the folder for the results."),
        ([golden.path, output], "no run has a Test LLM: golden."),
        (
            [run.path, f"{other.path}@3", output],
            f"{other.path} cannot play {run.path}: config.game.num_tests is 2 there and 3 here.",
        ),
        ([f"{run.path}@4", output], f"{run.path}/checkpoints has no step 4; it has 3, 6."),
        (
            [run.path, f"--programs={tmp_path / 'bank.jsonl'}", output],
            f"{tmp_path}/bank.jsonl, line 1: task_id and solution are not both text.",
        ),
    ):
        assert league(*arguments) == (2, f"error: {said}\n")
    assert not (tmp_path / "out").exists()
