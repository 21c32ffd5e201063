"""The report on one config and one slice: memory and collectives of each function, and whether the run fits.

Printed on the terminal, written as JSON, and several together as Markdown.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

from ml_collections import ConfigDict
from rich.console import Console

from codea1.game.methods import METHODS
from codea1.lab.aot.compilation import CompilerResult, ResultCache, compile_lowered, fingerprint
from codea1.lab.aot.jobs import Compilation, Plan, largest, models, plan
from codea1.lab.aot.kernels import bundles
from codea1.lab.aot.roofline import estimate
from codea1.lab.aot.step_time import SampledLengths, drawn_lengths, simulate
from codea1.lab.aot.topology import Topology
from codea1.lab.aot.work import CHIPS, Chip, num_weights
from codea1.lab.report.tables import TextTable
from codea1.sharding import device_mesh
from codea1.slices import split

# Error bounds of the estimated step time: of the compiler's cycles, relative, and of the host's CPU time, a factor.
# Both are guesses: no pod was measured.
CYCLES_WITHIN, HOST_WITHIN = 0.2, 2.0
MOST = 0.92  # of HBM: the rest is for the runtime, fragments and what is in flight

_SETTINGS = (
    "questions_per_step",
    "game.num_solutions",
    "game.num_suites",
    "rollout.slots",
    "rollout.cache_gib",
    "model.remat",
    "model.log_prob_chunk",
)
_SETTINGS_OF_PLAYERS = ("micro_batch_size", "max_prompt_length", "max_response_length")
_BY_TURNS = ("published weights", "pages of keys and values", "past weights", "micro-batches", "moments from the host")
_COLUMNS = (
    *("function", "arguments", "aliased", "temporaries", "beside", "peak", "of HBM"),
    *("collectives", "ms", "compiled in"),
)
_PHASES = ("phase", "least s", "s", "of it kernels", "collectives", "calls")
_SUMMARY = (
    *("config", "slice", "fsdp x tensor", "functions", "learn", "rollout"),
    *("verdict", "least step", "step", "tokens/s/chip"),
)
_INTRODUCTION = """# Shipped configs as the TPU compiler sees them

Written by `python -m codea1.compile_tpu --all --functions=largest`, or with `all` functions, to
compiled/pods_compiled.md. It shows each compiled function as libtpu makes it for the chips of its config's slice. The
machine that compiles has no such chips: nothing here ran on a TPU.

- Bytes are of one chip. *Arguments* are what a function is given. *Aliased* is what of it the results are written over.
  *Temporaries* are what it needs on the way.
- *Beside* is all else that is in memory in its phase: both players' references, parameters and moments. While one
  generates, its published weights and caches count too; while one learns, its micro-batches.
- *Peak* is the sum, with the results that are written over nothing. It must stay below 92 % of the memory that the
  compiler lets functions use.
- *Collectives* are instructions and the size of their results. One inside a loop counts once.
- *ms* is what one call takes by the compiler's own estimates in cycles, or one turn of a loop over tokens. What the
  compiler does not estimate is priced by bytes over 70 % of a bandwidth, as if it hid behind nothing. That is the
  memory's for Pallas kernels and native scatters, the links' for collectives, of which each takes 12 us more to begin.
  What goes to other slices is priced by half of the network's bandwidth, and 500 us each to begin. Several slices
  decode a fixed number of steps in a call, and *ms* is of all of them.
- *Compiled in* is wall time on a busy machine with two cores. It says how long a sweep takes, not more.
- *Least step* is a roofline: hand-counted arithmetic, memory and link traffic at the chips' peak, perfectly overlapped.
  It is for the mean lengths that are named, which are assumptions.
- *Step*, where all functions were compiled, is the run's own scheduler and batching on a clock that moves by *ms*, for
  lengths that are drawn. Stragglers, prompts prefilled again and padding are in it. So is attention, by the bundles of
  its kernels' schedules: the pages and blocks that it reads, each at the longer of its bundles and its bytes. *Host* is
  what the engine's own code takes between chunks, measured on the machine that compiles. What the host does with
  finished samples and the end of the sandbox's work are not in it.
- *Functions* are `all`, or `largest`: the one of each kind with the most in memory. It has the longest rows, the most
  slots, prompts and positions. Players of one model share it.
