"""Greedy answers of a real model, token for token beside `transformers` on the same folder, in float32.

  python -m bench.real_greedy FOLDER --file=HumanEvalPlus.jsonl.gz [--tasks=40] [--tokens=512]

By hand; needs torch (`make EXTRAS=dev,parity`), and memory for two copies of the weights in float32. Our engine answers
the prompts of HumanEval+ as `codea1.benchmark` asks them. `transformers` then reads each prompt with our answer in one
pass: as long as its likeliest token is ours, it would have written the same; the first that is not is where the texts
part. Of each parted text the position is printed and, by each engine, how much likelier its own token is than the
other's, in logits: a tie where both are about the rounding of float32.

Also: how far the log-probs that our sampler gave its tokens are from those of `transformers`, up to where texts part.
"""

import argparse
import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from flax import nnx

from codea1.game.prompts import DEFAULT, code_messages
from codea1.lab.benchmarks.evalplus import load_problems
from codea1.lab.benchmarks.policies import policy_of_folder
from codea1.models import huggingface, qwen2
from codea1.players.policy import Policy
from codea1.rollout.engine import Request, Sample

PROMPT, SLOTS = 1024, 32


def answers(policy: Policy, path: str, tasks: int) -> list[Sample]:
    """Greedy samples of the first tasks, in their order."""
    questions = [problem.question for problem in load_problems("humanevalplus", path)][:tasks]
    requests = [Request(each.id, policy.prompt_ids(code_messages(DEFAULT, each)), 0, 1) for each in questions]
    found = policy.generate(requests, seed=0, stream="real_greedy", temperature=0.0, top_p=1.0)
    return sorted(found, key=lambda sample: [each.id for each in questions].index(sample.question_id))


def our_logits(folder: str, policy: Policy, tokens: Sequence[int]) -> np.ndarray:
    """What our model says of the token that follows, from one pass over all tokens."""
    config = dataclasses.replace(huggingface.Checkpoint(folder).config, dtype="float32", param_dtype="float32")
    graphdef, _ = qwen2.abstract(config)

    @jax.jit
    def forward(params: qwen2.Params, tokens_BT: jax.Array) -> jax.Array:
        model = nnx.merge(graphdef, params)
        hidden_BTD, *_ = model(tokens_BT, np.arange(tokens_BT.shape[1])[None])
        return model.logits(hidden_BTD[:, -1:])[0, 0]

    return np.asarray(forward(policy._params, np.array([tokens], np.int32)))


def compare(folder: str, policy: Policy, samples: Sequence[Sample]) -> None:
    """Prints how many texts are equal, and of each other one where it parts and by how close a choice."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    equal = tokens = 0
    largest = 0.0
    margins = []  # between the two likeliest tokens, of every token before texts part
    for sample in samples:
        whole, start = [*sample.prompt_ids, *sample.token_ids], len(sample.prompt_ids)
        with torch.no_grad():
            keep = len(sample.token_ids) + 1
            theirs_TV = model(torch.tensor([whole]), logits_to_keep=keep).logits[0, :-1].numpy()
        ours_T = np.array(sample.token_ids)
        best_T = theirs_TV.argmax(axis=1)
        parted = np.flatnonzero(best_T != ours_T)
        length = int(parted[0]) if len(parted) else len(ours_T)
        log_probs_T = theirs_TV[np.arange(len(ours_T)), ours_T] - np.logaddexp.reduce(theirs_TV, axis=1)
        largest = max([largest, *np.abs(log_probs_T - sample.log_probs)[:length]])
        highest_T2 = np.sort(np.partition(theirs_TV[:length], -2, axis=1)[:, -2:], axis=1)
        margins += (highest_T2[:, 1] - highest_T2[:, 0]).tolist()
        equal, tokens = equal + (not len(parted)), tokens + length
        if not len(parted):
            print(f"{sample.question_id}: all {len(ours_T)} tokens are equal", flush=True)
        else:
            one, other = int(ours_T[length]), int(best_T[length])
            logits = our_logits(folder, policy, whole[: start + length])
            gaps = logits[one] - logits[other], theirs_TV[length, other] - theirs_TV[length, one]
            print(
                f"{sample.question_id} parts at token {length} of {len(ours_T)}: "
                f"{policy.tokenizer.decode([one])!r} here, by {gaps[0]:.1e}; "
                f"{policy.tokenizer.decode([other])!r} there, by {gaps[1]:.1e}",
                flush=True,
            )
    print(f"{equal} of {len(samples)} texts are equal token for token; {tokens:,} tokens until others part")
    print(f"largest difference of a log-prob: {largest:.1e}; closest choice among them: {min(margins):.1e} logits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--file", required=True, help="HumanEvalPlus.jsonl or its .jsonl.gz")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=512, help="most of one answer")
    given = parser.parse_args()
    policy = policy_of_folder("code", given.folder, (PROMPT, given.tokens, SLOTS))
    samples = answers(policy, given.file, given.tasks)
    compare(given.folder, policy, samples)


if __name__ == "__main__":
    main()
