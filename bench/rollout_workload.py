"""What every engine of `bench/rollout.py` is asked: one random Qwen2, two workloads. Imports nothing but numpy.

  equal   8 prompts of 64 tokens x 8 samples of 128 tokens
  varied  64 prompts of 64 tokens x 8 samples over 64 slots; the 512 lengths, 8 to 256 and long-tailed, are stored in
          response_lengths.json (drawn once: lognormal around 48 with deviation 0.8, clipped)

Lengths are imposed, not drawn: no stop id ends a response. codea1's engine takes a limit per request. Hugging Face's
`generate` takes a stopping criterion that is true for a row once it has its tokens, and returns when all rows have.
tunix's sampler has one number of steps for a batch, which is the longest length of its 64 rows: what a static batch
costs. Tokens counted are the imposed ones, whatever an engine computes beside them.
"""

import json
from pathlib import Path

import numpy as np

MODEL = {"vocab": 2048, "hidden": 256, "mlp": 1024, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 64}
PROMPT, SAMPLES, SLOTS = 64, 8, 64  # tokens, per prompt, sequences at once
WORKLOADS = ("equal", "varied")
PASSES = 3  # measured, after one that compiles


def prompts(workload: str) -> list[list[int]]:
    """Token ids of the prompts; 0 to 2 are special."""
    count = {"equal": 8, "varied": 64}[workload]
    return np.random.default_rng(0).integers(3, MODEL["vocab"], (count, PROMPT)).tolist()


def lengths(workload: str) -> list[int]:
    """Tokens of every response: sample s of prompt p is entry 8 p + s."""
    if workload == "equal":
        return [128] * 64
    return json.loads((Path(__file__).parent / "response_lengths.json").read_text())


def batches(workload: str) -> list[tuple[list[list[int]], list[int]]]:
    """The rows of an engine that has no refilling, 64 at a time: prompts, repeated for their samples, and lengths."""
    rows = [prompt for prompt in prompts(workload) for _ in range(SAMPLES)]
    wanted = lengths(workload)
    return [(rows[i : i + SLOTS], wanted[i : i + SLOTS]) for i in range(0, len(rows), SLOTS)]


def words(ids: list[int]) -> str:
    """Text of which every word is one token of `tokenizer`."""
    return " ".join(f"w{i}" for i in ids)


def tokenizer(vocab_size: int = MODEL["vocab"]):
    """A transformers tokenizer with a word per id."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, vocab_size)}}
    words = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, padding_side="left", **special)


def report(seconds: dict[str, list[float]]) -> None:
    """Prints tokens per second of each pass of each workload as the last line."""
    print(json.dumps({name: [sum(lengths(name)) / s for s in each] for name, each in seconds.items()}))
