"""Trains adapters with TRL's GRPO for `bench/real_trl.py`, which starts it and judges what it writes.

The first line of stdin says how, as JSON. Then every line of stdout is an answer or a question, as JSON, behind MARK.
"""

import functools
import json
import os
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", WANDB_MODE="disabled", TOKENIZERS_PARALLELISM="false")

import torch
import transformers
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

MARK = "real_trl "
ROWS = 4  # sequences of a micro-batch: what 16 GiB hold with the logits of 512 tokens each


def say(**what) -> None:
    print(MARK + json.dumps(what), flush=True)


def graded(completions: list[str], question: list[str], **_) -> list[float]:
    """Returns the rewards of texts for questions, by id, as the process that started this one gives them."""
    say(grade=list(zip(question, completions, strict=True)))
    return json.loads(sys.stdin.readline())


def ends(answers: list[list[int]], seen: int) -> list[int]:
    """Returns how many tokens each answer has up to its end, which its first `seen` do not hold; 0 where it goes on."""
    say(ends=answers, seen=seen)
    return json.loads(sys.stdin.readline())


class Trainer(GRPOTrainer):
    """Trains at given rates on answers that end where codea1's would; keeps what a step's losses were computed of."""

    batches: list[dict]
    rates: list[float]

    def create_scheduler(self, num_training_steps, optimizer=None):
        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, self.rates.__getitem__)
        return self.lr_scheduler

    def _generate_single_turn(self, prompt_ids, *rest, **named):
        start = max(map(len, prompt_ids))

        def is_over(ids, *_, **__):
            answers = ids[:, start:].tolist()
            return torch.tensor([n > 0 for n in ends(answers, len(answers[0]) - 1)])

        self.model.generate = functools.partial(type(self.model).generate, self.model, stopping_criteria=[is_over])
        answers, log_probs = super()._generate_single_turn(prompt_ids, *rest, **named)
        return [ids[: n or None] for ids, n in zip(answers, ends(answers, 0), strict=True)], log_probs

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.batches.append({**inputs, "loss": float(loss.detach())})
        return loss


class Steps(transformers.TrainerCallback):
    def __init__(self, asked: dict) -> None:
        self.asked, self.trainer = asked, None

    def on_step_begin(self, *_, **__) -> None:
        self.trainer.batches = []

    def on_pre_optimizer_step(self, _, state, __, model, **___) -> None:
        """Writes the adapters before the step, its gradients and its batch."""
        folder = Path(self.asked["output"]) / f"trl_{state.global_step}"
        model.save_pretrained(folder)
        gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
        save_file({name.replace(".default", ""): g.contiguous() for name, g in gradients.items()}, folder / "grads")
        rows = []
        for batch in self.trainer.batches:
            for row in range(len(batch["advantages"])):
                tokens, mask = batch["completion_ids"][row], batch["completion_mask"][row].bool()
                prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
                old = batch.get("old_per_token_logps")  # none, where each batch is learned from once
                old = [0.0] * int(mask.sum()) if old is None else old[row][mask].tolist()
                rows.append([prompt.tolist(), tokens[mask].tolist(), old, float(batch["advantages"][row])])
        loss = sum(batch["loss"] for batch in self.trainer.batches)
        (folder / "rows").write_text(json.dumps({"loss": loss, "rows": rows}))

    def on_log(self, _, state, __, logs, **___) -> None:
        say(step=state.global_step, **logs)

    def on_step_end(self, _, state, __, model, **___) -> None:
        model.save_pretrained(Path(self.asked["output"]) / f"trl_{state.global_step}")


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    torch.set_num_threads(os.cpu_count())
    transformers.set_seed(asked["seed"])
    model = AutoModelForCausalLM.from_pretrained(asked["model"], dtype=getattr(torch, asked["dtype"]))
    lora = LoraConfig(r=asked["rank"], lora_alpha=asked["alpha"], target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    if asked["iterations"] > 1:  # where B is 0, A has no gradient
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.005)
    rows = asked["samples"] * asked["questions_per_step"]
    arguments = GRPOConfig(
        output_dir=asked["output"],
        num_generations=asked["samples"],
        max_completion_length=asked["tokens"],
        per_device_train_batch_size=ROWS,
        gradient_accumulation_steps=rows // ROWS,
        num_iterations=asked["iterations"],
        max_steps=asked["steps"],
        learning_rate=1.0,  # times what the schedule gives
        beta=0.0,
        epsilon=asked["clip_low"],
        epsilon_high=asked["clip_high"],
        delta=asked["dual_clip"],
        loss_type="dapo",
        shuffle_dataset=False,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        **{name: asked[name] for name in ("weight_decay", "max_grad_norm", "temperature", "seed")},
    )
    steps = Steps(asked)
    questions = Dataset.from_list([{"prompt": text, "question": id} for id, text in asked["prompts"]])
    tokenizer = AutoTokenizer.from_pretrained(asked["model"])
    Trainer.rates = asked["rates"]
    steps.trainer = Trainer(model, graded, arguments, questions, processing_class=tokenizer, callbacks=[steps])
    steps.trainer.train()
    say(done=True)


if __name__ == "__main__":
    main()
