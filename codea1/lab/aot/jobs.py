"""Every compiled function of a run on a mesh, and what else is in a chip's memory while each runs.

The players live on all chips and take turns. Their references, states and critics are always there. While one
generates, its published weights and the pages of its cache are there too; while one learns, the micro-batches of all
its mini-batches.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jax.sharding import Mesh

from codea1.config import Config
from codea1.game.methods import METHODS
from codea1.models.config import PUBLISHED, PUBLISHED_IDS, Qwen2Config
from codea1.players.base import Model, Start
from codea1.players.functions import PlayerFunctions, functions_of_players
from codea1.players.memory import bytes_per_device, generating, kept
from codea1.runtime.compilations import Function


@dataclass(frozen=True)
class Compilation:
    """One function of one player, to be compiled."""

    player: str
    phase: str  # "rollout" or "learn"
    function: Function
    others: int  # bytes on a chip that are neither its arguments nor its results


@dataclass(frozen=True)
class Plan:
    """All that is compiled for a run on a mesh."""

    players: Mapping[str, PlayerFunctions]
    jobs: list[Compilation]
    residents: Mapping[str, int]  # bytes on a chip, by what they are; those of generation are there by turns


def models(config: Config) -> Mapping[str, Model]:
    """Returns the model of each policy: by the name in its `shape`, or else from the files of its folder.

    Raises BadInput for a folder that cannot be read.
    """
    models = {}
    for name in METHODS[config.method].policies:
        player = config.policy(name)
        if player.shape:
            source = f"shape {player.shape} by name, no file read"
            models[name] = Model(PUBLISHED[player.shape], PUBLISHED_IDS, source, f"{player.shape} in {player.model}")
        else:
            start = Start(player.model)
            models[name] = start.described(start.tokenizer())
    return models


def plan(config: Config, mesh: Mesh, models: Mapping[str, Model]) -> Plan:
    """Lists the functions of the players in `models`; a frozen one generates alone, and has nothing but parameters.

    Raises BadInput when the mesh cannot cut one of them.
    """
    players = functions_of_players(config, mesh, models)
    always = kept(players, models)
    by_turns: dict[str, int] = {}
    others = sum(always.values())
    jobs: list[Compilation] = []
    for name, player in players.items():
        generation, turns = _generation(name, player, others)
        jobs += generation
        if player.learns:
            # All micro-batches of a step, with the log-probs of the update, as if all rows were the longest.
            longest = player.abstract_batches[-1]
            per_batch = bytes_per_device(longest) + bytes_per_device(longest.advantages_BT)
            queued = per_batch * -(-config.trained_sequences(name) // longest.tokens_BT.shape[0])
            jobs += _learning(name, player, sum(always.values()) + queued)
            turns["micro-batches"] = queued
        by_turns |= {f"{name}: {turn}": size for turn, size in turns.items() if size}
    return Plan(players, jobs, always | by_turns)


def largest(plan: Plan) -> list[Compilation]:
    """Returns of each kind the job with the most in memory, and of those the last; players of one model share them.

    All micro-batches hold about the same number of tokens and have the logits of as many alive at once; the longest
    rows, which come last, have the most attention.
    """
    chosen: dict[tuple[str, Qwen2Config], tuple[int, Compilation]] = {}
    for job in plan.jobs:
        key = job.function.kind, plan.players[job.player].model
        size = job.others + bytes_per_device(job.function.arguments)
        if key not in chosen or size >= chosen[key][0]:
            chosen[key] = size, job
    return [job for _, job in chosen.values()]


def _generation(name: str, player: PlayerFunctions, present: int) -> tuple[list[Compilation], dict[str, int]]:
    """Returns the jobs of generation, and what is there by turns; `present` as in `_learning`."""
    turns = generating(player)
    published = turns["published weights"]
    publish = next(function for function in player.generation if function.kind == "publish")
    taken = bytes_per_device(publish.arguments)
    in_place = bytes_per_device(player.abstract_params) - taken
    others = {
        "publish": present - taken,
        "empty": present + published,
        "prefill": present - in_place,
        "copy_pages": present + published,
        "decode": present - in_place,
    }
    jobs = [Compilation(name, "rollout", function, others[function.kind]) for function in player.generation]
    return jobs, turns


def _learning(name: str, player: PlayerFunctions, present: int) -> list[Compilation]:
    """Returns the jobs of learning; `present` are the bytes in memory whichever function runs."""
    jobs = []
    for function in player.learning:
        # Parameters or states, which come first, are there already, and the frozen base after them; the parameters of
        # zeros are no arguments, see `Update`.
        known = 0 if function.kind.endswith("zeros") else bytes_per_device(function.arguments[0])
        known += bytes_per_device(player.abstract_base) if function.kind == "accumulate" else 0
        jobs.append(Compilation(name, "learn", function, present - known))
    return jobs
