"""Warns of what went wrong with a run's learning, by the rules of docs/metrics.md, but for reward hacking.

A rule looks at the means of the tenths of the steps. A rise or a fall is a change (`statistics.change`) whose interval
leaves out 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from codea1.evaluation.statistics import MIN_STEPS, change, tenths

COLLAPSED, EXPLODED = 0.1, 3.0  # entropy, of its first tenth
MOST_KL = 5.0  # to the policy at the start
MOST_OLD_KL = 0.1  # to the policy before the step
MOST_EQUAL_GROUPS = 0.8

_OF_A_PLAYER = "reward skipped critic_skipped update_norm param_norm entropy kl_ref approx_kl group_zero_std_frac"
READ = frozenset(  # the metrics that rules read
    f"{part}/{name}"
    for part, names in (
        *(("code", _OF_A_PLAYER), ("test", f"{_OF_A_PLAYER} validity hidden_kill_rate adversarial")),
        ("validation", "code_pass_at_1 test_mul"),
    )
    for name in names.split()
)
_Series = Mapping[str, np.ndarray]  # the values in step order of each metric in READ; empty where it has none


def warnings(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns a sentence for each rule that a run breaks, by player and rule; most say nothing before MIN_STEPS steps.

    Args:
      rows: of metrics.jsonl in step order, READ of them at least; None is a value that was not finite.
    """
    series = {name: np.array([row[name] for row in rows if row.get(name) is not None]) for name in READ}
    warned: dict[str, str] = {}
    for player, title in (("code", "Code LLM"), ("test", "Test LLM")):
        for rule in (_skipped, _explodes, _entropy, _kl_to_start, _kl_to_old, _equal_groups, _flat):
            warned |= {f"{player}{rule.__name__}": f"{title}: {sentence}" for sentence in rule(player, series)}
    return warned | dict(zip(["weaker_tests"], _weaker_tests(series), strict=False))


def _skipped(player: str, series: _Series) -> Iterator[str]:
    for name, whose in (("skipped", "its"), ("critic_skipped", "its critic's")):
        values = series[f"{player}/{name}"]
        if count := np.count_nonzero(values):
            yield (
                f"{whose} update was skipped in {count} of {len(values)} steps, because gradients, or the parameters "
                "that they lead to, were not finite."
            )
            return


def _explodes(player: str, series: _Series) -> Iterator[str]:
    updates, params = (series[f"{player}/{name}"] for name in ("update_norm", "param_norm"))
    if len(updates) and len(params) and updates.max() > params[0]:
        yield f"an update of norm {updates.max():.3g} destroyed its parameters, of norm {params[0]:.3g} at first."


def _entropy(player: str, series: _Series) -> Iterator[str]:
    for first, last in _ends(f"{player}/entropy", series):
        if last < COLLAPSED * first:
            yield f"its entropy collapsed, from {first:.3g} to {last:.3g} nats per token: it repeats itself."
        elif last > EXPLODED * first:
            yield f"its entropy exploded, from {first:.3g} to {last:.3g} nats per token: it forgets how to answer."


def _kl_to_start(player: str, series: _Series) -> Iterator[str]:
    for _, last in _ends(f"{player}/kl_ref", series):
        if last > MOST_KL:
            yield f"it has left the policy it started from: KL {last:.3g} nats per token. Raise its kl_coefficient."


def _kl_to_old(player: str, series: _Series) -> Iterator[str]:
    highest = max(_tenths(f"{player}/approx_kl", series), default=0.0)
    if highest > MOST_OLD_KL:
        yield f"its steps go far: KL {highest:.3g} to the policy before the step. Lower its learning rate."


def _equal_groups(player: str, series: _Series) -> Iterator[str]:
    for _, last in _ends(f"{player}/group_zero_std_frac", series):
        if last > MOST_EQUAL_GROUPS:
            yield f"{last:.0%} of its groups have equal rewards and teach nothing."


def _flat(player: str, series: _Series) -> Iterator[str]:
    learns = len(series[f"{player}/skipped"]) > 0
    held_out = {"code": "code_pass_at_1", "test": "test_mul"}[player]
    rewards, measured = (series[name] for name in (f"{player}/reward", f"validation/{held_out}"))
    if not learns or len(rewards) < MIN_STEPS or len(measured) < 2:
        return
    if change(rewards).low <= 0 and measured[-1] <= measured[0]:
        yield (
            f"it does not learn: neither its reward nor validation/{held_out} ({measured[0]:.3g} at first, "
            f"{measured[-1]:.3g} at last) rises."
        )


def _weaker_tests(series: _Series) -> Iterator[str]:
    kills = "test/hidden_kill_rate" if len(series["test/hidden_kill_rate"]) else "test/adversarial"
    sides = [series[name] for name in ("test/validity", kills)]
    if min(map(len, sides)) >= MIN_STEPS and change(sides[0]).low > 0 and change(sides[1]).high < 0:
        (first, last), (strong, weak) = (tenths(side)[[0, -1]] for side in sides)
        yield (
            f"Test LLM: its tests get weaker: test/validity rises, {first:.3f} → {last:.3f}, and {kills} falls, "
            f"{strong:.3f} → {weak:.3f}. It may be learning to write right tests of nothing."
        )


def _tenths(name: str, series: _Series) -> np.ndarray:
    values = series[name]
    return tenths(values) if len(values) >= MIN_STEPS else np.zeros(0)


def _ends(name: str, series: _Series) -> Iterator[tuple[float, float]]:
    means = _tenths(name, series)
    if len(means):
        yield means[0], means[-1]
