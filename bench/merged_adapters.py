"""What merging adapters into their base would save in rollout, and what it would lose.

  python -m bench.merged_adapters --folder=FOLDER                     # what is left of them in bfloat16
  python -m bench.merged_adapters --config=colab                      # what they cost unmerged, by the TPU's compiler
  python -m bench.merged_adapters --config=code_a1:size=7b,lora=32,topology=v5e-8

By hand. FOLDER holds a model in one bfloat16 file. A is drawn as PEFT does, and every element of B has gone one way by
the learning rate in each step: Adam does not move it farther. A config is compiled with its adapters and without, which
is what merged weights are to the compiler; it remembers results where `codea1.compile_tpu` does.
"""

import argparse
import importlib
import math
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
from safetensors import safe_open

from codea1.lab.aot.compilation import ResultCache, compile_lowered, fingerprint
from codea1.lab.aot.jobs import models, plan
from codea1.lab.aot.topology import topology
from codea1.sharding import device_mesh

RANK, RATE, STEPS, LAYER = 32, 1e-5, (1, 10, 111), 12


def kept(folder: str) -> None:
    """Prints which part of A B is in bfloat16(W + A B) - W, along A B, with alpha = rank; a mean over one layer."""
    file = safe_open(Path(folder) / "model.safetensors", "np")
    names = [name for name in file.keys() if f".layers.{LAYER}." in name and name.endswith("proj.weight")]  # noqa: SIM118
    generator = np.random.default_rng(0)
    for steps in STEPS:
        parts = []
        for name in names:
            kernel_OI = file.get_tensor(name).astype(np.float32)
            outputs, inputs = kernel_OI.shape
            a_Ir = generator.uniform(-1, 1, (inputs, RANK)).astype(np.float32) / math.sqrt(inputs)
            b_rO = np.float32(RATE * steps) * generator.choice(np.float32([-1, 1]), (RANK, outputs))
            added_OI = (a_Ir @ b_rO).T
            merged_OI = (kernel_OI + added_OI).astype(ml_dtypes.bfloat16).astype(np.float32)
            parts.append(((merged_OI - kernel_OI) * added_OI).sum() / (added_OI**2).sum())
        print(f"rank {RANK}, {steps} steps of {RATE:g}: {np.mean(parts):.3f} is left")


def cycles(name: str) -> None:
    """Prints seconds of each turn of decoding and of each prefill, of a config's Test LLM."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_compilation_cache", False)  # it cannot read what is for chips that are not there
    cache = ResultCache(Path("~/.cache/codea1/compile_tpu").expanduser())
    file, _, arg = name.partition(":")
    found: dict[str, list[float]] = {}
    for is_merged in (False, True):
        config = importlib.import_module(f"configs.{file}").get_config(arg)
        if is_merged:
            config.code.lora.rank = config.test.lora.rank = 0
        chips = topology(config.mesh.topology)
        planned = plan(config, device_mesh(config, chips.devices), models(config))
        most = planned.players["test"].engine.sizes.prompts[-1]
        for job in (job for job in planned.jobs if job.player == "test"):
            is_prefill = job.function.name.startswith(f"prefill {most} ")
            if not is_prefill and job.function.kind != "decode":
                continue
            lowered = job.function.lower()
            key = fingerprint(lowered, chips.name)
            if (result := cache.get(key)) is None:
                cache.put(key, result := compile_lowered(lowered))
            cost = result.cost if is_prefill else result.turn
            found.setdefault(job.function.name, []).append(sum(cost.seconds(chips.chip).values()))
    for function, (unmerged, merged) in found.items():
        ratio = unmerged / merged
        print(f"{function}: unmerged {1e3 * unmerged:.2f} ms, merged {1e3 * merged:.2f} ms, {ratio:.2f} times")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--folder", help="of a model")
    group.add_argument("--config", help="a shipped one with adapters")
    options = parser.parse_args()
    if options.folder:
        kept(options.folder)
    else:
        cycles(options.config)
