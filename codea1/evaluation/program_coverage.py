"""How much of a program was run: shares of its lines and branches, by the rules of the `coverage` library."""

import math
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage

from codea1.sandbox.host.results import Arc


class Covered(NamedTuple):
    """Shares of a program's executable lines and of the exits of its branching lines; NaN where there are none."""

    lines: float
    branches: float


def coverage_of(program: str, runs: Sequence[Collection[Arc]]) -> list[Covered]:
    """What several runs of a program cover, each a set of arcs as `SandboxPool.run_suite` gives them.

    Nothing of the program is run here; it must compile.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program, "utf-8")
        return [_covered(str(path), arcs) for arcs in runs]


def _covered(path: str, arcs: Collection[Arc]) -> Covered:
    library = Coverage(data_file=None, branch=True, config_file=False, messages=False)
    library.get_data().add_arcs({path: arcs})
    _, lines, _, missing, _ = library.analysis2(path)
    exits = library.branch_stats(path).values()
    return Covered(
        _share(len(lines) - len(missing), len(lines)),
        _share(sum(taken for _, taken in exits), sum(total for total, _ in exits)),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