"""


@dataclass(frozen=True)
class Row:
    """One function; bytes are of one chip."""

    player: str
    phase: str
    kind: str
    name: str
    beside: int  # what else is in memory
    result: CompilerResult

    @property
    def peak(self) -> int:
        """All that is in memory while it runs."""
        return self.beside + self.result.peak_bytes


@dataclass(frozen=True)
class Report:
    """Everything that is shown, as plain data."""

    config: str
    topology: str
    chips: int
    mesh: Mapping[str, int]
    hbm: int  # bytes of a chip that may be used
    models: Mapping[str, str]  # of each player, where its shape is known from
    settings: Mapping[str, Any]  # of the config, that decide memory
    residents: Mapping[str, int]
    selection: str  # which functions were compiled
    rows: list[Row]
    estimate: Mapping[str, Any]  # `codea1.lab.aot.roofline.Roofline`
    time: "StepTime | None"  # None where not all functions were compiled

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Returns the report of which `content` is the `dataclasses.asdict`."""
        rows = [Row(**row | {"result": CompilerResult.from_json(row["result"])}) for row in content["rows"]]
        return cls(**content | {"rows": rows, "time": content["time"] and StepTime(**content["time"])})


@dataclass(frozen=True)
class StepTime:
    """The time of a step by compiled cycles."""

    lengths: str  # of prompts and responses, as `drawn_lengths` takes them
    seconds: float
    range: Sequence[float]  # from least to most, by CYCLES_WITHIN and HOST_WITHIN
    tokens_per_second_per_chip: float  # of responses
    utilisation: Mapping[str, float]  # 6 N D / peak of the update, by player
    phases: Sequence[Mapping[str, Any]]  # name, calls, and seconds by what they are priced from


def report(
    name: str,
    config: ConfigDict,
    topology: Topology,
    cache: ResultCache,
    selection: str = "all",
    watch: Callable[[Compilation, int, int], None] = lambda job, number, total: None,
    lengths: str = "lognormal",
) -> Report:
    """Compiles the functions of a config for a slice, where the cache does not know the result.

    Args:
      selection: "largest" is the largest function of each kind, see `jobs.largest`.
      watch: is called with each function before its turn, its number and that of all.
      lengths: of prompts and responses, for the time of a step; see `step_time.drawn_lengths`.

    Raises BadInput where the mesh does not fit the slice, cannot cut a model or its rows; and as `drawn_lengths` does.
    """
    drawn = {role: drawn_lengths(lengths, role, config) for role in METHODS[config.method].roles}
    known = models(config)
    mesh = device_mesh(config, topology.devices)
    planned = plan(config, mesh, known)
    jobs = planned.jobs if selection == "all" else largest(planned)
    rows = []
    for number, job in enumerate(jobs, start=1):
        watch(job, number, len(jobs))
        lowered = job.function.lower()
        key = fingerprint(lowered, topology.name)
        result = cache.get(key)
        if result is None:
            result = compile_lowered(lowered)
            cache.put(key, result)
        rows.append(Row(job.player, job.phase, job.function.kind, job.function.name, job.beside, result))
    settings = [*_SETTINGS, *(f"{player}.{key}" for player in known for key in _SETTINGS_OF_PLAYERS)]
    return Report(
        config=name,
        topology=topology.name,
        chips=len(topology.devices),
        mesh=dict(mesh.shape),
        hbm=topology.chip.hbm_bytes,
        models={player: model.source for player, model in known.items()},
        settings={key: operator.attrgetter(key)(config) for key in settings},
        residents=planned.residents,
        selection=selection,
        rows=rows,
        estimate=asdict(estimate(config, planned.players, topology.chip)),
        time=_time(config, planned, rows, lengths, drawn, topology.chip, cache) if selection == "all" else None,
    )


def _time(
    config: ConfigDict,
    planned: Plan,
    rows: Sequence[Row],
    lengths: str,
    drawn: Mapping[str, SampledLengths],
    chip: Chip,
    cache: ResultCache,
) -> StepTime:
    results = {player: {row.name: row.result for row in rows if row.player == player} for player in planned.players}
    clock, trained = simulate(config, planned.players, results, drawn, chip, partial(bundles, cache=cache.folder))
    host = sum(kinds["host"] for kinds in clock.phases.values())
    devices = clock.seconds() - host
    utilisation = {}
    for player, tokens in trained.items():
        own = planned.players[player]
        peak = own.mesh.size * chip.flops * clock.seconds(f"{player}: update")
        utilisation[player] = 6 * num_weights(own.model) * tokens / peak
    sampled = sum(int(each.responses.sum()) for each in drawn.values())
    chips = next(iter(planned.players.values())).mesh.size
    return StepTime(
        lengths=lengths,
        seconds=clock.seconds(),
        range=[(1 - CYCLES_WITHIN) * devices + host / HOST_WITHIN, (1 + CYCLES_WITHIN) * devices + HOST_WITHIN * host],
        tokens_per_second_per_chip=sampled / clock.seconds() / chips,
        utilisation=utilisation,
        phases=[{"name": name, **kinds, "calls": clock.calls[name]} for name, kinds in clock.phases.items()],
    )


