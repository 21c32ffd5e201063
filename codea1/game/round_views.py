"""Views of a Round: a JSON row for each sample of either player, and the metrics of the step."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from codea1.game.calls import Call, source_of, write_test
from codea1.game.marks import Mark, MarkedAssert
from codea1.game.rewards import FAILED, MASK_REASONS, killed, mean
from codea1.game.round import GradedTest, Round, SampleRecord, SolutionRecord, SuiteRecord
from codea1.values import decode_exact
from codea1.values.verdict import Verdict

MAX_SHOWN_BYTES = 10_000  # of an encoded value; larger ones are shown by their size

Row = dict[str, Any]


def rows(round_: Round) -> Iterator[Row]:
    """Yields JSON-serialisable rows, each solution followed by its suites.

    Common fields: step, player ("code" or "test"), question_id, solution (m), prompt, prompt_ids, text, token_ids,
    log_probs, finish_reason, checkpoint (the step of the past player that sampled it; None for the current one), reward
    (None when masked), masked (why), reward_parts, shaped_reward, advantage, selected. Code rows add program, fenced,
    program_valid, test_prompt_fits, history and golden; test rows add suite (n), fenced and asserts.
    """
    for question in round_.questions:
        for solution in question.solutions:
            head = {
                "step": round_.step,
                "player": "code",
                "question_id": question.question.id,
                "solution": solution.index,
            }
            yield {
                **head,
                **_sample(solution.sample),
                "program": solution.program.source,
                "fenced": solution.program.fenced,
                "program_valid": solution.program_valid,
                "test_prompt_fits": solution.test_prompt_fits,
                "history": [_graded_test(graded) for graded in solution.history],
                "golden": [_graded_test(graded) for graded in solution.golden],
                **_reward(solution),
            }
            for suite in solution.suites:
                verdicts = iter(suite.verdicts)
                yield {
                    **head,
                    "player": "test",
                    "suite": suite.index,
                    **_sample(suite.sample),
                    "fenced": suite.parsed.fenced,
                    "asserts": [_assert(item, next(verdicts) if item.runs else None) for item in suite.marked],
                    **_reward(suite),
                }


def _sample(sample: SampleRecord) -> Row:
    return {
        "prompt": sample.prompt,
        "prompt_ids": [int(token) for token in sample.prompt_ids],
        "text": sample.text,
        "token_ids": [int(token) for token in sample.token_ids],
        "log_probs": [float(value) for value in sample.log_probs],
        "finish_reason": sample.finish_reason,
        "checkpoint": sample.checkpoint,
    }


def _reward(record: SolutionRecord | SuiteRecord) -> Row:
    parts = asdict(record.reward) if record.reward else {"total": None, "masked": ""}
    parts.pop("terms", None)
    return {
        "reward": parts.pop("total"),
        "masked": parts.pop("masked"),
        "reward_parts": parts,
        "shaped_reward": record.shaped_reward,
        "advantage": record.advantage,
        "selected": record.selected,
    }


def _assert(item: MarkedAssert, verdict: Verdict | None) -> Row:
    return {
        "source": item.parsed.source,
        "call": None if item.parsed.call is None else _shown_call(item.parsed.call),
        "form": "" if item.parsed.call is None else item.parsed.call.form,
        "mark": item.mark.value,
        "detail": item.detail,
        "truth": None if item.truth is None else _shown(item.truth),
        "verdict": None if verdict is None else verdict.value,
    }


def _graded_test(graded: GradedTest) -> Row:
    call = graded.test.call
    source = write_test(_shown_call(call), _shown(graded.test.expected), call.form)
    return {"test": source, "verdict": graded.verdict.value}


def _shown_call(call: Call) -> str:
    if len(call.arguments) > MAX_SHOWN_BYTES:
        return f"{call.function}(<{len(call.arguments)} bytes>)"
    return call.text


def _shown(value: bytes) -> str:
    return source_of(decode_exact(value)) if len(value) <= MAX_SHOWN_BYTES else f"<{len(value)} bytes>"


def statistics(round_: Round) -> dict[str, float]:
    """Returns the metrics of a Round whose rewards are in, by name.

    A mean or share over nothing is left out; counts are always there. Shares and rates lie in [0, 1]. Masked rewards
    count in no mean, and a past player's samples in none of its role.
    """
    solutions = [solution for group in round_.code_groups() for solution in group]
    pairs = [(s, suite) for s in round_.solutions for suite in s.suites if suite.sample.checkpoint is None]
    suites = [suite for _, suite in pairs]
    num_too_long = sum(not solution.test_prompt_fits for solution in round_.solutions)
    paid = [solution.reward for solution in solutions if solution.reward and not solution.masked]
    metrics = {
        "code/pass_rate_new": mean(reward.generated_pass_rate for reward in paid),
        "code/pass_rate_history": mean(reward.history_pass_rate for reward in paid),
        "code/pass_rate_golden": mean(reward.golden_pass_rate for reward in paid),
        "code/program_valid": mean(solution.program_valid for solution in solutions),
        "code/hidden_pass_rate": mean(solution.passes_check for solution in solutions),
        **_samples("code", solutions, [s.program.fenced for s in solutions]),
    }
    if suites or num_too_long:
        metrics |= {**_suites(pairs), **_samples("test", suites, [s.parsed.fenced for s in suites])}
        metrics["test/prompt_too_long"] = float(num_too_long)
    selected = [[suite for suite in group if suite.selected] for group in round_.test_groups()]
    verdicts = Counter(
        run.verdict
        for solution in round_.solutions
        for run in [*solution.history, *solution.golden, *(run for suite in solution.suites for run in suite.graded)]
    )
    metrics |= {
        "code/questions": float(len(round_.questions)),
        "code/questions_that_teach": float(sum(q.rewards_differ for q in round_.questions if q.is_current)),
        "code/prompt_too_long": float(sum(not question.solutions for question in round_.questions)),
        "code/group_zero_std_frac": _zero_std_share(round_.code_groups()),
        "test/group_zero_std_frac": _zero_std_share(selected),
        **{f"verdict/{verdict.value}": _share(verdicts[verdict], verdicts.total()) for verdict in Verdict},
        "book/added": float(round_.book_change.added),
        "book/removed": float(round_.book_change.removed),
        "book/evicted": float(round_.book_change.evicted),
        "book/size": float(round_.book_size),
    }
    return {name: value for name, value in metrics.items() if value is not None}


def _suites(pairs: Sequence[tuple[SolutionRecord, SuiteRecord]]) -> dict[str, float | None]:
    """Returns the metrics of suites alone, each with its solution."""
    suites = [suite for _, suite in pairs]
    paid = [suite.reward for suite in suites if suite.reward and not suite.masked]
    marks = Counter(item.mark for suite in suites for item in suite.marked)
    # On a program that cannot be loaded every test fails, which says nothing about the tests.
    judged = [suite for solution, suite in pairs if solution.program_valid]
    of_wrong = [suite for solution, suite in pairs if solution.program_valid and solution.passes_check is False]
    kills_of_right_tests = [killed(ran) for suite in suites for ran in zip(*suite.on_hidden, strict=True)]
    runs = Counter(verdict for suite in judged for verdict in suite.verdicts)
    written = marks.total() - marks[Mark.DROPPED] - marks[Mark.SURPLUS]
    num_killed = sum(runs[verdict] for verdict in FAILED)
    return {
        "test/validity": mean(reward.validity for reward in paid),
        "test/adversarial": mean(reward.adversarial for reward in paid),
        "test/hidden_kill_rate": mean(mean(suite.hidden_kills) for suite in suites),
        "test/own_kill_rate": mean(None if Verdict.INFRA in suite.verdicts else suite.exposes for suite in of_wrong),
        "test/trivial_rate": mean(None if kills is None else not kills for kills in kills_of_right_tests),
        "test/kill_rate": _share(num_killed, num_killed + runs[Verdict.PASS]),
        "test/answer_mismatch_rate": _share(marks[Mark.WRONG_ANSWER], marks[Mark.WRONG_ANSWER] + marks[Mark.RIGHT]),
        "test/duplicate_rate": _share(marks[Mark.DUPLICATE], written),
        "test/rejected_rate": _share(marks[Mark.REJECTED], written),
        "test/suite_tests": mean(len(suite.parsed.asserts) for suite in suites),
    }


def _samples(
    player: str, records: Sequence[SolutionRecord] | Sequence[SuiteRecord], fenced: Sequence[bool]
) -> dict[str, float | None]:
    """Returns the metrics that both players' samples have."""
    totals = [record.total for record in records if record.total is not None]
    reasons = Counter(record.reward.masked for record in records if record.masked and record.reward)
    return {
        f"{player}/reward": mean(totals),
        f"{player}/reward_std": float(np.std(totals)) if totals else None,
        f"{player}/response_tokens": mean(len(record.sample.token_ids) for record in records),
        f"{player}/truncated_frac": mean(record.sample.finish_reason == "length" for record in records),
        f"{player}/no_code_block_frac": mean(not found for found in fenced),
        **{f"{player}/masked_{reason.replace(' ', '_')}": float(reasons[reason]) for reason in MASK_REASONS},
    }


def _zero_std_share(groups: Iterable[Sequence[SolutionRecord] | Sequence[SuiteRecord]]) -> float | None:
    """Returns the share of groups that teach nothing, because all of their rewards are equal."""
    totals = [[record.total for record in group if record.total is not None] for group in groups]
    return mean(min(group) == max(group) for group in totals if group)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
