"""Scores, updates and generation on eight virtual devices against one; run as a program, prints what it computed."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from codea1.learn.batch import RowLayout, TrainBatch, TrainSample, abstract_batch, micro_batches, row_shapes, to_mesh
from codea1.learn.log_probs import make_score, model_log_probs
from codea1.learn.losses import ObjectiveConfig
from codea1.learn.optimizer import AdamWConfig
from codea1.learn.surrogates import Clip
from codea1.learn.update import PolicyLoss, Update, abstract_state, init_state
from codea1.rollout.engine import Engine, Request
from codea1.runtime.compilations import compiled_functions
from codea1.runtime.errors import BadInput
from codea1.sharding import to_host
from tests.tiny_policy import make_policy

TOLERANCE = 2e-5
MICRO, LENGTH = 4, 12
SHAPES = row_shapes((9,), LENGTH, MICRO, multiple=4)
MESHES = {"one": (1, 1, 1), "eight": (1, 4, 2), "replicas": (2, 2, 2)}
SURROGATES = {"one": "ppo", "eight": "ppo", "replicas": "gspo"}  # that sharing prompts is compared with


def compute(replica: int, fsdp: int, tensor: int) -> dict:
    policy = make_policy(fsdp, tensor, replica=replica)
    samples, scored = generated(policy)
    optimizer = AdamWConfig()
    state = init_state(policy.params, optimizer)
    shapes = [abstract_batch(shape, policy.mesh, ref=True) for shape in SHAPES]
    abstract = abstract_state(policy.params, optimizer)
    update = Update(PolicyLoss(policy.graphdef, ObjectiveConfig(), 512), optimizer, abstract, shapes)
    batches = to_mesh(train_batches(scored), policy.mesh)
    reports = []
    compiled_functions.clear()
    for _ in range(2):
        state, report = update(state, batches, 1e-3)
        reports.append(report.metrics())
    specs = jax.tree.map(lambda x: str(x.sharding.spec), (state.params, state.opt_state[0].mu, state.opt_state[0].nu))
    return {
        "log_probs": scored[1].tolist(),
        "sampled": samples,
        "reports": reports,
        "compiled": len(compiled_functions),
        "moments_lie_as_params": specs[0] == specs[1] == specs[2],
        "cut_params": sum(not x.sharding.is_fully_replicated for x in jax.tree.leaves(state.params)),
    }


def generated(policy) -> tuple[list, tuple[np.ndarray, np.ndarray]]:
    """Samples of the engine with its log-probs and the trainer's; and scores of rows that are the same on any mesh."""
    engine = Engine(
        policy.graphdef,
        policy.config,
        policy.mesh,
        slots=8,
        max_prompt_length=6,
        max_response_length=6,
        stop_ids=(3,),
        pad_id=0,
    )
    requests = [Request(f"q{row}", tuple(range(4, 5 + row)), 0, 2) for row in range(4)]
    samples = list(engine.generate(policy.params, requests, seed=0, stream="code", step=1, temperature=1.0))
    tokens = np.zeros((len(samples), LENGTH), np.int32)
    for row, sample in enumerate(samples):
        ids = sample.prompt_ids + sample.token_ids
        tokens[row, : len(ids)] = ids
    score = make_score(policy.graphdef, 512, policy.mesh)

    def score_all(tokens: np.ndarray) -> np.ndarray:
        return to_host(score(policy.params, to_mesh(tokens.astype(np.int32), policy.mesh), 1.0)[0])

    log_probs = score_all(tokens)
    listed = []
    for row, sample in enumerate(samples):
        trainer = log_probs[row, len(sample.prompt_ids) :][: len(sample.token_ids)]
        listed.append({"tokens": sample.token_ids, "sampler": sample.log_probs.tolist(), "trainer": trainer.tolist()})
    fixed = np.random.default_rng(0).integers(1, policy.config.vocab_size, (8, LENGTH))
    return listed, (fixed, score_all(fixed))


