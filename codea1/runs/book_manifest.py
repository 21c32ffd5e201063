"""The manifest of a Mistake Book on disk: which shards there are, how large they are, and their checksums."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from etils import epath

from codea1.game.book_shards import ALL_SHARDS, NUM_SHARDS
from codea1.game.mistake_book import Page
from codea1.runtime.errors import BadInput
from codea1.storage.objects import read

MANIFEST = "manifest.json"

_FORMAT = "codea1 Mistake Book 1"


@dataclass(frozen=True)
class ShardFile:
    """One shard's file, as it was written."""

    shard: int
    questions: int
    tests: int
    bytes: int
    sha256: str

    @classmethod
    def of(cls, shard: int, pages: Mapping[str, Page], content: bytes) -> "ShardFile":
        tests = sum(len(page.entries) for page in pages.values())
        return cls(shard, len(pages), tests, len(content), hashlib.sha256(content).hexdigest())

    @property
    def name(self) -> str:
        return f"shard_{self.shard:02d}.jsonl.gz"

    def check(self, path: epath.Path, content: bytes) -> None:
        """Raises BadInput: `content`, read from `path`, is not what was written."""
        if len(content) != self.bytes:
            raise BadInput(f"{path} has {len(content)} bytes, but {self.bytes} were written.")
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise BadInput(f"{path} is damaged: its SHA-256 is not the one that {MANIFEST} states.")


def encode_files(files: Iterable[ShardFile]) -> str:
    """Returns the text of a manifest, of the whole book or of one host's part."""
    body = {"format": _FORMAT, "shards": NUM_SHARDS, "files": [asdict(file) for file in sorted(files, key=_by_shard)]}
    return json.dumps({**body, "sha256": _digest(body)}, indent=1) + "\n"


def read_files(path: epath.Path) -> list[ShardFile]:
    """Returns the shards that a manifest states, in order; empty shards have no file.

    Raises:
      BadInput: it is missing, or not as it was written.
    """
    try:
        body = json.loads(read(path))
    except FileNotFoundError:
        raise BadInput(f"{path} is missing: without it the Mistake Book beside it is not known to be whole.") from None
    except ValueError as error:
        raise BadInput(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(body, dict) or body.pop("sha256", None) != _digest(body):
        raise BadInput(f"{path} is damaged: it does not have the SHA-256 that it states.")
    if body.get("format") != _FORMAT or body.get("shards") != NUM_SHARDS:
        raise BadInput(f"{path} is of another version: this one reads {_FORMAT!r} with {NUM_SHARDS} shards.")
    try:
        files = [ShardFile(**row) for row in body["files"]]
        in_order = [file.shard for file in files] == sorted({file.shard for file in files} & set(ALL_SHARDS))
    except (KeyError, TypeError):
        in_order = False
    if not in_order:
        raise BadInput(f"{path} does not list shards, each once and in order.")
    return files


def _by_shard(file: ShardFile) -> int:
    return file.shard


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
