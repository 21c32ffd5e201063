"""Supervised warm start: makes a tokenizer and a model that both players of the demo start from.

  python -m codea1.sft --config=configs/tiny.py --workdir=runs/tiny/sft

Trains on generated question / program / tests documents in which common misconceptions are planted
(`codea1.data.components` says which and how often), and writes `<workdir>/model`: config.json, model.safetensors and
the tokenizer, as `transformers` names and loads them. A workdir whose model is complete is left as it is.
"""

import shutil
import time
from pathlib import Path

import jax
from absl import flags
from ml_collections import ConfigDict

from codea1 import program
from codea1.data.corpus import Recipe, corpus_batch, corpus_texts
from codea1.data.tokenizer import ChatTokenizer, make_tokenizer
from codea1.errors import BadInput
from codea1.learn.batch import SupervisedBatch, row_shapes, supervised_batches, to_mesh
from codea1.learn.optimizer import AdamWConfig, ScheduleConfig, learning_rate
from codea1.learn.update import TrainState, init_state, make_supervised_update, state_shardings
from codea1.models import huggingface, qwen2, shapes
from codea1.models.config_json import SpecialIds
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter
from codea1.runs.progress import Progress
from codea1.sharding import TRAIN_RULES, make_mesh, param_shardings

WORKDIR = flags.DEFINE_string("workdir", None, "folder that gets the model")
CONFIG = program.define_config()
TOKENIZER_CHATS = 4000  # whose texts the tokenizer is made of
COLUMNS = {"cross_entropy": ("cross entropy", "{:.3f}"), "tokens_per_second": ("target tokens/s", "{:,.0f}")}


def main() -> None:
    config = CONFIG()
    if not WORKDIR.value:
        raise BadInput("--workdir is missing: it names the folder that gets the model.")
    settings = {"seed": config.seed, "num_tests": config.game.num_tests, "sft": config.sft.to_dict()}
    RunFolder.check(WORKDIR.value, settings)
    model = Path(WORKDIR.value) / "model"
    if model.exists():
        print(f"{model} is there already.")
        return
    tokenizer = make_tokenizer(corpus_texts(seed=0, num_chats=TOKENIZER_CHATS), config.sft.vocab_size)
    shape = shapes.named(config.sft.shape, tokenizer.vocab_size)
    _batch(config, tokenizer, step=1)  # a length that fits no chat is told before anything is written
    folder = RunFolder.open(WORKDIR.value, settings)
    with MetricsWriter(folder) as metrics, Progress(config.sft.steps, every=50, columns=COLUMNS) as progress:
        metrics.truncate_after(-1)  # a warm start that was cut off begins again
        state = _train(config, shape, tokenizer, metrics, progress)
    _publish(model, shape, state, tokenizer)
    print(f"wrote {model}")


def _publish(model: Path, shape: qwen2.Qwen2Config, state: TrainState, tokenizer: ChatTokenizer) -> None:
    partial = model.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    ids = SpecialIds(tokenizer.stop_ids, tokenizer.pad_id)
    huggingface.save(partial, shape, state.params, ids=ids)
    tokenizer.save(partial)
    partial.rename(model)


def _train(
    config: ConfigDict, shape: qwen2.Qwen2Config, tokenizer: ChatTokenizer, metrics: MetricsWriter, progress: Progress
) -> TrainState:
    sft = config.sft
    mesh = make_mesh(1, 1, 1, jax.devices()[:1])
    graphdef, abstract = qwen2.abstract(shape)
    optimizer = AdamWConfig(beta2=sft.adam_b2, weight_decay=sft.weight_decay)
    schedule = ScheduleConfig(
        peak=sft.learning_rate, warmup_steps=sft.warmup_steps, total_steps=sft.steps, decay="cosine"
    )
    shardings = state_shardings(param_shardings(abstract, mesh, TRAIN_RULES), optimizer)
    params = qwen2.initialise(shape, jax.random.key(config.seed), shardings.params)
    state = init_state(params, optimizer, shardings)
    update = make_supervised_update(graphdef, optimizer, shardings, log_prob_chunk=config.model.log_prob_chunk)
    progress.note("compiling")
    started = time.monotonic()
    tokens = 0.0
    for step in range(1, sft.steps + 1):
        batches = to_mesh(_batch(config, tokenizer, step), mesh)
        state, report = update(state, batches, learning_rate(step, schedule))
        row = report.metrics()
        tokens += row["tokens"]
        row["tokens_per_second"] = tokens / (time.monotonic() - started)
        metrics.write(step, row)
        progress.update(step, row)
    return state


def _batch(config: ConfigDict, tokenizer: ChatTokenizer, step: int) -> list[SupervisedBatch]:
    sft = config.sft
    recipe = Recipe(
        misconceptions=sft.misconceptions,
        expert_suites=sft.expert_suites if 2 * step > sft.steps else 0.0,
        num_tests=config.game.num_tests,
    )
    documents = corpus_batch(config.seed, step, sft.batch_size, tokenizer, sft.length, recipe)
    shapes = row_shapes(sft.row_lengths, sft.length, sft.micro_batch_size)
    return supervised_batches(documents, shapes, tokenizer.pad_id)


if __name__ == "__main__":
    program.run(main)
