"""The game in one file plays what `codea1.train` plays: the same samples, rewards, Mistake Book and updates."""

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from ml_collections import ConfigDict

from codea1.game.answers import ParsedSuite
from codea1.game.calls import CallTest
from codea1.game.mistake_book import Evidence, MistakeBook
from codea1.game.outcomes import FAILED, SolutionOutcome, SuiteOutcome
from codea1.game.question import Question
from codea1.game.rewards import OfficialReward
from codea1.lab import minimal
from codea1.learn.advantages import grpo_advantages
from codea1.runs.book_files import read_shards
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.values.verdict import Verdict
from tests.conftest import ROOT
from tests.mistake_books import make
from tests.train_test import scripted_answers, train

__all__ = ["scripted_answers"]

QUESTIONS, STEPS = 3, 3  # every step asks all of them, so that the second one replays what the first one failed
LEARNER = replace(minimal.CODE, max_prompt=56, max_response=24, learning_rate=1e-3)


def same_game(config: ConfigDict) -> None:
    """Gives a run of the step what the file has as constants."""
    config.steps, config.questions_per_step, config.data.train.limit = STEPS, QUESTIONS, QUESTIONS
    config.checkpoint.every = 1
    config.rollout.slots = 96
    game = config.game
    game.num_solutions, game.num_suites, game.num_tests = minimal.NUM_SOLUTIONS, minimal.NUM_SUITES, minimal.NUM_TESTS
    game.history_size, game.trained_solutions, game.alpha = minimal.NUM_REPLAYED, minimal.NUM_TRAINED, minimal.ALPHA
    game.assert_forms = "equality"
    for player in (config.code, config.test):
        player.max_prompt_length, player.max_response_length = LEARNER.max_prompt, LEARNER.max_response
        player.learning_rate, player.kl_coefficient = LEARNER.learning_rate, LEARNER.kl_coefficient
        player.adam_b2, player.weight_decay = minimal.OPTIMIZER.beta2, minimal.OPTIMIZER.weight_decay
        player.warmup_steps, player.decay, player.old_log_probs = 0, "constant", "sampler"
        player.micro_batch_size = 8


def of_row(row: dict) -> tuple:
    place = row["question_id"], row["solution"], row.get("suite")
    parts = row["reward_parts"]
    replayed = [verdict["verdict"] for verdict in row["history"]] if row["player"] == "code" else parts["validity"]
    return *place, row["token_ids"], row["log_probs"], replayed, row["reward"], row["advantage"]


def of_solutions(solutions: list[minimal.Solution]) -> list[tuple]:
    found = []
    for solution in solutions:
        for sample in (solution, *solution.suites):
            n, replayed = None, [verdict.value for verdict in solution.history]
            if isinstance(sample, minimal.Suite):
                n, replayed = sample.sample.index % minimal.NUM_SUITES, sample.validity
            place = solution.question.id, solution.sample.index, n
            drawn = list(sample.sample.token_ids), sample.sample.log_probs.tolist()
            found.append((*place, *drawn, replayed, sample.reward, sample.advantage))
    return found


