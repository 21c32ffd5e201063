"""The report on one config and one slice: memory and collectives of each function, and whether the run fits.

Printed on the terminal, written as JSON, and several together as Markdown.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from etils import epath
from rich.console import Console

from codea1.config import Config
from codea1.lab.aot.compilation import CompilerResult, remembered
from codea1.lab.aot.jobs import Compilation, largest, models, plan
from codea1.lab.aot.roofline import estimate
from codea1.lab.aot.topology import Topology
from codea1.lab.report.tables import TextTable
from codea1.sharding import make_mesh

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
_BY_TURNS = ("published weights", "pages of keys and values", "past weights", "micro-batches")
_COLUMNS = ("function", "arguments", "aliased", "temporaries", "others", "peak", "of HBM", "collectives", "compiled in")
_SUMMARY = (
    *("config", "slice", "fsdp x tensor", "functions", "learn", "rollout"),
    *("verdict", "least step", "most tokens/s/chip"),
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
- *Collectives* are instructions and the size of their results. One inside a loop counts once. Transfers between slices
  are among them.
- *Compiled in* is wall time on a busy machine with two cores. It says how long a sweep takes, not more.
- *Least step* is a roofline: hand-counted arithmetic, memory and link traffic at the chips' peak, perfectly overlapped.
  It is a lower bound on the time of a step, not an estimate: a real step takes longer. It is for the mean lengths that
  are named, which are assumptions. *Most tokens/s/chip* are the response tokens of a step over that time.
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
    others: int  # what else is in memory
    result: CompilerResult

    @property
    def peak(self) -> int:
        """All that is in memory while it runs."""
        return self.others + self.result.peak_bytes


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

    @property
    def worst(self) -> Row:
        """The function that decides whether the run fits: the first that the compiler refuses, else the largest."""
        return max(self.rows, key=lambda row: (bool(row.result.refusal), row.peak))

    @property
    def fits(self) -> bool:
        """Whether the run fits into the memory of its chips."""
        return not self.worst.result.refusal and self.worst.peak / self.hbm <= MOST

    @property
    def verdict(self) -> str:
        """Whether it fits, and the largest function, in words."""
        fits, worst = "fits" if self.fits else "OUT OF MEMORY", self.worst
        share, where = worst.peak / self.hbm, f"{worst.player}: {worst.name}"
        return f"{fits}: at most {share:.0%} of HBM, in {where}; the limit is {MOST:.0%}"

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Returns the report of which `content` is the `dataclasses.asdict`."""
        rows = [Row(**row | {"result": CompilerResult.from_json(row["result"])}) for row in content["rows"]]
        return cls(**content | {"rows": rows})


def report(
    name: str,
    config: Config,
    topology: Topology,
    cache: epath.PathLike,
    selection: str = "all",
    watch: Callable[[Compilation, int, int], None] = lambda job, number, total: None,
) -> Report:
    """Compiles the functions of a config for a slice.

    Args:
      cache: folder that remembers the results.
      selection: "largest" is the largest function of each kind, see `jobs.largest`.
      watch: is called with each function before its turn, its number and that of all.

    Raises BadInput where the mesh does not fit the slice, or cannot cut a model or its rows.
    """
    known = models(config)
    mesh = make_mesh(config.mesh.replica, config.mesh.fsdp, config.mesh.tensor, topology.devices)
    planned = plan(config, mesh, known)
    jobs = planned.jobs if selection == "all" else largest(planned)
    rows = []
    for number, job in enumerate(jobs, start=1):
        watch(job, number, len(jobs))
        result = remembered(job.function.lower(), topology.name, cache)
        rows.append(Row(job.player, job.phase, job.function.kind, job.function.name, job.others, result))
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
    )


