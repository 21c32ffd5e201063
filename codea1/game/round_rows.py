"""A Round as JSON rows, one per sample of either player: what `explain` shows and an analyst reads."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from codea1.game.ground_truth import MarkedAssert
from codea1.game.rewards import CodeReward, TestReward
from codea1.game.round import GradedTest, QuestionRecord, Round, SampleRecord, SolutionRecord, SuiteRecord
from codea1.game.tests import Call, Test, source_of
from codea1.values import decode_exact
from codea1.values.verdict import Verdict

MAX_SHOWN_BYTES = 10_000  # of an encoded value; larger ones are shown by their size

Row = dict[str, Any]


def rows(round_: Round) -> Iterator[Row]:
    """Yields JSON-serialisable rows, each solution followed by its suites.

    Common fields: step, player ("code" or "test"), question_id, solution (m), prompt, prompt_ids, text, token_ids,
    log_probs, finish_reason, reward (None when masked), masked (why), reward_parts, shaped_reward, advantage, selected.
    Code rows add program, fenced, program_valid, test_prompt_fits, history and golden; test rows add suite (n), fenced
    and asserts.
    """
    for question in round_.questions:
        for solution in question.solutions:
            yield _code_row(round_, question, solution)
            for suite in solution.suites:
                yield _test_row(round_, question, solution, suite)


def _code_row(round_: Round, question: QuestionRecord, solution: SolutionRecord) -> Row:
    return {
        **_head(round_, "code", question, solution),
        **_sample(solution.sample),
        "program": solution.program.source,
        "fenced": solution.program.fenced,
        "program_valid": solution.program_valid,
        "test_prompt_fits": solution.test_prompt_fits,
        "history": [_graded_test(graded) for graded in solution.history],
        "golden": [_graded_test(graded) for graded in solution.golden],
        **_reward(solution.reward),
        "shaped_reward": solution.shaped_reward,
        "advantage": solution.advantage,
        "selected": solution.selected,
    }


def _test_row(round_: Round, question: QuestionRecord, solution: SolutionRecord, suite: SuiteRecord) -> Row:
    verdicts = iter(suite.verdicts)
    return {
        **_head(round_, "test", question, solution),
        "suite": suite.index,
        **_sample(suite.sample),
        "fenced": suite.parsed.fenced,
        "asserts": [_assert(item, next(verdicts) if item.kept else None) for item in suite.marked],
        **_reward(suite.reward),
        "shaped_reward": suite.shaped_reward,
        "advantage": suite.advantage,
        "selected": suite.selected,
    }


def _head(round_: Round, player: str, question: QuestionRecord, solution: SolutionRecord) -> Row:
    return {
        "step": round_.step,
        "player": player,
        "question_id": question.question.id,
        "solution": solution.index,
    }


def _sample(sample: SampleRecord) -> Row:
    return {
        "prompt": sample.prompt,
        "prompt_ids": [int(token) for token in sample.prompt_ids],
        "text": sample.text,
        "token_ids": [int(token) for token in sample.token_ids],
        "log_probs": [float(value) for value in sample.log_probs],
        "finish_reason": sample.finish_reason,
    }


def _reward(reward: CodeReward | TestReward | None) -> Row:
    parts = asdict(reward) if reward else {"total": None, "masked": ""}
    return {"reward": parts.pop("total"), "masked": parts.pop("masked"), "reward_parts": parts}


def _assert(item: MarkedAssert, verdict: Verdict | None) -> Row:
    return {
        "source": item.parsed.source,
        "call": None if item.parsed.call is None else _shown_call(item.parsed.call),
        "mark": item.mark.value,
        "detail": item.detail,
        "truth": None if item.truth is None else _shown(item.truth),
        "verdict": None if verdict is None else verdict.value,
    }


def _graded_test(graded: GradedTest) -> Row:
    return {"test": _shown_test(graded.test), "verdict": graded.verdict.value}


def _shown_test(test: Test) -> str:
    return f"assert {_shown_call(test.call)} == {_shown(test.expected)}"


def _shown_call(call: Call) -> str:
    if len(call.arguments) > MAX_SHOWN_BYTES:
        return f"{call.entry_point}(<{len(call.arguments)} bytes>)"
    return call.text


def _shown(value: bytes) -> str:
    return source_of(decode_exact(value)) if len(value) <= MAX_SHOWN_BYTES else f"<{len(value)} bytes>"
