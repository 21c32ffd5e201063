"""What a player starts from: a model's folder, or a folder of adapters on a base that lies in another.

A run's checkpoints hold none of the weights of a base, but what tells it from another.
"""

import dataclasses
import functools
from collections.abc import Sequence

from ml_collections import ConfigDict

from codea1.data.tokenizer import ChatTokenizer, load_tokenizer
from codea1.models import config_json
from codea1.models.config import Qwen2Config, SpecialIds
from codea1.models.files import ModelFolder
from codea1.models.huggingface import Checkpoint
from codea1.models.peft import Adapters, holds_adapters
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime.errors import BadInput


@dataclasses.dataclass(frozen=True)
class Model:
    """A player's model without its weights."""

    config: Qwen2Config
    ids: SpecialIds
    source: str  # where this is known from
    base: str  # what players on one base have in common


class Start:
    """The folders that a player starts from."""

    def __init__(self, url: str) -> None:
        """Opens the folder and, if it holds adapters, their base. Raises BadInput: either cannot be opened or used."""
        folder = ModelFolder(url)
        folder.require_model_here()
        self.adapters = Adapters(url) if holds_adapters(folder) else None
        self.base = self.adapters.base_folder() if self.adapters else folder
        # Adapters may bring the tokenizer that they learned with.
        self.tokenizer_folder = folder if "tokenizer_config.json" in folder.names() else self.base

    def model(self) -> Qwen2Config:
        """Returns the base's configuration, with the rank and alpha of the adapters where there are some."""
        base = config_json.read(self.base)
        if self.adapters is None:
            return base
        return dataclasses.replace(base, lora_rank=self.adapters.rank, lora_alpha=self.adapters.alpha)

    def described(self, tokenizer: ChatTokenizer) -> Model:
        """Returns what is known of the model, without reading weights. Raises BadInput: it lacks tokens."""
        ids, model = SpecialIds(tokenizer.stop_ids, tokenizer.pad_id), self.model()
        if (last := max(tokenizer.vocabulary.values())) >= model.vocab_size:
            tokens = f"{self.tokenizer_folder} has tokens up to {last}"
            raise BadInput(f"{tokens}, and the vocab_size of {self.base} is {model.vocab_size}.")
        return Model(model, ids, f"config.json of {self.base}", self.base.place)

    def require_base(self) -> None:
        """Raises BadInput where the adapters name another checksum than their base has, which is read whole."""
        if self.adapters and self.adapters.base.checksum is not None:
            self.adapters.require_base(self.checksum())

    def checksum(self, *, with_adapters: bool = False) -> str:
        """Returns the checksum of the base, whose files a process reads once; behind a space that of the adapters."""
        own = f" {self.adapters.checksum()}" if with_adapters and self.adapters else ""
        return f"{_checksum(self.base.url)}{own}"

    def checkpoint(self) -> Checkpoint:
        """Returns the base's weights, of which the headers are read."""
        return Checkpoint(self.base.url)

    def tokenizer(self, thinking: str = "") -> ChatTokenizer:
        """Loads the tokenizer; see `load_tokenizer`."""
        return load_tokenizer(self.tokenizer_folder.url, thinking, self.base)


@functools.cache
def _checksum(url: str) -> str:
    return Checkpoint(url).checksum()


def base_checksums(config: ConfigDict, players: Sequence[str], *, references: bool = False) -> dict[str, str]:
    """Returns the checksums of what players are made of and never changes: bases of adapters, and frozen players.

    With `references` also of what they are held close to while they learn. Reads their files whole.
    """
    found = {}
    for name in players:
        is_whole = config.frozen == name or (references and config[name].kl_coefficient > 0)
        if is_whole or config[name].lora.rank:
            found[name] = Start(config[name].model).checksum(with_adapters=is_whole)
    return found


def require_base(
    config: ConfigDict, player: str, checkpoints: Checkpoints, step: int, *, reference: bool = False
) -> None:
    """Raises BadInput where a player started from another model than there is now, of which it still has something.

    See `base_checksums`.
    """
    saved = checkpoints.state(step).get("bases", {}).get(player)
    if saved and not reference and config.frozen != player:
        saved, *_ = saved.split(" ")  # the adapters that it started from are not in those that it has
    for found in base_checksums(config, [player], references=reference).values() if saved else ():
        if found != saved:
            raise BadInput(
                f"{Start(config[player].model).base} is not what the {player} policy started from: its checksum is "
                f"{found}, and was {saved}."
            )
