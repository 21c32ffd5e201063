"""Generation against the model run step by step, and what a sample may and may not depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from codea1.learn.log_probs import make_score
from codea1.rollout.engine import Engine, Request, Sample
from tests.tiny_policy import make_policy

LONGEST_PROMPT, RESPONSE, PAD = 8, 6, 0
STOPS = (3, 17)


@pytest.fixture(scope="module")
def policy():
    policy = make_policy()
    policy.score = make_score(policy.graphdef, 512, policy.mesh)
    return policy


def make_engine(policy, slots: int = 8, stop_ids: tuple[int, ...] = STOPS, **options) -> Engine:
    options = {"max_prompt_length": LONGEST_PROMPT, "max_response_length": RESPONSE, **options}
    return Engine(policy.graphdef, policy.config, policy.mesh, slots=slots, stop_ids=stop_ids, pad_id=PAD, **options)


@pytest.fixture(scope="module")
def engine(policy) -> Engine:
    return make_engine(policy)


def requests(num: int = 8, num_samples: int = 2, first_sample: int = 0) -> list[Request]:
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(1, 48, 1 + row % LONGEST_PROMPT).tolist()) for row in range(num)]
    return [Request(f"q{row}", prompt, first_sample, num_samples) for row, prompt in enumerate(prompts)]


def generate(engine: Engine, policy, wanted: list[Request], **changes) -> dict[tuple[str, int], Sample]:
    arguments = {"seed": 0, "player": "code", "step": 1, "temperature": 1.0} | changes
    samples = list(engine.generate(policy.params, wanted, **arguments))
    by_key = {(sample.question_id, sample.index): sample for sample in samples}
    assert len(by_key) == len(samples) == sum(request.num_samples for request in wanted)
    return by_key


def assert_same(samples: dict, expected: dict) -> None:
    assert samples.keys() == expected.keys()
    for key, sample in samples.items():
        assert sample.token_ids == expected[key].token_ids
        assert sample.finish_reason == expected[key].finish_reason
        np.testing.assert_allclose(sample.log_probs, expected[key].log_probs, atol=1e-5)


def scored(policy, samples: list[Sample], temperature: float) -> list[np.ndarray]:
    """The trainer's log-probs of the tokens of sixteen samples."""
    tokens = np.zeros((len(samples), LONGEST_PROMPT + RESPONSE), np.int32)
    for row, sample in enumerate(samples):
        ids = sample.prompt_ids + sample.token_ids
        tokens[row, : len(ids)] = ids
    log_probs, _ = policy.score(policy.params, tokens, temperature)
    return [
        np.array(row[len(sample.prompt_ids) :][: len(sample.token_ids)])
        for row, sample in zip(log_probs, samples, strict=True)
    ]


def test_greedy_takes_the_argmax_of_a_full_forward_pass_at_every_step(policy, engine):
    @jax.jit
    def next_token(tokens_BT, length):
        model = nnx.merge(policy.graphdef, policy.params)
        hidden, _ = model(tokens_BT, jnp.arange(tokens_BT.shape[1])[None])
        return jnp.argmax(model.logits(hidden)[0, length - 1])

    for sample in generate(engine, policy, requests(), temperature=0.0).values():
        ids = list(sample.prompt_ids)
        for token in sample.token_ids:
            padded = np.full((1, LONGEST_PROMPT + RESPONSE), PAD)
            padded[0, : len(ids)] = ids
            assert token == next_token(padded, len(ids))
            ids.append(token)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_the_trainer(policy, engine, temperature: float):
    samples = list(generate(engine, policy, requests(), temperature=temperature).values())
    for sample, expected in zip(samples, scored(policy, samples, temperature), strict=True):
        np.testing.assert_allclose(sample.log_probs, expected, atol=1e-5)
        assert sample.log_probs.dtype == np.float32


def test_a_stop_id_ends_a_response_and_is_part_of_it(policy, engine):
    samples = generate(engine, policy, requests(16)).values()
    assert {sample.finish_reason for sample in samples} == {"stop", "length"}
    for sample in samples:
        assert len(sample.log_probs) == len(sample.token_ids)
        stops = [token in STOPS for token in sample.token_ids]
        if sample.finish_reason == "stop":
            assert stops == [False] * (len(stops) - 1) + [True]
        else:
            assert stops == [False] * RESPONSE


def test_without_stop_ids_responses_have_full_length(policy):
    endless = generate(make_engine(policy, stop_ids=()), policy, requests())
    assert {(len(sample.token_ids), sample.finish_reason) for sample in endless.values()} == {(RESPONSE, "length")}


def test_a_sample_does_not_depend_on_the_batch_it_is_in(policy, engine):
    wanted = requests()
    together = generate(engine, policy, wanted)
    assert_same(generate(engine, policy, wanted[::-1]), together)
    for request in wanted[:3]:
        alone = generate(engine, policy, [request])
        assert_same(alone, {key: together[key] for key in alone})
    assert_same(generate(make_engine(policy, slots=24), policy, wanted), together)


def test_samples_of_a_request_can_be_drawn_in_parts(policy, engine):
    whole = generate(engine, policy, requests(8, num_samples=4))
    parts = generate(engine, policy, requests(8, num_samples=2)) | generate(
        engine, policy, requests(8, num_samples=2, first_sample=2)
    )
    assert_same(parts, whole)


def test_short_prompts_may_have_a_static_length_of_their_own(policy, engine):
    wanted = requests()
    assert_same(generate(make_engine(policy, prompt_lengths=(4,)), policy, wanted), generate(engine, policy, wanted))


@pytest.mark.parametrize("change", [{"seed": 1}, {"player": "test"}, {"step": 2}])
def test_seed_player_and_step_change_the_draws(policy, engine, change: dict):
    wanted = requests()
    samples, others = generate(engine, policy, wanted), generate(engine, policy, wanted, **change)
    assert sum(samples[key].token_ids != others[key].token_ids for key in samples) > len(samples) / 2


def test_samples_of_one_prompt_differ_by_index_and_question(policy, engine):
    prompt = (5, 6, 7)
    wanted = [Request(name, prompt, 0, 2) for name in "abcd"]
    samples = generate(engine, policy, wanted + requests(3, num_samples=0))
    assert len({samples[name, index].token_ids for name in "abcd" for index in range(2)}) > 6


def test_finished_batches_come_back_before_the_rest_has_run(policy, engine):
    samples = engine.generate(policy.params, requests(), seed=0, player="code", step=1, temperature=1.0)
    assert isinstance(next(samples), Sample)


def test_no_requests_no_samples(policy, engine):
    assert generate(engine, policy, []) == {}


@pytest.mark.parametrize(
    ("prompt", "temperature", "message"),
    [((1,) * 9, 1.0, "question 'q' has 9 tokens"), ((), 1.0, "question 'q' has 0 tokens"), ((1,), -1.0, "temperature")],
)
def test_what_cannot_be_generated_is_refused_at_once(policy, engine, prompt: tuple, temperature: float, message: str):
    with pytest.raises(ValueError, match=message):
        engine.generate(
            policy.params, [Request("q", prompt, 0, 1)], seed=0, player="code", step=1, temperature=temperature
        )


def test_bfloat16_generation_stays_near_the_float32_policy(policy):
    coarse = make_policy(dtype=jnp.bfloat16)
    samples = list(generate(make_engine(coarse), coarse, requests()).values())
    for sample, expected in zip(samples, scored(policy, samples, 1.0), strict=True):
        np.testing.assert_allclose(sample.log_probs, expected, atol=0.3)
