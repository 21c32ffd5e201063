"""Every compiled function of a run on a mesh, and what else is in a chip's memory while each runs.

The players live on all chips and take turns. Their references, states and critics are always there. While one
generates, its published weights and the pages of its cache are there too; while one learns, the micro-batches of all
its mini-batches.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from codea1.config import trained_sequences
from codea1.game.methods import METHODS
from codea1.models.config import PUBLISHED, PUBLISHED_IDS, Qwen2Config, SpecialIds
from codea1.players.base import Start
from codea1.players.functions import PlayerFunctions, has_reference
from codea1.runtime.compilations import Function


@dataclass(frozen=True)
class Model:
    """A player's model without its weights."""

    config: Qwen2Config
    ids: SpecialIds
    source: str  # where this is known from
    base: str  # what two players on one base have in common


@dataclass(frozen=True)
class Compilation:
    """One function of one player, to be compiled."""

    player: str
    phase: str  # "rollout" or "learn"
    function: Function
    beside: int  # bytes on a chip that are neither its arguments nor its results


@dataclass(frozen=True)
class Plan:
    """All that is compiled for a run on a mesh."""

    players: Mapping[str, PlayerFunctions]
    jobs: list[Compilation]
    residents: Mapping[str, int]  # bytes on a chip, by what they are; those of generation are there by turns


def models(config: ConfigDict) -> Mapping[str, Model]:
    """Returns the model of each policy: by the name in its `shape`, or else from the files of its folder.

    Raises BadInput for a folder that cannot be read.
    """
    found = {}
    for name in METHODS[config.method].policies:
        player = config[name]
        if player.shape:
            source = f"shape {player.shape} by name, no file read"
            found[name] = Model(PUBLISHED[player.shape], PUBLISHED_IDS, source, f"{player.shape} in {player.model}")
        else:
            start = Start(player.model)
            tokenizer = start.tokenizer()
            ids = SpecialIds(tokenizer.stop_ids, tokenizer.pad_id)
            found[name] = Model(start.model(), ids, f"config.json of {start.base}", start.base.place)
    return found


def plan(config: ConfigDict, mesh: Mesh, models: Mapping[str, Model]) -> Plan:
    """Lists the functions of the players in `models`; a frozen one generates alone, and has nothing but parameters.

    Raises BadInput when the mesh cannot cut one of them.
    """
    players = {name: PlayerFunctions(name, config, mesh, model.config, model.ids) for name, model in models.items()}
    always: dict[str, int] = {}
    seen: list[str] = []
    by_turns: dict[str, int] = {}
    jobs: list[Compilation] = []
    for name, own in players.items():
        base = bytes_per_device(own.abstract_base)
        if base and not any(models[name].base == models[other].base and players[other].abstract_base for other in seen):
            always[f"{name}: {'frozen base' if own.learns else 'parameters'}"] = base
        seen.append(name)
        if not own.learns:
            if own.model.lora_rank:
                always[f"{name}: adapters"] = bytes_per_device(own.abstract_state.params)
            continue
        if has_reference(config[name]):
            always[f"{name}: reference"] = bytes_per_device(own.abstract_state.params)
        always[f"{name}: parameters and moments at rest"] = bytes_per_device(_on_chips(own))
        if own.critic:
            always[f"{name}: critic and its optimizer"] = bytes_per_device(own.critic.abstract_state)
    for name, own in players.items():
        generation, turns = _generation(name, own, sum(always.values()))
        jobs += generation
        if own.learns:
            # All micro-batches of a step, with the log-probs of the update, as if all rows were the longest.
            longest = own.abstract_batches[-1]
            per_batch = bytes_per_device(longest) + bytes_per_device(longest.advantages_BT)
            queued = per_batch * -(-trained_sequences(config, name) // longest.tokens_BT.shape[0])
            fetched = bytes_per_device(own.abstract_state) - bytes_per_device(_on_chips(own))
            jobs += _learning(name, own, sum(always.values()) + queued, fetched)
            turns |= {"micro-batches": queued, "moments from the host": fetched}
        by_turns |= {f"{name}: {what}": size for what, size in turns.items() if size}
    return Plan(players, jobs, always | by_turns)


def largest(plan: Plan) -> list[Compilation]:
    """Returns of each kind the job with the most in memory, and of those the last; players of one model share them.

    All micro-batches hold about the same number of tokens and have the logits of as many alive at once; the longest
    rows, which come last, have the most attention.
    """
    chosen: dict[tuple[str, Qwen2Config], tuple[int, Compilation]] = {}
    for job in plan.jobs:
        key = job.function.kind, plan.players[job.player].model
        size = job.beside + bytes_per_device(job.function.arguments)
        if key not in chosen or size >= chosen[key][0]:
            chosen[key] = size, job
    return [job for _, job in chosen.values()]


def bytes_per_device(tree: Any) -> int:
    """Returns the bytes of a pytree of shapes on each device; what has no sharding is on every one whole."""
    total = 0
    for x in jax.tree.leaves(tree):
        local = x.sharding.shard_shape(x.shape) if x.sharding else x.shape
        total += math.prod(local) * np.dtype(x.dtype).itemsize
    return total


def _on_chips(own: PlayerFunctions) -> list[jax.ShapeDtypeStruct]:
    """Returns what of a resting player's state is in the memory of the chips."""
    parts = zip(jax.tree.leaves(own.abstract_state), jax.tree.leaves(own.resting), strict=True)
    return [part for part, sharding in parts if sharding.memory_kind != "pinned_host"]


def _generation(name: str, own: PlayerFunctions, always: int) -> tuple[list[Compilation], dict[str, int]]:
    decode = next(function for function in own.generation if function.kind == "decode")
    publish = next(function for function in own.generation if function.kind == "publish")
    weights, cache = map(bytes_per_device, decode.arguments[:2])
    taken = bytes_per_device(publish.arguments)
    kept = bytes_per_device(own.abstract_params) - taken  # weights that are not copied
    beside = {
        "publish": always - taken,
        "empty": always + weights - kept,
        "prefill": always - kept,
        "copy_pages": always + weights - kept,
        "decode": always - kept,
    }
    jobs = [Compilation(name, "rollout", each, beside[each.kind]) for each in own.generation]
    return jobs, {"published weights": weights - kept, "pages of keys and values": cache}


def _learning(name: str, own: PlayerFunctions, present: int, fetched: int) -> list[Compilation]:
    """Returns the jobs of learning.

    Args:
      present: bytes in memory whichever function runs.
      fetched: what the policy's moments add to that while it learns.
    """
    of_critic = own.critic.functions if own.critic else []
    jobs = []
    for function in own.learning:
        # Parameters or states, which come first, are there already, and the frozen base after them; the parameters of
        # zeros are no arguments, see `Update`.
        known = 0 if function.kind.endswith("zeros") else bytes_per_device(function.arguments[0])
        known += bytes_per_device(own.abstract_base) if function.kind == "accumulate" else 0
        jobs.append(Compilation(name, "learn", function, present - known + (0 if function in of_critic else fetched)))
    return jobs
