"""The models of a run's players without their weights."""

from collections.abc import Mapping
from dataclasses import dataclass

from ml_collections import ConfigDict

from codea1.data.tokenizer import load_tokenizer
from codea1.game.methods import METHODS
from codea1.models import config_json, shapes
from codea1.models.config import Qwen2Config
from codea1.models.config_json import SpecialIds
from codea1.models.files import ModelFolder


@dataclass(frozen=True)
class Model:
    """What decides a player's programs."""

    config: Qwen2Config
    ids: SpecialIds
    source: str  # where this is known from


def models(config: ConfigDict) -> Mapping[str, Model]:
    """The model of each policy: by the name in its `shape`, or else from the files of its folder.

    Raises BadInput for a folder that cannot be read.
    """
    return {name: _model(config[name]) for name in METHODS[config.method].policies}


def _model(player: ConfigDict) -> Model:
    if player.shape:
        source = f"shape {player.shape} by name, no file read"
        return Model(shapes.PUBLISHED[player.shape], shapes.PUBLISHED_IDS, source)
    tokenizer = load_tokenizer(player.model)
    ids = SpecialIds(tokenizer.stop_ids, tokenizer.pad_id)
    return Model(config_json.read(ModelFolder(player.model)), ids, f"config.json of {player.model}")
