"""Whether a run fits into the memory of its chips, and what to change where it does not."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from codea1.aot.report import Report, Row

MOST = 0.92  # of HBM: the rest is for the runtime, fragments and what is in flight


@dataclass(frozen=True)
class Verdict:
    """Of one report."""

    fits: bool
    worst: Row
    share: float  # of HBM, at the worst program
    advice: list[str]

    def __str__(self) -> str:
        said = "fits" if self.fits else "OUT OF MEMORY"
        where = f"{self.worst.player}: {self.worst.name}"
        return f"{said}: at most {self.share:.0%} of HBM, in {where}; the limit is {MOST:.0%}"


def verdict(report: Report) -> Verdict:
    """The largest program decides; one that the compiler refuses does not fit whatever else there is."""
    worst = max(report.rows, key=lambda row: (bool(row.compilation.refusal), row.peak))
    share = worst.peak / report.hbm
    fits = not worst.compilation.refusal and share <= MOST
    return Verdict(fits, worst, share, [] if fits else _advice(report, worst))


def _advice(report: Report, worst: Row) -> list[str]:
    always = sum(size for name, size in report.residents.items() if not _by_turns(name))
    limit = MOST * report.hbm
    if always > limit:
        chips = math.ceil(always * report.chips / limit)
        return [
            f"References, parameters and optimizers alone take {always / 2**30:.1f} GiB of each chip: "
            f"use a slice of {chips} such chips or more, or of chips with more memory; "
            "config.model.offload_moments keeps moments on the hosts."
        ]
    excess = worst.peak - limit
    return _less_rollout(report, worst, excess) if worst.phase == "rollout" else _less_learning(report)


def _less_rollout(report: Report, worst: Row, excess: float) -> list[str]:
    data_parallel, slots = report.mesh["replica"] * report.mesh["fsdp"], report.settings["rollout.slots"]
    cache = report.residents[f"{worst.player}: cache of slots"] + report.residents[f"{worst.player}: cache of prompts"]
    fewer = int(slots * (1 - 1.1 * excess / cache) / data_parallel) * data_parallel
    advice = []
    if fewer > 0:
        advice.append(f"config.rollout.slots is {slots}: try {fewer}.")
    advice.append(
        "A larger config.mesh.tensor (it must divide the KV heads) cuts published weights and caches further."
    )
    advice.append(f"config.{worst.player}.max_prompt_length and max_response_length decide the length of the cache.")
    return advice


def _less_learning(report: Report) -> list[str]:
    data_parallel, settings = report.mesh["replica"] * report.mesh["fsdp"], report.settings
    advice = []
    for player in report.models:
        rows = settings[f"{player}.micro_batch_size"]
        if rows > data_parallel:
            advice.append(f"config.{player}.micro_batch_size is {rows}: {data_parallel} is the least on this mesh.")
    if settings["model.remat"] != "full":
        advice.append(f"config.model.remat is {settings['model.remat']!r}: 'full' keeps the least.")
    chunk = settings["model.log_prob_chunk"]
    advice.append(f"config.model.log_prob_chunk is {chunk}: {chunk // 2} halves the logits that are alive at once.")
    advice.append("A larger config.mesh.tensor (it must divide the KV heads) cuts activations and logits.")
    return advice


def _by_turns(resident: str) -> bool:
    by_turns = ("published weights", "cache of slots", "cache of prompts", "micro-batches", "moments from the host")
    return resident.endswith(by_turns)


def shares(report: Report) -> Mapping[str, float]:
    """The largest share of HBM in each phase."""
    phases: dict[str, float] = {}
    for row in report.rows:
        phases[row.phase] = max(phases.get(row.phase, 0.0), row.peak / report.hbm)
    return phases
