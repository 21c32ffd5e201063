"""Reports as tables: on the terminal and in Markdown."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from codea1.aot.report import Report, Row
from codea1.aot.verdict import shares, verdict

_COLUMNS = ("program", "arguments", "aliased", "temporaries", "beside", "peak", "of HBM", "collectives", "compiled in")

_INTRODUCTION = """# Shipped configs as the TPU compiler sees them

Written by `python -m codea1.compile_tpu --all --programs=largest`, or with `all` programs, to
compiled/pods_compiled.md: each program compiled by libtpu for the chips of its config's slice, on a machine that has
none. Nothing here ran on a TPU.

- Bytes are of one chip. *Arguments* are what a program is given, *aliased* what of it its results are written over,
  *temporaries* what it needs on the way, *beside* all else that is in memory in its phase: both players' references,
  parameters and moments, and while one generates its published weights and caches, while one learns the micro-batches.
  *Peak* is the sum, with the results that are written over nothing, and must stay below 92 % of the memory that the
  compiler lets programs use.
- *Collectives* are instructions and the size of their results; one inside a loop over layers, chunks or steps counts
  once.
- *Compiled in* is wall time on a busy machine with two cores, and says how long a sweep takes, not more.
- *Least step* is a roofline: hand-counted arithmetic, memory and link traffic at the chips' peak, perfectly overlapped,
  for the mean lengths that are named, which are assumptions. A measured step will take a multiple of it.
- *Programs*: `all`, or `largest`: the one of each kind with the most in memory, of both players where they are of one
  model: the longest rows, the most slots, prompts and positions.
"""
_SUMMARY = (
    "config",
    "slice",
    "fsdp x tensor",
    "programs",
    "learn",
    "rollout",
    "verdict",
    "least step",
    "tokens/s/chip",
)


def show(report: Report, console: Console) -> None:
    """Prints one report."""
    table = Table(title=_title(report), caption="GiB per chip")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("program", "collectives") else "right")
    for row in report.rows:
        table.add_row(*_cells(report, row))
    console.print(table)
    console.print(f"in memory: {_residents(report)}", highlight=False)
    for player, source in report.models.items():
        console.print(f"{player}: {source}", highlight=False)
    console.print(_least_time(report), highlight=False)
    judged = verdict(report)
    console.print(str(judged), style="green" if judged.fits else "bold red", highlight=False)
    for sentence in [judged.worst.compilation.refusal, *judged.advice]:
        if sentence:
            console.print(f"  {sentence}", highlight=False)


def markdown(reports: Sequence[Report]) -> str:
    """A summary of all reports and the table of each."""
    summary = _markdown_table(_SUMMARY, [_summary(report) for report in reports], left=2)
    return "\n".join([_INTRODUCTION, summary, *(_section(report) for report in reports)])


def _title(report: Report) -> str:
    mesh = " x ".join(f"{axis} {size}" for axis, size in report.mesh.items())
    return f"{report.config} on {report.topology}: {report.chips} chips, {mesh}, {_gib(report.hbm)} GiB of HBM each"


def _summary(report: Report) -> list[str]:
    judged, by_phase = verdict(report), shares(report)
    return [
        report.config,
        report.topology,
        f"{report.mesh['fsdp']} x {report.mesh['tensor']}",
        f"{len(report.rows)} ({report.selection})",
        *(f"{by_phase.get(phase, 0):.0%}" for phase in ("learn", "rollout")),
        "fits" if judged.fits else "**does not fit**",
        f"{report.estimate['seconds']:.0f} s",
        f"{report.estimate['tokens_per_second_per_chip']:.0f}",
    ]


def _section(report: Report) -> str:
    judged = verdict(report)
    parts = [f"\n## {report.config} on {report.topology}\n", f"{_title(report)}.\n"]
    parts += [f"{judged}.\n", *judged.advice, f"In memory: {_residents(report)}.\n", f"{_least_time(report)}\n"]
    parts.append(_markdown_table(_COLUMNS, [_cells(report, row) for row in report.rows]))
    return "\n".join(parts)


def _cells(report: Report, row: Row) -> list[str]:
    found = row.compilation
    if found.refusal:
        sizes = ["-", "-", "-", _gib(row.beside), f"> {_gib(row.peak)}", "refused"]
    else:
        sizes = [
            _gib(n) for n in (found.argument_bytes, found.aliased_bytes, found.temporary_bytes, row.beside, row.peak)
        ]
        sizes.append(f"{row.peak / report.hbm:.0%}")
    sent = ", ".join(f"{each.count} {kind} {each.bytes / 2**20:.0f} MiB" for kind, each in found.collectives.items())
    return [f"{row.player}: {row.name}", *sizes, sent or "none", f"{found.seconds:.0f} s"]


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


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[Any]], left: int = 1) -> str:
    rule = [":--" if index < left else "--:" for index in range(len(head))]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, rule, *rows))


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f}"
