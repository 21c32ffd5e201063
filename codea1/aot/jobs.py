"""Every program of a run on a mesh, and what else is in a chip's memory while each runs.

The players live on all chips and take turns. Their references, states and critics are always there. While one
generates, its published weights, the cache of its slots and the cache of the prompts last prefilled are there too;
while one learns, the micro-batches of all its mini-batches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from codea1.aot.models import Model
from codea1.aot.program import Program, bytes_per_device
from codea1.aot.recorder import Recorder
from codea1.config import trained_sequences
from codea1.learn.batch import RowShape, TrainBatch, batch_sharding, empty_batch, with_scores
from codea1.learn.update import TrainState, Update
from codea1.learn.values import ValueBatch
from codea1.models.config import Qwen2Config
from codea1.players.programs import CriticPrograms, PlayerPrograms, has_reference, kl_in_loss
from codea1.sharding import laid_out


@dataclass(frozen=True)
class Job:
    """One program of one player."""

    player: str
    phase: str  # "rollout" or "learn"
    program: Program
    beside: int  # bytes on a chip that are neither its arguments nor its results


@dataclass(frozen=True)
class Plan:
    """All that is compiled for a run on a mesh."""

    programs: Mapping[str, PlayerPrograms]  # of each player
    jobs: list[Job]
    residents: Mapping[str, int]  # bytes on a chip, by what they are; those of generation are there by turns


def plan(config: ConfigDict, mesh: Mesh, models: Mapping[str, Model]) -> Plan:
    """The programs of the players in `models`; a frozen one has those of generation alone, and nothing but parameters.

    Raises BadInput when the mesh cannot cut one of them.
    """
    programs = {name: PlayerPrograms(name, config, mesh, model.config, model.ids) for name, model in models.items()}
    critics = {
        name: CriticPrograms(config[name], programs[name].model, mesh)
        for name in models
        if config[name].advantage == "gae" and name != config.frozen
    }
    always = {}
    for name, own in programs.items():
        if name == config.frozen:
            always[f"{name}: parameters"] = bytes_per_device(own.abstract_params)
            continue
        if has_reference(config[name]):
            always[f"{name}: reference"] = bytes_per_device(own.abstract_params)
        always[f"{name}: parameters and moments at rest"] = bytes_per_device(_on_chips(own))
    for name, critic in critics.items():
        always[f"{name}: critic and its optimizer"] = bytes_per_device(critic.abstract_state)
    jobs, by_turns = [], {}
    for name, own in programs.items():
        found, of_rollout = _rollout(name, own, sum(always.values()))
        jobs += found
        by_turns |= _named(name, of_rollout)
        if name == config.frozen:
            continue
        batches = _batches(config[name], own)
        queued = _queued_batches(config, name, batches[-1])
        fetched = bytes_per_device(own.abstract_state) - bytes_per_device(_on_chips(own))
        present = sum(always.values()) + queued
        jobs += _learning(name, config[name], own, batches, present + fetched)
        if name in critics:
            jobs += _critic_learning(name, critics[name], batches, present)
        by_turns |= _named(name, {"micro-batches": queued, "moments from the host": fetched})
    return Plan(programs, jobs, always | by_turns)


def largest(plan: Plan) -> list[Job]:
    """Of the jobs of each kind the one with the most in memory, and of those the last; players of one model share them.

    All micro-batches hold about the same number of tokens and have the logits of as many alive at once; the longest
    rows, which come last, have the most attention.
    """
    chosen: dict[tuple[str, Qwen2Config], Job] = {}
    for job in plan.jobs:
        key = job.program.kind, plan.programs[job.player].model
        if key not in chosen or _present(job) >= _present(chosen[key]):
            chosen[key] = job
    return list(chosen.values())


def _named(player: str, sizes: Mapping[str, int]) -> dict[str, int]:
    return {f"{player}: {what}": size for what, size in sizes.items() if size}


def _present(job: Job) -> int:
    return job.beside + bytes_per_device(job.program.arguments)


def _on_chips(own: PlayerPrograms) -> list[jax.ShapeDtypeStruct]:
    """What of a resting player's state is in the memory of the chips."""
    parts = zip(jax.tree.leaves(own.abstract_state), jax.tree.leaves(own.resting), strict=True)
    return [part for part, sharding in parts if sharding.memory_kind != "pinned_host"]


