"""Seconds that Hugging Face `generate` takes inside TRL's GRPO trainer; run by `bench/rollout.py`."""

import os
import tempfile
import time

os.environ.update(HF_HUB_OFFLINE="1", WANDB_MODE="disabled", TOKENIZERS_PARALLELISM="false")

import torch
import transformers
from datasets import Dataset
from rollout_workload import MODEL, PASSES, PROMPT, SAMPLES, SLOTS, WORKLOADS, batches, report, tokenizer, words
from trl import GRPOConfig, GRPOTrainer


class Imposed(transformers.StoppingCriteria):
    """A row is done when it has its number of tokens."""

    def __init__(self, lengths: list[int]):
        self._lengths = torch.tensor(lengths)

    def __call__(self, input_ids, scores, **_):
        return input_ids.shape[1] - PROMPT >= self._lengths


def model(folder: str, dtype: str = "float32") -> None:
    config = transformers.Qwen2Config(
        vocab_size=MODEL["vocab"],
        hidden_size=MODEL["hidden"],
        intermediate_size=MODEL["mlp"],
        num_hidden_layers=MODEL["layers"],
        num_attention_heads=MODEL["heads"],
        num_key_value_heads=MODEL["kv_heads"],
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    transformers.Qwen2ForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)


def seconds(workload: str, folder: str) -> list[float]:
    """Of each measured pass over the workload, which takes one training step per batch of 64 rows."""
    cut = batches(workload)
    longest = max(max(lengths) for _, lengths in cut)
    rows = [{"prompt": words(prompt)} for prompts, _ in cut for prompt in prompts[::SAMPLES]]
    arguments = GRPOConfig(
        output_dir=f"{folder}/out",
        per_device_train_batch_size=SLOTS,
        num_generations=SAMPLES,
        max_completion_length=longest,
        generation_kwargs={"min_new_tokens": longest},  # no end-of-text before the imposed length
        shuffle_dataset=False,
        beta=0.0,
        learning_rate=1e-6,
        max_steps=len(cut) * (1 + PASSES),
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    data = Dataset.from_list(rows * (1 + PASSES))
    trainer = GRPOTrainer(
        folder,
        lambda completions, **_: [float(len(completion)) for completion in completions],
        arguments,
        data,
        processing_class=tokenizer(),
    )
    spent: list[float] = []
    generate = transformers.GenerationMixin.generate

    def timed(self, *positional, **named):
        _, lengths = cut[len(spent) % len(cut)]
        started = time.monotonic()
        criteria = transformers.StoppingCriteriaList([Imposed(lengths)])
        result = generate(self, *positional, **named, stopping_criteria=criteria)
        spent.append(time.monotonic() - started)
        assert result.shape[1] == PROMPT + max(lengths)
        return result

    type(trainer.model).generate = timed
    trainer.train()
    del type(trainer.model).generate
    passes = [sum(spent[i : i + len(cut)]) for i in range(0, len(spent), len(cut))]
    return passes[1:]


if __name__ == "__main__":
    torch.set_num_threads(os.cpu_count())
    transformers.set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        model(folder)
        report({name: seconds(name, folder) for name in WORKLOADS})
