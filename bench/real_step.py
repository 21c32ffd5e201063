"""A GRPO step with LoRA on a real model and a CPU: codea1 beside TRL + PEFT, and what the machine could do.

  python bench/real_step.py FOLDER                            # codea1 alone
  python bench/real_step.py FOLDER --peers=PEERS/bin/python   # in turn with transformers and TRL, installed there:
      pip install torch==2.13.0+cpu trl==1.16.0 peft==0.21.2 transformers==5.23.0 accelerate

FOLDER is Qwen2.5-Coder-0.5B-Instruct as downloaded. By hand, on a machine that does nothing else: the load average is
printed, and ratios are of one run. The step: 2 prompts of 256 random tokens x 4 samples of 128 tokens, adapters of rank
16 on all linear layers, a reward from the tokens, one optimizer step without a KL term, float32. Both sides use what
makes them fastest here within 16 GiB: codea1 shares prompts in the update; TRL keeps all activations of half the batch.

Shares of the roofline: a decode step computes no faster than one large product of matrices, and reads its weights no
faster than a product of a matrix and a vector does.
"""

import argparse
import json
import os
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpo_step
import jax
import jax.numpy as jnp
import numpy as np
from grpo_step import Spent, taught
from ml_collections import ConfigDict

from bench.micro_run import make_player
from codea1.lab.aot import work
from codea1.models import config_json
from codea1.models.config import Qwen2Config, SpecialIds
from codea1.models.files import ModelFolder
from codea1.players.functions import PlayerFunctions
from codea1.players.player import Player
from codea1.rollout.engine import Request
from codea1.runtime.compilations import compile_all
from codea1.sharding import make_mesh

PROMPTS, SAMPLES, PROMPT, RESPONSE, RANK = 2, 4, 256, 128, 16
SHARED_ROW = 776  # tokens of a prompt and its responses, as they lie in a row
BATCHES, DRAWN = (1, 8, 32), 65  # sequences that decode at once, and tokens of each: after the first are decode steps
TRL = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}


