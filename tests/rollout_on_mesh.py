"""Generation on a mesh, also as one of two hosts with two devices each.

As a program it prints the samples, and how much was compiled after warm-up, as JSON.
"""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codea1.rollout.engine import Engine, Request
from codea1.runtime import command
from codea1.runtime.compilations import compile_all, compiled_functions
from codea1.sharding import to_host
from tests.tiny_policy import make_policy

SLOTS, RESPONSE, STOP = 16, 8, 3
FEW_LEFT = {"max_response_length": 40}  # long enough for the last ones to decode in fewer slots


def generated(fsdp: int, tensor: int, lora_rank: int = 0, replica: int = 1, **options: Any) -> dict:
    """What more requests than slots bring on a mesh, with the keys of its samples as text."""
    policy = make_policy(fsdp, tensor, lora_rank=lora_rank, replica=replica)
    options = {
        "max_prompt_length": 6,
        "max_response_length": RESPONSE,
        "stop_ids": (STOP, 17),
        "pad_id": 0,
        "chunk": 4,
    } | options
    params = jax.tree.map_with_path(_with_adapters, policy.params)
    engine = Engine(policy.graphdef, policy.config, policy.mesh, slots=SLOTS, **options)
    compile_all(engine.functions())
    known = set(compiled_functions)
    requests = [Request(f"q{row}", tuple(range(4, 5 + row % 6)), 0, 3) for row in range(10)]
    samples = engine.generate(params, requests, seed=0, stream="code", step=1, temperature=1.0)
    listed = {f"{s.question_id}/{s.index}": [s.token_ids, s.log_probs.tolist(), s.finish_reason] for s in samples}
    published = to_host(jax.tree.leaves(engine.publish(params)))
    exact = to_host(jax.tree.leaves(params))
    return {
        "samples": listed,
        "compiled_late": len(set(compiled_functions) - known),
        "statistics": engine.take_statistics(),
        "published_equal": len(published) == len(exact) and all(map(np.array_equal, published, exact)),
    }


def _with_adapters(path: tuple, p: jax.Array) -> jax.Array:
    """What an adapter adds is nothing at first."""
    is_b = jax.tree_util.keystr(path[-1:]).find("lora_b") >= 0
    return p + 0.3 * jnp.cos(jnp.arange(p.size).reshape(p.shape)) if is_b else p


if __name__ == "__main__":
    hosts = command.define_hosts()

    def main() -> None:
        hosts()
        found = generated(2, 2)
        found["replicas"] = generated(2, 1, replica=2, **FEW_LEFT)
        print(json.dumps(found))

    command.run(main)
