"""What one call of a compiled function costs a chip, added up from the text of the TPU compiler's program.

The compiler writes the cycles that it expects of most instructions. It writes none for Pallas kernels, native scatters
and gathers, and collectives: those are counted by the bytes that they move, and priced by `Cost.seconds`. Of a
collective over several slices it makes one within each and a transfer between them, through their hosts. The pages
that paged attention reads depend on what is in the slots, and what splash attention computes on what is in the
rows: `step_time` adds both.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from codea1.lab.aot.work import Chip

REACHED = 0.7  # of a bandwidth, by what has no estimate
COLLECTIVE_BEGINS = 12e-6  # seconds until a collective sends: a guess, for no pod was measured
# Between slices: an all-reduce of 1 GiB reached 198 of the 400 Gb/s of a v6e host's network, as others measured
# (storage.googleapis.com/yppublic/v6e-dcn-allreduce-20260826). The seconds until it sends are a guess.
SLICES_REACHED, SLICES_BEGIN = 0.5, 500e-6

_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (\((?:[^()]|\([^()]*\))*\)|\S+) ([\w\-]+)\((.*)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CALLED = re.compile(r"(?:calls|to_apply|called_computations=\{)=?%?([\w.\-]+)")
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)[a-z0-9]*)\[([\d,]*)\]")
_TO_SLICES = re.compile(
    r'rendezvous="(?P<key>[^"]+)".*_xla_megascale_target="\{(?P<slices>[^}]+)\}.*_xla_megascale_transfer_type="(?P<kind>\w+)"'
)
_COLLECTIVE = re.compile(r"(all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(-start)?$")


@dataclass(frozen=True)
class Cost:
    """What a chip does."""

    cycles: float = 0.0  # that the compiler expects
    hbm_bytes: float = 0.0  # of kernels, scatters and gathers, for which it expects nothing
    ici_bytes: float = 0.0  # sent by collectives, as if nothing else ran meanwhile
    collectives: float = 0.0  # how many there are
    dcn_bytes: float = 0.0  # sent to other slices, over the data center's network
    transfers: float = 0.0  # how many times that is

    def __add__(self, other: Self) -> Self:
        mine, others = (vars(each).values() for each in (self, other))
        return type(self)(*map(sum, zip(mine, others, strict=True)))

    def __mul__(self, factor: float) -> Self:
        return type(self)(*(value * factor for value in vars(self).values()))

    def seconds(self, chip: Chip) -> dict[str, float]:
        """Returns the seconds by what they are for: "estimated", "kernels", "collectives" and "between slices"."""
        return {
            "estimated": self.cycles / chip.clock,
            "kernels": self.hbm_bytes / (REACHED * chip.hbm_bandwidth),
            "collectives": self.ici_bytes / (REACHED * chip.ici_bandwidth * chip.ici_axes)
            + self.collectives * COLLECTIVE_BEGINS,
            "between slices": self.dcn_bytes / (SLICES_REACHED * chip.dcn_bandwidth) + self.transfers * SLICES_BEGIN,
        }


@dataclass(frozen=True)
class _Instruction:
    name: str
    result: str  # its type
    opcode: str
    rest: str  # operands and attributes

    @property
    def called(self) -> str:
        found = _CALLED.search(self.rest)
        return found[1] if found else ""


_Program = Mapping[str, Sequence[_Instruction]]  # by computation


def costs(hlo: str) -> tuple[Cost, Cost]:
    """Returns the cost of the text of a compiled function, and what each further turn of its outermost loop adds.

    A loop whose number of turns is not in the program makes one; decoding is such a loop over tokens.
    """
    program, entry = _parse(hlo)
    once, twice = (_cost(program, entry, turns) for turns in (1, 2))
    return once, twice + once * -1


def _parse(hlo: str) -> tuple[_Program, str]:
    program: dict[str, list[_Instruction]] = {}
    name = entry = ""
    for line in hlo.splitlines():
        if line.startswith(("%", "ENTRY")) and (found := _COMPUTATION.match(line)):
            name = found[2]
            program[name] = []
            entry = name if found[1] else entry
        elif name and (found := _INSTRUCTION.match(line)):
            program[name].append(_Instruction(*found.groups()))
    return program, entry


def _cost(program: _Program, name: str, unknown: int) -> Cost:
    """Adds up one execution of a computation; a loop of an unknown number of turns makes `unknown` of them."""
    types = {each.name: each.result for each in program[name]}
    total = sum(_sent(program, name).values(), Cost())
    for each in program[name]:
        if each.opcode == "while":
            turns = _TURNS.search(each.rest) or _bound(program, each)
            total += _cost(program, _named("body", each), 1) * (int(turns[1]) if turns else unknown)
        elif found := _CYCLES.search(each.rest):
            total += Cost(cycles=float(found[1]))
        elif each.opcode in ("call", "conditional", "async-start") and each.called in program:
            total += _cost(program, each.called, unknown)
        else:
            total += Cost(hbm_bytes=_moved(program, each, types))
    return total


def _bound(program: _Program, loop: _Instruction) -> re.Match | None:
    """Finds the constant that the condition of a loop compares its counter with, where that is all it does."""
    condition = program[_named("condition", loop)]
    constants = [each for each in condition if each.opcode == "constant"]
    if len(constants) != 1 or not any(each.opcode == "compare" for each in condition[-1:]):
        return None
    return re.match(r"(\d+)\)", constants[0].rest)


def _named(role: str, loop: _Instruction) -> str:
    """Returns the name of the computation that is a loop's body or condition."""
    found = re.search(rf"{role}=%?([\w.\-]+)", loop.rest)
    assert found is not None
    return found[1]


