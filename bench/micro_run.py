"""A run that takes seconds, for benches and tests: a small random model whose answers are scripted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from codea1.config import Config
from codea1.config_file import default_config
from codea1.data.sources import CLASSIC
from codea1.data.tokenizer import ChatTokenizer
from codea1.game.book_pages import Pages
from codea1.game.methods import METHODS
from codea1.lab import model_writer
from codea1.lab.sft.corpus import corpus_texts
from codea1.lab.sft.tokenizer import make_tokenizer
from codea1.lab.worlds.procedural import prepare
from codea1.models import qwen2
from codea1.models.config import Qwen2Config, SpecialIds
from codea1.players.base import Model, Start
from codea1.players.functions import functions_of_players
from codea1.players.player import Player
from codea1.sharding import make_mesh

# What two runs of one config do not share: a second run finds other caches, another clock and storage in another mood.
NOT_PROMISED = ("time/", "perf/", "sandbox/", "storage/", "code/update_tflops", "test/update_tflops")


def make_model_folder(folder: Path, vocab_size: int = 448, **changes: Any) -> Path:
    """Fills a folder with a model of such sizes, and returns it."""
    tokenizer = make_tokenizer(corpus_texts(seed=0, num_chats=500), vocab_size)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_layers": 2, "num_heads": 4}
    sizes |= {"vocab_size": tokenizer.vocab_size, "num_kv_heads": 2, "head_dim": 8} | changes
    shape = Qwen2Config(**sizes)
    model_writer.save(folder, shape, qwen2.initialise(shape, jax.random.key(0)))
    tokenizer.save(folder)
    return folder


def make_micro_config(model_folder: Path, data_folder: Path) -> ConfigDict:
    """A config of its own for whoever changes it."""
    c = default_config()
    c.steps = 6
    c.questions_per_step = 2
    c.data.folder = str(data_folder)
    prepare(CLASSIC, c.data.folder)
    c.data.train.limit = 5
    c.data.validation.limit = c.data.test.limit = 3
    c.game.num_solutions = 2
    c.game.num_suites = 2
    c.game.num_tests = 2
    c.game.prompts = "tiny"
    for player in (c.code, c.test):
        player.model = str(model_folder)
        player.max_response_length = 24
        player.learning_rate = 1e-3
        player.warmup_steps = 1
        player.mini_batches = 2
        player.micro_batch_size = 2
    c.code.max_prompt_length = c.test.max_prompt_length = 56
    c.model.dtype = "float32"
    c.model.remat = "none"
    c.rollout.slots = 8
    c.sandbox.slots = 2
    c.sandbox.isolation = "auto"
    c.validation.every = 3
    c.validation.samples = 2
    c.validation.test_samples = 2
    c.checkpoint.every = 3
    return c


def mesh_of(config: Config, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh of a config over `devices`, all by default."""
    return make_mesh(config.mesh.replica, config.mesh.fsdp, config.mesh.tensor, devices)


def make_player(name: str, config: Config, mesh: Mesh, tokenizer: Any) -> Player:
    """A player alone, as `codea1.training.setup.assemble` makes it; of the tokenizer only stop and pad ids are read."""
    start, ids = Start(config.policy(name).model), SpecialIds(tokenizer.stop_ids, tokenizer.pad_id)
    functions = functions_of_players(config, mesh, {name: Model(start.model(), ids, "", "")})[name]
    options = {"roles": METHODS[config.method].roles_of(name), "steps": config.steps, "seed": config.seed}
    return Player(functions, start, tokenizer, **options)


def write_config(config: ConfigDict, path: Path) -> Path:
    """Writes a config file that gives `config`, for programs, and returns it."""
    path.write_text(
        "import json\nfrom ml_collections import ConfigDict\n"
        f"def get_config(arg=None):\n    return ConfigDict(json.loads({config.to_json()!r}))\n"
    )
    return path


def scripted_answer(_: ChatTokenizer, ids: Sequence[int]) -> str:
    """In place of `ChatTokenizer.decode`: programs that load, and tests that are sometimes right."""
    h = sum(ids)
    asserts = f"assert f([{h % 5}, 2]) == {h % 4}\nassert f({h % 7}) == {h % 4}\nassert f([]) == {h % 2}"
    return f"```python\ndef f(a):\n    return {h % 3}\n```\n```python\n{asserts}\n```"


def content(pages: Pages) -> dict:
    """Pages as they are compared: with the order of entries."""
    return {question_id: (page.ground_truth_digest, list(page.entries.values())) for question_id, page in pages.items()}