@dataclass(frozen=True)
class Fit:
    """Whether a run fits into the memory of its chips, and what to change where it does not."""

    fits: bool
    worst: Row
    share: float  # of HBM, at the worst function
    advice: list[str]

    def __str__(self) -> str:
        fits = "fits" if self.fits else "OUT OF MEMORY"
        where = f"{self.worst.player}: {self.worst.name}"
        return f"{fits}: at most {self.share:.0%} of HBM, in {where}; the limit is {MOST:.0%}"


def fit_of(report: Report) -> Fit:
    """Returns whether the run of a report fits.

    The largest function decides; one that the compiler refuses does not fit whatever else there is.
    """
    worst = max(report.rows, key=lambda row: (bool(row.result.refusal), row.peak))
    share = worst.peak / report.hbm
    fits = not worst.result.refusal and share <= MOST
    return Fit(fits, worst, share, [] if fits else _advice(report, worst))


def _advice(report: Report, worst: Row) -> list[str]:
    always = sum(size for name, size in report.residents.items() if not name.endswith(_BY_TURNS))
    limit = MOST * report.hbm
    if always > limit:
        return [
            f"References, parameters and optimizers alone take {always / 2**30:.1f} GiB of each chip: "
            f"use a slice of {math.ceil(always * report.chips / limit)} such chips or more, or of chips with more "
            "memory; config.model.offload_moments keeps moments on the hosts."
        ]
    settings, data_parallel = report.settings, report.mesh["replica"] * report.mesh["fsdp"]
    advice = []
    if worst.phase == "rollout":
        cache = report.residents[f"{worst.player}: pages of keys and values"] / 2**30
        fewer = math.floor(cache - 1.1 * (worst.peak - limit) / 2**30)
        if fewer > 0:
            given = f"is {settings['rollout.cache_gib']:g}, pages take {cache:.2f} GiB"
            advice.append(f"config.rollout.cache_gib {given}: try {fewer}.")
        return [
            *advice,
            "A larger config.mesh.tensor (it must divide the KV heads) cuts published weights and pages further.",
        ]
    for player in report.models:
        rows = settings[f"{player}.micro_batch_size"]
        if rows > data_parallel:
            advice.append(f"config.{player}.micro_batch_size is {rows}: {data_parallel} is the least on this mesh.")
    if settings["model.remat"] != "full":
        advice.append(f"config.model.remat is {settings['model.remat']!r}: 'full' keeps the least.")
    chunk = settings["model.log_prob_chunk"]
    return [
        *advice,
        f"config.model.log_prob_chunk is {chunk}: {chunk // 2} halves the logits that are alive at once.",
        "A larger config.mesh.tensor (it must divide the KV heads) cuts activations and logits.",
    ]


def show(report: Report, console: Console) -> None:
    """Prints one report."""
    fit = fit_of(report)
    console.print(_functions(report).terminal(_title(report), "GiB per chip"))
    console.print(f"in memory: {_residents(report)}", highlight=False)
    for player, source in report.models.items():
        console.print(f"{player}: {source}", highlight=False)
    for line in filter(None, (_least_time(report), _between_slices(report))):
        console.print(line, highlight=False)
    if report.time:
        console.print(_phases(report.estimate, report.time).terminal(_time_of_step(report.time)))
    console.print(str(fit), style="green" if fit.fits else "bold red", highlight=False)
    for sentence in filter(None, [fit.worst.result.refusal, *fit.advice]):
        console.print(f"  {sentence}", highlight=False)


def markdown(reports: Sequence[Report]) -> str:
    """Returns a summary of all reports and the table of each."""
    parts = [_INTRODUCTION, TextTable(_SUMMARY, [*map(_summary, reports)], left=2).markdown()]
    for report in reports:
        fit = fit_of(report)
        parts += [f"\n## {report.config} on {report.topology}\n", f"{_title(report)}.\n", f"{fit}.\n"]
        parts += [*fit.advice, f"In memory: {_residents(report)}.\n", f"{_least_time(report)}\n"]
        if report.time:
            parts += [f"{_time_of_step(report.time)}\n", _phases(report.estimate, report.time).markdown(), ""]
        parts += [f"{line}\n" for line in [_between_slices(report)] if line]
        parts.append(_functions(report).markdown())
    return "\n".join(parts)


