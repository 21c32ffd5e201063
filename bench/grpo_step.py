"""Seconds of one whole GRPO step: codea1, TRL, tunix; what each part takes; and how the update's cost grows.

  python -m bench.grpo_step                                    # codea1 alone, in both modes of old log-probs
  python -m bench.grpo_step --peers=PEERS/bin/python           # beside TRL and tunix, installed there:
      pip install torch==2.13.0+cpu trl==1.16.0 google-tunix==0.1.7
  python -m bench.grpo_step --scaling                          # the update over length, vocabulary, micro-batch
  python -m bench.grpo_step --sharing                          # the update with and without shared prompts
  python -m bench.grpo_step --profile                          # where the update's time goes, by JAX's profiler

By hand, on a machine that does nothing else: the load average is printed, and ratios are of one run. The step:
8 prompts of 64 tokens x 8 samples of 128 tokens, a reward from the text, one optimizer step with a KL term against a
reference (coefficient 0.001). Peers run in float32 and in bfloat16. TRL takes the policy's own log-probs as the old
ones, as codea1's mode "sampler" does.
"""

import argparse
import dataclasses
import gzip
import json
import os
import re
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bench.micro_run import make_player
from bench.rollout_workload import MODEL, PROMPT, SAMPLES, prompts
from codea1.config_file import default_config, validate
from codea1.lab import model_writer
from codea1.learn.batch import TrainSample
from codea1.models import qwen2
from codea1.models.config import Qwen2Config
from codea1.players.player import Player
from codea1.rollout.engine import Request, Sample
from codea1.runtime.compilations import compile_all
from codea1.sharding import make_mesh

RESPONSE = 128  # tokens
STEPS = 5  # measured, after one that compiles
PROMPTS = prompts("equal")
SHAPE = Qwen2Config(
    vocab_size=MODEL["vocab"],
    hidden_size=MODEL["hidden"],
    intermediate_size=MODEL["mlp"],
    num_layers=MODEL["layers"],
    num_heads=MODEL["heads"],
    num_kv_heads=MODEL["kv_heads"],
    head_dim=MODEL["head_dim"],
)
SHARED = ((64, 128, 8), (256, 128, 8), (48, 24, 8))  # tokens of prompt and response, samples of each
SCALING = {"length": (96, 192, 384), "vocabulary": (2048, 8192, 32768), "micro-batches": (1, 2, 4, 8)}


@dataclasses.dataclass(frozen=True)
class Spent:
    """Seconds of one step."""

    generate: float
    learn: float

    @property
    def total(self) -> float:
        return self.generate + self.learn


def config(old_log_probs: str, batch_size: int = 16, response: int = RESPONSE, dtype: str = "float32") -> ConfigDict:
    """The run's config; its only player is the Code LLM."""
    c = default_config()
    c.code.max_prompt_length = PROMPT
    c.code.max_response_length = response
    c.code.old_log_probs = old_log_probs
    c.code.mini_batches = 1
    c.code.micro_batch_size = batch_size
    c.code.warmup_steps = 0
    c.model.dtype = dtype
    c.model.remat = "none"
    c.rollout.slots = len(PROMPTS) * SAMPLES
    return c


def player(c: ConfigDict, shape: Qwen2Config = SHAPE) -> Player:
    """A Code LLM of random weights."""
    mesh = make_mesh(1, 1, 1, devices=jax.devices()[:1])
    with tempfile.TemporaryDirectory() as folder:
        model_writer.save(folder, shape, qwen2.initialise(shape, jax.random.key(0)))
        c.code.model = folder
        return make_player("code", validate(c), mesh, SimpleNamespace(stop_ids=(), pad_id=0))


def reward(sample: Sample) -> float:
    """Any function of the tokens."""
    return sum(sample.token_ids) % 97 / 97


def taught(samples: list[Sample], code: Player) -> list[TrainSample]:
    """Samples with their group advantages."""
    rewards = [reward(sample) for sample in samples]
    groups, tokens = zip(*[(sample.question_id, len(sample.token_ids)) for sample in samples], strict=True)
    advantages = code.advantages(rewards, groups, tokens)
    return [
        TrainSample(sample.prompt_ids, sample.token_ids, sample.log_probs, float(advantage))
        for sample, advantage in zip(samples, advantages, strict=True)
    ]


def steps(old_log_probs: str, dtype: str) -> list[Spent]:
    """Seconds of each measured step."""
    code = player(config(old_log_probs, dtype=dtype))
    compile_all(code.functions.generation)
    spent = []
    for step in range(1, STEPS + 2):
        started = time.monotonic()
        asked = [Request(f"q{q}", tuple(prompt), 0, SAMPLES) for q, prompt in enumerate(PROMPTS)]
        samples = list(code.generate(asked, stream="code/train", step=step))
        generated = time.monotonic()
        metrics = code.learn(taught(samples, code), step)
        jax.block_until_ready(code.state)
        spent.append(Spent(generated - started, time.monotonic() - generated))
        assert metrics["tokens"] == len(PROMPTS) * SAMPLES * RESPONSE
        assert metrics["grad_norm"] > 0
    return spent[1:]


