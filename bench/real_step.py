"""A GRPO step with LoRA on a real model and a CPU: codea1 beside TRL + PEFT, and what the machine could do.

  python -m bench.real_step FOLDER --dtype=bfloat16           # codea1 alone
  python -m bench.real_step FOLDER --peers=PEERS/bin/python   # in turn with transformers and TRL, installed there:
      pip install torch==2.13.0+cpu trl==1.16.0 peft==0.21.2 transformers==5.23.0 accelerate

FOLDER is Qwen2.5-Coder-0.5B-Instruct as downloaded. By hand, on a machine that does nothing else: the load average is
printed, and ratios are of one run. The step: 2 prompts of 256 random tokens x 4 samples of 128 tokens, adapters of rank
16 on all linear layers, a reward from the tokens, one optimizer step without a KL term. Both sides use what makes them
fastest here within 16 GiB: codea1 shares prompts in the update; TRL keeps all activations of half the batch. Peers run
in float32 and in bfloat16, one after the other: two would not fit.

Shares of the roofline: a decode step computes no faster than JAX's product of as many rows, and reads its weights no
faster than a product of a matrix and two vectors does; learning is no faster than a product of 1024 rows.
"""

import argparse
import functools
import json
import os
import resource
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench import grpo_step
from bench.grpo_step import Spent, least, taught
from bench.micro_run import make_player
from codea1.config import Config
from codea1.config_file import validate
from codea1.lab.aot import work
from codea1.models import config_json
from codea1.models.config import Qwen2Config, SpecialIds
from codea1.models.files import ModelFolder
from codea1.players.base import Model
from codea1.players.functions import PlayerFunctions
from codea1.players.player import Player
from codea1.rollout.engine import Request
from codea1.runtime.compilations import compile_all
from codea1.sharding import make_mesh

PROMPTS, SAMPLES, PROMPT, RESPONSE, RANK = 2, 4, 256, 128, 16
SHARED_ROW = 776  # tokens of a prompt and its responses, as they lie in a row
BATCHES, DRAWN = (1, 8, 32), 65  # sequences that decode at once, and tokens of each: after the first are decode steps
MESH = make_mesh(1, 1, 1, devices=jax.devices()[:1])
TRL = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}


class Peer:
    """Another codebase in a process of its own, which answers one request at a time."""

    def __init__(self, python: str, folder: str, dtype: str) -> None:
        self.dtype = dtype
        script = str(Path(__file__).parent / "real_step_trl.py")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([python, script, folder, dtype], env=os.environ | {"PYTHONPATH": ""}, **pipes)

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


def config(folder: str, slots: int, dtype: str) -> Config:
    """The run's config; its only player is the Code LLM."""
    c = grpo_step.config("sampler" if dtype == "float32" else "trainer", batch_size=1)
    c.model.dtype, c.model.remat, c.model.log_prob_chunk = dtype, "dots", 256
    c.code.model, c.code.max_prompt_length, c.code.max_response_length = folder, PROMPT, RESPONSE
    c.code.lora.rank, c.code.lora.alpha = RANK, 2.0 * RANK
    c.code.share_prompts, c.code.row_lengths = True, (SHARED_ROW,)
    c.code.kl_coefficient, c.rollout.slots = 0.0, slots
    return validate(c)


def player(c: Config) -> Player:
    return make_player("code", c, MESH, SimpleNamespace(stop_ids=(), pad_id=0))


def product_rate(model: Qwen2Config, rows: int) -> float:
    """Returns the flop/s of one product of so many rows with a kernel of the MLP, in float32 from the model's dtype."""
    sizes = rows, model.hidden_size, model.intermediate_size
    x, w = jnp.ones(sizes[:2], model.dtype), jnp.ones(sizes[1:], model.dtype)
    product = jax.jit(functools.partial(jnp.matmul, preferred_element_type=jnp.float32))
    return 2 * np.prod(sizes) / least(product, x, w)


