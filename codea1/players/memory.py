"""What a run keeps in the memory of a device, by shapes alone, and whether that can fit: told before weights are read.

A bound from below: activations, logits, micro-batches and temporaries come on top, which `codea1.compile_tpu` knows.
"""

import contextlib
import math
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from codea1.config import Config
from codea1.learn.update import abstract_gradients
from codea1.models.flops import GIB
from codea1.players.base import Model
from codea1.players.functions import PlayerFunctions, functions_of_players, has_reference
from codea1.runtime.errors import BadInput
from codea1.runtime.memory import available_memory

CACHE = "pages of keys and values"
Parts = dict[str, int]  # bytes by what they are


def bytes_per_device(tree: Any) -> int:
    """Returns the bytes of a pytree of shapes on each device; what has no sharding is on every one whole."""
    total = 0
    for x in jax.tree.leaves(tree):
        local = x.sharding.shard_shape(x.shape) if x.sharding else x.shape
        total += math.prod(local) * np.dtype(x.dtype).itemsize
    return total


def kept(players: Mapping[str, PlayerFunctions], models: Mapping[str, Model]) -> Parts:
    """Returns what is on each device whatever runs: bases once, references, and all that training changes."""
    parts: Parts = {}
    bases: set[str] = set()
    for name, functions in players.items():
        base = bytes_per_device(functions.abstract_base)
        if base and models[name].base not in bases:
            parts[f"{name}: {'frozen base' if functions.learns else 'parameters'}"] = base
            bases.add(models[name].base)
        if not functions.learns:
            if functions.model.lora_rank:
                parts[f"{name}: adapters"] = bytes_per_device(functions.abstract_state.params)
            continue
        if has_reference(functions.config):
            parts[f"{name}: reference"] = bytes_per_device(functions.abstract_state.params)
        parts[f"{name}: parameters and moments"] = bytes_per_device(functions.abstract_state)
        if functions.critic:
            parts[f"{name}: critic and its optimizer"] = bytes_per_device(functions.critic.abstract_state)
    return parts


def generating(player: PlayerFunctions) -> Parts:
    """Returns what is on each device besides while a player answers."""
    functions = {function.kind: function for function in player.generation}
    weights, cache = map(bytes_per_device, functions["prefill"].arguments[:2])
    in_place = bytes_per_device(player.abstract_params) - bytes_per_device(functions["publish"].arguments)
    return {"published weights": weights - in_place, CACHE: cache}


def device_memory() -> int | None:
    """Returns the bytes that this process may have on a device of this host; None where nothing tells.

    Of a CPU that is what the machine has left, however many virtual devices share it.
    """
    devices = jax.local_devices()
    limits: list[int] = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in devices]
    if any(limits):
        return min(filter(None, limits))
    return available_memory() if devices[0].platform == "cpu" else None


def require_memory(config: Config, players: Mapping[str, PlayerFunctions], models: Mapping[str, Model]) -> None:
    """Raises BadInput: what a run has on a device at once cannot fit. Names the largest parts and what would help."""
    limit, parts = device_memory(), memory_of_run(players, models)
    if limit is None or sum(parts.values()) <= limit:
        return
    mesh = next(iter(players.values())).mesh
    helps = next(_remedies(config, mesh, models, limit), None)
    advice = helps or "it takes a smaller model, or more devices to cut it over (config.mesh)"
    raise BadInput(f"{_told(parts, limit)}; {advice}.")


def require_memory_of_policy(player: PlayerFunctions) -> None:
    """Raises BadInput: the weights of a policy that only answers, and the pages of its cache, cannot fit."""
    limit, parts = device_memory(), {"weights": bytes_per_device(player.abstract_params), **generating(player)}
    if limit is not None and sum(parts.values()) > limit:
        raise BadInput(f"{_told(parts, limit)}; fewer slots and shorter lengths take fewer pages.")


def memory_of_run(players: Mapping[str, PlayerFunctions], models: Mapping[str, Model]) -> Parts:
    """Returns what is on a device when most is, of that which shapes tell."""
    turns = [{f"{name}: {part}": size for part, size in generating(player).items()} for name, player in players.items()]
    for name, player in players.items():
        if player.learns:
            gradients = bytes_per_device(abstract_gradients(player.abstract_state.params))
            turns.append({f"{name}: gradients": gradients})
    return kept(players, models) | max(turns, key=lambda turn: sum(turn.values()))


def _told(parts: Parts, limit: int) -> str:
    largest = sorted(parts.items(), key=lambda part: -part[1])[:4]
    named = ", ".join(f"{part} {size / GIB:.3g}" for part, size in largest if size)
    where = "this machine" if jax.local_devices()[0].platform == "cpu" else "a device"
    return (
        f"{where} has {limit / GIB:.3g} GiB of memory left, and at least {sum(parts.values()) / GIB:.3g} are needed at "
        f"once ({named})"
    )


def _remedies(config: Config, mesh: Mesh, models: Mapping[str, Model], limit: int) -> Iterator[str]:
    """Yields flags with which a run fits, as far as shapes tell, and what they lead to; the least changes first."""
    learners = [name for name in models if config.frozen != name and not config.policy(name).lora.rank]
    wanted: list[dict[str, Any]] = [
        {"model.dtype": "bfloat16"},
        {f"{name}.lora.rank": 16 for name in learners},
    ]
    for changes in ({}, *wanted, dict(ChainMap(*wanted))):
        with contextlib.suppress(BadInput):  # what cannot be so, such as adapters with a critic
            changed = config.with_changes(changes)
            parts = memory_of_run(functions_of_players(changed, mesh, models), models)
            pages = max((size for part, size in parts.items() if part.endswith(CACHE)), default=0)
            fitting = math.floor((pages - sum(parts.values()) + limit) / GIB * 100) / 100
            if 0 < fitting * GIB < pages:
                changes = {**changes, "rollout.cache_gib": fitting}
                changed = config.with_changes(changes)
            players = functions_of_players(changed, mesh, models)
            if (fewer := sum(memory_of_run(players, models).values())) <= limit:
                flags = " ".join(f"--config.{key}={value}" for key, value in changes.items())
                yield f"with {flags} they would be {fewer / GIB:.3g}"
