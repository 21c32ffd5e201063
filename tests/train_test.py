"""Whole runs of a random model: what training promises whatever is learned."""

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path

import jax
import numpy as np
import pytest

from bench.micro_run import NOT_PROMISED, content, make_model_folder, scripted_answer
from codea1 import train as command
from codea1.data.tokenizer import ChatTokenizer
from codea1.game.book_pages import Page
from codea1.runs.book_files import read_shards, write_shards
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import Grader, Grading
from codea1.sandbox.host.pool import SandboxPool
from codea1.storage.checksums import write_manifest
from codea1.training.setup import assemble
from codea1.training.step import Step
from codea1.training.trainer import Trainer
from codea1.values.verdict import Verdict
from tests.conftest import ROOT, SHARED


@pytest.fixture
def scripted_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes what a random model samples mean something: programs that load, tests that are sometimes right."""
    monkeypatch.setattr(ChatTokenizer, "decode", scripted_answer)


def assert_something_happened(trainer: Trainer, workdir: Path) -> None:
    written = rows(workdir)
    assert trainer._book.size > 0
    assert any(row["history"] for row in written if row["player"] == "code")
    for player in ("code", "test"):
        assert any(row["advantage"] for row in written if row["player"] == player)
    assert {"pass", "fail"} <= {item["verdict"] for row in written for item in row.get("asserts", [])}


def train(config, workdir: Path | str, stop_after: int | None = None) -> Trainer:
    """Runs to the end, or raises KeyboardInterrupt before the batch of questions after `stop_after`."""
    parts = assemble(config)
    folder = RunFolder.open(str(workdir), config.to_dict())
    with SandboxPool.of_config(config) as sandbox:
        trainer = Trainer(config, parts, sandbox, folder, Hosts())
        if stop_after is not None:
            batch = parts.feed.batch

            def stop(number: int):
                if number >= stop_after:
                    trainer._checkpoints.wait()
                    raise KeyboardInterrupt
                return batch(number)

            parts.feed.batch = stop
        with trainer:
            command.train(trainer)
    return trainer


def promised(workdir: Path) -> list[dict]:
    folder = RunFolder.existing(str(workdir))
    return [
        {name: value for name, value in row.items() if not name.startswith(NOT_PROMISED)}
        for row in read_metrics(folder.metrics)
    ]


def rows(workdir: Path) -> list[dict]:
    samples = Samples(RunFolder.existing(str(workdir)))
    return [row for step in samples.steps() for row in samples.read(step)]


def assert_same_run(first: Path, second: Path, one: Trainer, other: Trainer) -> None:
    assert promised(first) == promised(second)
    assert rows(first) == rows(second)
    assert content(one._book.pages()) == content(other._book.pages())
    states = [{name: player.states for name, player in t._policies.items()} for t in (one, other)]
    jax.tree.map(np.testing.assert_array_equal, *states)
    for name in ("before", "after"):
        assert (first / "evaluations" / f"{name}.json").read_text() == (
            second / "evaluations" / f"{name}.json"
        ).read_text()


@pytest.mark.parametrize(("policy", "cap", "by"), [("official", 0, "frequency"), ("strict", 2, "reservoir")])
def test_six_steps_are_three_and_three_more(micro_config, scripted_answers, tmp_path, policy, cap, by):
    micro_config.game.reward = policy
    micro_config.game.book_cap = cap
    micro_config.game.book_policy = by
    micro_config.game.num_tests = 3
    whole = train(micro_config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(micro_config, tmp_path / "cut", stop_after=4)
    assert read_metrics(RunFolder.existing(str(tmp_path / "cut")).metrics)[-1]["step"] == 4
    resumed = train(micro_config, tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut", whole, resumed)
    assert_something_happened(whole, tmp_path / "whole")
    assert [row["step"] for row in promised(tmp_path / "whole")] == list(range(7))
    assert (tmp_path / "whole" / "report.png").stat().st_size > 10_000
    assert any(row["book/evicted"] for row in promised(tmp_path / "whole")[1:]) == (cap > 0)


LOSING = {
    "everything": ["grade", "check"],
    "programs": ["grade"],
    "checks": ["check"],
}


@pytest.mark.parametrize("lost", LOSING)
def test_a_sandbox_that_judges_nothing_any_more_stops_the_run_which_loses_nothing(
    micro_config, scripted_answers, tmp_path, monkeypatch, capsys, lost
):
    """The sandbox fails from the questions of the fifth step on."""
    micro_config.checkpoint.every = micro_config.validation.every = 2
    whole = train(micro_config, tmp_path / "whole")
    results = {
        "grade": lambda _, __, tests: Grading(None, [Verdict.INFRA] * len(tests), ["gone"] * len(tests), 0.0),
        "check": lambda *_: ScriptRun(Verdict.INFRA, "gone", 0.0),
    }

    def lose(name: str) -> Callable[..., Future]:
        def method(*arguments: object) -> Future:
            future: Future = Future()
            future.set_result(results[name](*arguments))
            return future

        return method

    with monkeypatch.context() as patch:
        step = Trainer.step

        def fails_from_the_fifth_on(self: Trainer, number: int) -> AbstractContextManager[Step]:
            for name in LOSING[lost] * (number == 5):
                patch.setattr(Grader, name, lose(name))
            return step(self, number)

        patch.setattr(Trainer, "step", fails_from_the_fifth_on)
        with pytest.raises(
            BadInput, match=r"failed for a reason that is not theirs: (gone|the sandbox failed);"
        ) as told:
            train(micro_config, tmp_path / "cut")
    what, done = ("programs for the validation questions", 6) if lost == "checks" else ("programs of step 5", 4)
    assert what in str(told.value)
    assert f"stopped after step {done}, which is saved: the same command goes on from there" in capsys.readouterr().out
    resumed = train(micro_config, tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut", whole, resumed)


def test_a_book_whose_ground_truths_have_changed_is_asked_again(micro_config, scripted_answers, tmp_path, capsys):
    whole = train(micro_config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(micro_config, tmp_path / "cut", stop_after=4)
    folder = RunFolder.existing(str(tmp_path / "cut")).checkpoints / "3" / "book"
    pages = read_shards(folder)
    for path in folder.glob("*.json*"):
        path.unlink()
    # As if other programs had answered them; those of today give the same answers.
    write_shards(folder, {id: Page("of another program", page.entries) for id, page in pages.items()})
    write_manifest(folder.parent)
    capsys.readouterr()
    resumed = train(micro_config, tmp_path / "cut")
    printed = capsys.readouterr().out
    for id, page in pages.items():
        tests = len(page.entries)
        assert f"the ground truth of {id} has changed; {tests} of its {tests} tests still hold" in printed
    assert pages
    assert_same_run(tmp_path / "whole", tmp_path / "cut", whole, resumed)


def test_six_steps_of_ppo_are_three_and_three_more(micro_config, scripted_answers, tmp_path):
    for player in (micro_config.code, micro_config.test):
        player.advantage = "gae"
        player.critic.learning_rate = 1e-2
    micro_config.code.kl_in_reward = True
    micro_config.code.critic.warmup_steps = 2
    whole = train(micro_config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(micro_config, tmp_path / "cut", stop_after=3)
    resumed = train(micro_config, tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut", whole, resumed)
    steps = promised(tmp_path / "whole")[1:]
    assert [("code/policy_loss" in step, "test/policy_loss" in step) for step in steps[:3]] == [
        (False, True),
        (False, True),
        (True, True),
    ]
    assert all(np.isfinite(step["code/critic_value_loss"]) for step in steps)
    assert any(step["test/critic_explained_variance"] for step in steps[1:])
    assert any(step["test/grad_norm"] > 0 for step in steps)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(micro_config, tmp_path):
    micro_config.steps = 3
    one, other = train(micro_config, tmp_path / "one"), train(micro_config, tmp_path / "other")
    assert_same_run(tmp_path / "one", tmp_path / "other", one, other)
    micro_config.seed = 1
    train(micro_config, tmp_path / "third")
    assert rows(tmp_path / "one") != rows(tmp_path / "third")


def test_every_step_says_what_the_sandbox_did(micro_config, scripted_answers, tmp_path):
    train(micro_config, tmp_path)
    steps = read_metrics(RunFolder.existing(str(tmp_path)).metrics)[1:]
    assert steps[0]["sandbox/gradings"] > 0
    assert steps[-1]["sandbox/answer_hits"] > 0
    for step in steps:
        assert step["sandbox/infra"] == step["sandbox/timeouts"] == step["sandbox/restarts"] == 0
        assert step["sandbox/run_seconds"] > 0
        assert step["sandbox/queue_seconds"] >= 0
        assert step["sandbox/busy_seconds"] <= step["time/total"] + 0.1
        assert 0 <= step["sandbox/hidden_share"] <= 1
        assert 0 <= step["sandbox/share_of_step"] <= 1


def test_every_step_says_what_the_devices_did_and_nothing_that_is_not_known(micro_config, scripted_answers, tmp_path):
    micro_config.steps = 2
    train(micro_config, tmp_path)
    for step in read_metrics(RunFolder.existing(str(tmp_path)).metrics)[1:]:
        for player in ("code", "test"):
            assert step[f"{player}/update_tflops_per_second"] > 0
            assert 0 < step[f"{player}/padding_waste"] < 1
            assert f"{player}/update_mfu" not in step  # a CPU's peak is not known
        assert "perf/hbm_peak_gib" not in step  # nor does it tell its memory


def test_rounds_are_played_until_enough_questions_teach(micro_config, scripted_answers, tmp_path):
    micro_config.steps = 3
    micro_config.game.max_rounds = 3
    micro_config.checkpoint.every = 1
    whole = train(micro_config, tmp_path / "whole")
    steps = promised(tmp_path / "whole")[1:]
    assert any(step["code/questions"] > 2 for step in steps)
    for step in steps:
        solutions = [row for row in rows(tmp_path / "whole") if (row["step"], row["player"]) == (step["step"], "code")]
        rewards = {row["question_id"]: set() for row in solutions}
        for row in solutions:
            rewards[row["question_id"]].add(row["reward"])
        teaching = [question for question, found in rewards.items() if len(found) > 1]
        assert (len(rewards), len(teaching)) == (step["code/questions"], step["code/questions_that_teach"])
        assert [row["question_id"] for row in solutions if row["selected"]] == [
            row["question_id"] for row in solutions if row["question_id"] in teaching[:2]
        ]
    with pytest.raises(KeyboardInterrupt):
        train(micro_config, tmp_path / "cut", stop_after=whole._position.batches - 1)
    resumed = train(micro_config, tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut", whole, resumed)


def test_too_long_responses_lose_reward_or_train_nobody(micro_config, scripted_answers, tmp_path):
    micro_config.steps = 2
    micro_config.code.overlong_buffer = 8
    micro_config.code.overlong_penalty = 0.5
    micro_config.test.learn_truncated = False
    train(micro_config, tmp_path)
    written = rows(tmp_path)
    paid = {name: [row for row in written if row["player"] == name and not row["masked"]] for name in ("code", "test")}
    for row in paid["code"]:
        lost = 0.5 * min(max(len(row["token_ids"]) - 16, 0) / 8, 1)
        assert row["shaped_reward"] == pytest.approx(row["reward"] - lost)
    assert any(row["shaped_reward"] != row["reward"] for row in paid["code"])
    assert all(row["shaped_reward"] == row["reward"] for row in paid["test"])
    cut_off = [row for row in paid["test"] if row["selected"] and row["finish_reason"] == "length"]
    whole = [row for row in paid["test"] if row["selected"] and row["finish_reason"] == "stop"]
    assert cut_off
    assert sum(step["test/train_sequences"] for step in promised(tmp_path)[1:]) == len(whole)


def test_players_may_differ_in_shape_and_tokenizer(micro_config, scripted_answers, tmp_path):
    micro_config.steps = 2
    micro_config.test.model = str(make_model_folder(tmp_path, vocab_size=400, num_layers=1))
    train(micro_config, tmp_path / "run")
    written = rows(tmp_path / "run")
    most = {
        player: max(max(row["token_ids"]) for row in written if row["player"] == player) for player in ("code", "test")
    }
    assert most["test"] < 400 <= most["code"]
    for step in read_metrics(tmp_path / "run" / "metrics.jsonl")[1:]:
        assert step["code/grad_norm"] > 0
        assert step["test/sampler_log_prob_difference_max"] < 1e-4


def test_the_golden_method_trains_the_code_llm_alone(micro_config, tmp_path):
    micro_config.method = "golden"
    micro_config.steps = 3
    trainer = train(micro_config, tmp_path)
    assert list(trainer._policies) == ["code"]
    written = json.loads((tmp_path / "evaluations" / "after.json").read_text())
    assert written["question_ids"] == [question.id for question in trainer._parts.test]
    assert {row["player"] for row in rows(tmp_path)} == {"code"}
    assert all(len(row["golden"]) == 5 for row in rows(tmp_path))


def test_a_finished_run_is_left_as_it_is(micro_config, tmp_path):
    micro_config.steps = 3
    train(micro_config, tmp_path)
    before = promised(tmp_path)
    train(micro_config, tmp_path)
    assert promised(tmp_path) == before


@pytest.mark.skipif(not (SHARED / "data").exists(), reason="the benchmark rows are not here")
def test_a_step_on_benchmark_rows(micro_config, tmp_path):
    micro_config.data.train.source = str(SHARED / "data" / "humanevalplus_mbppplus.parquet")
    micro_config.data.train.limit = 0
    micro_config.steps = 1
    micro_config.questions_per_step = 4
    micro_config.code.max_prompt_length = 1024
    micro_config.test.max_prompt_length = 1024
    micro_config.validation.every = 2
    trainer = train(micro_config, tmp_path)
    assert len(trainer._parts.train) + len(trainer._parts.dropped) == 353
    assert len([row for row in rows(tmp_path) if row["player"] == "code"]) == 8


def check_refused(config, *words: str) -> None:
    with pytest.raises(BadInput) as error:
        assemble(config)
    assert all(word in str(error.value) for word in words)


def test_bad_parts_are_refused_by_name(micro_config, tmp_path):
    micro_config.code.model = str(tmp_path / "nothing")
    check_refused(micro_config, str(tmp_path / "nothing"))


def test_a_missing_question_file_is_refused(micro_config, tmp_path):
    micro_config.data.train.source = str(tmp_path / "no.parquet")
    check_refused(micro_config, "no.parquet")


def test_questions_that_are_all_too_long_are_refused(micro_config):
    micro_config.code.max_prompt_length = 2
    check_refused(micro_config)


def test_a_tensor_axis_that_does_not_divide_the_kv_heads_is_refused(micro_config):
    script = (
        "import json, sys\nfrom ml_collections import ConfigDict\nfrom codea1.training.setup import assemble\n"
        "from codea1.runtime.errors import BadInput\n"
        "try:\n    assemble(ConfigDict(json.loads(sys.argv[1])))\nexcept BadInput as e:\n    print(e)\n"
    )
    micro_config.mesh.tensor = 4
    done = subprocess.run(
        [sys.executable, "-c", script, micro_config.to_json()],
        cwd=ROOT,
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tensor" in done.stdout
    assert "num_kv_heads 2" in done.stdout


def test_another_config_in_the_workdir_is_refused(micro_config, tmp_path):
    RunFolder.open(str(tmp_path / "run"), micro_config.to_dict())
    micro_config.game.alpha = 0.75
    with pytest.raises(BadInput, match=r"game\.alpha"):
        RunFolder.check(str(tmp_path / "run"), micro_config.to_dict())