def _title(report: Report) -> str:
    mesh = " x ".join(f"{axis} {size}" for axis, size in report.mesh.items())
    return f"{report.config} on {report.topology}: {report.chips} chips, {mesh}, {_gib(report.hbm)} GiB of HBM each"


def _summary(report: Report) -> list[str]:
    shares = {"learn": 0.0, "rollout": 0.0}  # the largest of HBM in each phase
    for row in report.rows:
        shares[row.phase] = max(shares[row.phase], row.peak / report.hbm)
    least, time = report.estimate, report.time
    return [
        report.config,
        report.topology,
        f"{report.mesh['fsdp']} x {report.mesh['tensor']}",
        f"{len(report.rows)} ({report.selection})",
        *(f"{share:.0%}" for share in shares.values()),
        "fits" if fit_of(report).fits else "**does not fit**",
        f"{least['seconds']:.0f} s",
        f"{time.seconds:.0f} s" if time else "-",
        f"{time.tokens_per_second_per_chip if time else least['tokens_per_second_per_chip']:.0f}",
    ]


def _functions(report: Report) -> TextTable:
    return TextTable(_COLUMNS, [_cells(report, row) for row in report.rows])


def _cells(report: Report, row: Row) -> list[str]:
    found = row.result
    if found.refusal:
        sizes = ["-", "-", "-", _gib(row.beside), f"> {_gib(row.peak)}", "refused"]
    else:
        parts = (found.argument_bytes, found.aliased_bytes, found.temporary_bytes, row.beside, row.peak)
        sizes = [*map(_gib, parts), f"{row.peak / report.hbm:.0%}"]
    sent = ", ".join(f"{each.count} {kind} {each.bytes / 2**20:.0f} MiB" for kind, each in found.collectives.items())
    spent = sum(found.cost.seconds(_chip(report)).values())
    return [f"{row.player}: {row.name}", *sizes, sent or "none", f"{spent * 1e3:.1f}", f"{found.seconds:.0f} s"]


def _chip(report: Report) -> Chip:
    return CHIPS[split(report.topology)[1].partition("-")[0].partition(":")[0]]


def _between_slices(report: Report) -> str:
    """Returns what each function sends to other slices, and a step's seconds of it; nothing of one slice."""
    calls = [
        f"{row.player}: {row.name} {row.result.cost.dcn_bytes / 2**20:.1f} MiB, {row.result.cost.transfers:.0f} times, "
        f"{row.result.cost.seconds(_chip(report))['between slices'] * 1e3:.1f} ms"
        for row in report.rows
        if row.result.cost.transfers
    ]
    if not calls:
        return ""
    step = report.time and sum(phase.get("between slices", 0.0) for phase in report.time.phases)
    of_step = "" if step is None else f" In a step: {step:.1f} s."
    return f"A chip sends to other slices, in a call: {'; '.join(calls)}.{of_step}"


def _residents(report: Report) -> str:
    return ", ".join(f"{name} {_gib(size)}" for name, size in report.residents.items())


def _least_time(report: Report) -> str:
    estimate = report.estimate
    lengths = ", ".join(f"{name} {each['prompt']} + {each['response']}" for name, each in estimate["lengths"].items())
    phases = ", ".join(f"{each['name']} {each['seconds']:.1f} s ({each['bound']})" for each in estimate["phases"])
    return (
        f"Least time of a step by the roofline, for a mean of {lengths} tokens: {estimate['seconds']:.0f} s, "
        f"{estimate['tokens_per_second_per_chip']:.0f} response tokens/s/chip. {phases}."
    )


def _time_of_step(time: StepTime) -> str:
    utilisation = ", ".join(f"{role} {share:.0%}" for role, share in time.utilisation.items())
    return (
        f"Time of a step by compiled cycles, lengths {time.lengths}: {time.seconds:.0f} s "
        f"({time.range[0]:.0f} to {time.range[1]:.0f}), "
        f"{time.tokens_per_second_per_chip:.0f} response tokens/s/chip; 6 N D / peak of the update: {utilisation}."
    )


def _phases(estimate: Mapping[str, Any], time: StepTime) -> TextTable:
    least = {each["name"]: each["seconds"] for each in estimate["phases"]}
    cells = []
    for phase in time.phases:
        kinds = [phase.get(kind, 0.0) for kind in ("estimated", "kernels", "collectives", "host", "between slices")]
        numbers = [f"{seconds:.1f}" for seconds in (least.get(phase["name"], 0.0), sum(kinds), *kinds[1:3])]
        cells.append([phase["name"], *numbers, str(phase["calls"])])
    return TextTable(_PHASES, cells)


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f}"