def machine(model: Qwen2Config, peer: Peer | None) -> float:
    """Prints what one product does, and returns the bytes per second at which a matrix is read."""
    sizes = 1024, model.hidden_size, model.intermediate_size
    own = f"jnp in {model.dtype} {product_rate(model, 1024) / 1e9:.0f}"
    if peer:
        own += f", torch in {peer.dtype} {2 * np.prod(sizes) / peer.ask('product', sizes) / 1e9:.0f}"
    table_VD = jnp.ones((model.vocab_size, model.hidden_size))
    bandwidth = table_VD.nbytes / least(jax.jit(jnp.matmul), table_VD, jnp.ones(model.hidden_size))
    shape = " x ".join(map(str, sizes))
    print(f"one product of {shape}: {own} GFLOP/s; a matrix is read at {bandwidth / 1e9:.1f} GB/s", flush=True)
    return bandwidth


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


def of_generation(folder: str, drawn: list[list[int]], dtype: str, peer: Peer | None, passes: int) -> None:
    """Prints the rates of prefill and decoding, of codea1 and of transformers in the peer's dtype."""
    stored, one = config_json.read(ModelFolder(folder)), work.Cut(1, 1, 1)
    code = player(config(folder, PROMPTS * SAMPLES, dtype))
    model = code.functions.model
    bandwidth = machine(model, peer)
    for batch in BATCHES:
        sampled = Model(stored, SpecialIds((), 0), "", "")
        functions = PlayerFunctions("code", config(folder, batch, dtype), sampled, MESH)
        rate = product_rate(model, max(batch, 2))
        for name, (first, decode) in generation(functions, code, drawn[:batch], peer, passes).items():
            needed = work.decode_step(model, batch, PROMPT + DRAWN // 2, one).flops
            prefill = work.prefill(model, batch, PROMPT, one).flops / first
            roof = max(needed / rate, model.dtype.itemsize * work.num_weights(model) / bandwidth)
            print(
                f"batch {batch:2} {name:12} first tokens {first:6.2f} s, {prefill / 1e9:4.0f} GFLOP/s; decoding "
                f"{batch / decode:.1f} tokens/s, {needed / decode / 1e9:4.0f} GFLOP/s, {roof / decode:.0%} of the roof",
                flush=True,
            )


def of_steps(folder: str, drawn: list[list[int]], dtype: str, peer: Peer | None, count: int) -> None:
    """Prints the seconds of whole steps, of codea1 and of TRL in the peer's dtype, in turn."""
    code = player(config(folder, PROMPTS * SAMPLES, dtype))
    compile_all(code.functions.generation)
    compile_all(code.functions.learning)
    options = TRL | {"num_generations": SAMPLES, "max_completion_length": RESPONSE, "beta": 0.0, "max_steps": count}
    asked = {"prompts": drawn[:PROMPTS], "rank": RANK, "options": options}
    found, rates, peaks = defaultdict(list), [], {}
    for number in range(1, count + 1):
        spent, metrics = step(code, drawn[:PROMPTS], number)
        found["codea1"].append(spent)
        rates.append(metrics["update_tflops_per_second"])
        peaks["codea1"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if peer:
            answer, name = peer.ask("step", asked), f"TRL {peer.dtype}"
            peaks[name] = answer.pop("peak_gib")
            found[name].append(Spent(**answer))
    print(f"load average {os.getloadavg()[0]:.1f}; medians of {count} steps, seconds")
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
    rate, most = np.median(rates) * 1e12, product_rate(code.functions.model, 1024)
    print(f"codea1 learns at {rate / 1e9:.0f} GFLOP/s, {rate / most:.0%} of one product", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--peers", help="python with TRL and PEFT")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"), help="of codea1")
    parser.add_argument("--peer_dtypes", nargs="+", default=("float32", "bfloat16"), help="of the peers, in turn")
    parser.add_argument("--steps", type=int, default=3, help="of each side, in turn")
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} at the start; codea1 in {given.dtype}", flush=True)
    stored, size = config_json.read(ModelFolder(given.folder)), (max(BATCHES), PROMPT)
    drawn = np.random.default_rng(0).integers(3, stored.vocab_size, size).tolist()
    for part in (of_steps, of_generation):  # the first tells the most memory
        for dtype in given.peer_dtypes if given.peers else ("",):
            peer = Peer(given.peers, given.folder, dtype) if given.peers else None
            part(given.folder, drawn, given.dtype, peer, given.steps)
            if peer:
                peer.close()


if __name__ == "__main__":
    main()
