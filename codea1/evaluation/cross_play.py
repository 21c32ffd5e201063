"""Code LLMs of one time against Test LLMs of another: who is ahead of whom, and who has only followed the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from codea1.evaluation.held_out import HeldOut, PerQuestion, check_programs, evaluate_tests
from codea1.game.answers import extract_program
from codea1.game.prompts import code_messages
from codea1.players.player import Player
from codea1.rollout.engine import Request
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host.grading import Grader

Players = Mapping[str, Player]  # by role


def cross_play(
    held_out: HeldOut, steps: Sequence[int], players_of: Callable[[int], Players], grader: Grader, hosts: Hosts
) -> PerQuestion:
    """Has each Code LLM write one program per question, and each Test LLM one suite for each of those programs.

    Args:
      held_out: the questions; their mutants play no part.
      steps: at which the players are taken.
      players_of: the players of a step, which stay so until it is called again.
      grader: judges.
      hosts: which share the judging; every host makes the same calls and returns the same.

    Returns:
      Per question: `code_pass_at_1_step_I`, whether the program of step I passes the question's check script;
      `kill_code_I_test_J`, whether it fails a right test of step J, and `validity_code_I_test_J`, right tests over
      those asked for. A question that does not fit into the Code LLM's prompt has an empty program, which fails its
      check and every right test. NaN where the sandbox failed.

    Raises BadInput as `require_judged` does.
    """
    measured: PerQuestion = {}
    programs: dict[int, dict[str, str]] = {}
    for step in steps:
        programs[step] = _programs(held_out, players_of(step)["code"])
        placed = [((row, 0), programs[step][question.id]) for row, question in enumerate(held_out.questions)]
        checked = check_programs(held_out, placed, grader, hosts)
        measured[f"code_pass_at_1_step_{step}"] = [passed for _, passed in checked]
    for test_step in steps:
        test = players_of(test_step)["test"]
        for code_step in steps:
            scores = evaluate_tests(_against(held_out, programs[code_step]), test, grader, hosts)
            measured[f"kill_code_{code_step}_test_{test_step}"] = scores["test_strict_kill"]
            measured[f"validity_code_{code_step}_test_{test_step}"] = scores["test_validity"]
    return measured


def matrix(metrics: Mapping[str, Mapping[str, Any]], kind: str, steps: Sequence[int]) -> np.ndarray:
    """Returns the means of `kind`, "kill" or "validity", as [steps of the Code LLM, steps of the Test LLM]."""
    return np.array([[metrics[f"{kind}_code_{code}_test_{test}"]["mean"] for test in steps] for code in steps], float)


def _programs(held_out: HeldOut, code: Player) -> dict[str, str]:
    """Returns one program per question, by its id; an empty one where the prompt does not fit."""
    asked = {q.id: code.prompt_ids(code_messages(held_out.templates, q)) for q in held_out.questions}
    requests = [Request(id, prompt, first_sample=0, num_samples=1) for id, prompt in asked.items() if code.fits(prompt)]
    samples = code.generate(requests, step=0, temperature=1.0, purpose=held_out.purpose, role="code")
    written = {sample.question_id: code.tokenizer.decode(sample.token_ids) for sample in samples}
    return {id: extract_program(written.get(id, "")).source for id in asked}


def _against(held_out: HeldOut, programs: Mapping[str, str]) -> HeldOut:
    """Returns the same questions, whose one mutant is the program given."""
    questions = [replace(question, mutants=(programs[question.id],)) for question in held_out.questions]
    return replace(held_out, questions=questions, shown_mutants=1)
