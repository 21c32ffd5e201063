"""Answers the requests of `bench/real_step.py`, which starts it, with torch, transformers, and TRL with PEFT.

Each is a line of JSON, and so is its answer. Once a step was asked for, nothing but steps may be.
"""

import json
import os
import resource
import sys
import time

import grpo_step_trl
import torch
from peft import LoraConfig
from rollout_workload import tokenizer, words
from transformers import AutoModelForCausalLM


def product(dtype: torch.dtype, rows: int, inputs: int, outputs: int) -> float:
    """Returns the least seconds of one product of matrices."""
    x, w = (torch.ones(shape, dtype=dtype) for shape in ((rows, inputs), (outputs, inputs)))
    spent = []
    for _ in range(10):
        started = time.monotonic()
        torch.nn.functional.linear(x, w)
        spent.append(time.monotonic() - started)
    return min(spent)


@torch.inference_mode()
def generation(model, prompts: list[list[int]], tokens: int) -> float:
    """Returns the seconds in which every prompt got so many sampled tokens."""
    ids = torch.tensor(prompts)
    started = time.monotonic()
    options = {"min_new_tokens": tokens, "max_new_tokens": tokens, "do_sample": True, "top_k": 0, "top_p": 1.0}
    found = model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **options)
    assert found.shape[1] == ids.shape[1] + tokens
    return time.monotonic() - started


def reply(found) -> None:
    print(json.dumps(found), flush=True)


def main(folder: str, name: str) -> None:
    dtype = getattr(torch, name)
    torch.set_num_threads(os.cpu_count())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    for line in sys.stdin:
        request = json.loads(line)
        if "product" in request:
            reply(product(dtype, *request["product"]))
        elif "generation" in request:
            reply(generation(model, *request["generation"]))
        else:
            break
    else:
        return

    def after(spent: dict[str, float]) -> bool:
        reply(spent | {"peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20})
        return bool(sys.stdin.readline())

    step = request["step"]
    grpo_step_trl.train(
        model,
        tokenizer(model.config.vocab_size),
        [words(prompt) for prompt in step["prompts"]],
        after,
        LoraConfig(r=step["rank"], lora_alpha=2 * step["rank"], target_modules="all-linear"),
        **step["options"],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
