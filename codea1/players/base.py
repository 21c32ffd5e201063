"""What a player starts from: a model's folder, or a folder of adapters on a base that lies in another.

A run's checkpoints hold none of the weights of a base, but what tells it from another; and a digest of every file that
decides how a player reads and answers.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from codea1.config import Config
from codea1.data.tokenizer import FILES, ChatTokenizer, load_tokenizer
from codea1.models import config_json, peft
from codea1.models.config import Qwen2Config, SpecialIds
from codea1.models.files import ModelFolder
from codea1.models.huggingface import Checkpoint
from codea1.models.peft import Adapters
from codea1.models.safetensors_header import fingerprint
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import Checksum, checksum_of

_SMALL_FILES = (*FILES, "config.json", "generation_config.json")
Digests = dict[str, Checksum]  # of a start's files, by name; "adapters/" precedes the names of those of adapters


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
        self.adapters = Adapters(url) if peft.CONFIG in folder.names() else None
        self.base = self.adapters.base_folder() if self.adapters else folder
        self._folders = {"": self.base} | ({"adapters/": folder} if self.adapters else {})
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
        adapters = f" {self.adapters.checksum()}" if with_adapters and self.adapters else ""
        return f"{_checksum(self.base.url)}{adapters}"

    def digests(self) -> Digests:
        """Returns what tells this start from one that would read or answer in another way, wherever its folders lie."""
        digests = {}
        for prefix, folder in self._folders.items():
            for name in folder.names():
                if name in _SMALL_FILES:
                    digests[prefix + name] = folder.checksum(name)
                elif name == peft.CONFIG and prefix:  # but where its base is
                    settings = folder.read_json(name) | {"base_model_name_or_path": ""}
                    digests[prefix + name] = checksum_of(json.dumps(settings, sort_keys=True).encode())
                elif name.endswith(".safetensors"):
                    digests[prefix + name] = fingerprint(folder, name)
        return digests

    def file(self, name: str) -> str:
        """Returns what a file of `digests` is called in a sentence."""
        prefix, slash, last = name.rpartition("/")
        return self._folders.get(prefix + slash, self.base).file(last)

    def checkpoint(self) -> Checkpoint:
        """Returns the base's weights, of which the headers are read."""
        return Checkpoint(self.base.url)

    def tokenizer(self, thinking: str = "") -> ChatTokenizer:
        """Loads the tokenizer; see `load_tokenizer`."""
        return load_tokenizer(self.tokenizer_folder.url, thinking, self.base)


@functools.cache
def _checksum(url: str) -> str:
    return Checkpoint(url).checksum()


def base_checksums(config: Config, players: Sequence[str], *, references: bool = False) -> dict[str, str]:
    """Returns the checksums of what players are made of and never changes: bases of adapters, and frozen players.

    With `references` also of what they are held close to while they learn. Reads their files whole.
    """
    checksums = {}
    for name in players:
        is_whole = config.frozen == name or (references and config.policy(name).kl_coefficient > 0)
        if is_whole or config.policy(name).lora.rank:
            checksums[name] = Start(config.policy(name).model).checksum(with_adapters=is_whole)
    return checksums


def require_base(
    config: Config,
    player: str,
    checkpoints: Checkpoints,
    step: int | None,
    reference: bool = False,
    allow_changed: bool = False,
    starts: Mapping[str, Mapping] | None = None,
) -> list[str]:
    """Returns a sentence about the files of a player's start that are not as they were, if any.

    Args:
      config: the run's.
      player: its name.
      checkpoints: the run's.
      step: that the player continues from; 0 or None: there is no checkpoint, only `starts`.
      reference: whether the player is held close to its start; see `base_checksums`.
      allow_changed: whether files may be other ones than they were.
      starts: digests of the files when the run began, by player, as JSON holds them; none of an older version's run.

    Raises BadInput where a player started from another model than there is now, of which it still has something; and
    with that sentence unless `allow_changed`.
    """
    state: Mapping[str, Any] = checkpoints.state(step) if step else {"starts": starts}
    saved = state.get("bases", {}).get(player)
    if saved and not reference and config.frozen != player:
        saved, *_ = saved.split(" ")  # the adapters that it started from are not in those that it has
    for checksum in base_checksums(config, [player], references=reference).values() if saved else ():
        if checksum != saved:
            raise BadInput(
                f"{Start(config.policy(player).model).base} is not what the {player} policy started from: its checksum "
                f"is {checksum}, and was {saved}."
            )
    there = (state.get("starts") or {}).get(player)
    if there is None:
        return []
    start = Start(config.policy(player).model)
    here = start.digests()
    changed = [name for name in sorted(there.keys() | here.keys()) if [*there.get(name, ())] != [*here.get(name, ())]]
    if not changed:
        return []
    verb = "differ" if len(changed) > 1 else "differs"
    since = f"step {step} was saved" if step else "the run began"
    sentence = f"{', '.join(map(start.file, changed))}, of the {player} policy, {verb} from when {since}"
    if not allow_changed:
        remedy = "put back what was there, or --allow_changed_model of codea1.train, evaluate and export"
        raise BadInput(f"{sentence}: {remedy} uses what is there now.")
    return [sentence]
