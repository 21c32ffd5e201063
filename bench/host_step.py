"""What a host's processor does in a training step beside its devices: between decode chunks, and with finished samples.

  python -m bench.host_step [--slots=256,1024,4096,16384]

CPU time of this process, without any device's work. Chunks: shards of 256 slots, groups of eight samples, prompts of
900 tokens and at most 4,096 more, as on a pod. Samples: a byte-level tokenizer with 8,000 merges made from the standard
library's text, prompts of 900 tokens and answers of 350. Every host of a run does all of that.
"""

import argparse
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from codea1.data.tokenizer import ChatTokenizer
from codea1.rollout.decoding import Chunk
from codea1.rollout.scheduler import PendingSample, Queue, Request, Shard, Sizes
from codea1.rollout.slots import Slots

PER_SHARD, GROUP, PROMPT, LIMIT, PAGE, COLUMNS = 256, 8, 900, 4096, 128, 16
SAMPLES = 18_432  # of a step with the paper's counts: 2,048 programs and 16,384 suites
PROMPTS = 2_304


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Returns the milliseconds of CPU time of a call, and its result."""
    started = time.process_time()
    result = function(*arguments)
    return (time.process_time() - started) * 1e3, result


def full_slots(size: int) -> tuple[Slots, Queue, float]:
    """Returns so many slots, all of them with a sample, and the milliseconds that filling them took."""
    shards = max(size // PER_SHARD, 1)
    longest = -(-(PROMPT + LIMIT) // PAGE)
    sizes = Sizes(
        shards=shards,
        slots=(size // 16, size // 4, size),
        prompts=(shards, 4 * shards),
        inserted=size // shards // 8,
        prompt_lengths=(1024,),
        page=PAGE,
        pages=size // shards * (longest + 1),
        longest=longest,
        reads={},  # tables for a TPU name none
        platform="tpu",
    )
    parts = [Shard(sizes) for _ in range(shards)]
    for number in range(size // GROUP):
        request = Request(f"q{number}", (number, *range(1, PROMPT)), 0, GROUP)
        parts[number % shards].add([PendingSample(request, index) for index in range(GROUP)])
    slots, queue = Slots(size, parts, sizes, LIMIT), Queue([], sizes, lambda request: None)
    filled = 0.0
    while True:
        spent, (started, *_) = timed(slots.fill, queue, COLUMNS)
        filled += spent
        if not started:
            return slots, queue, filled


def chunk_of(slots: Slots, columns: int) -> Chunk:
    """Returns a chunk in which every live sample drew so many tokens."""
    live = slots.rows.live
    shape = len(live), columns
    drawn = (slots.rows.drawn + columns * live).astype(np.int32)
    return Chunk(np.ones(shape, np.int32), np.zeros(shape, np.float32), drawn, np.zeros(len(live), bool), np.int32(1))


def between_chunks(size: int) -> Iterator[str]:
    """Yields what the chunks cost of so many slots, all of them live."""
    slots, queue, filled = full_slots(size)
    yield f"{size:6} slots: filled in {filled:.0f} ms"
    chunks = []
    for _ in range(PAGE // COLUMNS):  # so that each sample comes to its next page once
        grown, _ = timed(slots.grow, queue, COLUMNS)
        tabled, _ = timed(slots.table)
        taken, _ = timed(slots.take, chunk_of(slots, COLUMNS))
        chunks.append((grown, tabled, taken))
    grown, tabled, taken = np.mean(chunks[1:], axis=0)
    yield f"a chunk: grow {grown:.2f}, table {tabled:.2f}, take {taken:.2f} ms, the first {chunks[0][2]:.0f}"


def make_chat_tokenizer(texts: list[str]) -> ChatTokenizer:
    """Returns a byte-level tokenizer as Qwen's is, of fewer merges."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=special[2], pad_token=special[0])
    fast.chat_template = "{% for m in messages %}<|im_start|>{{m['role']}}\n{{m['content']}}<|im_end|>\n{% endfor %}"
    return ChatTokenizer(fast)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", default="256,1024,4096,16384")
    for size in map(int, parser.parse_args().slots.split(",")):
        print("; ".join(between_chunks(size)), flush=True)
    texts = [path.read_text() for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:25]]
    tokenizer = make_chat_tokenizer(texts)
    ids = tokenizer.encode("".join(texts))
    prompts = [ids[number * 7 : number * 7 + PROMPT] for number in range(300)]
    answers = [ids[number * 5 : number * 5 + 350] for number in range(300)]
    chats = [[{"role": "user", "content": "".join(texts)[number * 30 :][:3000]}] for number in range(100)]
    for what, function, given, count in (
        ("a prompt's text for the file of samples, on host 0", tokenizer.transcript, prompts, PROMPTS),
        ("an answer's text", tokenizer.decode, answers, SAMPLES),
        ("a prompt's tokens, of 3,000 characters", tokenizer.encode_chat, chats, PROMPTS),
    ):
        spent = sum(timed(function, each)[0] for each in given) / len(given)
        print(f"{what}: {spent:.3f} ms, {spent * count / 1e3:.1f} s for the {count:,} of a step")


if __name__ == "__main__":
    main()
