"""What is found out about one config on one slice, by compiling all that it runs there."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from ml_collections import ConfigDict

from codea1.aot.compilation import Compilation, Results, compile_lowered, fingerprint
from codea1.aot.jobs import Job, largest, models, plan
from codea1.aot.roofline import estimate
from codea1.aot.topology import Topology
from codea1.sharding import device_mesh

_SETTINGS = (
    "questions_per_step",
    "game.num_solutions",
    "game.num_suites",
    "rollout.slots",
    "model.remat",
    "model.log_prob_chunk",
)
_SETTINGS_OF_PLAYERS = ("micro_batch_size", "max_prompt_length", "max_response_length")


@dataclass(frozen=True)
class Row:
    """One function; bytes are of one chip."""

    player: str
    phase: str
    kind: str
    name: str
    beside: int  # what else is in memory
    compilation: Compilation

    @property
    def peak(self) -> int:
        """All that is in memory while it runs."""
        return self.beside + self.compilation.peak_bytes


@dataclass(frozen=True)
class Report:
    """Everything that is shown, as plain data."""

    config: str
    topology: str
    chip: str
    chips: int
    mesh: Mapping[str, int]
    hbm: int  # bytes of a chip that may be used
    models: Mapping[str, str]  # of each player, where its shape is known from
    settings: Mapping[str, Any]  # of the config, that decide memory
    residents: Mapping[str, int]
    selection: str  # which functions were compiled
    rows: list[Row]
    estimate: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Reads what `to_json` gave."""
        rows = [Row(**row | {"compilation": Compilation.from_json(row["compilation"])}) for row in content["rows"]]
        return cls(**content | {"rows": rows})


def report(
    name: str,
    config: ConfigDict,
    topology: Topology,
    results: Results,
    selection: str = "all",
    watch: Callable[[Job, int, int], None] = lambda job, number, total: None,
) -> Report:
    """Compiles the functions of a config for a slice, those alone that `results` does not know.

    `selection` "largest" is the largest function of each kind, see `jobs.largest`; `watch` is told of each function
    before its turn, with its number and that of all.
    Raises BadInput where the mesh does not fit the slice, cannot cut a model or its rows.
    """
    known = models(config)
    mesh = device_mesh(config, topology.devices)
    planned = plan(config, mesh, known)
    jobs = planned.jobs if selection == "all" else largest(planned)
    rows = []
    for number, job in enumerate(jobs, start=1):
        watch(job, number, len(jobs))
        lowered = job.function.lower()
        key = fingerprint(lowered, topology.name)
        compilation = results.get(key)
        if compilation is None:
            compilation = compile_lowered(lowered)
            results.put(key, compilation)
        rows.append(Row(job.player, job.phase, job.function.kind, job.function.name, job.beside, compilation))
    settings = [*_SETTINGS, *(f"{player}.{key}" for player in known for key in _SETTINGS_OF_PLAYERS)]
    return Report(
        config=name,
        topology=topology.name,
        chip=topology.chip.name,
        chips=len(topology.devices),
        mesh=dict(mesh.shape),
        hbm=topology.chip.hbm_bytes,
        models={player: model.source for player, model in known.items()},
        settings={key: operator.attrgetter(key)(config) for key in settings},
        residents=planned.residents,
        selection=selection,
        rows=rows,
        estimate=estimate(config, planned.players, topology.chip).to_json(),
    )