def advice_for(report: Report) -> list[str]:
    """Returns what to change for the run of a report to fit; nothing where it does."""
    if report.fits:
        return []
    worst = report.worst
    always = sum(size for name, size in report.residents.items() if not name.endswith(_BY_TURNS))
    limit = MOST * report.hbm
    if always > limit:
        return [
            f"References, parameters and optimizers alone take {always / 2**30:.1f} GiB of each chip: "
            f"use a slice of {math.ceil(always * report.chips / limit)} such chips or more, or of chips with more "
            "memory."
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
    console.print(_functions(report).terminal(_title(report), "GiB per chip"))
    console.print(f"in memory: {_residents(report)}", highlight=False)
    for player, source in report.models.items():
        console.print(f"{player}: {source}", highlight=False)
    console.print(_least_time(report), highlight=False)
    console.print(report.verdict, style="green" if report.fits else "bold red", highlight=False)
    for sentence in filter(None, [report.worst.result.refusal, *advice_for(report)]):
        console.print(f"  {sentence}", highlight=False)


def markdown(reports: Sequence[Report]) -> str:
    """Returns a summary of all reports and the table of each."""
    parts = [_INTRODUCTION, TextTable(_SUMMARY, [*map(_summary, reports)], left=2).markdown()]
    for report in reports:
        parts += [f"\n## {report.config} on {report.topology}\n", f"{_title(report)}.\n", f"{report.verdict}.\n"]
        parts += [*advice_for(report), f"In memory: {_residents(report)}.\n", f"{_least_time(report)}\n"]
        parts.append(_functions(report).markdown())
    return "\n".join(parts)


def _title(report: Report) -> str:
    mesh = " x ".join(f"{axis} {size}" for axis, size in report.mesh.items())
    return f"{report.config} on {report.topology}: {report.chips} chips, {mesh}, {_gib(report.hbm)} GiB of HBM each"


def _summary(report: Report) -> list[str]:
    shares = {"learn": 0.0, "rollout": 0.0}  # the largest of HBM in each phase
    for row in report.rows:
        shares[row.phase] = max(shares[row.phase], row.peak / report.hbm)
    return [
        report.config,
        report.topology,
        f"{report.mesh['fsdp']} x {report.mesh['tensor']}",
        f"{len(report.rows)} ({report.selection})",
        *(f"{share:.0%}" for share in shares.values()),
        "fits" if report.fits else "**does not fit**",
        f"{report.estimate['seconds']:.0f} s",
        f"{report.estimate['tokens_per_second_per_chip']:.0f}",
    ]


def _functions(report: Report) -> TextTable:
    return TextTable(_COLUMNS, [_cells(report, row) for row in report.rows])


def _cells(report: Report, row: Row) -> list[str]:
    result = row.result
    if result.refusal:
        sizes = ["-", "-", "-", _gib(row.others), f"> {_gib(row.peak)}", "refused"]
    else:
        parts = (result.argument_bytes, result.aliased_bytes, result.temporary_bytes, row.others, row.peak)
        sizes = [*map(_gib, parts), f"{row.peak / report.hbm:.0%}"]
    sent = ", ".join(f"{item.count} {kind} {item.bytes / 2**20:.0f} MiB" for kind, item in result.collectives.items())
    return [f"{row.player}: {row.name}", *sizes, sent or "none", f"{result.seconds:.0f} s"]


def _residents(report: Report) -> str:
    return ", ".join(f"{name} {_gib(size)}" for name, size in report.residents.items())


def _least_time(report: Report) -> str:
    estimate = report.estimate
    lengths = ", ".join(f"{name} {row['prompt']} + {row['response']}" for name, row in estimate["lengths"].items())
    phases = ", ".join(f"{phase['name']} {phase['seconds']:.1f} s ({phase['bound']})" for phase in estimate["phases"])
    return (
        f"Least time of a step by the roofline, for a mean of {lengths} tokens: {estimate['seconds']:.0f} s, at most "
        f"{estimate['tokens_per_second_per_chip']:.0f} response tokens/s/chip. {phases}."
    )


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f}"
