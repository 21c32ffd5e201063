"""Warnings of what went wrong with learning, and silence where nothing did."""

import numpy as np
import pytest

from codea1.evaluation import health

STEPS = 60


def rows(**changed: np.ndarray) -> list[dict]:
    """A healthy run, noisy, with metrics in its place; names have __ for the slash."""
    rng = np.random.default_rng(0)

    def noisy(first: float, last: float) -> np.ndarray:
        return np.linspace(first, last, STEPS) * rng.normal(1, 0.02, STEPS)

    series = {"test__validity": noisy(0.6, 0.7), "test__hidden_kill_rate": noisy(0.1, 0.5)}
    for player in ("code", "test"):
        series |= {
            f"{player}__reward": noisy(0.3, 0.5),
            f"{player}__skipped": np.zeros(STEPS),
            f"{player}__entropy": noisy(0.5, 0.2),
            f"{player}__kl_ref": noisy(0.01, 0.5),
            f"{player}__approx_kl": noisy(0.001, 0.002),
            f"{player}__group_zero_std_frac": noisy(0.2, 0.5),
        }
    series |= changed
    found = [
        {"step": step + 1} | {name.replace("__", "/"): series[name][step] for name in series} for step in range(STEPS)
    ]
    before = {"step": 0, "validation/code_pass_at_1": 0.2, "validation/test_mul": 0.1}
    found[-1] |= {"validation/code_pass_at_1": 0.3, "validation/test_mul": 0.3}
    return [before, *found]


def warnings(found: list[dict]) -> list[str]:
    return list(health.warnings(found).values())


def ramp(first: float, last: float) -> np.ndarray:
    return np.linspace(first, last, STEPS)


def test_a_healthy_run_is_not_warned_of():
    assert warnings(rows()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"code__skipped": 2 * np.eye(STEPS)[3]}, "Code LLM: its update was skipped in 1 of 60 steps"),
        ({"test__critic_skipped": np.eye(STEPS)[3] / 2}, "Test LLM: its critic's update was skipped in 1 of 60 steps"),
        (
            {"code__update_norm": 1e15 * np.eye(STEPS)[3], "code__param_norm": ramp(50.0, 1e15)},
            "Code LLM: an update of norm 1e+15 destroyed its parameters, of norm 50",
        ),
        ({"test__entropy": ramp(1.0, 0.001)}, "Test LLM: its entropy collapsed, from"),
        ({"code__entropy": ramp(0.2, 1.5)}, "Code LLM: its entropy exploded, from"),
        ({"test__kl_ref": ramp(0.0, 8.0)}, "Test LLM: it has left the policy it started from: KL"),
        ({"code__approx_kl": np.full(STEPS, 0.2)}, "Code LLM: its steps go far: KL 0.2"),
        ({"test__group_zero_std_frac": ramp(0.1, 1.0)}, "of its groups have equal rewards"),
        ({"test__hidden_kill_rate": ramp(0.3, 0.1)}, "Test LLM: its tests get weaker: test/validity rises"),
    ],
)
def test_each_rule_warns_by_itself(changed, said):
    (warning,) = warnings(rows(**changed))
    assert said in warning


def test_a_player_whose_reward_and_validation_do_not_rise_does_not_learn():
    found = rows(code__reward=ramp(0.5, 0.4))
    assert warnings(found) == []  # its tests may have become harder: validation says that it learns
    found[-1]["validation/code_pass_at_1"] = 0.15
    assert warnings(found) == [
        "Code LLM: it does not learn: neither its reward nor validation/code_pass_at_1 "
        "(0.2 at first, 0.15 at last) rises."
    ]


def test_a_frozen_player_need_not_learn():
    found = rows(test__reward=np.full(STEPS, 0.3))
    found[-1]["validation/test_mul"] = 0.1
    assert any("does not learn" in warning for warning in warnings(found))
    of_frozen = [{name: value for name, value in row.items() if name != "test/skipped"} for row in found]
    assert warnings(of_frozen) == []


def test_values_that_are_missing_or_not_finite_are_left_out():
    found = rows()
    for row in found[5:9]:
        row["code/entropy"] = None
        del row["test/validity"]
    assert warnings(found) == []
    assert warnings(found[:20]) == []


def test_a_skipped_step_is_told_of_at_once():
    found = rows(code__skipped=np.eye(STEPS)[1])
    assert warnings(found[:2]) == []
    assert "skipped" in warnings(found[:3])[0]