def peer(python: str, script: str, *options: str) -> Any:
    """Returns what another codebase says, in a process of its own."""
    command = [python, str(Path(__file__).parent / script), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""})
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def flops(shape: Qwen2Config, length: int) -> float:
    """Of the matmuls of a forward pass over one token of a sequence of `length`, averaged over its tokens."""
    D, F, V, h = shape.hidden_size, shape.intermediate_size, shape.vocab_size, shape.head_dim
    heads, kv_heads = shape.num_heads * h, shape.num_kv_heads * h
    weights = shape.num_layers * (2 * D * heads + 2 * D * kv_heads + 3 * D * F) + D * V
    return 2 * weights + shape.num_layers * 4 * length * heads  # scores and sums over all positions: none is skipped


def least(function: Callable, *arguments: jax.Array) -> float:
    """Returns the least seconds of thirty calls."""
    jax.block_until_ready(function(*arguments))
    spent = []
    for _ in range(30):
        started = time.monotonic()
        jax.block_until_ready(function(*arguments))
        spent.append(time.monotonic() - started)
    return min(spent)


def ceiling(rows: int) -> float:
    """Flop/s that XLA reaches on the MLP's matmul alone with so many rows."""
    x, w = jnp.ones((rows, SHAPE.hidden_size)), jnp.ones((SHAPE.hidden_size, SHAPE.intermediate_size))
    return 2 * rows * SHAPE.hidden_size * SHAPE.intermediate_size / least(jax.jit(jnp.matmul), x, w)


def compare(python: str | None, dtype: str) -> None:
    """Prints a row per codebase: seconds of a step and of its parts, and the ratio to codea1 in the mode alike."""
    length = PROMPT + RESPONSE
    most = ceiling(16 * length)
    print(f"ceiling: {most / 1e9:.0f} GFLOP/s, one matmul of {16 * length} rows")
    found = {f"codea1, {mode}": steps(mode, dtype) for mode in ("sampler", "trainer")}
    for name in ("TRL", "tunix") if python else ():
        for of_peer in ("float32", "bfloat16"):
            steps_of_peer = peer(python, f"grpo_step_{name.lower()}.py", of_peer)
            found[f"{name} {of_peer}"] = [Spent(**each) for each in steps_of_peer]
    print(f"load average {os.getloadavg()[0]:.1f}; medians of {STEPS} steps, seconds")
    own = float(np.median([each.total for each in found["codea1, sampler"]]))
    for name, spent in found.items():
        total, generate, learn = (
            float(np.median([getattr(each, part) for each in spent])) for part in ("total", "generate", "learn")
        )
        each = ", ".join(f"{step.total:.2f}" for step in spent)
        print(f"{name:16} step {total:5.2f} ({each})  generate {generate:5.2f}  learn {learn:5.2f}  {total / own:.2f}")
    passes = {"sampler": 1 + 3, "trainer": 2 + 3}  # the reference, the old log-probs; forward and backward
    for mode, count in passes.items():
        work = count * len(PROMPTS) * SAMPLES * length * flops(SHAPE, length)
        learn = float(np.median([each.learn for each in found[f"codea1, {mode}"]]))
        print(f"learn, {mode}: {work / learn / 1e9:.0f} GFLOP/s, {100 * work / learn / most:.0f} % of the ceiling")


def random_samples(count: int, response: int, vocabulary: int) -> list[TrainSample]:
    """Returns samples of random tokens, with random advantages."""
    generator = np.random.default_rng(0)
    drawn = generator.integers(3, vocabulary, (count, PROMPT + response)).tolist()
    return [TrainSample(ids[:PROMPT], ids[PROMPT:], [-7.0] * response, generator.normal()) for ids in drawn]


