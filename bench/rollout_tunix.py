"""Seconds that tunix's own sampler takes; run by `bench/rollout.py`."""

import os
import time

os.environ.update(JAX_PLATFORMS="cpu", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from rollout_workload import MODEL, PASSES, PROMPT, WORKLOADS, batches, report, tokenizer, words
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.qwen2 import model as qwen2


def model(dtype: str = "float32") -> nnx.Module:
    config = qwen2.ModelConfig(
        num_layers=MODEL["layers"],
        vocab_size=MODEL["vocab"],
        embed_dim=MODEL["hidden"],
        hidden_dim=MODEL["mlp"],
        num_heads=MODEL["heads"],
        head_dim=MODEL["head_dim"],
        num_kv_heads=MODEL["kv_heads"],
        rope_theta=1_000_000,
        norm_eps=1e-6,
        use_tied_embedding=True,
        dtype=jnp.dtype(dtype),
        param_dtype=jnp.float32,
    )
    made = qwen2.Qwen2(config, rngs=nnx.Rngs(0))
    generator = np.random.default_rng(0)

    def redrawn(p: jax.Array) -> jax.Array:
        # tunix's own initial weights are so peaked that all samples of a prompt come out equal.
        return jnp.asarray(generator.normal(size=p.shape) * 0.02, p.dtype) if p.ndim > 1 else p

    nnx.update(made, jax.tree.map(redrawn, nnx.state(made, nnx.Param)))
    return made


def seconds(workload: str, made: nnx.Module) -> list[float]:
    """Of each measured pass over the workload."""
    cut = batches(workload)
    cache = PROMPT + max(max(lengths) for _, lengths in cut) + 16
    sampler = Sampler(made, tokenizer(), CacheConfig(cache, MODEL["layers"], MODEL["kv_heads"], MODEL["head_dim"]))
    spent = []
    for number in range(1 + PASSES):
        started = time.monotonic()
        for prompts, lengths in cut:
            result = sampler(
                [words(prompt) for prompt in prompts],
                max_generation_steps=max(lengths),
                max_prompt_length=PROMPT,
                temperature=1.0,
                top_p=1.0,  # None would be greedy
                eos_tokens=[2**20],
                seed=number,
            )
            jax.block_until_ready(result.tokens)
            assert {len(tokens) for tokens in result.tokens} == {max(lengths)}
        spent.append(time.monotonic() - started)
    return spent[1:]


if __name__ == "__main__":
    with jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp")):
        made = model()
        report({name: seconds(name, made) for name in WORKLOADS})
