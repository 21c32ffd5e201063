"""Generation on a mesh, also as one of two hosts with two devices each.

As a program it prints the samples, and how much was compiled after warm-up, as JSON.
"""

import json
from typing import Any

import jax
import numpy as np

from codea1.rollout.engine import Engine, Request
from codea1.runtime import command
from codea1.runtime.compilations import compile_all, compiled_functions
from codea1.sharding import to_host
from tests.tiny_policy import make_policy

SLOTS, RESPONSE, STOP = 16, 8, 3


def generated(fsdp: int, tensor: int, **options: Any) -> dict:
    """What more requests than slots bring on a mesh, with the keys of its samples as text."""
    policy = make_policy(fsdp, tensor)
    options |= {
        "max_prompt_length": 6,
        "max_response_length": RESPONSE,
        "stop_ids": (STOP, 17),
        "pad_id": 0,
        "chunk": 4,
    }
    engine = Engine(policy.graphdef, policy.config, policy.mesh, slots=SLOTS, **options)
    compile_all(engine.functions())
    known = set(compiled_functions)
    requests = [Request(f"q{row}", tuple(range(4, 5 + row % 6)), 0, 3) for row in range(10)]
    samples = engine.generate(policy.params, requests, seed=0, stream="code", step=1, temperature=1.0)
    listed = {f"{s.question_id}/{s.index}": [s.token_ids, s.log_probs.tolist(), s.finish_reason] for s in samples}
    published = to_host(jax.tree.leaves(engine.publish(policy.params)))
    exact = to_host(jax.tree.leaves(policy.params))
    return {
        "samples": listed,
        "compiled_late": len(set(compiled_functions) - known),
        "statistics": engine.take_statistics(),
        "published_equal": len(published) == len(exact) and all(map(np.array_equal, published, exact)),
    }


if __name__ == "__main__":
    hosts = command.define_hosts()

    def main() -> None:
        hosts()
        print(json.dumps(generated(2, 2) | {"int8": generated(2, 2, int8_weights=True)["samples"]}))

    command.run(main)
