"""Supervised training of a model on chats, whose answers are learned: what `codea1.sft` does."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from jax.sharding import Mesh

from codea1.config import Config
from codea1.data.sources import CLASSIC, world_of
from codea1.data.tokenizer import ChatTokenizer, copy_tokenizer, load_tokenizer
from codea1.lab import model_writer
from codea1.lab.sft.corpus import (
    Document,
    Recipe,
    batch_of,
    chats,
    corpus_texts,
    golden_lessons,
    suite_alone,
    worked_lessons,
)
from codea1.lab.sft.loss import SupervisedBatch, SupervisedLoss, abstract_supervised_batch, supervised_batches
from codea1.lab.sft.tokenizer import make_tokenizer
from codea1.lab.worlds.worlds import world_named
from codea1.learn.batch import row_shapes, to_mesh
from codea1.learn.optimizer import AdamWConfig, ScheduleConfig, learning_rate
from codea1.learn.update import SKIPPED_STEPS, TrainState, Update, abstract_state, init_state
from codea1.models import huggingface, qwen2
from codea1.models.config import Qwen2Config, SpecialIds, require_divisible, tiny_model
from codea1.models.files import ModelFolder
from codea1.models.qwen2 import Params
from codea1.players.functions import model_config
from codea1.rollout.decoding import seed_key
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter
from codea1.runtime.compilations import compile_all
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import AgreedBadInput, Hosts
from codea1.sharding import TRAIN_RULES, data_parallel, make_mesh, param_shardings, require_multiple
from codea1.training.progress import SUPERVISED_COLUMNS, Progress
from codea1.training.setup import MADE_FOR, game_rules, made_for, questions_of, require_made_for

TOKENIZER_CHATS = 4000  # whose texts the tokenizer is made of
VOCABULARY = 512  # of a tokenizer that is made: what its texts have more than a few times
BLACK_BOX = 0.25  # share of suites that are written without a program in sight, for methods that ask so


@dataclass(frozen=True)
class Setup:
    """What is trained, and on what."""

    shape: Qwen2Config
    tokenizer: ChatTokenizer
    mesh: Mesh
    params: Callable[[Any], Params]  # in the shardings that it is given
    documents: Callable[[int], list[Document]]  # of a step


def prepare(config: Config) -> Setup:
    """Returns what is trained: the model of config.sft.start, or where that is empty one that is made.

    Raises BadInput: what the config names cannot be used, or a length fits no chat.
    """
    mesh = make_mesh(config.mesh.replica, config.mesh.fsdp, config.mesh.tensor)
    setup = _from_model(config, mesh) if config.sft.start else _from_nothing(config, mesh)
    require_divisible(setup.shape, mesh)
    require_multiple("sft.micro_batch_size", config.sft.micro_batch_size, mesh)
    setup.documents(1)
    return setup


def _from_nothing(config: Config, mesh: Mesh) -> Setup:
    """Returns a new model and tokenizer, and the corpus for both players."""
    world = world_named(world_of(config.data.train.source) or CLASSIC)
    tokenizer = make_tokenizer(corpus_texts(seed=0, num_chats=TOKENIZER_CHATS, world=world), VOCABULARY)
    shape = tiny_model(tokenizer.vocab_size)
    sft, (first, last) = config.sft, config.sft.expert_span

    def documents(step: int) -> list[Document]:
        recipe = Recipe(
            expert_suites=sft.expert_suites if first < step / sft.steps <= last else sft.expert_suites_else,
            black_box=BLACK_BOX,
            num_tests=config.game.num_tests,
            world=world,
        )
        transcripts = chats(f"{config.seed}/{step}", recipe)
        return batch_of(transcripts, tokenizer.encode_transcript, sft.batch_size, sft.length)

    return Setup(shape, tokenizer, mesh, partial(qwen2.initialise, shape, seed_key(config.seed)), documents)


def _from_model(config: Config, mesh: Mesh) -> Setup:
    """Returns the model of a folder, and suites for a Test LLM."""
    require_made_for(config, ModelFolder(config.sft.start))
    checkpoint = huggingface.Checkpoint(config.sft.start)
    tokenizer = load_tokenizer(config.sft.start, config.test.thinking)
    if tokenizer.begins_thoughts:
        raise BadInput(
            f"config.sft.start: the chat template of {config.sft.start} begins thoughts, and these suites have none: "
            "set config.test.thinking to off, where it allows that, or start from another model."
        )
    shape = model_config(config.model, checkpoint.config, mesh)
    questions = questions_of(config, "train")
    world = world_of(config.data.train.source)
    if world and config.game.prompts == "tiny":
        recipe = Recipe(config.sft.expert_suites, num_tests=config.game.num_tests, world=world_named(world))
        lessons = worked_lessons(questions, recipe)
    else:
        lessons = golden_lessons(questions, game_rules(config).templates, config.game.num_tests)

    def documents(step: int) -> list[Document]:
        encode = partial(suite_alone, tokenizer)
        return batch_of(lessons(f"{config.seed}/{step}"), encode, config.sft.batch_size, config.sft.length)

    return Setup(shape, tokenizer, mesh, lambda shardings: checkpoint.place(shardings, shape.param_dtype), documents)


def train(config: Config, setup: Setup, folder: RunFolder, hosts: Hosts) -> TrainState:
    """Returns the state after the last step. Host 0 shows the steps and writes their metrics, from the first one on."""
    sft, mesh = config.sft, setup.mesh
    graphdef, abstract = qwen2.abstract(setup.shape)
    optimizer = AdamWConfig(beta2=sft.adam_b2, weight_decay=sft.weight_decay)
    schedule = ScheduleConfig(
        peak=sft.learning_rate, warmup_steps=sft.warmup_steps, total_steps=sft.steps, decay="cosine"
    )
    with contextlib.ExitStack() as stack:
        if hosts.is_main:
            metrics = stack.enter_context(MetricsWriter(folder, last_step=-1))  # without those of one that was cut off
            progress = stack.enter_context(Progress(sft.steps, every=50, columns=SUPERVISED_COLUMNS))
            progress.note("compiling")
        state = init_state(setup.params(param_shardings(abstract, mesh, TRAIN_RULES)), optimizer)
        rows = row_shapes(sft.row_lengths, sft.length, sft.micro_batch_size, multiple=data_parallel(mesh))
        loss = SupervisedLoss(graphdef, config.model.log_prob_chunk)
        shapes = [abstract_supervised_batch(shape, mesh) for shape in rows]
        update = Update(loss, optimizer, abstract_state(state.params, optimizer), shapes)
        compile_all(update.functions)

        def batches_of(step: int) -> list[SupervisedBatch]:
            laid = supervised_batches(setup.documents(step), rows, setup.tokenizer.pad_id)
            return [to_mesh(batch, mesh) for batch in laid]

        started, tokens, skipped = time.monotonic(), 0.0, 0
        batches = batches_of(1)
        for step in range(1, sft.steps + 1):
            state, report = update(state, batches, learning_rate(step, schedule))
            if step < sft.steps:
                batches = batches_of(step + 1)  # while the devices compute
            row = report.metrics()
            tokens += row["tokens"]
            row["tokens_per_second"] = tokens / (time.monotonic() - started)
            if hosts.is_main:
                metrics.write(step, row)
                progress.update(step, row)
            skipped = skipped + 1 if row["skipped"] else 0
            if skipped >= SKIPPED_STEPS:
                sentence = (
                    f"steps {step - skipped + 1} to {step} changed nothing, because gradients, or the parameters that "
                    f"they lead to, were not finite: config.sft.learning_rate is {sft.learning_rate}."
                )
                raise AgreedBadInput(sentence if hosts.is_main else "")
    return state


def publish(model: ModelFolder, config: Config, setup: Setup, state: TrainState, hosts: Hosts) -> None:
    """Writes the trained model with its tokenizer; what an earlier attempt left of it is removed. A collective."""
    tokenizer = setup.tokenizer
    if hosts.is_main:
        model.remove()
        if config.sft.start:
            copy_tokenizer(ModelFolder(config.sft.start), model)
        else:
            tokenizer.save(model.url)
        if made := made_for(config):
            model.write_json(MADE_FOR, made)
    model_writer.save(model.url, setup.shape, state.params, ids=SpecialIds(tokenizer.stop_ids, tokenizer.pad_id))
    if hosts.is_main:
        print(f"wrote {model}")