def _sent(program: _Program, name: str) -> dict[str, Cost]:
    """Returns what a computation's own collectives send, by what tells one from another.

    One that is in several fusions counts once: channel, kind and size are the same. Those of `jax.shard_map` all have
    one channel.
    """
    sent: dict[str, Cost] = {}
    types = {each.name: each.result for each in program[name]}
    for each in program[name]:
        if found := _COLLECTIVE.match(each.opcode):
            sizes = array_bytes(each.result)
            # What starts a collective returns its operand and bookkeeping beside the result.
            size = max(sizes, default=0) if found[2] else sum(sizes)
            if found[1] == "reduce-scatter":  # each chip sends all but what it keeps
                size = sum(sum(array_bytes(kind)) for kind in _operands(each, types))
            channel = re.search(r"channel_id=(\d+)", each.rest)
            key = f"{channel[1]} {found[1]} {size}" if channel else each.name
            sent[key] = Cost(ici_bytes=size * (2 if found[1] == "all-reduce" else 1), collectives=1)
        elif each.opcode == "send" and (found := _TO_SLICES.search(each.rest)):
            size = max(array_bytes(each.result)) * _times_sent(found["kind"], _count(found["slices"]))
            sent[found["key"]] = Cost(dcn_bytes=size, transfers=1)
        elif each.opcode == "fusion" and each.called in program:
            sent |= _sent(program, each.called)
    return sent


def _count(slices: str) -> int:
    """Counts the slices of a transfer, "1,2" or "1:4"."""
    ends = [list(map(int, part.split(":"))) for part in slices.split(",")]
    return sum(end[-1] - end[0] + 1 for end in ends)


def _times_sent(kind: str, slices: int) -> float:
    """Returns how many times a chip sends what it has to other slices, in all, by the best algorithm."""
    others = slices - 1
    return {"ALL_REDUCE": 2 * others / slices, "ALL_GATHER": others, "ONE_TO_ONE": 1.0}.get(kind, others / slices)


def _operands(each: _Instruction, types: Mapping[str, str]) -> list[str]:
    """Returns the types of an instruction's operands, as far as its computation makes them."""
    return [types[name] for name in re.findall(r"%([\w.\-]+)", each.rest.split("), ")[0]) if name in types]


def _moved(program: _Program, each: _Instruction, types: Mapping[str, str]) -> int:
    """Returns the bytes read and written by a kernel, a native scatter or a native gather; 0 for all else."""
    operands = _operands(each, types)
    if '"tpu_custom_call"' in each.rest:
        sizes = [sum(array_bytes(kind)) for kind in (each.result, *operands)]
        return sum(sizes) - (max(sizes) if "grouped_paged_attention" in each.rest else 0)
    inner = {of.opcode for of in program.get(each.called, ())} if each.opcode == "fusion" else {each.opcode}
    if "scatter" in inner:  # in place: what is added is read, and its place read and written
        return 3 * sum(sum(array_bytes(kind)) for kind in operands[1:])
    if "gather" in inner:
        return 2 * sum(array_bytes(each.result))
    return 0


def array_bytes(kind: str) -> list[int]:
    """Returns the bytes of each array in the text of a type, such as "(bf16[8,128]{1,0}, u32[])"."""
    return [_size(found) for found in _ARRAY.finditer(kind)]


def _size(array: re.Match) -> int:
    bits = int(array[2]) if array[2] else 8
    return math.prod(int(size) for size in filter(None, array[3].split(","))) * bits // 8