class Peer:
    """Another codebase in a process of its own, which answers one request at a time."""

    def __init__(self, python: str, folder: str) -> None:
        script = str(Path(__file__).parent / "real_step_trl.py")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([python, script, folder], env=os.environ | {"PYTHONPATH": ""}, **pipes)

    def ask(self, what: str, how: Any) -> Any:
        self._process.stdin.write(json.dumps({what: how}) + "\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            if line[0] in "{0123456789":  # TRL prints metrics, of its own form
                return json.loads(line)
        raise SystemExit(f"real_step_trl.py ended with {self._process.wait()}")

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def config(folder: str, slots: int) -> ConfigDict:
    """The run's config; its only player is the Code LLM."""
    c = grpo_step.config("sampler", micro_batch_size=1)
    c.code.model, c.code.max_prompt_length, c.code.max_response_length = folder, PROMPT, RESPONSE
    c.code.lora.rank, c.code.lora.alpha = RANK, 2.0 * RANK
    c.code.kl_coefficient = 0.0
    c.code.share_prompts, c.code.row_lengths = True, (SHARED_ROW,)
    c.model.log_prob_chunk = 256
    c.model.remat = "dots"
    c.rollout.slots = slots
    return c


def least(function: Callable, *arguments: jax.Array) -> float:
    """Returns the least seconds of ten calls."""
    jax.block_until_ready(function(*arguments))
    spent = []
    for _ in range(10):
        started = time.monotonic()
        jax.block_until_ready(function(*arguments))
        spent.append(time.monotonic() - started)
    return min(spent)


def machine(model: Qwen2Config, table_VD: jax.Array, peer: Peer | None) -> tuple[float, float]:
    """Prints and returns the most flop/s of one product in float32 and the most bytes per second of reading weights."""
    sizes = PROMPTS * SAMPLES * (PROMPT + RESPONSE), model.hidden_size, model.intermediate_size
    most = {}
    for dtype in ("float32", "bfloat16"):
        x, w = jnp.ones(sizes[:2], dtype), jnp.ones(sizes[1:], dtype)
        spent = {"jnp": least(jax.jit(jnp.matmul), x, w)} | (
            {"torch": peer.ask("product", [dtype, *sizes])} if peer else {}
        )
        rates = {name: 2 * np.prod(sizes) / seconds for name, seconds in spent.items()}
        each = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in rates.items())
        print(f"one product of {' x '.join(map(str, sizes))} in {dtype}: {each} GFLOP/s", flush=True)
        most[dtype] = max(rates.values())
    bandwidth = table_VD.nbytes / least(jax.jit(jnp.matmul), table_VD, jnp.ones(model.hidden_size))
    print(f"the embedding times a vector: {table_VD.nbytes / 2**30:.2f} GiB at {bandwidth / 1e9:.1f} GB/s", flush=True)
    return most["float32"], bandwidth


def generation(
    functions: PlayerFunctions, code: Player, prompts: list[list[int]], peer: Peer | None, passes: int
) -> dict[str, tuple[float, float]]:
    """Returns the median seconds, by engine, until distinct prompts have one token each, and of a decode step."""
    compile_all(functions.generation)

    def own(tokens: int) -> float:
        asked = [Request(f"q{q}", tuple(ids), 0, 1, length_limit=tokens) for q, ids in enumerate(prompts)]
        started = time.monotonic()
        drawn = functions.engine.generate(code.params, asked, seed=0, stream="bench", step=0, temperature=1.0)
        assert all(len(sample.token_ids) == tokens for sample in drawn)
        return time.monotonic() - started

    engines = {"codea1": own} | (
        {"transformers": lambda tokens: peer.ask("generation", [prompts, tokens])} if peer else {}
    )
    spent = {name: [] for name in engines}
    for _ in range(passes):
        for name, seconds in engines.items():
            spent[name].append([seconds(1), seconds(DRAWN)])
    return {
        name: (np.median(firsts), np.median((wholes - firsts) / (DRAWN - 1)))
        for name, (firsts, wholes) in ((name, np.array(each).T) for name, each in spent.items())
    }


def step(code: Player, prompts: list[list[int]], number: int) -> tuple[Spent, dict[str, float]]:
    """Returns the seconds of one step, and the metrics of its update."""
    started = time.monotonic()
    asked = [Request(f"q{q}", tuple(prompt), 0, SAMPLES) for q, prompt in enumerate(prompts)]
    samples = list(code.generate(asked, stream="code/train", step=number))
    generated = time.monotonic()
    metrics = code.learn(taught(samples, code), number)
    jax.block_until_ready(code.state)
    assert metrics["tokens"] == PROMPTS * SAMPLES * RESPONSE
    assert metrics["grad_norm"] > 0
    return Spent(generated - started, time.monotonic() - generated), metrics


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--peers", help="python with TRL and PEFT")
    parser.add_argument("--steps", type=int, default=3, help="of each side, in turn")
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} at the start", flush=True)
    peer = Peer(given.peers, given.folder) if given.peers else None
    mesh, ids = make_mesh(1, 1, 1, devices=jax.devices()[:1]), SpecialIds((), 0)
    code = make_player("code", config(given.folder, PROMPTS * SAMPLES), mesh, SimpleNamespace(stop_ids=(), pad_id=0))
    model, stored = code.functions.model, config_json.read(ModelFolder(given.folder))
    most, bandwidth = machine(model, code.base["embedding"], peer)
    drawn = np.random.default_rng(0).integers(3, model.vocab_size, (max(BATCHES), PROMPT)).tolist()

    one = work.Cut(1, 1, 1)
    for batch in BATCHES:
        functions = PlayerFunctions("code", config(given.folder, batch), mesh, stored, ids)
        for name, (first, decode) in generation(functions, code, drawn[:batch], peer, given.steps).items():
            needed = work.decode_step(model, batch, PROMPT + DRAWN // 2, one).flops
            prefill = work.prefill(model, batch, PROMPT, one).flops / first
            roof = max(needed / most, 4 * work.num_weights(model) / bandwidth)
            print(
                f"batch {batch:2} {name:12} first tokens {first:6.2f} s, {prefill / 1e9:4.0f} GFLOP/s; decoding "
                f"{batch / decode:.1f} tokens/s, {needed / decode / 1e9:4.0f} GFLOP/s, {roof / decode:.0%} of the roof",
                flush=True,
            )

    print(f"codea1: {peak_gib():.1f} GiB at most so far", flush=True)
    code.warm_up()
    code.warm_up_learning()
    options = TRL | {
        "num_generations": SAMPLES,
        "max_completion_length": RESPONSE,
        "beta": 0.0,
        "max_steps": given.steps,
    }
    asked = {"prompts": drawn[:PROMPTS], "rank": RANK, "options": options}
    found: dict[str, list[Spent]] = {"codea1": []} | ({"TRL + PEFT": []} if peer else {})
    rates, peaks = [], {}
    for number in range(1, given.steps + 1):
        spent, metrics = step(code, drawn[:PROMPTS], number)
        found["codea1"].append(spent)
        rates.append(metrics["update_tflops_per_second"])
        peaks["codea1"] = peak_gib()
        if peer:
            answer = peer.ask("step", asked)
            peaks["TRL + PEFT"] = answer.pop("peak_gib")
            found["TRL + PEFT"].append(Spent(**answer))
    print(f"load average {os.getloadavg()[0]:.1f}; medians of {given.steps} steps, seconds")
    own = np.median([each.total for each in found["codea1"]])
    for name, spent in found.items():
        total, generate, learn = (
            np.median([getattr(each, part) for each in spent]) for part in ("total", "generate", "learn")
        )
        each = ", ".join(f"{one.total:.1f}" for one in spent)
        print(
            f"{name:12} step {total:6.1f} ({each})  generate {generate:6.1f}  learn {learn:6.1f}  {total / own:.2f}  "
            f"{peaks[name]:.1f} GiB at most"
        )
    print(f"codea1 learns at {1e3 * np.median(rates):.0f} GFLOP/s, {1e12 * np.median(rates) / most:.0%} of one product")
    if peer:
        peer.close()


if __name__ == "__main__":
    main()