def test_one_file_plays_the_steps_of_a_run(
    micro_config: ConfigDict,
    scripted_answers: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    same_game(micro_config)
    train(micro_config, tmp_path / "run")
    capsys.readouterr()

    played, books, play = [], [], minimal.play

    def kept(*arguments) -> list[minimal.Solution]:
        played.append(play(*arguments))
        books.append(deepcopy(arguments[4]))
        return played[-1]

    monkeypatch.setattr(minimal, "play", kept)
    for name, value in {"CODE": LEARNER, "TEST": LEARNER, "NUM_QUESTIONS": QUESTIONS, "NUM_LOADED": QUESTIONS}.items():
        monkeypatch.setattr(minimal, name, value)
    minimal.run(micro_config.code.model, "procedural", micro_config.data.folder, STEPS, micro_config.seed)
    assert len(capsys.readouterr().out.splitlines()) == STEPS

    folder = RunFolder.existing(str(tmp_path / "run"))
    for step, (solutions, book) in enumerate(zip(played, books, strict=True), 1):
        # Equal tokens and log-probs after the first step say that both made the same updates.
        assert of_solutions(solutions) == [of_row(row) for row in Samples(folder).read(step)]
        pages = read_shards(folder.checkpoints / str(step) / "book") if step > 1 else {}
        for id, page in pages.items():
            assert [(entry.test, entry.frequency) for entry in page.entries.values()] == list(book[id].items())
        assert step == 1 or {id for id in book if book[id]} == set(pages)
    # And something happened: some were paid more than others, by new and by replayed tests.
    samples = [each for solutions in played for solution in solutions for each in (solution, *solution.suites)]
    assert len({each.reward for each in samples}) > 4
    assert {verdict.value for each in played[1] for verdict in each.history} == {"pass", "fail"}
    assert any(each.advantage for each in played[1])


def made_up(rng: Random, replayed: list[CallTest]) -> minimal.Solution:
    """A solution of a question q, of any verdicts on replayed tests and on those of its suites."""

    def verdicts(tests: list[CallTest]) -> list[Verdict]:
        kinds = [each for each in Verdict if each is not Verdict.INFRA]
        return rng.choices(kinds, [15 if each is Verdict.PASS else 1 for each in kinds], k=len(tests))

    question = Question("q", None, "", "", "", "f")
    solution = minimal.Solution(question, None, "", replayed, verdicts(replayed), is_valid=rng.random() < 0.8)
    for _ in range(minimal.NUM_SUITES):
        parsed = ParsedSuite((), fenced=True, nonprintable_ratio=rng.choice([0.0, 0.1]))
        tests = [make(n) for n in rng.sample(range(12), rng.randint(0, 6))]
        solution.suites.append(minimal.Suite(None, parsed, tests, verdicts(tests), num_invalid=rng.randint(0, 5)))
    return solution


def test_rewards_advantages_and_book_are_those_of_their_rooms_whatever_the_verdicts():
    rng, reward = Random(0), OfficialReward(minimal.ALPHA, minimal.NUM_TESTS)
    book, known, taken_out = Counter(), MistakeBook(reference_ties=True), 0
    for step in range(200):
        book = Counter(dict(book.most_common()))  # part 1 of `play`
        replayed = list(book)[: minimal.NUM_REPLAYED]
        assert replayed == known.retrieve("q", minimal.NUM_REPLAYED)
        solutions = [made_up(rng, replayed) for _ in range(minimal.NUM_SOLUTIONS)]
        for solution in solutions:
            suites = [
                SuiteOutcome(tuple(suite.verdicts), suite.num_invalid, suite.parsed.nonprintable_ratio)
                for suite in solution.suites
            ]
            outcome = SolutionOutcome(solution.is_valid, tuple(suites), tuple(solution.history))
            assert minimal.code_reward(solution) == reward.code_reward(outcome).total
            for suite, expected in zip(solution.suites, suites, strict=True):
                suite.reward, paid = minimal.test_reward(suite, solution), reward.test_reward(outcome, expected)
                assert (suite.reward, suite.validity) == (paid.total, paid.validity)
            solution.suites[0].reward = rng.choice([solution.suites[0].reward, None])
            minimal.compare(solution.suites)
            rewards = [suite.reward for suite in solution.suites]
            assert [suite.advantage for suite in solution.suites] == list(grpo_advantages(rewards, [0] * len(rewards)))
        with_replayed = [(each.replayed, each.history) for each in solutions if each.is_valid]
        with_new = [(suite.tests, suite.verdicts) for each in solutions if each.is_valid for suite in each.suites]
        passed, failed, failed_new = (
            [[test for test, verdict in zip(*ran, strict=True) if verdict in wanted] for ran in all_ran]
            for all_ran, wanted in ((with_replayed, {Verdict.PASS}), (with_replayed, FAILED), (with_new, FAILED))
        )
        taken_out += known.update("q", "", step, Evidence(failed_new, passed, failed)).removed
        book = minimal.update_book(book, solutions)
        pages = known.pages()
        assert list(book.items()) == [(entry.test, entry.frequency) for entry in pages["q"].entries.values()]
    assert taken_out > 50


def test_one_file_stands_on_its_own():
    source = (ROOT / "codea1" / "lab" / "minimal.py").read_text()
    assert len(source.splitlines()) <= 313
    for part in ("training", "game.round", "game.rewards", "game.mistake_book"):
        assert f"codea1.{part}" not in source.partition('"""\n')[2]