def train_batches(scored: tuple[np.ndarray, np.ndarray]) -> list[TrainBatch]:
    tokens, log_probs = scored
    samples = [
        TrainSample(
            row[:4].tolist(), row[4 : 8 + index % 4].tolist(), log_probs[index, 4 : 8 + index % 4] + 0.1, index - 3.0
        )
        for index, row in enumerate(tokens)
    ]
    batches = micro_batches(samples, RowLayout(SHAPES, "token-mean", max_response_length=8, pad_id=0))
    return [dataclasses.replace(batch, ref_log_probs_BT=batch.sampler_log_probs_BT - 0.2) for batch in batches]


def shared_against_alone(replica: int, fsdp: int, tensor: int, surrogate: str) -> dict[str, float]:
    """Returns the largest differences that sharing prompts makes to the loss, log-probs and parameters of a step."""
    policy, optimizer = make_policy(fsdp, tensor, replica=replica), AdamWConfig()
    rng = np.random.default_rng(0)
    prompts = [rng.integers(1, policy.config.vocab_size, size).tolist() for size in (1, 4, 7)]
    samples = []
    for number, length in enumerate([1, 5, 3, 4, 2, 5, 1, 3, 2, 4, 5]):
        response = rng.integers(1, policy.config.vocab_size, length).tolist()
        samples.append(TrainSample(prompts[number % 3], response, rng.normal(-3, 0.3, length), rng.normal()))
    shapes, found = row_shapes((16,), 24, MICRO, multiple=4), []
    for share in (True, False):
        state = init_state(policy.params, optimizer)
        abstract = [abstract_batch(shape, policy.mesh, share_prompts=share) for shape in shapes]
        objective = ObjectiveConfig(surrogate, Clip(0.5, 2.0), kl_coefficient=0.0, entropy_coefficient=0.1)
        loss = PolicyLoss(policy.graphdef, objective, 8)
        update = Update(loss, optimizer, abstract_state(policy.params, optimizer), abstract)
        batches = micro_batches(samples, RowLayout(shapes, "seq-mean-token-mean", 5, pad_id=0, share_prompts=share))
        state, report = update(state, to_mesh(batches, policy.mesh), 1e-3)
        score = make_score(policy.graphdef, 8, policy.mesh)
        of_tokens = {}
        for batch in batches:
            placed = to_mesh(batch, policy.mesh)
            log_probs, entropy = to_host(score(policy.params, placed.tokens_BT, 1.0, placed.packing))
            for row, mask in enumerate(batch.response_mask_BT):
                for place in np.flatnonzero(mask):
                    key = batch.advantages_BT[row, place], batch.sampler_log_probs_BT[row, place]
                    of_tokens[key] = log_probs[row, place], entropy[row, place]
        # The first moment is a tenth of the gradients; AdamW's first step has no more than their signs.
        gradients = to_host(state.opt_state[0].mu)
        positions = sum(batch.tokens_BT.size for batch in batches)
        found.append((report.metrics(), of_tokens, gradients, positions))
    (metrics, scores, gradients, positions), (metrics_2, scores_2, gradients_2, positions_2) = found
    assert metrics.keys() == metrics_2.keys()
    assert len(scores) == sum(len(sample.token_ids) for sample in samples)
    differences = jax.tree.map(lambda a, b: np.abs(a - b).max() / np.abs(b).max(), gradients, gradients_2)
    return {
        "metrics": max(abs(metrics[name] - metrics_2[name]) / max(abs(metrics_2[name]), 1) for name in metrics),
        "scores": float(max(np.abs(np.subtract(scores[key], scores_2[key])).max() for key in scores)),
        "gradients": float(max(jax.tree.leaves(differences))),
        "positions": positions / positions_2,
    }


