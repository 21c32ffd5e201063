"""What the suites of a step are like, told from its samples."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from codea1.game.asserts import Mark
from codea1.game.outcomes import FAILED
from codea1.values.verdict import Verdict

_NOT_ASKED = (Mark.REJECTED, Mark.DROPPED, Mark.SURPLUS)  # of the ground truth, by the reward that marked


def diagnose(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Returns what the suites of a step are like, as shares, counts and lengths.

    Args:
      rows: of `codea1.runs.samples.Samples`; those of the Code LLM say nothing here.

    Returns:
      asserts: mean number in a suite.
      suite_tokens: mean length of a suite.
      distinct_calls: different calls that the suites of one solution make, over all that they make, averaged over
        solutions; 1 where no two asserts test the same.
      wrong_answers: of the asserts to whose call the ground truth has an answer, each call once in a suite, those that
        state another: label noise of the Test LLM, which the reward has corrected or dropped.
      unstable_truths: of the asserts whose call the ground truth was asked, those on which its runs disagree:
        label noise of the data set.
      kills_by_error, kills_by_timeout: of the asserts that a program failed, those in which it raised or ran too long.
      not_run: of the asserts that were to run on a program, those whose turn never came.
      NaN where there was nothing to take a share of.
    """
    suites = [row for row in rows if row["player"] == "test"]
    asserts = [item for suite in suites for item in suite["asserts"]]
    asked = [item for item in asserts if item["mark"] not in _NOT_ASKED]
    answered = [item["mark"] for item in asked if item["mark"] in (Mark.RIGHT, Mark.WRONG_ANSWER)]
    run = [item for item in asked if item["verdict"] is not None]
    kills = [item["verdict"] for item in run if item["verdict"] in FAILED]
    return {
        "asserts": _share(len(asserts), len(suites)),
        "suite_tokens": _share(sum(len(suite["token_ids"]) for suite in suites), len(suites)),
        "distinct_calls": _distinct_calls(suites),
        "wrong_answers": _share(answered.count(Mark.WRONG_ANSWER), len(answered)),
        "unstable_truths": _share(sum(item["detail"] in ("disagrees", "set order") for item in asked), len(asked)),
        "kills_by_error": _share(kills.count(Verdict.ERROR), len(kills)),
        "kills_by_timeout": _share(kills.count(Verdict.TIMEOUT), len(kills)),
        "not_run": _share(sum(item["verdict"] == Verdict.NOT_RUN for item in run), len(run)),
    }


def _distinct_calls(suites: Iterable[Mapping[str, Any]]) -> float:
    calls: dict[tuple[str, int], list[str]] = {}
    for suite in suites:
        made = [item["call"] for item in suite["asserts"] if item["call"] is not None]
        calls.setdefault((suite["question_id"], suite["solution"]), []).extend(made)
    shares = [len(set(made)) / len(made) for made in calls.values() if made]
    return _share(sum(shares), len(shares))


def _share(part: float, whole: int) -> float:
    return part / whole if whole else math.nan
