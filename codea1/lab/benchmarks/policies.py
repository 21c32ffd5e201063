"""Policies that only answer: of a run's checkpoint, or in a folder. They hold no optimizer state."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from codea1.config import DEFAULT, Config
from codea1.game.methods import METHODS
from codea1.models.kv_cache import page_bytes, page_size
from codea1.models.lora import join
from codea1.players.base import Start, require_base
from codea1.players.dtype import fastest_dtype
from codea1.players.functions import PlayerFunctions
from codea1.players.memory import require_memory_of_policy
from codea1.players.policy import Policy
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sharding import make_mesh
from codea1.training.stored_config import config_of

# Of a folder, which states none: tokens of prompts and of responses, and slots; lengths that shorter prompts are padded
# to; and for which part of the slots there are pages for the longest sequences, at least for one.
MODEL_LENGTHS = (4096, 2048, 64)
PROMPT_LENGTHS = (256, 512, 1024, 2048)
PART_OF_PAGES = 8


def lengths_of(role: str, run: RunFolder | None, given: tuple[int, int, int]) -> tuple[int, int, int]:
    """Returns lengths of prompts and of responses in tokens, and slots: as given, and for 0 a run's own or a folder's.

    Raises BadInput: the run's config cannot be read.
    """
    usual = MODEL_LENGTHS
    if run:
        config = config_of(run)
        policy = config.policy(METHODS[config.method].roles[role])
        usual = policy.max_prompt_length, policy.max_response_length, config.rollout.slots
    prompt, response, slots = (wish or other for wish, other in zip(given, usual, strict=True))
    return prompt, response, slots


def policy_of_folder(
    role: str, url: str, lengths: tuple[int, int, int], thinking: str = "", stop_at_block: bool = False
) -> Policy:
    """Returns the model in a folder, local or gs://, or adapters on theirs; `lengths` as `policy_of_run` takes them.

    `thinking` is "on" or "off", or "" for what its chat template does by itself.

    Raises BadInput: there is no whole model or no tokenizer, or the devices cannot be used for it.
    """
    prompt, response, slots = lengths_of(role, None, lengths)
    start, platform = Start(url), jax.devices()[0].platform
    dtype, _ = fastest_dtype(platform)
    page = page_bytes(dataclasses.replace(start.model(), dtype=dtype, platform=platform), 1)
    longest = -(-(prompt + response) // page_size(platform)) + 1
    pages = max(slots // jax.device_count() // PART_OF_PAGES, 1) * longest + 1
    changes = {
        "frozen": role,
        "model.dtype": dtype,
        "rollout.cache_gib": pages * page / 2**30,
        f"{role}.model": url,
        f"{role}.thinking": thinking,
        f"{role}.stop_at_block": stop_at_block,
        f"{role}.prompt_lengths": PROMPT_LENGTHS,
    }
    config = _answering(DEFAULT, role, (prompt, response, slots), changes)
    functions = _functions(role, config, start)
    params = join(functions.place_adapters(start), functions.place_base(start))
    return Policy(functions, start.tokenizer(thinking), params)


def policy_of_run(
    run: RunFolder, step: int, role: str, lengths: tuple[int, int, int], hosts: Hosts, thinking: str = ""
) -> Policy:
    """Returns one player of a run at one of its checkpoints.

    Args:
      step: one of its checkpoints that `Checkpoints.named` has examined.
      role: "code" or "test".
      lengths: of prompts and of responses in tokens, and how many samples decode at once; each 0 for the run's own.
      thinking: as `policy_of_folder` takes it, but "" for what the run's config says.

    Raises:
      BadInput: there is no such player or checkpoint, or the folder that it started from is missing.
    """
    with hosts.agreed():
        config = config_of(run)
        roles = METHODS[config.method].roles
        if role not in roles:
            raise BadInput(f"{run.path} has no {role} policy: its method is {config.method}.")
        prompt, response, slots = lengths_of(role, run, lengths)
        role = roles[role]  # in self-play one policy plays both
        checkpoints = Checkpoints.reader(run.checkpoints)
        given = {f"{role}.thinking": thinking} if thinking else {}
        config = _answering(config, role, (prompt, response, slots), given)
        start = Start(config.policy(role).model)
        functions = _functions(role, config, start)
    base = functions.place_base(start) if functions.abstract_base else {}
    hosts.of_main(lambda: require_base(config, role, checkpoints, step))
    trained = functions.restore_params(checkpoints, step) if functions.learns else functions.place_adapters(start)
    return Policy(functions, start.tokenizer(config.policy(role).thinking), join(trained, base), config.seed)


def _answering(config: Config, role: str, lengths: tuple[int, int, int], changes: Mapping[str, Any]) -> Config:
    """Returns a config with changes and other lengths, by whose rows nothing learns."""
    prompt, response, slots = lengths
    padded = changes.get(f"{role}.prompt_lengths", config.policy(role).prompt_lengths)
    of_role = {
        "max_prompt_length": prompt,
        "max_response_length": response,
        "prompt_lengths": tuple(length for length in padded if length < prompt),
        "row_lengths": (),
        "share_prompts": False,
        "overlong_buffer": 0,
    }
    devices = jax.device_count()
    changes = {**changes, "rollout.slots": -(-slots // devices) * devices}
    return config.with_changes(changes | {f"{role}.{name}": value for name, value in of_role.items()})


def _functions(role: str, config: Config, start: Start) -> PlayerFunctions:
    mesh = make_mesh(1, -1, 1)  # cut over all devices there are, whatever the run had
    functions = PlayerFunctions(role, config, start.described(start.tokenizer()), mesh)
    require_memory_of_policy(functions)
    return functions
