"""Compiling all that a config runs on a slice."""

from collections.abc import Callable

from ml_collections import ConfigDict

from codea1.aot.compilation import Compilation, compile_lowered
from codea1.aot.jobs import Job, largest, plan
from codea1.aot.models import models
from codea1.aot.program import Program, fingerprint
from codea1.aot.report import Report, Row, estimate_as_data
from codea1.aot.results import Results
from codea1.aot.roofline import estimate
from codea1.aot.topology import Topology
from codea1.sharding import device_mesh

SELECTIONS = ("all", "largest")
_SETTINGS = (
    "questions_per_step game.num_solutions game.num_suites rollout.slots model.remat model.log_prob_chunk "
    "{player}.micro_batch_size {player}.max_prompt_length {player}.max_response_length"
)


def report(
    name: str,
    config: ConfigDict,
    topology: Topology,
    results: Results,
    selection: str = "all",
    watch: Callable[[Job, int, int], None] = lambda job, number, total: None,
) -> Report:
    """Compiles the programs of a config for a slice, those alone that `results` does not know.

    `selection` "largest" is the largest program of each kind, see `jobs.largest`; `watch` is told of each program
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
        compilation = _compiled(job.program, topology.name, results)
        rows.append(Row(job.player, job.phase, job.program.kind, job.program.name, job.beside, compilation))
    return Report(
        config=name,
        topology=topology.name,
        chip=topology.chip.name,
        chips=len(topology.devices),
        mesh=dict(mesh.shape),
        hbm=topology.chip.hbm_bytes,
        models={player: model.source for player, model in known.items()},
        settings=_settings(config, list(known)),
        residents=planned.residents,
        selection=selection,
        rows=rows,
        estimate=estimate_as_data(estimate(config, planned.programs, topology.chip)),
    )


def _compiled(program: Program, topology: str, results: Results) -> Compilation:
    lowered = program.lower()
    key = fingerprint(lowered, topology)
    found = results.get(key)
    if found is None:
        found = compile_lowered(lowered)
        results.put(key, found)
    return found


def _settings(config: ConfigDict, players: list[str]) -> dict[str, object]:
    keys = [
        key
        for pattern in _SETTINGS.split()
        for key in ([pattern.format(player=player) for player in players] if "{" in pattern else [pattern])
    ]
    flat = dict.fromkeys(keys, config)
    for key in keys:
        for part in key.split("."):
            flat[key] = flat[key][part]
    return flat
