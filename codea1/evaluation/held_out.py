"""How both players do on questions that training never sees.

The Code LLM is judged by the questions' own check scripts, the Test LLM by known near-miss mutants of their ground
truths: it is shown a mutant as the program to break. Every draw has a key of its own that does not depend on how far
training has come, so two evaluations of one run differ by what was learned and as little as possible by luck.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from codea1.evaluation.result_files import PerQuestion
from codea1.evaluation.statistics import pass_at_k
from codea1.game.answers import ParsedSuite, extract_program, parse_suite
from codea1.game.asserts import tests_of
from codea1.game.grading import Judge
from codea1.game.methods import Rules
from codea1.game.outcomes import killed
from codea1.game.prompts import code_messages, test_messages
from codea1.game.question import Question
from codea1.game.rewards import INFRA, OfficialReward, StrictReward
from codea1.players.player import Player
from codea1.rollout.engine import Request
from codea1.runtime.futures import Awaiting, every, start
from codea1.runtime.hosts import Hosts, Shares
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import LOST, Grader, require_judged, why_unjudged
from codea1.values.verdict import Verdict

SuiteScores = dict[str, float]  # of one suite, by metric
TEST_METRICS = ("test_validity", "test_mutation_score", "test_mutation_score_at_1", "test_strict_kill")


@dataclass(frozen=True)
class HeldOut:
    """A set of questions and how they are asked."""

    questions: Sequence[Question]
    rules: Rules  # of the run: its prompts, and how many asserts a suite is asked for
    samples: int  # solutions per question at temperature 1
    shown_mutants: int  # programs per question that the Test LLM is asked to break
    purpose: str  # names the random stream


def evaluate(held_out: HeldOut, players: Mapping[str, Player], grader: Grader, hosts: Hosts) -> PerQuestion:
    """Returns every metric of the roles that `players` has, one value per question in the order of the questions.

    Of the Code LLM these are pass@1 and unbiased pass@k at temperature 1, and pass@1 of the greedy answer; NaN where
    the sandbox failed on one of the question's programs. Every host asks everything, judges its share of the questions,
    and returns the same.
    """
    sampled = passes(held_out, players["code"], grader, hosts, held_out.samples, temperature=1.0)
    greedy = passes(held_out, players["code"], grader, hosts, 1, temperature=0.0)
    measured: PerQuestion = {"code_pass_at_1": sampled.mean(axis=1).tolist()}
    measured["code_pass_at_1_greedy"] = greedy[:, 0].tolist()
    if held_out.samples > 1:
        k = held_out.samples // 2
        measured[f"code_pass_at_{k}"] = [pass_at_k(passes, k) for passes in sampled]
    if "test" in players and any(question.mutants for question in held_out.questions):
        measured |= evaluate_tests(held_out, players["test"], grader, hosts)
    return measured


def evaluate_tests(held_out: HeldOut, player: Player, grader: Grader, hosts: Hosts) -> PerQuestion:
    """Returns what suites written against mutants are worth, per question, on average over the mutants shown.

    `test_validity`: right tests among the K asked for, over K. `test_mutation_score`: share of all the question's
    mutants that fail a usable test of the suite, its answers replaced by the ground truth's; `_at_1` looks at the first
    usable test alone. `test_strict_kill`: whether the program shown fails a right test. `test_mul`: validity times
    mutation score, as a pair, because it is the product of the two means over questions. A prompt that does not fit
    counts as an empty suite. NaN where the sandbox failed on the question, nothing was shown, or there is no mutant to
    score. Raises BadInput as `require_judged` does.
    """
    scores: dict[str, list[SuiteScores]] = {question.id: [] for question in held_out.questions}
    shares = Shares(hosts, list(scores))
    suites = _suites(held_out, player)
    for place, (question, shown, parsed) in enumerate(suites):
        score = _score_suite(held_out.rules.num_tests, Judge(question, grader), shown, parsed)
        shares.add((question.id, place), partial(start, score))
    scored = shares.collect()
    for place, (question, _, _) in enumerate(suites):
        scores[question.id].append(scored[question.id, place][0])
    with hosts.agreed():
        require_judged([lost for _, lost in scored.values()], f"suites for the {held_out.purpose} questions")
    result: PerQuestion = {
        name: [_mean([score[name] for score in rows]) for rows in scores.values()] for name in TEST_METRICS
    }
    factors = zip(result["test_validity"], result["test_mutation_score"], strict=True)
    return {**result, "test_mul": [list(pair) for pair in factors]}


def passes(
    held_out: HeldOut, player: Player, grader: Grader, hosts: Hosts, samples: int, temperature: float
) -> np.ndarray:
    """Returns float64 [questions, samples]: 1 where a program passes its check script, else 0; NaN: the sandbox failed.

    A question that does not fit is not passed. Raises BadInput as `require_judged` does.
    """
    row_of = {question.id: row for row, question in enumerate(held_out.questions)}
    requests = [
        Request(question.id, prompt, first_sample=0, num_samples=samples)
        for question in held_out.questions
        if player.fits(prompt := player.prompt_ids(code_messages(held_out.rules.templates, question)))
    ]
    shares = Shares(hosts, list(row_of))
    for sample in player.generate(requests, stream=f"code/{held_out.purpose}", temperature=temperature):
        question = held_out.questions[row_of[sample.question_id]]
        program = extract_program(player.tokenizer.decode(sample.token_ids), question.entry_point).source
        shares.add((question.id, sample.index), partial(Judge(question, grader).check, program))
    runs: dict[tuple, ScriptRun] = shares.collect()
    with hosts.agreed():
        require_judged(list(map(why_unjudged, runs.values())), f"programs for the {held_out.purpose} questions")
    passes = np.zeros((len(row_of), samples))
    for (id, index), run in runs.items():
        passes[row_of[id], index] = math.nan if run.verdict is Verdict.INFRA else run.verdict is Verdict.PASS
    return passes


def _suites(held_out: HeldOut, player: Player) -> list[tuple[Question, str, ParsedSuite]]:
    """Returns one suite for each of the first mutants of each question, with the mutant that it was asked to break."""
    requests, asked, rules = [], {}, held_out.rules
    for question in held_out.questions:
        for index, program in enumerate(question.mutants[: held_out.shown_mutants]):
            shown = program if rules.method.sees_solution else None
            prompt_ids = player.prompt_ids(test_messages(rules.templates, question, shown, rules.num_tests))
            asked[question.id, index] = question, program
            if player.fits(prompt_ids):
                requests.append(Request(question.id, prompt_ids, first_sample=index, num_samples=1))
    samples = player.generate(requests, stream=f"test/{held_out.purpose}", temperature=1.0)
    texts = {(sample.question_id, sample.index): player.tokenizer.decode(sample.token_ids) for sample in samples}
    return [
        (question, program, parse_suite(texts.get(key, ""), question.entry_point, all_forms=rules.all_forms))
        for key, (question, program) in asked.items()
    ]


def _score_suite(num_tests: int, judge: Judge, shown: str, parsed: ParsedSuite) -> Awaiting[tuple[SuiteScores, str]]:
    """Returns what one suite is worth, and why the sandbox failed on it; empty where it did not.

    The ground truth answers first, and then all programs run at once.
    """
    strict, official = StrictReward(alpha=0.0, num_tests=num_tests), OfficialReward(alpha=0.0, num_tests=num_tests)
    question = judge.question
    answers = yield from judge.answers(official.calls(parsed))
    right = tests_of(strict.mark(parsed, answers, strict.signature(question)))
    usable = tests_of(official.mark(parsed, answers, official.signature(question)))[:num_tests]
    lost = LOST if any(answer.reason == INFRA for answer in answers.values()) else ""
    runs = [judge.grade(shown, right), *(judge.grade(mutant, usable) for mutant in question.mutants)]
    gradings = yield from every(runs)
    of_shown, *verdicts = [grading.verdicts for grading in gradings]
    reason = next(filter(None, [lost, *(grading.lost for grading in gradings)]), "")
    if lost or any(Verdict.INFRA in row for row in [of_shown, *verdicts]):
        return dict.fromkeys(TEST_METRICS, math.nan), reason
    scores = {
        "test_validity": len(right) / num_tests,
        "test_mutation_score": _mean([killed(row) is True for row in verdicts]),
        "test_mutation_score_at_1": _mean([killed(row[:1]) is True for row in verdicts]),
        "test_strict_kill": float(killed(of_shown) is True),
    }
    return scores, reason


def _mean(values: Sequence[float]) -> float:
    """Returns the mean; NaN of nothing."""
    return float(np.mean(values)) if values else math.nan
