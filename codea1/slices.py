"""TPU slices by name. Configs ask for them, and a mistake in one is reported before JAX is there."""

import math
import re

# Google's names of slices count chips on v5e and v6e, and cores, two per chip, on v5p.
_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBES = {8: "2x2x1", 16: "2x2x2", 32: "2x2x4", 64: "2x4x4", 128: "4x4x4", 256: "4x4x8"}
SLICES = {
    **{f"{chip}-{size}": f"{chip}:{shape}" for chip in ("v5e", "v6e") for size, shape in _FLAT.items()},
    **{f"v5p-{size}": f"v5p:{shape}" for size, shape in _CUBES.items()},
}


def split(name: str) -> tuple[int, str]:
    """Returns how many slices a topology has, and what one of them is called: "2xv5e-16" has two of "v5e-16"."""
    match = re.fullmatch(r"([2-9]|[1-9]\d+)x(v.+)", name)
    return (int(match[1]), match[2]) if match else (1, name)


def num_chips(name: str) -> int:
    """Returns the chips of a topology, one slice or several, whose slices are called as in `SLICES`."""
    count, slice = split(name)
    return count * math.prod(int(size) for size in SLICES[slice].partition(":")[2].split("x"))
