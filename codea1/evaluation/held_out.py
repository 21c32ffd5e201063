"""How both players do on questions that training never sees.

The Code LLM is judged by the questions' own check scripts, the Test LLM by known near-miss mutants of their ground
truths: it is shown a mutant as the program to break. Every draw has a key of its own that does not depend on how far
training has come, so two evaluations of one run differ by what was learned and as little as possible by luck.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from codea1.evaluation.statistics import bootstrap_interval, pass_at_k_of
from codea1.game.answers import ParsedSuite, extract_program, parse_suite
from codea1.game.ground_truth import MarkedAssert
from codea1.game.methods import Rules
from codea1.game.prompts import PromptTemplates, code_messages, test_messages
from codea1.game.question import Question
from codea1.game.rewards import FAILED, INFRA, OfficialReward, StrictReward
from codea1.game.tests import Test
from codea1.players.player import Player
from codea1.rollout.engine import Request
from codea1.runtime.futures import Steps, every, run
from codea1.runtime.hosts import Hosts
from codea1.runtime.shares import Shares
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import LOST, Grader, Grading, require_judged, why_unjudged
from codea1.values.verdict import Verdict

Scores = dict[str, float]  # of one suite, by metric
PerQuestion = dict[str, list]  # metric name to one value per question: a share, or a pair of shares to be multiplied
TEST_METRICS = ("test_validity", "test_mutation_score", "test_mutation_score_at_1", "test_strict_kill")


@dataclass(frozen=True)
class HeldOut:
    """A set of questions and how they are asked."""

    questions: Sequence[Question]
    templates: PromptTemplates
    sees_solution: bool  # the Test LLM is shown the program that it is asked to break
    num_tests: int  # K: asserts asked for in a suite
    samples: int  # solutions per question at temperature 1
    shown_mutants: int  # programs per question that the Test LLM is asked to break
    purpose: str  # names the random stream

    @classmethod
    def of_config(
        cls, config: ConfigDict, rules: Rules, split: str, questions: Sequence[Question], samples: int
    ) -> "HeldOut":
        """Asks as a run asks its "validation" or "test" questions: `samples` solutions each at temperature 1."""
        return cls(
            questions=questions,
            templates=rules.templates,
            sees_solution=rules.method.sees_solution,
            num_tests=rules.num_tests,
            samples=samples,
            shown_mutants=config.validation.shown_mutants,
            purpose=split,
        )


def evaluate(held_out: HeldOut, players: Mapping[str, Player], grader: Grader, hosts: Hosts) -> PerQuestion:
    """Returns every metric of the roles that `players` has, one value per question in the order of the questions.

    Every host asks everything, judges its share of the questions, and returns the same.
    """
    measured = evaluate_code(held_out, players["code"], grader, hosts)
    if "test" in players and any(question.mutants for question in held_out.questions):
        measured |= evaluate_tests(held_out, players["test"], grader, hosts)
    return measured


def summary(measured: PerQuestion, step: int, split: str, question_ids: Sequence[str]) -> dict[str, Any]:
    """Returns the evaluation as it is written and read: means with 95 % bootstrap intervals over questions.

    `question_ids` are those of every list in `measured`, by which evaluations are compared.
    """
    metrics = {
        name: {**bootstrap_interval(values)._asdict(), "per_question": values} for name, values in measured.items()
    }
    ids = list(question_ids)
    return {"step": step, "split": split, "questions": len(ids), "question_ids": ids, "metrics": metrics}


def evaluate_code(held_out: HeldOut, player: Player, grader: Grader, hosts: Hosts) -> PerQuestion:
    """Returns pass@1 and unbiased pass@k at temperature 1, and pass@1 of the greedy answer, per question.

    NaN where the sandbox failed on one of the question's programs. Raises BadInput as `require_judged` does.
    """
    sampled = _passes(held_out, player, grader, hosts, held_out.samples, temperature=1.0)
    greedy = _passes(held_out, player, grader, hosts, 1, temperature=0.0)
    result: PerQuestion = {"code_pass_at_1": sampled.mean(axis=1).tolist()}
    result["code_pass_at_1_greedy"] = greedy[:, 0].tolist()
    if held_out.samples > 1:
        k = held_out.samples // 2
        result[f"code_pass_at_{k}"] = [pass_at_k_of(passes, k) for passes in sampled]
    return result


def evaluate_tests(held_out: HeldOut, player: Player, grader: Grader, hosts: Hosts) -> PerQuestion:
    """Returns what suites written against mutants are worth, per question, on average over the mutants shown.

    `test_validity`: right tests among the K asked for, over K. `test_mutation_score`: share of all the question's
    mutants that fail a usable test of the suite, its answers replaced by the ground truth's; `_at_1` looks at the first
    usable test alone. `test_strict_kill`: whether the mutant shown fails a right test. `test_mul`: validity times
    mutation score, as a pair, because it is the product of the two means over questions. A prompt that does not fit
    counts as an empty suite. NaN where the sandbox failed on the question, or it has no mutants. Raises BadInput as
    `require_judged` does.
    """
    scores: dict[str, list[Scores]] = {question.id: [] for question in held_out.questions}
    shares = Shares(hosts, list(scores))
    suites = _suites(held_out, player)
    for question, shown, parsed in suites:
        shares.add(question.id, partial(run, _score_suite(held_out.num_tests, grader, question, shown, parsed)))
    scored = shares.collect()
    with hosts.agreed():
        require_judged([lost for _, lost in scored], f"suites for the {held_out.purpose} questions")
    for (question, _, _), (score, _) in zip(suites, scored, strict=True):
        scores[question.id].append(score)
    result: PerQuestion = {
        name: [float(np.mean([score[name] for score in rows])) if rows else math.nan for rows in scores.values()]
        for name in TEST_METRICS
    }
    factors = zip(result["test_validity"], result["test_mutation_score"], strict=True)
    return {**result, "test_mul": [list(pair) for pair in factors]}


def _passes(
    held_out: HeldOut, player: Player, grader: Grader, hosts: Hosts, samples: int, temperature: float
) -> np.ndarray:
    """Float64 [questions, samples]: 1 for a pass, 0 for none, NaN where the sandbox failed.

    A question that does not fit is not passed.
    """
    requests = []
    for question in held_out.questions:
        prompt_ids = player.prompt_ids(code_messages(held_out.templates, question))
        if player.fits(prompt_ids):
            requests.append(Request(question.id, prompt_ids, first_sample=0, num_samples=samples))
    row_of = {question.id: row for row, question in enumerate(held_out.questions)}

    def programs() -> Iterator[tuple[tuple[int, int], str]]:
        for sample in player.generate(requests, step=0, temperature=temperature, purpose=held_out.purpose, role="code"):
            program = extract_program(player.tokenizer.decode(sample.token_ids)).source
            yield (row_of[sample.question_id], sample.index), program

    passes = np.zeros((len(held_out.questions), samples))
    for place, passed in check_programs(held_out, programs(), grader, hosts):
        passes[place] = passed
    return passes


def check_programs(
    held_out: HeldOut, programs: Iterable[tuple[tuple[int, int], str]], grader: Grader, hosts: Hosts
) -> list[tuple[tuple[int, int], float]]:
    """Runs check scripts against programs, each given with its place: its question's number first.

    Returns each place with 1 for a pass, 0 for none and NaN where the sandbox failed. Raises BadInput as
    `require_judged` does.
    """
    shares, places = Shares(hosts, [question.id for question in held_out.questions]), []
    for place, program in programs:
        question = held_out.questions[place[0]]
        shares.add(question.id, partial(grader.check, program, question.check_script, question.entry_point))
        places.append(place)
    runs: list[ScriptRun] = shares.collect()
    with hosts.agreed():
        require_judged(list(map(why_unjudged, runs)), f"programs for the {held_out.purpose} questions")
    passed = [math.nan if each.verdict is Verdict.INFRA else float(each.verdict is Verdict.PASS) for each in runs]
    return list(zip(places, passed, strict=True))


def _suites(held_out: HeldOut, player: Player) -> list[tuple[Question, str, ParsedSuite]]:
    """Returns one suite for each of the first mutants of each question, with the mutant it was asked to break."""
    requests, asked = [], {}
    for question in held_out.questions:
        for index, mutant in enumerate(question.mutants[: held_out.shown_mutants]):
            program = mutant if held_out.sees_solution else None
            prompt_ids = player.prompt_ids(test_messages(held_out.templates, question, program, held_out.num_tests))
            asked[question.id, index] = (question, mutant, parse_suite("", question.entry_point))
            if player.fits(prompt_ids):
                requests.append(Request(question.id, prompt_ids, first_sample=index, num_samples=1))
    for sample in player.generate(requests, step=0, temperature=1.0, purpose=held_out.purpose, role="test"):
        question, mutant, _ = asked[sample.question_id, sample.index]
        text = player.tokenizer.decode(sample.token_ids)
        asked[sample.question_id, sample.index] = (question, mutant, parse_suite(text, question.entry_point))
    return list(asked.values())


def _score_suite(
    num_tests: int, grader: Grader, question: Question, shown: str, parsed: ParsedSuite
) -> Steps[tuple[Scores, str]]:
    """Returns what one suite is worth, and why the sandbox failed on it; empty where it did not.

    The ground truth answers first, and then all programs run at once.
    """
    strict, official = StrictReward(alpha=0.0, num_tests=num_tests), OfficialReward(alpha=0.0, num_tests=num_tests)
    calls = official.calls(parsed)
    answers = yield grader.ground_truth(question.ground_truth, calls)
    known = dict(zip(calls, answers, strict=True))
    right = _tests(strict.mark(parsed, known, strict.signature(question)))
    usable = _tests(official.mark(parsed, known, official.signature(question)))[:num_tests]
    lost = LOST if any(answer.reason == INFRA for answer in answers) else ""
    runs = [grader.grade(shown, right), *(grader.grade(mutant, usable) for mutant in question.mutants)]
    return _score(len(right) / num_tests, lost, (yield from every(runs)))


def _score(validity: float, lost: str, runs: Sequence[Grading]) -> tuple[Scores, str]:
    """Scores from the runs of the right tests on the mutant shown and then of the usable tests on every mutant.

    `lost` is why the sandbox failed on the ground truth, which is returned, or else why on these runs.
    """
    strict, *verdicts = [grading.verdicts for grading in runs]
    reason = next(filter(None, [lost, *(grading.lost for grading in runs)]), "")
    if lost or any(Verdict.INFRA in row for row in [strict, *verdicts]):
        return dict.fromkeys(TEST_METRICS, math.nan), reason
    scores = {
        "test_validity": validity,
        "test_mutation_score": float(np.mean([_killed(row) for row in verdicts])),
        "test_mutation_score_at_1": float(np.mean([_killed(row[:1]) for row in verdicts])),
        "test_strict_kill": float(_killed(strict)),
    }
    return scores, reason


def _tests(marked: Sequence[MarkedAssert]) -> list[Test]:
    return [item.test for item in marked if item.kept]


def _killed(verdicts: Sequence[Verdict]) -> bool:
    return any(verdict in FAILED for verdict in verdicts)