def head_crosses_in_a_loop(fsdp: int, tensor: int) -> bool:
    """Whether the compiled gradient exchanges arrays of the head's shape between devices once per chunk."""
    policy = make_policy(fsdp, tensor)
    # A device's tokens must not be as many as its rows of the head: activations cross devices in loops.
    tokens = to_mesh(np.zeros((8, LENGTH - 2), np.int32), policy.mesh)

    def loss(params, tokens):
        return model_log_probs(policy.graphdef, 4, params, tokens, 1.0)[0][0].sum()

    hlo = jax.jit(jax.grad(loss), out_shardings=policy.shardings).lower(policy.params, tokens).compile().as_text()
    head = f"[{policy.config.vocab_size // tensor},{policy.config.hidden_size}]"
    bodies = set(re.findall(r"body=%?([\w.\-]+)", hlo))
    assert bodies
    blocks = [block for block in re.split(r"\n(?=[%\w])", hlo) if block.lstrip("%").split(" ")[0] in bodies]
    lines = [line for block in blocks for line in block.splitlines()]
    return any(head in line and re.search(r" all-(gather|reduce)(-start)?\(", line) for line in lines)


def refuses_slots_that_are_cut_unevenly() -> bool:
    policy = make_policy(4, 2)
    options = {"max_prompt_length": 6, "max_response_length": 6, "stop_ids": (3,), "pad_id": 0}
    try:
        Engine(policy.graphdef, policy.config, policy.mesh, slots=6, **options)
    except BadInput:
        return True
    return False


@pytest.fixture(scope="module")
def results() -> dict:
    root = Path(__file__).parents[1]
    flags = {
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(root),
    }
    done = subprocess.run([sys.executable, __file__], env=os.environ | flags, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("mesh", ["eight", "replicas"])
def test_scores_agree(results, mesh: str):
    np.testing.assert_allclose(results[mesh]["log_probs"], results["one"]["log_probs"], atol=TOLERANCE)


@pytest.mark.parametrize("mesh", ["eight", "replicas"])
def test_updates_agree(results, mesh: str):
    for found, one in zip(results[mesh]["reports"], results["one"]["reports"], strict=True):
        assert found.keys() == one.keys()
        for name in one:
            np.testing.assert_allclose(found[name], one[name], rtol=1e-3, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("mesh", SURROGATES)
def test_sharing_prompts_changes_no_log_prob_metric_or_gradient(results, mesh: str):
    differences = results["shared"][mesh]
    assert differences["positions"] < 0.8
    assert differences["metrics"] < 1e-5
    assert differences["scores"] < 1e-5
    assert differences["gradients"] < 1e-5


def test_the_second_step_compiles_nothing_and_moments_are_cut_like_parameters(results):
    for result in (results[mesh] for mesh in MESHES):
        assert result["compiled"] == 4  # zeros, one per row length, the step
        assert result["moments_lie_as_params"]
    assert results["eight"]["cut_params"] > 8


def test_the_head_and_its_gradient_cross_the_devices_once(results):
    assert not results["head_crosses_in_a_loop"]


@pytest.mark.parametrize("mesh", MESHES)
def test_sampled_log_probs_are_the_trainers(results, mesh: str):
    assert len(results[mesh]["sampled"]) == 8
    for sample in results[mesh]["sampled"]:
        np.testing.assert_allclose(sample["sampler"], sample["trainer"], atol=TOLERANCE)


@pytest.mark.parametrize("mesh", ["eight", "replicas"])
def test_samplers_agree_until_rounding_flips_a_token(results, mesh: str):
    pairs = zip(results["one"]["sampled"], results[mesh]["sampled"], strict=True)
    assert sum(one["tokens"] == other["tokens"] for one, other in pairs) >= 7


def test_slots_must_be_cut_evenly(results):
    assert results["refuses_uneven_slots"]


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/codea1/jax-tests"))
    print(
        json.dumps(
            {
                **{name: compute(*sizes) for name, sizes in MESHES.items()},
                "shared": {name: shared_against_alone(*MESHES[name], each) for name, each in SURROGATES.items()},
                "head_crosses_in_a_loop": head_crosses_in_a_loop(4, 2),
                "refuses_uneven_slots": refuses_slots_that_are_cut_unevenly(),
            }
        )
    )
