"""The base of a player's adapters. A run's checkpoints hold none of its weights, but what tells it from another."""

from ml_collections import ConfigDict

from codea1.models.huggingface import Checkpoint
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime.errors import BadInput


def base_checksums(config: ConfigDict, players: list[str]) -> dict[str, str]:
    """Returns the checksums of the bases of those players that have adapters. Reads their files whole."""
    adapted = [name for name in players if config[name].lora.rank and config.frozen != name]
    return {name: Checkpoint(config[name].model).checksum() for name in adapted}


def require_base(config: ConfigDict, player: str, checkpoints: Checkpoints, step: int) -> None:
    """Raises BadInput where the adapters that a player had at a step belong to another base than there is now."""
    for found in base_checksums(config, [player]).values():
        if found != (saved := checkpoints.state(step).get("bases", {}).get(player)):
            raise BadInput(
                f"{config[player].model} is not the base that the adapters of the {player} policy learned on: its "
                f"checksum is {found}, and was {saved}."
            )
