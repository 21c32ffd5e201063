"""Supervised training: the warm start that both players of the demo start from, or a Test LLM taught by right suites.

  python -m codea1.sft --config=configs/tiny.py --workdir=runs/tiny/sft
  python -m codea1.sft --config=configs/tiny.py:method=sft --workdir=runs/tiny/sft_test

The first makes a tokenizer and a model, and trains it on generated question / program / tests documents in which common
misconceptions are planted (`codea1.data.compositions` says which and how often). The second, with config.sft.start, is
the SFT baseline of test generation: it goes on from a model folder and trains on suites for the training questions
(`codea1.data.corpus` says which), of which only the suite is learned.

Each writes `<workdir>/model`: config.json, model.safetensors and the tokenizer, as `transformers` names and loads them.
A workdir whose model is complete is left as it is. On several hosts the same command runs on each, with a workdir that
all of them see.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from absl import flags
from jax.sharding import Mesh
from ml_collections import ConfigDict

from codea1.config import validate
from codea1.data import procedural
from codea1.data.corpus import (
    Document,
    Recipe,
    corpus_batch,
    corpus_texts,
    golden_lessons,
    lesson_batch,
    worked_lessons,
)
from codea1.data.tokenizer import ChatTokenizer, copy_tokenizer, load_tokenizer, make_tokenizer
from codea1.game.methods import game_rules
from codea1.learn.batch import RowShape, abstract_supervised_batch, row_shapes, supervised_batches, to_mesh
from codea1.learn.optimizer import AdamWConfig, ScheduleConfig, learning_rate
from codea1.learn.update import SupervisedLoss, TrainState, Update, init_state, state_shardings
from codea1.models import huggingface, qwen2
from codea1.models.config import Qwen2Config, SpecialIds, named_model, require_divisible
from codea1.models.files import ModelFolder
from codea1.models.qwen2 import Params
from codea1.players.functions import model_config
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sharding import TRAIN_RULES, laid_out, make_mesh, param_shardings
from codea1.training.progress import Progress
from codea1.training.setup import questions_of

WORKDIR = flags.DEFINE_string("workdir", None, "folder that gets the model")
CONFIG = command.define_config(validate)
HOSTS = command.define_hosts()
TOKENIZER_CHATS = 4000  # whose texts the tokenizer is made of
COLUMNS = {"cross_entropy": ("cross entropy", "{:.3f}"), "tokens_per_second": ("target tokens/s", "{:,.0f}")}

Metrics = dict[str, float]
Record = Callable[[int, Metrics], None]  # takes the metrics of a step


@dataclass(frozen=True)
class Start:
    """What is trained, and on what."""

    shape: Qwen2Config
    tokenizer: ChatTokenizer
    mesh: Mesh
    params: Callable[[Any], Params]  # in the shardings that it is given
    documents: Callable[[int], list[Document]]  # of a step


def main() -> None:
    hosts = HOSTS()
    with hosts.agreed():
        config = CONFIG()
        if not WORKDIR.value:
            raise BadInput("--workdir is missing: it names the folder that gets the model.")
        settings = {"seed": config.seed, "num_tests": config.game.num_tests, "sft": config.sft.to_dict()}
        if config.sft.start:
            settings |= {"data": config.data.train.to_dict(), "prompts": config.game.prompts}
        hosts.of_main(lambda: RunFolder.check(WORKDIR.value, settings))
        hosts.require_same("the configs", json.dumps(config.to_dict(), sort_keys=True).encode())
        model = ModelFolder(f"{WORKDIR.value}/model")
        if hosts.of_main(model.holds_model):
            if hosts.is_main:
                print(f"{model} is there already.")
            return
        start = _going_on(config) if config.sft.start else _from_nothing(config)
        start.documents(1)  # a length that fits no chat is told
    folder = hosts.of_main(lambda: RunFolder.open(WORKDIR.value, settings))
    with hosts.agreed():
        folder.require_visible()
    with _recorded(folder, config.sft.steps) if hosts.is_main else contextlib.nullcontext(_nowhere) as record:
        state = _train(config, start, record)
    _publish(model, config, start, state, hosts)


def _from_nothing(config: ConfigDict) -> Start:
    """A model and a tokenizer that are made, and the corpus for both players."""
    tokenizer = make_tokenizer(corpus_texts(seed=0, num_chats=TOKENIZER_CHATS), config.sft.vocab_size)
    shape = named_model(config.sft.shape, tokenizer.vocab_size)
    mesh = _mesh(config)
    _check_mesh(config, shape, mesh)

    def documents(step: int) -> list[Document]:
        recipe = Recipe(
            misconceptions=config.sft.misconceptions,
            expert_suites=config.sft.expert_suites if 2 * step > config.sft.steps else 0.0,
            black_box=config.sft.black_box,
            num_tests=config.game.num_tests,
        )
        return corpus_batch(config.seed, step, config.sft.batch_size, tokenizer, config.sft.length, recipe)

    return Start(shape, tokenizer, mesh, partial(qwen2.initialise, shape, jax.random.key(config.seed)), documents)


def _going_on(config: ConfigDict) -> Start:
    """The model of a folder, and suites for a Test LLM. Raises BadInput: what the config names cannot be used."""
    checkpoint = huggingface.Checkpoint(config.sft.start)
    tokenizer = load_tokenizer(config.sft.start)
    mesh = _mesh(config)
    shape = model_config(config, checkpoint.config, mesh)
    _check_mesh(config, shape, mesh)
    questions = questions_of(config, "train")
    if (config.data.train.source, config.game.prompts) == (procedural.NAME, "tiny"):
        recipe = Recipe(config.sft.misconceptions, config.sft.expert_suites, num_tests=config.game.num_tests)
        lessons = worked_lessons(questions, recipe)
    else:
        lessons = golden_lessons(questions, game_rules(config).templates, config.game.num_tests)

    def documents(step: int) -> list[Document]:
        chats = lessons(f"{config.seed}/{step}")
        return lesson_batch(chats, config.sft.batch_size, tokenizer, config.sft.length)

    def params(shardings: Any) -> Params:
        return checkpoint.place(shardings, shape.param_dtype)

    return Start(shape, tokenizer, mesh, params, documents)


def _mesh(config: ConfigDict) -> Mesh:
    return make_mesh(config.mesh.replica, config.mesh.fsdp, config.mesh.tensor)


def _check_mesh(config: ConfigDict, shape: Qwen2Config, mesh: Mesh) -> None:
    """Raises BadInput where the mesh cuts the model or the rows unevenly."""
    require_divisible(shape, mesh)
    rows, ways = config.sft.micro_batch_size, mesh.shape["replica"] * mesh.shape["fsdp"]
    if rows % ways:
        nearest = max(round(rows / ways), 1) * ways
        raise BadInput(f"config.sft.micro_batch_size is {rows}; replica x fsdp = {ways} must divide it: use {nearest}.")


@contextlib.contextmanager
def _recorded(folder: RunFolder, steps: int) -> Iterator[Record]:
    """Opens the record, which a warm start that was cut off begins again."""
    with MetricsWriter(folder) as metrics, Progress(steps, every=50, columns=COLUMNS) as progress:
        metrics.truncate_after(-1)
        progress.note("compiling")

        def write(step: int, row: Metrics) -> None:
            metrics.write(step, row)
            progress.update(step, row)

        yield write


def _nowhere(step: int, row: Metrics) -> None:
    """The record of the other hosts: host 0 writes and shows."""


def _publish(model: ModelFolder, config: ConfigDict, start: Start, state: TrainState, hosts: Hosts) -> None:
    tokenizer = start.tokenizer
    if hosts.is_main:
        model.remove()  # what one that was cut off here left
        if config.sft.start:
            copy_tokenizer(ModelFolder(config.sft.start), model)
        else:
            tokenizer.save(model.url)
    huggingface.save(model.url, start.shape, state.params, ids=SpecialIds(tokenizer.stop_ids, tokenizer.pad_id))
    if hosts.is_main:
        print(f"wrote {model}")


def _train(config: ConfigDict, start: Start, record: Record) -> TrainState:
    sft, mesh = config.sft, start.mesh
    graphdef, abstract = qwen2.abstract(start.shape)
    optimizer = AdamWConfig(beta2=sft.adam_b2, weight_decay=sft.weight_decay)
    schedule = ScheduleConfig(
        peak=sft.learning_rate, warmup_steps=sft.warmup_steps, total_steps=sft.steps, decay="cosine"
    )
    shardings = state_shardings(param_shardings(abstract, mesh, TRAIN_RULES), optimizer)
    state = init_state(start.params(shardings.params), optimizer, shardings)
    rows = _row_shapes(config, mesh)
    loss = SupervisedLoss(graphdef, config.model.log_prob_chunk)
    shapes = [abstract_supervised_batch(shape, mesh) for shape in rows]
    update = Update(loss, optimizer, laid_out(state, shardings), shapes)
    started = time.monotonic()
    tokens = 0.0
    for step in range(1, sft.steps + 1):
        found = supervised_batches(start.documents(step), rows, start.tokenizer.pad_id)
        batches = [to_mesh(batch, mesh) for batch in found]
        state, report = update(state, batches, learning_rate(step, schedule))
        row = report.metrics()
        tokens += row["tokens"]
        row["tokens_per_second"] = tokens / (time.monotonic() - started)
        record(step, row)
    return state


def _row_shapes(config: ConfigDict, mesh: Mesh) -> tuple[RowShape, ...]:
    sft, ways = config.sft, mesh.shape["replica"] * mesh.shape["fsdp"]
    return row_shapes(sft.row_lengths, sft.length, sft.micro_batch_size, multiple=ways)


if __name__ == "__main__":
    command.run(main)
