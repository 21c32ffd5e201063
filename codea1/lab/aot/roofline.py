"""A lower bound on the time of a training step on a slice, from hand-counted work and what its chips can do.

Each phase takes as long as the slowest of arithmetic, memory and links alone, at their peak, with perfect overlap and
no padding but that of static shapes. It is a bound, not an estimate: a real step takes longer. What slices send each
other is not in it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from codea1.config import Config
from codea1.game.methods import METHODS
from codea1.lab.aot import work
from codea1.lab.aot.work import Chip, Cut, Work
from codea1.players.functions import PlayerFunctions, has_reference
from codea1.rollout.scheduler import smallest


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of one role's prompts and responses: an assumption, no config knows them."""

    prompt: int
    response: int


# Of the paper's kind of question: a few hundred tokens of statement and template, a function, a suite of eight asserts.
ASSUMED = {"code": Lengths(400, 250), "test": Lengths(900, 350)}


@dataclass(frozen=True)
class Phase:
    """One phase of a training step."""

    name: str
    seconds: float
    bound: str  # what takes that long: "arithmetic", "memory" or "links"


@dataclass(frozen=True)
class Roofline:
    """One training step."""

    seconds: float  # of all phases, one after another
    tokens_per_second_per_chip: float  # response tokens over the whole step
    lengths: Mapping[str, Lengths]  # by role
    phases: list[Phase]


def estimate(config: Config, players: Mapping[str, PlayerFunctions], chip: Chip) -> Roofline:
    """Returns the least time of a training step of these players. A critic counts as a second policy that learns."""
    phases, response_tokens, chips, lengths = [], 0, 1, {}
    for role, name in METHODS[config.method].roles.items():
        player, lengths[role] = players[name], ASSUMED[role]
        shape = player.mesh.shape
        cut = Cut(data=shape["replica"] * shape["fsdp"], fsdp=shape["fsdp"], tensor=shape["tensor"])
        done = _generation(config, role, player, cut, lengths[role])
        if name != config.frozen:
            done |= _learning(config, name, role, player, cut, lengths[role])
        chips = cut.chips
        phases += [_phase(f"{role}: {phase}", work, chips, chip) for phase, work in done.items()]
        response_tokens += math.prod(counts(role, config)) * lengths[role].response
    seconds = sum(phase.seconds for phase in phases)
    return Roofline(seconds, response_tokens / seconds / chips, lengths, phases)


def counts(role: str, config: Config) -> tuple[int, int]:
    """Returns how many prompts a role has in a step, and how many samples of each."""
    if role == "code":
        return config.questions_per_step, config.game.num_solutions
    return config.questions_per_step * config.game.num_solutions, config.game.num_suites


def _generation(config: Config, role: str, player: PlayerFunctions, cut: Cut, lengths: Lengths) -> dict[str, Work]:
    sizes = player.engine.sizes
    prompts, samples = counts(role, config)
    prompt_length = smallest(sizes.prompt_lengths, lengths.prompt)
    batches = math.ceil(prompts / sizes.prompts[-1])
    slots = sizes.slots[-1]
    steps = prompts * samples * lengths.response / slots
    positions = lengths.prompt + lengths.response // 2
    return {
        "publish": work.publish(player.model, cut),
        "prefill": work.prefill(player.model, sizes.prompts[-1], prompt_length, cut) * batches,
        "decode": work.decode_step(player.model, slots, positions, cut) * steps,
    }


def _learning(
    config: Config, name: str, role: str, player: PlayerFunctions, cut: Cut, lengths: Lengths
) -> dict[str, Work]:
    """Returns the work on a role's samples by what it is for.

    A policy of several roles makes its optimizer steps on all of them together; they are counted with the first.
    """
    section, model = config.policy(name), player.model
    sequences = config.questions_per_step * config.trained_per_question()[role]
    samples, in_row, visible = 1, 1.0, 1.0
    if section.share_prompts:
        _, samples = counts(role, config)
    group = lengths.prompt + samples * lengths.response
    shape = next((s for s in player.layout.shapes if s.length >= group), player.layout.shapes[-1])
    if section.share_prompts:
        in_row = shape.length / group
        pairs = lengths.prompt**2 + samples * ((lengths.prompt + lengths.response) ** 2 - lengths.prompt**2)
        visible = in_row * pairs / shape.length**2
    batches = section.mini_batches * math.ceil(sequences / samples / in_row / section.mini_batches / shape.rows)
    old = (1 - 1 / section.mini_batches) * (section.old_log_probs == "trainer")  # the first is scored by its update
    scores = old + has_reference(section)
    learners = 2 if section.advantage == "gae" else 1
    is_first = role == METHODS[config.method].roles_of(name)[0]
    optimizer = work.optimizer(model) * section.mini_batches * learners
    return {
        "log-probs": work.score(model, shape.rows, shape.length, cut, visible) * batches * (scores + learners - 1),
        "update": work.update(model, shape.rows, shape.length, cut, visible) * batches * learners,
        **({"optimizer": optimizer} if is_first else {}),
    }


def _phase(name: str, done: Work, chips: int, chip: Chip) -> Phase:
    # One direction of each axis: slices below a full cube or pod have no wrap-around links to use the other with.
    links = chip.ici_bandwidth * chip.ici_axes
    seconds = {
        "arithmetic": done.flops / (chips * chip.flops),
        "memory": done.hbm_bytes / (chips * chip.hbm_bandwidth),
        "links": done.ici_bytes / (chips * links),
    }
    bound = max(seconds, key=seconds.__getitem__)
    return Phase(name, seconds[bound], bound)
