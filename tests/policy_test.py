"""Policies that only answer: a checkpoint of a run, and the folder that it is exported to."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from codea1.lab.benchmarks.benchmarks import AnswerSampling, EvaluationSpec
from codea1.lab.benchmarks.policies import lengths_of, policy_of_folder, policy_of_run
from codea1.lab.benchmarks.programs import evaluate_code
from codea1.lab.export import export
from codea1.models.files import ModelFolder
from codea1.players.base import Start
from codea1.players.policy import Policy
from codea1.rollout.engine import Request
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from tests.evalplus_files import humaneval_row, write_rows
from tests.model_folders import load

LENGTHS = (80, 12, 8)


def answers(policy: Policy, stream: str = "code", **changes: float) -> list[tuple[int, ...]]:
    """Three answers to one chat, in order."""
    prompt_ids = policy.prompt_ids([{"role": "user", "content": "one more than x"}], "```python\n")
    options = {"seed": 0, "stream": stream, "temperature": 0.7, "top_p": 0.95, **changes}
    samples = policy.generate([Request("q", prompt_ids, 0, 3)], **options)
    return [sample.token_ids for sample in sorted(samples, key=lambda sample: sample.index)]


def test_a_checkpoint_and_its_export_answer_alike(run, tmp_path):
    export(run, "test", "3", tmp_path / "exported", "float32", Hosts())
    of_run = answers(policy_of_run(run, 3, "test", LENGTHS, Hosts()))
    of_folder = policy_of_folder("test", str(tmp_path / "exported"), LENGTHS)
    assert answers(of_folder) == of_run
    assert answers(of_folder, stream="another") != of_run
    assert (
        answers(policy_of_run(run, Checkpoints.reader(run.checkpoints).named("last"), "test", LENGTHS, Hosts()))
        != of_run
    )


def test_a_prefill_follows_the_head_of_the_answer(model_folder):
    policy = policy_of_folder("code", str(model_folder), LENGTHS)
    text = policy.tokenizer.transcript(policy.prompt_ids([{"role": "user", "content": "a"}], "Below"))
    assert text.endswith("<|im_start|>assistant\nBelow")
    assert policy.fits([0] * 80)
    assert not policy.fits([0] * 81)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"max_position_embeddings": 91}, "prompts of 80 and responses of 12 tokens exceed the 91 positions"),
        ({"vocab_size": 100}, "has tokens up to .*, and the vocab_size of .* is 100"),
    ],
)
def test_a_folder_is_not_asked_for_what_its_model_was_not_made_for(change, complaint, model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | change))
    with pytest.raises(BadInput, match=complaint):
        policy_of_folder("code", str(folder), LENGTHS)


def test_answers_end_where_the_base_says_whose_tokenizer_ever_it_is(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    start = Start(str(folder))
    start.tokenizer_folder = ModelFolder(model_folder)
    assert 7 in start.tokenizer().stop_ids


def test_the_weights_of_a_folder_are_there_once(model_folder):
    policy = policy_of_folder("code", str(model_folder), LENGTHS)
    at_rest, published = map(flatten_dict, (policy.params, policy.functions.engine.publish(policy.params)))
    factors = [path for path in at_rest if path[-1] == "embedding" or path[-1].endswith("_kernel")]
    assert len(factors) == 8
    assert all(published[path] is at_rest[path] for path in factors)  # a CPU with AMX takes biases and norms in float32


def test_a_folder_has_pages_for_an_eighth_of_its_slots_and_short_prompts_stay_short(model_folder):
    small = policy_of_folder("code", str(model_folder), (300, 84, 16)).functions.engine.sizes
    assert small.prompt_lengths == (256, 300)
    assert small.pages == 2 * (384 // 64 + 1) + 1
    least = policy_of_folder("code", str(model_folder), (300, 84, 1)).functions.engine.sizes
    assert least.pages >= 384 // 64 + 1


def test_an_answer_stops_with_the_token_that_closes_its_first_block(model_folder):
    policy = policy_of_folder("code", str(model_folder), LENGTHS, stop_at_block=True)
    encode, end_of = policy.tokenizer.encode, policy.functions.engine.end_of
    block = encode("A:\n```python\nx = 1\n```")
    for more in ("", "\n\nThis is", "\n```\ny\n```"):
        ids = [*block, *encode(more)]
        for seen in (0, len(block) - 1):
            assert end_of(ids, seen) == len(block)
        assert end_of(ids[: len(block) - 1], 0) == 0
    assert policy_of_folder("code", str(model_folder), LENGTHS).functions.engine.end_of is None


def test_a_suite_stops_before_the_assert_that_no_longer_counts(model_folder):
    folder = policy_of_folder("code", str(model_folder), LENGTHS, stop_at_block=True)
    policy = Policy(folder.functions, folder.tokenizer, folder.params, max_asserts=2)
    encode, end_of = policy.tokenizer.encode, policy.functions.engine.end_of
    suite = encode("```python\nassert f(1) == 2\nassert f(2) == 3\n")
    third = [*suite, *encode("assert f(3")]
    assert end_of(third, 0) == end_of(third, len(suite)) == len(suite)
    assert end_of(suite, 0) == 0
    closed = [*suite, *encode("```")]
    assert end_of([*closed, *encode("\nassert f(3")], len(suite)) == len(closed)


def test_a_run_is_measured_in_its_own_folder(run, tmp_path):
    path = write_rows(tmp_path / "he.jsonl", humaneval_row(0), humaneval_row(1))
    asked = EvaluationSpec(
        benchmark="humanevalplus",
        file=path,
        run=str(run.path),
        step="best",
        sampling=AnswerSampling(samples=2),
        lengths=(LENGTHS[0], 0, 0),
        best_of="own",
        num_tests=2,
    )
    evaluate_code(asked, Hosts())
    written = json.loads((run.path / "evaluations" / "humanevalplus_step_000003.json").read_text())
    assert (written["step"], written["questions"]) == (3, 2)
    assert (run.path / "evaluations" / "humanevalplus_best_of_2_step_000003.json").exists()
    kept = json.loads((run.path / "evaluations" / "humanevalplus_best_of_2_step_000003" / "config.json").read_text())
    for role, prefix in (("code", ""), ("test", "test_")):  # what was given, and what the run has
        lengths = [kept[f"{prefix}max_{what}_length"] for what in ("prompt", "response")]
        assert lengths == [LENGTHS[0], run.config[role]["max_response_length"]]
    assert lengths_of("code", None, (0, 7, 0)) == (4096, 7, 64)
    with pytest.raises(BadInput, match="has no step 4"):
        evaluate_code(dataclasses.replace(asked, step="4"), Hosts())


def test_a_frozen_policy_is_that_of_its_folder(run, micro_config):
    frozen = RunFolder(run.path, run.config | {"frozen": "test"})
    policies = {role: policy_of_run(frozen, 3, role, LENGTHS, Hosts()) for role in ("code", "test")}
    _, start = load(micro_config.test.model)
    jax.tree.map(np.testing.assert_array_equal, policies["test"]._params, start)
    moved = jax.tree.map(lambda x: x * np.float32(1.5), start)
    jax.tree.map(np.testing.assert_array_equal, policies["code"]._params, moved)


def test_a_run_without_a_test_llm(run, tmp_path):
    golden = dict(run.config, method="golden")
    (run.path / "config.json").write_text(json.dumps(golden))
    path = write_rows(tmp_path / "he.jsonl", humaneval_row(0))
    asked = EvaluationSpec(benchmark="humanevalplus", file=path, run=str(run.path), step="3", best_of="own")
    with pytest.raises(BadInput, match=r"has no Test LLM: --best_of can name the folder of one\."):
        evaluate_code(asked, Hosts())
