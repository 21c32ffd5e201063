"""A Round in numbers: the metrics of one step of the game."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from codea1.game.ground_truth import Mark
from codea1.game.rewards import FAILED, MASK_REASONS
from codea1.game.round import Round, SolutionRecord, SuiteRecord
from codea1.values.verdict import Verdict


def statistics(round_: Round) -> dict[str, float]:
    """Returns the metrics of a Round whose rewards are in, by name.

    A mean or share over nothing is left out; counts are always there. Shares and rates lie in [0, 1]. Masked rewards
    count in no mean.
    """
    solutions, suites = list(round_.solutions), list(round_.suites)
    metrics = {**_code(solutions), **_samples("code", solutions, [s.program.fenced for s in solutions])}
    if suites or any(not solution.test_prompt_fits for solution in solutions):
        metrics |= {**_test(solutions), **_samples("test", suites, [s.parsed.fenced for s in suites])}
        metrics["test/prompt_too_long"] = float(sum(not solution.test_prompt_fits for solution in solutions))
    metrics["code/questions"] = float(len(round_.questions))
    metrics["code/questions_that_teach"] = float(sum(q.tells_solutions_apart for q in round_.questions))
    metrics["code/prompt_too_long"] = float(sum(not question.solutions for question in round_.questions))
    metrics["code/group_zero_std_frac"] = _zero_std_share(round_.code_groups())
    metrics["test/group_zero_std_frac"] = _zero_std_share(
        [[suite for suite in group if suite.selected] for group in round_.test_groups()]
    )
    metrics |= _verdict_shares(solutions)
    metrics |= {
        "book/added": float(round_.book_change.added),
        "book/removed": float(round_.book_change.removed),
        "book/evicted": float(round_.book_change.evicted),
        "book/size": float(round_.book_size),
    }
    return {name: value for name, value in metrics.items() if value is not None}


def _code(solutions: Sequence[SolutionRecord]) -> dict[str, float | None]:
    paid = [solution.reward for solution in solutions if not solution.masked]
    return {
        "code/pass_rate_new": _mean(reward.generated_pass_rate for reward in paid),
        "code/pass_rate_history": _mean(reward.history_pass_rate for reward in paid),
        "code/pass_rate_golden": _mean(reward.golden_pass_rate for reward in paid),
        "code/program_valid": _mean(solution.program_valid for solution in solutions),
    }


def _test(solutions: Sequence[SolutionRecord]) -> dict[str, float | None]:
    suites = [suite for solution in solutions for suite in solution.suites]
    paid = [suite.reward for suite in suites if not suite.masked]
    marks = Counter(item.mark for suite in suites for item in suite.marked)
    # On a program that cannot be loaded every test fails, which says nothing about the tests.
    judged = [suite for solution in solutions if solution.program_valid for suite in solution.suites]
    runs = Counter(verdict for suite in judged for verdict in suite.verdicts)
    written = marks.total() - marks[Mark.DROPPED] - marks[Mark.SURPLUS]
    killed = sum(runs[verdict] for verdict in FAILED)
    return {
        "test/validity": _mean(reward.validity for reward in paid),
        "test/adversarial": _mean(reward.adversarial for reward in paid),
        "test/kill_rate": _share(killed, killed + runs[Verdict.PASS]),
        "test/answer_mismatch_rate": _share(marks[Mark.WRONG_ANSWER], marks[Mark.WRONG_ANSWER] + marks[Mark.RIGHT]),
        "test/duplicate_rate": _share(marks[Mark.DUPLICATE], written),
        "test/rejected_rate": _share(marks[Mark.REJECTED], written),
        "test/suite_tests": _mean(len(suite.parsed.asserts) for suite in suites),
    }


def _samples(
    player: str, records: Sequence[SolutionRecord] | Sequence[SuiteRecord], fenced: Sequence[bool]
) -> dict[str, float | None]:
    """What both players' samples have in common."""
    totals = [record.reward.total for record in records if not record.masked]
    reasons = Counter(record.reward.masked for record in records if record.masked and record.reward)
    return {
        f"{player}/reward": _mean(totals),
        f"{player}/reward_std": float(np.std(totals)) if totals else None,
        f"{player}/response_tokens": _mean(len(record.sample.token_ids) for record in records),
        f"{player}/truncated_frac": _mean(record.sample.finish_reason == "length" for record in records),
        f"{player}/no_code_block_frac": _mean(not found for found in fenced),
        **{f"{player}/masked_{reason.replace(' ', '_')}": float(reasons[reason]) for reason in MASK_REASONS},
    }


def _zero_std_share(groups: Iterable[Sequence[SolutionRecord] | Sequence[SuiteRecord]]) -> float | None:
    """The share of groups that teach nothing, because all of their rewards are equal."""
    totals = [[record.reward.total for record in group if not record.masked] for group in groups]
    return _mean(min(group) == max(group) for group in totals if group)


def _verdict_shares(solutions: Sequence[SolutionRecord]) -> dict[str, float]:
    """How often each verdict was given, over fresh, replayed and golden tests on every program."""
    verdicts = Counter(
        run.verdict
        for solution in solutions
        for run in [*solution.history, *solution.golden, *(run for suite in solution.suites for run in suite.graded)]
    )
    return {f"verdict/{verdict.value}": _share(verdicts[verdict], verdicts.total()) for verdict in Verdict}


def _mean(values: Iterable[float | None]) -> float | None:
    there = [float(value) for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