def _rollout(name: str, own: PlayerPrograms, always: int) -> tuple[list[Job], dict[str, int]]:
    recorder = Recorder(own.engine.programs)
    own.engine.call_every_program(recorder, own.abstract_params)
    weights, cache, prompts = (bytes_per_device(recorder.results[key]) for key in ("publish", "empty", "prefill"))
    beside = {
        "publish": always - bytes_per_device(own.abstract_params),
        "empty": always + weights,
        "prefill": always + cache,
        "insert": always + weights,
        "take_slots": always + weights + prompts,
        "decode": always + prompts,
    }
    jobs = [Job(name, "rollout", each, beside[each.kind]) for each in recorder.programs.values()]
    return jobs, {"published weights": weights, "cache of slots": cache, "cache of prompts": prompts}


def _batches(config: ConfigDict, own: PlayerPrograms) -> list[TrainBatch]:
    """A micro-batch of each shape as the update takes it, in shapes."""
    by_rows = batch_sharding(own.mesh)

    def placed(shape: RowShape) -> TrainBatch:
        batch = empty_batch(shape, pad_id=0)
        scores = np.zeros(batch.tokens.shape, np.float32)
        batch = with_scores(
            batch,
            scores if config.old_log_probs == "trainer" else None,
            scores if kl_in_loss(config) else None,
        )
        return laid_out(batch, jax.tree.map(lambda _: by_rows, batch))

    return [placed(shape) for shape in own.row_shapes]


def _queued_batches(config: ConfigDict, name: str, longest: TrainBatch) -> int:
    """Bytes of all micro-batches of a training step, with the log-probs of the update, if all rows are the longest."""
    per_batch = bytes_per_device(longest) + bytes_per_device(longest.advantages)
    return per_batch * -(-trained_sequences(config, name) // longest.tokens.shape[0])


def _learning(
    name: str, config: ConfigDict, own: PlayerPrograms, batches: list[TrainBatch], present: int
) -> Iterator[Job]:
    """`present` is what is in memory, the player's own state included."""
    params = own.abstract_params
    without_params = present - bytes_per_device(params)
    for batch in batches:
        rows = "{} x {}".format(*batch.tokens.shape)
        program = Program("score", f"score {rows}", own.score, (params, batch.tokens, config.temperature))
        yield Job(name, "learn", program, without_params)
    yield from _updating(name, "", own.update, own.abstract_state, batches, present)


def _critic_learning(name: str, critic: CriticPrograms, batches: list[TrainBatch], present: int) -> Iterator[Job]:
    state = critic.abstract_state
    for batch in batches:
        rows = "{} x {}".format(*batch.tokens.shape)
        program = Program("values", f"values {rows}", critic.values, (state.params, batch.tokens))
        yield Job(name, "learn", program, present - bytes_per_device(state.params))
    of_values = [
        ValueBatch(batch.tokens, batch.response_mask, batch.loss_weights, batch.rewards, batch.rewards)
        for batch in batches
    ]
    yield from _updating(name, "critic ", critic.update, state, of_values, present)


def _updating(
    name: str, prefix: str, update: Update, state: TrainState, batches: list[Any], present: int
) -> Iterator[Job]:
    gradients = laid_out(update.zeros.eval_shape(state.params), jax.tree.map(lambda x: x.sharding, state.params))
    # The zeros are made from shapes alone: the parameters are no argument of the compiled program.
    yield Job(name, "learn", Program(f"{prefix}zeros", f"{prefix}zeros", update.zeros, (state.params,)), present)
    for batch in batches:
        rows = "{} x {}".format(*batch.tokens.shape)
        arguments = (state.params, gradients, batch)
        program = Program(f"{prefix}accumulate", f"{prefix}accumulate {rows}", update.accumulate, arguments)
        yield Job(name, "learn", program, present - bytes_per_device(state.params))
    program = Program(f"{prefix}apply", f"{prefix}apply", update.apply, (state, gradients, 1e-6))
    yield Job(name, "learn", program, present - bytes_per_device(state))
