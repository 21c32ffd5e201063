"""Compiles one function for a TPU and reads its memory and collectives; a folder keeps the results."""

import hashlib
import json
import math
import re
import time
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from typing import Any, Self

import jax
from etils import epath

from codea1.storage.objects import write_atomically

_INSTRUCTION = re.compile(
    r"= (?P<result>.+?) (?P<kind>all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)"
    r"(?P<start>-start)?\(.*?channel_id=(?P<channel>\d+)"
)
_TO_OTHER_SLICES = re.compile(r'= (?P<result>.+?) send\(.*rendezvous="(?P<channel>[^"]+)".*_xla_megascale_target=')
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)[a-z0-9]*)\[([\d,]*)\]")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# "Used 20.00G of 15.75G hbm", and "the total memory required for HLO temporaries (20.00G) exceeds available HBM".
_OUT_OF_MEMORY = re.compile(r"(?:Used |total memory required for [\w ]+\()([\d.]+)([KMG]?)")


@dataclass(frozen=True)
class Collectives:
    """The instructions of one kind. One in the body of a loop counts once, however often it runs."""

    count: int
    bytes: int  # of their results on one chip


@dataclass(frozen=True)
class CompilerResult:
    """Memory and collectives of a compiled function; bytes are of one chip."""

    argument_bytes: int
    output_bytes: int
    aliased_bytes: int  # of the outputs, which are written over arguments that are given away
    temporary_bytes: int
    collectives: dict[str, Collectives]
    seconds: float  # that compiling took
    refusal: str = ""  # the compiler's message where the function alone does not fit

    @property
    def peak_bytes(self) -> int:
        """What must be free for the function to start: everything that it is given, makes and needs on the way."""
        return self.argument_bytes + self.output_bytes - self.aliased_bytes + self.temporary_bytes

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Returns the result of which `content` is the `dataclasses.asdict`."""
        collectives = {kind: Collectives(**sizes) for kind, sizes in content["collectives"].items()}
        return cls(**content | {"collectives": collectives})


def remembered(lowered: jax.stages.Lowered, topology: str, cache: epath.PathLike) -> CompilerResult:
    """Returns the result of a function for the chips of a slice; it is compiled where the folder `cache` has none."""
    path = epath.Path(cache) / f"{fingerprint(lowered, topology)}.json"
    try:
        return CompilerResult.from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        result = compile_lowered(lowered)
    write_atomically(path, json.dumps(asdict(result), indent=2) + "\n")
    return result


def fingerprint(lowered: jax.stages.Lowered, topology: str) -> str:
    """Returns a digest of all that decides the result: the function, the chips it is for, the compiler, its form."""
    compiler = [f"{package} {metadata.version(package)}" for package in ("jax", "jaxlib", "libtpu")]
    form = [field.name for kind in (CompilerResult, Collectives) for field in fields(kind)]
    return hashlib.sha256("\n".join([lowered.as_text(), topology, *compiler, *form]).encode()).hexdigest()[:24]


def compile_lowered(lowered: jax.stages.Lowered) -> CompilerResult:
    """Compiles; a function that does not fit into memory is a result, not an error."""
    started = time.monotonic()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        message = str(error)
        if "RESOURCE_EXHAUSTED" not in message:
            raise
        size = _OUT_OF_MEMORY.search(message)
        needed = int(float(size[1]) * _UNITS[size[2]]) if size else 0
        seconds, refusal = time.monotonic() - started, " ".join(message.split())[:600]
        return CompilerResult(0, 0, 0, needed, {}, seconds, refusal)
    memory, hlo = compiled.memory_analysis(), compiled.as_text()
    assert memory is not None
    assert hlo is not None
    return CompilerResult(
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        aliased_bytes=memory.alias_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes + memory.generated_code_size_in_bytes,
        collectives=collectives(hlo),
        seconds=time.monotonic() - started,
    )


def collectives(hlo: str) -> dict[str, Collectives]:
    """Returns the collectives in the text of a compiled function, by kind; transfers to other slices are a kind.

    The TPU compiler splits a collective over several fusions that run in parallel with other work; those have one
    channel and count as one.
    """
    largest: dict[tuple[str, str], int] = {}  # by kind and channel
    for match in filter(None, map(_INSTRUCTION.search, hlo.splitlines())):
        arrays = array_bytes(match["result"])
        # What starts a collective returns its operand and bookkeeping with the result.
        size = max(arrays, default=0) if match["start"] else sum(arrays)
        key = match["kind"], match["channel"]
        largest[key] = max(size, largest.get(key, 0))
    for match in filter(None, map(_TO_OTHER_SLICES.search, hlo.splitlines())):
        largest["transfer between slices", match["channel"]] = max(array_bytes(match["result"]))
    kinds = sorted({kind for kind, _ in largest})
    sizes = {kind: [size for (of, _), size in largest.items() if of == kind] for kind in kinds}
    return {kind: Collectives(len(sent), sum(sent)) for kind, sent in sizes.items()}


def array_bytes(kind: str) -> list[int]:
    """Returns the bytes of each array in the text of a type, such as "(bf16[8,128]{1,0}, u32[])"."""
    arrays = ((int(bits or 8), filter(None, sizes.split(","))) for _, bits, sizes in _ARRAY.findall(kind))
    return [math.prod(map(int, sizes)) * bits // 8 for bits, sizes in arrays]
