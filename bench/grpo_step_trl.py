"""Seconds of the steps of TRL's GRPO trainer; run by `bench/grpo_step.py` and `bench/real_step.py`."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable

os.environ.update(HF_HUB_OFFLINE="1", WANDB_MODE="disabled", TOKENIZERS_PARALLELISM="false")

import torch
import transformers
from datasets import Dataset
from rollout_trl import model
from rollout_workload import SAMPLES, SLOTS, prompts, tokenizer, words
from trl import GRPOConfig, GRPOTrainer

RESPONSE, STEPS = 128, 5


def train(model, words_of, prompts: list[str], after: Callable[[dict[str, float]], bool], peft_config=None, **given):
    """Trains a model, or that in a folder, on the same prompts in every step.

    Calls `after` with the seconds of each step, of generation and of all the rest, which ends with the optimizer step,
    until it returns false.
    """
    options = {"num_generations": SAMPLES, "max_completion_length": RESPONSE, "per_device_train_batch_size": SLOTS}
    options |= {"beta": 0.001, "max_steps": 1 + STEPS, "gradient_checkpointing": False} | given
    arguments = GRPOConfig(
        output_dir=tempfile.gettempdir(),  # nothing is saved
        generation_kwargs={"min_new_tokens": options["max_completion_length"]},
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        loss_type="grpo",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        **options,
    )
    trainer = GRPOTrainer(
        model,
        lambda completion_ids, **_: [sum(ids) % 97 / 97 for ids in completion_ids],
        arguments,
        Dataset.from_list([{"prompt": prompt} for prompt in prompts] * options["max_steps"]),
        processing_class=words_of,
        peft_config=peft_config,
    )
    generation: list[float] = []
    generate = transformers.GenerationMixin.generate

    def timed(self, *positional, **named):
        started = time.monotonic()
        result = generate(self, *positional, **named)
        generation.append(time.monotonic() - started)
        assert result.shape[1] == len(prompts[0].split()) + options["max_completion_length"]
        return result

    class Ends(transformers.TrainerCallback):
        def on_train_begin(self, *_, **__):
            self.started = time.monotonic()

        def on_step_end(self, _, __, control, **___):
            spent = time.monotonic() - self.started
            generated = generation.pop()
            control.should_training_stop |= not after({"generate": generated, "learn": spent - generated})
            self.started = time.monotonic()

    # PEFT's model hands generation to the one inside it.
    type(trainer.model.get_base_model() if peft_config else trainer.model).generate = timed
    trainer.add_callback(Ends())
    trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(os.cpu_count())
    transformers.set_seed(0)
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        model(folder, sys.argv[1])
        train(
            folder, tokenizer(), [words(prompt) for prompt in prompts("equal")], lambda spent: not found.append(spent)
        )
    print(json.dumps(found[1:]))
