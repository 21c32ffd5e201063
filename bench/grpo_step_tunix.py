"""Seconds of the steps of tunix's GRPO learner with its own sampler; run by `bench/grpo_step.py`."""

import json
import os
import sys
import time
from itertools import pairwise

os.environ.update(JAX_PLATFORMS="cpu", HF_HUB_OFFLINE="1", WANDB_MODE="disabled", TOKENIZERS_PARALLELISM="false")

import grain
import jax
import numpy as np
import optax
from flax import nnx
from rollout_tunix import model
from rollout_workload import PROMPT, SAMPLES, prompts, tokenizer, words
from tunix.rl import rl_cluster
from tunix.rl.grpo import grpo_learner
from tunix.rl.rollout import base_rollout

RESPONSE, STEPS, PROMPTS = 128, 5, 8


def steps(mesh: jax.sharding.Mesh) -> list[dict[str, float]]:
    """Of each measured step: seconds of generation and of all the rest, which ends with the actor's update."""
    roles = (rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT)
    cluster = rl_cluster.RLCluster(
        actor=model(sys.argv[1]),
        reference=model(sys.argv[1]),
        tokenizer=tokenizer(),
        cluster_config=rl_cluster.ClusterConfig(
            role_to_mesh=dict.fromkeys(roles, mesh),
            rollout_engine="vanilla",
            offload_to_cpu=False,
            training_config=rl_cluster.RLTrainingConfig(
                actor_optimizer=optax.adamw(1e-6),
                eval_every_n_steps=10_000,
                max_steps=1 + STEPS,
                mini_batch_size=PROMPTS,
                train_micro_batch_size=PROMPTS,
                rollout_micro_batch_size=PROMPTS,
                compute_logps_micro_batch_size=PROMPTS,
            ),
            rollout_config=base_rollout.RolloutConfig(
                max_tokens_to_generate=RESPONSE,
                max_prompt_length=PROMPT,
                kv_cache_size=PROMPT + RESPONSE + 16,
                temperature=1.0,
                top_p=1.0,  # None would be greedy
                top_k=None,
                eos_tokens=[2**20],
            ),
        ),
    )
    generation: list[float] = []
    ends: list[float] = []
    generate, update = cluster.generate, cluster.update_actor

    def timed(*positional, **named):
        started = time.monotonic()
        result = generate(*positional, **named)
        jax.block_until_ready(jax.tree.leaves(result.tokens))
        generation.append(time.monotonic() - started)
        assert {len(tokens) for tokens in result.tokens} == {RESPONSE}
        return result

    def updated(*positional, **named):
        result = update(*positional, **named)
        jax.block_until_ready(jax.tree.leaves(nnx.state(cluster.actor_trainer.model, nnx.Param)))
        ends.append(time.monotonic())
        return result

    cluster.generate, cluster.update_actor = timed, updated
    learner = grpo_learner.GRPOLearner(
        rl_cluster=cluster,
        reward_fns=lambda prompts, completions, **_: [sum(map(ord, text[:200])) % 97 / 97 for text in completions],
        algo_config=grpo_learner.GRPOConfig(num_generations=SAMPLES, num_iterations=1, beta=0.001, epsilon=0.2),
    )
    # The prompts of a batch stay one array: tunix repeats every leaf of what it is given.
    asked = np.array([words(prompt) for prompt in prompts("equal")] * (1 + STEPS))
    learner.train(grain.MapDataset.source(asked).batch(PROMPTS).map(lambda batch: {"prompts": batch}))
    whole = [end - start for start, end in pairwise(ends)]
    return [{"generate": g, "learn": total - g} for g, total in zip(generation[1:], whole, strict=False)]


if __name__ == "__main__":
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
    with mesh:
        print(json.dumps(steps(mesh)))