def update_seconds(length: int, vocabulary: int, micro_batches: int) -> tuple[float, float]:
    """Median seconds of `learn` over 32 sequences, and its Gflop/s."""
    shape = dataclasses.replace(SHAPE, vocab_size=vocabulary)
    code = player(config("sampler", 32 // micro_batches, length - PROMPT), shape)
    samples = random_samples(32, length - PROMPT, vocabulary)
    spent = []
    for step in range(1, 5):
        started = time.monotonic()
        code.learn(samples, step)
        jax.block_until_ready(code.state)
        spent.append(time.monotonic() - started)
    seconds = float(np.median(spent[1:]))
    return seconds, 4 * 32 * length * flops(shape, length) / seconds / 1e9


def scaling() -> None:
    """Prints the seconds of an update of 32 sequences while one size changes and the others stay."""
    base = {"length": 192, "vocabulary": 2048, "micro-batches": 2}
    print("varied           value  seconds  us per token  GFLOP/s")
    for varied, values in SCALING.items():
        for value in values:
            sizes = base | {varied: value}
            seconds, rate = update_seconds(*sizes.values())
            print(f"{varied:14} {value:7}  {seconds:7.2f}  {1e6 * seconds / 32 / sizes['length']:12.0f}  {rate:7.0f}")
    print(f"load average {os.getloadavg()[0]:.1f}")


def sharing() -> None:
    """Prints the CPU seconds of an update of eight groups with and without `share_prompts`, in turn."""
    generator = np.random.default_rng(0)
    print("prompt  response  samples  alone, s  shared, s  ratio")
    for prompt, response, count in SHARED:
        group = prompt - 1 + count * (response + 1)
        samples = [
            TrainSample(ids, generator.integers(3, 2048, response).tolist(), [-7.0] * response, generator.normal())
            for ids in generator.integers(3, 2048, (8, prompt)).tolist()
            for _ in range(count)
        ]
        spent = {}
        for share in (False, True):
            c = config("sampler", 16, response)
            c.code.max_prompt_length, c.code.share_prompts, c.code.row_lengths = prompt, share, (group,) * share
            spent[player(c)] = []
        for step in range(1, 6):
            for code, seconds in spent.items():
                started = time.process_time()
                code.learn(samples, step)
                jax.block_until_ready(code.state)
                seconds.append(time.process_time() - started)
        alone, shared = (float(np.median(seconds[1:])) for seconds in spent.values())
        print(f"{prompt:6}  {response:8}  {count:7}  {alone:8.2f}  {shared:9.2f}  {alone / shared:5.2f}")


def profile() -> None:
    """Prints by function of the model the time of an update's operations, matrix products and all else."""
    samples, code = random_samples(len(PROMPTS) * SAMPLES, RESPONSE, 2048), player(config("sampler"))
    for step in range(1, 3):
        code.learn(samples, step)
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        with jax.profiler.trace(folder):
            code.learn(samples, 3)
            jax.block_until_ready(code.state)
        seconds = time.monotonic() - started
        (file,) = Path(folder).rglob("*.trace.json.gz")
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    places = {}
    for function in code.functions.learning:
        places |= _places(function.compiled.as_text())
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in events:
        operation = event.get("args", {}).get("hlo_module"), event.get("args", {}).get("hlo_op")
        if event.get("ph") == "X" and operation in places:
            place, has_product = places[operation]
            spent[place][not has_product] += event["dur"] / 1e6
    total = sum(map(sum, spent.values()))
    print(f"{seconds:.2f} s, {total:.2f} of them in operations\n{'function':36} products  all else")
    for place, (products, rest) in sorted(spent.items(), key=lambda item: -sum(item[1])):
        if products + rest > 0.01 * total:
            print(f"{place:36} {products / total:8.1%} {rest / total:9.1%}")
    print(f"{'all':36} {sum(each[0] for each in spent.values()) / total:8.1%}")


def _places(hlo: str) -> dict[tuple[str, str], tuple[str, bool]]:
    """Returns of each operation of a compiled function the Python function, and whether it multiplies matrices."""
    tables = {
        name: {int(number): rest for number, rest in re.findall(r"^(\d+) (.*)$", block, re.MULTILINE)}
        for name, block in re.findall(r"^(FunctionNames|FileLocations|StackFrames)\n((?:\d+ .*\n)+)", hlo, re.MULTILINE)
    }
    named = {}
    for number, frame in tables["StackFrames"].items():
        location = tables["FileLocations"][int(re.search(r"file_location_id=(\d+)", frame)[1])]
        named[number] = tables["FunctionNames"][int(re.search(r"function_name_id=(\d+)", location)[1])].strip('"')
    module, computation = re.match(r"HloModule ([\w.]+)", hlo)[1], ""
    multiplies: set[str] = set()
    found = {}
    for line in hlo.splitlines():
        if re.match(r"(ENTRY )?%[\w.\-]+ .*\{$", line):
            computation = line.split()[0].lstrip("%")
        elif match := re.match(r"\s+(?:ROOT )?%([\w.\-]+) = .*? ([\w\-]+)\(", line):
            name, opcode = match.groups()
            called, frame = re.search(r"calls=%([\w.\-]+)", line), re.search(r"stack_frame_id=(\d+)", line)
            has_product = opcode == "dot" or (called is not None and called[1] in multiplies)
            if has_product:
                multiplies.add(computation)
            if opcode not in ("while", "call", "conditional"):
                found[module, name] = named[int(frame[1])] if frame else "no function", has_product
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="python with TRL and tunix")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of codea1's products")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--sharing", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} at the start")
    if options.scaling:
        scaling()
    elif options.sharing:
        sharing()
    elif options.profile:
        profile()
    else:
        compare(options.peers, options.dtype)
