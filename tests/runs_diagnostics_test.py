"""Diagnostics of a step, against what a person counts."""

import math

from codea1.runs.diagnostics import diagnose


def suite(solution: int, *asserts: tuple[str | None, str, str, str | None], tokens: int = 10) -> dict:
    names = ("call", "mark", "detail", "verdict")
    return {
        "player": "test",
        "question_id": "q",
        "solution": solution,
        "token_ids": list(range(tokens)),
        "asserts": [dict(zip(names, each, strict=True)) for each in asserts],
    }


ROWS = [
    {"player": "code"},
    suite(0, ("f(1)", "right", "", "pass"), ("f(2)", "wrong answer", "", "fail"), (None, "dropped", "", None)),
    suite(0, ("f(1)", "right", "", "error"), ("f(3)", "unusable", "disagrees", None), tokens=30),
    suite(1, ("f(1)", "right", "", "timeout"), ("f(2)", "wrong answer", "", "timeout"), tokens=20),
    suite(1, ("f(4)", "right", "", "not_run"), tokens=0),
    suite(2),
]


def test_shares_are_those_that_are_counted_by_hand():
    assert diagnose(ROWS) == {
        "asserts": 8 / 5,
        "suite_tokens": 70 / 5,
        "distinct_calls": (3 / 4 + 3 / 3) / 2,
        "wrong_answers": 2 / 6,
        "unstable_truths": 1 / 7,
        "kills_by_error": 1 / 4,
        "kills_by_timeout": 2 / 4,
        "not_run": 1 / 6,
    }


def test_a_policy_that_runs_only_right_tests_hides_no_wrong_answer():
    strict = suite(
        0,
        ("f(1)", "right", "", "pass"),
        ("f(2)", "wrong answer", "", None),
        ("f(3)", "wrong answer", "", None),
        ("f(4)", "unusable", "disagrees", None),
        ("f(5)", "rejected", "not ==", None),
        ("f(6)", "surplus", "", None),
    )
    found = diagnose([strict])
    assert found["wrong_answers"] == 2 / 3
    assert found["unstable_truths"] == 1 / 4


def test_of_nothing_there_is_no_share():
    assert all(math.isnan(value) for value in diagnose([{"player": "code"}]).values())
