"""Generated tokens per second: codea1's engine, TRL, tunix; the measured ceiling; and how cost grows.

  python -m bench.rollout                                    # codea1 alone, and the share of the ceiling it reaches
  python -m bench.rollout --peers=PEERS/bin/python           # beside TRL and tunix, installed there:
      pip install torch==2.13.0+cpu trl==1.16.0 google-tunix==0.1.7
  python -m bench.rollout --scaling                          # over slots, group size, prompt and response length
  python -m bench.rollout --adapters                         # Qwen2.5-Coder-0.5B's shape without adapters and with

By hand, on a machine that does nothing else: the load average is printed, and ratios are of one run. See
`rollout_workload` for what is asked and how response lengths are imposed.
"""

import argparse
import dataclasses
import os
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bench.grpo_step import SHAPE, least, peer
from bench.rollout_workload import PASSES, PROMPT, SAMPLES, SLOTS, WORKLOADS, lengths, prompts
from codea1.models import qwen2
from codea1.models.config import PUBLISHED, Qwen2Config
from codea1.rollout.engine import Engine, Request
from codea1.runtime.compilations import compile_all
from codea1.sharding import make_mesh

SCALING = {
    "slots": (16, 32, 64, 128),
    "group": (1, 2, 4, 8, 16),
    "prompt": (32, 64, 128, 256),
    "response": (32, 64, 128),
}


def timed(
    slots: int,
    asked: list[Request],
    longest: int,
    passes: int = PASSES,
    config: Qwen2Config = SHAPE,
    clock: Callable = time.monotonic,
) -> tuple[list, dict[str, float]]:
    """What a clock says of each pass over the requests, after warm-up, and the statistics of the last."""
    mesh = make_mesh(1, 1, 1, devices=jax.devices()[:1])
    graphdef, _ = qwen2.abstract(config)
    params = qwen2.initialise(config, jax.random.key(0))
    prompt = max(len(request.prompt_ids) for request in asked)
    options = {"max_prompt_length": prompt, "max_response_length": longest, "stop_ids": (), "pad_id": 0}
    engine = Engine(graphdef, config, mesh, slots=slots, **options)
    compile_all(engine.functions())
    spent = []
    for step in range(passes):
        engine.take_statistics()
        started = clock()
        samples = list(engine.generate(params, asked, seed=0, stream="bench", step=step, temperature=1.0))
        spent.append(clock() - started)
        assert len(samples) == sum(request.num_samples for request in asked)
    return spent, engine.take_statistics()


def workload(name: str) -> tuple[list[float], dict[str, float]]:
    """Tokens per second of each pass of codea1's engine, and its statistics."""
    wanted = lengths(name)
    asked = [
        Request(f"q{p}", tuple(prompt), s, 1, length_limit=wanted[SAMPLES * p + s])
        for p, prompt in enumerate(prompts(name))
        for s in range(SAMPLES)
    ]
    spent, statistics = timed(SLOTS, asked, max(wanted))
    return [sum(wanted) / seconds for seconds in spent], statistics


def ceiling() -> float:
    """Tokens per second that the weights' matmuls alone allow: those of a decode step of 64 rows, one after another."""
    D, F, V = SHAPE.hidden_size, SHAPE.intermediate_size, SHAPE.vocab_size
    heads = (SHAPE.num_heads + SHAPE.num_kv_heads) * SHAPE.head_dim  # query and output, key and value
    shapes = [(D, heads), (heads, D), (D, F), (D, F), (F, D)] * SHAPE.num_layers + [(D, V)]
    weights = [jnp.ones(shape) for shape in shapes]
    inputs = [jnp.ones((SLOTS, rows)) for rows, _ in shapes]
    matmuls: Callable = jax.jit(lambda inputs, weights: [x @ w for x, w in zip(inputs, weights, strict=True)])
    best = least(matmuls, inputs, weights)
    flops = 2 * SLOTS * sum(rows * columns for rows, columns in shapes)
    print(f"ceiling: matmuls of a step of {SLOTS} rows take {1e3 * best:.2f} ms, {flops / best / 1e9:.0f} GFLOP/s")
    return SLOTS / best


def compare(python: str | None) -> None:
    """Prints a row per engine and workload, with its ratio to the best peer and its share of the ceiling."""
    most = ceiling()
    found = {"codea1": {}}
    for name in WORKLOADS:
        found["codea1"][name], statistics = workload(name)
        print(f"codea1 {name}: {statistics}")
    if python:  # takes a quarter of an hour, most of it TRL's training between its generations
        found |= {"TRL": peer(python, "rollout_trl.py"), "tunix": peer(python, "rollout_tunix.py")}
    print(f"load average {os.getloadavg()[0]:.1f}; median tokens/s of {PASSES} passes (all passes)")
    for name in WORKLOADS:
        best_peer = max((np.median(rates[name]) for engine, rates in found.items() if engine != "codea1"), default=None)
        for engine, rates in found.items():
            median, each = np.median(rates[name]), ", ".join(f"{rate:.0f}" for rate in rates[name])
            ratio = f"  {median / best_peer:.2f} x best peer" if best_peer and engine == "codea1" else ""
            print(f"{name:7} {engine:7} {median:7.0f}  ({each})  {100 * median / most:.0f} % of the ceiling{ratio}")


def scaling() -> None:
    """Prints tokens/s and milliseconds per decode step while one size changes and the others stay."""
    base = {"slots": SLOTS, "group": SAMPLES, "prompt": PROMPT, "response": 64}
    generator = np.random.default_rng(0)
    print("varied    value  tokens/s  ms per slot-step x 1000")
    for varied, values in SCALING.items():
        for value in values:
            sizes = base | {varied: value}
            groups = -(-2 * sizes["slots"] // sizes["group"])  # enough to fill the slots twice
            asked = [
                Request(f"q{q}", tuple(generator.integers(3, 2048, sizes["prompt"]).tolist()), 0, sizes["group"])
                for q in range(groups)
            ]
            spent, statistics = timed(sizes["slots"], asked, sizes["response"], passes=2)
            tokens, seconds = statistics["samples"] * sizes["response"], min(spent)
            print(
                f"{varied:9} {value:5}  {tokens / seconds:8.0f}  {1e6 * seconds * statistics['slot_use'] / tokens:.1f}"
            )
    print(f"load average {os.getloadavg()[0]:.1f}")


def adapters() -> None:
    """Prints how fast samples come by merged weights and by unmerged adapters of rank 16, in turns."""
    prompts = np.random.default_rng(0).integers(3, 2048, (2, 256)).tolist()
    asked = [Request(f"q{q}", tuple(prompt), 0, 8) for q, prompt in enumerate(prompts)]
    found: dict[int, list[np.ndarray]] = {0: [], 16: []}
    for _ in range(PASSES):
        for rank, rates in found.items():
            config = dataclasses.replace(PUBLISHED["qwen2.5-coder-0.5b"], lora_rank=rank)
            spent, _ = timed(16, asked, 64, 2, config, lambda: np.array([time.monotonic(), time.process_time()]))
            rates.append(16 * 64 / spent[-1])
            print(f"rank {rank:2}: {rates[-1][0]:.1f} tokens/s, {rates[-1][1]:.1f} per CPU-second", flush=True)
    ratios = np.median(found[0], axis=0) / np.median(found[16], axis=0)
    print(f"merged / unmerged, medians: {ratios[0]:.3f} by the clock, {ratios[1]:.3f} in CPU time")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="python with TRL and tunix")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--adapters", action="store_true")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} at the start")
    if options.scaling:
        scaling()
    elif options.adapters:
        adapters()
    else:
        compare(options.peers)
