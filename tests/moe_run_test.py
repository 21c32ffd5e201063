"""Routing replay: what the sampler returns, what the update does with it, and runs of a mixture of experts."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from bench.micro_run import make_micro_config, make_model_folder
from codea1.learn.batch import RowLayout, TrainSample, micro_batches, row_shapes
from codea1.learn.log_probs import model_log_probs
from codea1.models import qwen2
from codea1.models.kv_cache import page_bytes
from codea1.rollout.engine import Engine, Request, Sample
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.sharding import TRAIN_RULES, make_mesh, param_shardings
from tests.models_qwen2_test import MOE
from tests.train_test import assert_same_run, scripting, train

MODEL = dataclasses.replace(MOE, num_experts=8, experts_per_token=2)
PROMPTS = {"a": (5, 6, 7, 8, 9), "b": (3, 4), "c": (11,)}


def engine_of(graphdef: nnx.GraphDef, **sizes: float) -> Engine:
    fixed = {"max_prompt_length": 8, "max_response_length": 80, "stop_ids": (1,), "pad_id": 0, "chunk": 4}
    return Engine(graphdef, MODEL, make_mesh(1, 1, 1), records_routes=True, **({"slots": 4} | fixed | sizes))


@pytest.fixture(scope="module")
def policy() -> tuple[nnx.GraphDef, qwen2.Params]:
    graphdef, declared = qwen2.abstract(MODEL)
    shardings = param_shardings(declared, make_mesh(1, 1, 1), TRAIN_RULES)
    return graphdef, jax.tree.map(lambda p: 4 * p, qwen2.initialise(MODEL, jax.random.key(0), shardings))


def drawn(engine: Engine, params: qwen2.Params, each: int = 3) -> list[Sample]:
    requests = [Request(name, prompt, 0, each) for name, prompt in PROMPTS.items()]
    samples = engine.generate(engine.publish(params), requests, seed=0, stream="s", step=1, temperature=1.0)
    return sorted(samples, key=lambda sample: (sample.question_id, sample.index))


@pytest.fixture(scope="module")
def samples(policy) -> list[Sample]:
    graphdef, params = policy
    return drawn(engine_of(graphdef), params)


def whole_row(policy, tokens: tuple[int, ...]) -> np.ndarray:
    """The experts [T, L, c] that one pass over a row chooses."""
    graphdef, params = policy
    model, tokens_BT = nnx.merge(graphdef, params), jnp.array([tokens])
    _, _, routing = model(tokens_BT, jnp.arange(len(tokens))[None])
    return np.moveaxis(np.asarray(routing.chosen_BTc)[:, 0], 0, 1)


def test_the_sampler_returns_the_experts_of_every_token(policy, samples):
    assert {len(sample.prompt_ids) for sample in samples} == {1, 2, 5}
    assert any(sample.finish_reason == "stop" for sample in samples)
    for sample in samples:
        expected = whole_row(policy, (*sample.prompt_ids, *sample.token_ids[:-1]))
        found = np.concatenate([sample.prompt_routes, sample.routes])
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(np.sort(found), np.sort(expected))


def test_a_sample_that_gave_way_has_the_routes_of_its_tokens(policy):
    graphdef, params = policy
    samples = drawn(engine_of(graphdef, stop_ids=()), params, 2)
    few = engine_of(graphdef, stop_ids=(), cache_gib=4 * page_bytes(MODEL, 1) / 2**30)
    again = drawn(few, params, 2)
    assert few.take_statistics()["preempted"] > 0
    for sample, other in zip(samples, again, strict=True):
        assert sample.token_ids == other.token_ids
        np.testing.assert_array_equal(sample.routes, other.routes)
        np.testing.assert_array_equal(sample.prompt_routes, other.prompt_routes)


def batches(samples: list[Sample], share_prompts: bool):
    taught = [TrainSample(x.prompt_ids, x.token_ids, x.log_probs, 1.0, 0.0, x.prompt_routes, x.routes) for x in samples]
    shapes = row_shapes((160,) if share_prompts else (), 88, 2, share_prompts=share_prompts)
    return micro_batches(taught, RowLayout(shapes, "token-mean", 80, pad_id=0, share_prompts=share_prompts))


def scored(policy, batch) -> np.ndarray:
    graphdef, params = policy
    how = 1.0, batch.packing, batch.routes_BTLc
    return np.asarray(model_log_probs(graphdef, 512, params, batch.tokens_BT, *how)[0][0])


@pytest.mark.parametrize("share_prompts", [False, True])
def test_the_update_has_the_log_probs_of_the_sampler(policy, samples, share_prompts):
    for batch in batches(samples, share_prompts):
        mask = batch.response_mask_BT
        found = scored(policy, batch)[mask]
        np.testing.assert_allclose(found, batch.sampler_log_probs_BT[mask], atol=2e-4)


def test_with_replay_the_log_probs_of_another_arithmetic_are_nearer(policy, samples):
    """The trainer's weights are rounded to bfloat16, the sampler's were not."""
    graphdef, params = policy
    rounded = graphdef, jax.tree.map(lambda p: p.astype(jnp.bfloat16).astype(jnp.float32), params)
    found: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for batch in batches(samples, share_prompts=False):
        for replays, differences in found.items():
            log_probs = scored(rounded, batch if replays else dataclasses.replace(batch, routes_BTLc=None))
            differences.append((log_probs - batch.sampler_log_probs_BT)[batch.response_mask_BT])
    replayed, chosen = (np.abs(np.concatenate(found[replays])) for replays in (True, False))
    assert replayed.mean() < chosen.mean()
    assert replayed.max() < chosen.max()


def test_a_run_that_was_stopped_ends_as_the_whole_one(data_folder, tmp_path):
    experts = {"num_experts": 8, "experts_per_token": 2, "qkv_bias": False, "qk_norm": True}
    folder = make_model_folder(tmp_path / "model", **experts)
    config = make_micro_config(folder, data_folder)
    for player in (config.code, config.test):
        player.lora.rank, player.lora.alpha, player.share_prompts = 4, 8.0, True
        player.balance_coefficient = 0.01
    with scripting():
        whole = train(config, tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "cut", stop_after=4)
        shutil.copytree(tmp_path / "cut", tmp_path / "copy")
        resumed = train(config, tmp_path / "copy")
    assert_same_run(tmp_path / "whole", tmp_path / "copy", whole, resumed)
    row = read_metrics(RunFolder.existing(str(tmp_path / "whole")).metrics)[-1]
    for name in ("code", "test"):
        assert row[f"{name}/sampler_log_prob_difference_max"] < 1e-4
        assert row[f"{name}/unreplayed_sampler_log_prob_difference_max"] < 1e-4  # float32 rounds alike, mostly
        assert row[f"{name}/other_experts"] < 0.1
        assert row[f"{name}/expert_load_1"] >= 1
        assert whole._policies[name].state.params["layers"].keys() == {"attention"}
