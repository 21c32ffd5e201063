"""How both players do on questions that training never sees.

The Code LLM is judged by the questions' own check scripts, the Test LLM by known near-miss mutants of their ground
truths: it is shown a mutant as the program to break. Every draw has a key of its own that does not depend on how far
training has come, so two evaluations of one run differ by what was learned and as little as possible by luck.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codea1.benchmarks.intervals import bootstrap_interval
from codea1.benchmarks.pass_at_k import pass_at_k
from codea1.game.answers import ParsedSuite, extract_program, parse_suite
from codea1.game.ground_truth import MarkedAssert
from codea1.game.prompts import PromptTemplates, code_messages, test_messages
from codea1.game.question import Question
from codea1.game.rewards import FAILED, OfficialPolicy, StrictPolicy
from codea1.player import Player
from codea1.rollout.engine import Request
from codea1.sandbox.grading import Grader
from codea1.sandbox.verdict import Verdict

PerQuestion = dict[str, list]  # metric name to one value per question: a share, or a pair of shares to be multiplied


@dataclass(frozen=True)
class HeldOut:
    """A set of questions and how they are asked."""

    questions: Sequence[Question]
    templates: PromptTemplates
    num_tests: int  # K: asserts asked for in a suite
    samples: int  # solutions per question at temperature 1
    shown_mutants: int  # programs per question that the Test LLM is asked to break
    purpose: str  # names the random stream


def evaluate(held_out: HeldOut, players: Mapping[str, Player], grader: Grader) -> PerQuestion:
    """Returns every metric of the players there are, one value per question in the order of the questions."""
    measured = evaluate_code(held_out, players["code"], grader)
    if "test" in players and any(question.mutants for question in held_out.questions):
        measured |= evaluate_tests(held_out, players["test"], grader)
    return measured


def summary(measured: PerQuestion, step: int, split: str) -> dict[str, Any]:
    """The evaluation as it is written and read: means with 95 % bootstrap intervals over questions."""
    metrics = {
        name: {**bootstrap_interval(values)._asdict(), "per_question": values} for name, values in measured.items()
    }
    questions = len(next(iter(measured.values())))
    return {"step": step, "split": split, "questions": questions, "metrics": metrics}


def evaluate_code(held_out: HeldOut, player: Player, grader: Grader) -> PerQuestion:
    """Returns pass@1 and unbiased pass@k at temperature 1, and pass@1 of the greedy answer, per question."""
    sampled = _passes(held_out, player, grader, held_out.samples, temperature=1.0)
    greedy = _passes(held_out, player, grader, 1, temperature=0.0)
    result: PerQuestion = {
        "code_pass_at_1": sampled.mean(axis=1).tolist(),
        "code_pass_at_1_greedy": greedy[:, 0].tolist(),
    }
    if held_out.samples > 1:
        k = held_out.samples // 2
        result[f"code_pass_at_{k}"] = [pass_at_k(held_out.samples, int(passes.sum()), k) for passes in sampled]
    return result


def evaluate_tests(held_out: HeldOut, player: Player, grader: Grader) -> PerQuestion:
    """Returns what suites written against mutants are worth, per question, on average over the mutants shown.

    `test_validity`: right tests among the K asked for, over K. `test_mutation_score`: share of all the question's
    mutants that fail a usable test of the suite, its answers replaced by the ground truth's; `_at_1` looks at the first
    usable test alone. `test_strict_kill`: whether the mutant shown fails a right test. `test_mul`: validity times
    mutation score, as a pair, because it is the product of the two means over questions.
    """
    suites = _suites(held_out, player)
    answers = [
        {call: grader.ground_truth(question.ground_truth, [call]) for call in official.calls(parsed)}
        for official in [OfficialPolicy(alpha=0.0, num_tests=held_out.num_tests)]
        for question, _, parsed in suites
    ]
    scores = [
        _score_suite(held_out.num_tests, grader, question, shown, parsed, {c: f.result()[0] for c, f in known.items()})
        for (question, shown, parsed), known in zip(suites, answers, strict=True)
    ]
    result: PerQuestion = {name: [] for name in scores[0]}
    for question in held_out.questions:
        rows = [score for (asked, _, _), score in zip(suites, scores, strict=True) if asked.id == question.id]
        for name, values in result.items():
            values.append(float(np.mean([row[name] for row in rows])) if rows else float("nan"))
    result["test_mul"] = [
        list(pair) for pair in zip(result["test_validity"], result["test_mutation_score"], strict=True)
    ]
    return result


def _passes(held_out: HeldOut, player: Player, grader: Grader, samples: int, temperature: float) -> np.ndarray:
    """Bool [questions, samples]: the solution passes the check script. A question that does not fit is not passed."""
    requests = []
    for question in held_out.questions:
        prompt_ids = player.prompt_ids(code_messages(held_out.templates, question))
        if player.fits(prompt_ids):
            requests.append(Request(question.id, prompt_ids, first_sample=0, num_samples=samples))
    by_id = {question.id: (row, question) for row, question in enumerate(held_out.questions)}
    pending = {}
    for sample in player.generate(requests, step=0, temperature=temperature, purpose=held_out.purpose):
        row, question = by_id[sample.question_id]
        program = extract_program(player.tokenizer.decode(sample.token_ids)).source
        pending[row, sample.index] = grader.check(program, question.check_script, question.entry_point)
    passed = np.zeros((len(held_out.questions), samples), bool)
    for place, future in pending.items():
        passed[place] = future.result().verdict is Verdict.PASS
    return passed


def _suites(held_out: HeldOut, player: Player) -> list[tuple[Question, str, ParsedSuite]]:
    """One suite for each of the first mutants of each question, with the mutant it was asked to break."""
    requests, asked = [], {}
    for question in held_out.questions:
        for index, mutant in enumerate(question.mutants[: held_out.shown_mutants]):
            prompt_ids = player.prompt_ids(test_messages(held_out.templates, question, mutant, held_out.num_tests))
            asked[question.id, index] = (question, mutant, parse_suite("", question.entry_point))
            if player.fits(prompt_ids):
                requests.append(Request(question.id, prompt_ids, first_sample=index, num_samples=1))
    for sample in player.generate(requests, step=0, temperature=1.0, purpose=held_out.purpose):
        question, mutant, _ = asked[sample.question_id, sample.index]
        text = player.tokenizer.decode(sample.token_ids)
        asked[sample.question_id, sample.index] = (question, mutant, parse_suite(text, question.entry_point))
    return list(asked.values())


def _score_suite(
    num_tests: int, grader: Grader, question: Question, shown: str, parsed: ParsedSuite, answers: dict
) -> dict[str, float]:
    right = _tests(StrictPolicy(alpha=0.0, num_tests=num_tests).mark(parsed, answers))
    usable = _tests(OfficialPolicy(alpha=0.0, num_tests=num_tests).mark(parsed, answers))[:num_tests]
    strict = grader.grade(shown, right)
    kills = [grader.grade(mutant, usable) for mutant in question.mutants]
    verdicts = [future.result().verdicts for future in kills]
    return {
        "test_validity": len(right) / num_tests,
        "test_mutation_score": float(np.mean([_killed(row) for row in verdicts])),
        "test_mutation_score_at_1": float(np.mean([_killed(row[:1]) for row in verdicts])),
        "test_strict_kill": float(_killed(strict.result().verdicts)),
    }


def _tests(marked: Sequence[MarkedAssert]) -> list:
    return [item.test for item in marked if item.kept]


def _killed(verdicts: Sequence[Verdict]) -> bool:
    return any(verdict in FAILED for verdict in verdicts)
