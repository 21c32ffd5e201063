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
    residents = kept(players, models)
    always = sum(residents.values())
    by_turns: dict[str, int] = {}
    jobs: list[Compilation] = []
    for name, player in players.items():
        turns = generating(player)
        published = turns["published weights"]
        for function in player.generation:
            jobs.append(Compilation(name, "rollout", function, _others(player, function, always, published)))
        if player.learns:
            # All micro-batches of a step, with the log-probs of the update, as if all rows were the longest.
            longest = player.abstract_batches[-1]
            per_batch = bytes_per_device(longest) + bytes_per_device(longest.advantages_BT)
            queued = per_batch * -(-config.trained_sequences(name) // longest.tokens_BT.shape[0])
            for function in player.learning:
                jobs.append(Compilation(name, "learn", function, _others(player, function, always + queued)))
            turns["micro-batches"] = queued
        by_turns |= {f"{name}: {turn}": size for turn, size in turns.items() if size}
    return Plan(players, jobs, residents | by_turns)


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


def _others(player: PlayerFunctions, function: Function, present: int, published: int = 0) -> int:
    """Returns what is in memory besides a function's arguments and results.

    Args:
      present: bytes that are there whichever function runs, some arguments among them.
      published: those of the weights that generation has besides.
    """
    given = [*map(bytes_per_device, function.arguments)]
    match function.kind:
        case "publish":
            return present - sum(given)
        case "empty" | "copy_pages":
            return present + published
        case "prefill" | "decode":  # of weights that are published, or there already
            return present + published - given[0]
        case "accumulate":  # the frozen base comes after the parameters
            return present - given[0] - bytes_per_device(player.abstract_base)
        case kind:  # parameters or states come first; the parameters of zeros are no arguments, see `Update`
            return present - (0 if kind.endswith("zeros") else given[0])
