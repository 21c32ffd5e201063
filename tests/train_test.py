"""Whole runs of a random model: what training promises whatever is learned."""

import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bench.micro_run import NOT_PROMISED, content, make_micro_config, make_model_folder, scripted_answer
from codea1 import train as command
from codea1.config import Config
from codea1.config_file import validate
from codea1.data.tokenizer import ChatTokenizer
from codea1.evaluation.result_files import read_evaluation
from codea1.game.book_pages import Page
from codea1.lab.report import figures
from codea1.lab.report.run_report import show_report
from codea1.runs.book_files import read_shards, write_shards
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import Grader, Grading
from codea1.storage.checksums import write_manifest
from codea1.training import setup
from codea1.training.run import Run
from codea1.training.setup import assemble, sandbox_pool
from codea1.training.step import Step
from codea1.training.validation import Best, Validation
from codea1.values.verdict import Verdict
from tests.conftest import ROOT, SHARED, done
from tests.saved_step import SavedStep


class Played(NamedTuple):
    """A run that has ended."""

    folder: Path
    trainer: Run


@contextmanager
def scripting() -> Iterator[None]:
    """Makes what a random model samples mean something: programs that load, tests that are sometimes right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChatTokenizer, "decode", scripted_answer)
        yield


@pytest.fixture
def scripted_answers() -> Iterator[None]:
    """Scripts the answers of one test."""
    with scripting():
        yield


@contextmanager
def without_figure() -> Iterator[None]:
    """Leaves the report's figure out, which takes longer to draw than a run of this size takes to train."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", lambda *_: b"")
        yield


def train(config: ConfigDict | Config, workdir: Path | str, stop_after: int | None = None, **options: bool) -> Run:
    """Runs to the end, or raises KeyboardInterrupt before the batch of questions after `stop_after`."""
    config = config if isinstance(config, Config) else validate(config)
    parts = assemble(config)
    folder = RunFolder.open(str(workdir), config.to_dict())
    with sandbox_pool(config.sandbox) as sandbox, without_figure():
        trainer = Run(config, parts, sandbox, folder, Hosts(), **options)
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
            trainer.report(show_report)
    return trainer


def cut_back(run: Path, to: Path, step: int) -> Path:
    """Copies a finished run as it is where the process was killed before any later step than `step` was saved whole."""
    shutil.copytree(run, to)
    for checkpoint in (to / "checkpoints").iterdir():
        if int(checkpoint.name) > step:
            shutil.rmtree(checkpoint)
    (to / "evaluations" / "after.json").unlink()
    return to


def promised(workdir: Path | str) -> list[dict]:
    rows = read_metrics(RunFolder.existing(str(workdir)).metrics)
    return [{name: value for name, value in row.items() if not name.startswith(NOT_PROMISED)} for row in rows]


def rows(workdir: Path | str, *steps: int) -> list[dict]:
    """The samples of some steps, or of all."""
    samples = Samples(RunFolder.existing(str(workdir)))
    return [row for step in steps or samples.steps() for row in samples.read(step)]


def assert_something_happened(trainer: Run, workdir: Path) -> None:
    written = rows(workdir)
    assert trainer._book.size > 0
    assert any(row["history"] for row in written if row["player"] == "code")
    for player in ("code", "test"):
        assert any(row["advantage"] for row in written if row["player"] == player)
    assert {"pass", "fail"} <= {item["verdict"] for row in written for item in row.get("asserts", [])}


def assert_same_run(first: Path, second: Path, one: Run, other: Run) -> None:
    assert promised(first) == promised(second)
    assert rows(first) == rows(second)
    assert content(one._book.pages()) == content(other._book.pages())
    states = [{name: player.states for name, player in t._policies.items()} for t in (one, other)]
    jax.tree.map(np.testing.assert_array_equal, *states)
    for name in ("before.json", "after.json"):
        one_text, other_text = ((folder / "evaluations" / name).read_text() for folder in (first, second))
        assert one_text == other_text


def assert_all_is_saved(ended: Run, config: ConfigDict, workdir: Path) -> None:
    """A run that is opened again has the policies, optimizers and book of the trainer that wrote its last checkpoint.

    What follows is then the same: `test_six_steps_are_three_and_three_more`.
    """
    opened = train(config, workdir)
    states = [{name: player.states for name, player in t._policies.items()} for t in (ended, opened)]
    jax.tree.map(np.testing.assert_array_equal, *states)
    assert content(ended._book.pages()) == content(opened._book.pages())


@pytest.fixture(scope="module")
def config(model_folder, data_folder) -> ConfigDict:
    """Of `whole` and `cut`."""
    config = make_micro_config(model_folder, data_folder)
    config.game.num_tests = 3
    return config


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory) -> Played:
    """A run of six steps, under the official reward and with a book without bounds."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with scripting():
        return Played(folder, train(config, folder))


@pytest.fixture(scope="module")
def cut(config, tmp_path_factory) -> Path:
    """The same run, ended in its fifth step, when its last checkpoint was that of the third."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    with scripting(), pytest.raises(KeyboardInterrupt):
        train(config, folder, stop_after=4)
    return folder


@pytest.fixture
def copy_of_cut(cut: Path, tmp_path: Path) -> Path:
    """`cut` as a test may change it."""
    shutil.copytree(cut, tmp_path / "cut")
    return tmp_path / "cut"


@pytest.fixture(scope="module")
def varied(model_folder, data_folder, tmp_path_factory) -> Played:
    """A run of two different models under other rules: of the reward, the book, too long responses."""
    config = make_micro_config(model_folder, data_folder)
    config.test.model = str(make_model_folder(tmp_path_factory.mktemp("other_model"), vocab_size=400, num_layers=1))
    config.test.max_prompt_length = 80  # of more tokens each than with the Code LLM's tokenizer
    config.game.reward = "strict"
    config.game.hidden_reward = True
    config.game.num_tests = 3
    config.game.book_cap = 2
    config.game.book_policy = "reservoir"
    config.code.overlong_buffer = 8
    config.test.learn_truncated = False
    folder = tmp_path_factory.mktemp("varied") / "run"
    with scripting():
        return Played(folder, train(config, folder))


def test_six_steps_are_three_and_three_more(config, scripted_answers, whole, copy_of_cut):
    assert read_metrics(RunFolder.existing(str(copy_of_cut)).metrics)[-1]["step"] == 4
    resumed = train(config, copy_of_cut)
    assert_same_run(whole.folder, copy_of_cut, whole.trainer, resumed)
    assert_something_happened(whole.trainer, whole.folder)
    assert [row["step"] for row in promised(whole.folder)] == list(range(7))
    assert not any(row["book/evicted"] for row in promised(whole.folder)[1:])


def test_a_run_under_other_rules_saves_all_of_it(varied):
    assert_all_is_saved(varied.trainer, varied.trainer._config, varied.folder)
    assert_something_happened(varied.trainer, varied.folder)
    assert any(row["book/evicted"] for row in promised(varied.folder)[1:])


def documented_metrics() -> dict[str, bool]:
    """The names in docs/metrics.md, and whether the demo has them."""
    found = {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if line.startswith("| `"):
            names, _, demo, *_ = (cell.strip() for cell in line.strip("|").split("|"))
            for name in re.findall(r"`([^`]+)`", names):
                for player in ("code", "test"):
                    found[name.replace("{player}", player)] = bool(demo)
    return found


def test_the_page_of_metrics_lists_those_of_a_run(varied):
    written = {name for row in read_metrics(RunFolder.existing(str(varied.folder)).metrics) for name in row} - {"step"}
    documented = documented_metrics()
    assert written <= set(documented)
    in_demo = {name for name, is_there in documented.items() if is_there}
    assert in_demo - {"validation/code_pass_at_2"} <= written  # which takes more samples


def test_too_long_responses_lose_reward_or_train_nobody(varied):
    written = rows(varied.folder)
    paid = {name: [row for row in written if row["player"] == name and not row["masked"]] for name in ("code", "test")}
    for row in paid["code"]:
        lost = min(max(len(row["token_ids"]) - 16, 0) / 8, 1)
        assert row["shaped_reward"] == pytest.approx(row["reward"] - lost)
    assert any(row["shaped_reward"] != row["reward"] for row in paid["code"])
    assert all(row["shaped_reward"] == row["reward"] for row in paid["test"])
    cut_off = [row for row in paid["test"] if row["selected"] and row["finish_reason"] == "length"]
    ended = [row for row in paid["test"] if row["selected"] and row["finish_reason"] == "stop"]
    assert cut_off
    assert sum(step["test/train_sequences"] for step in promised(varied.folder)[1:]) == len(ended)


def test_players_may_differ_in_shape_and_tokenizer(varied):
    written = rows(varied.folder)
    most = {
        player: max(max(row["token_ids"]) for row in written if row["player"] == player) for player in ("code", "test")
    }
    assert most["test"] < 400 <= most["code"]
    steps = promised(varied.folder)[1:]
    for player in ("code", "test"):
        assert any(step.get(f"{player}/grad_norm", 0) > 0 for step in steps)
    differences = [step["test/sampler_log_prob_difference_max"] for step in steps if step["test/train_sequences"]]
    assert differences
    assert max(differences) < 1e-4


LOSING = {"programs": ["grade"], "checks": ["check"]}


@pytest.mark.parametrize("lost", LOSING)
def test_a_sandbox_that_judges_nothing_any_more_stops_the_run_which_loses_nothing(
    config, scripted_answers, copy_of_cut, monkeypatch, capsys, lost
):
    """The sandbox fails from the questions of the fifth step on."""

    def grade(_: Grader, __: str, tests: list, *___: object) -> Future:
        return done(Grading(None, [Verdict.INFRA] * len(tests), ["gone"] * len(tests), 0.0))

    results = {"grade": grade, "check": lambda *_: done(ScriptRun(Verdict.INFRA, "gone", 0.0))}
    with monkeypatch.context() as patch:
        step = Run.step

        def fails_from_the_fifth_on(self: Run, number: int) -> AbstractContextManager[Step]:
            for name in LOSING[lost] * (number == 5):
                patch.setattr(Grader, name, results[name])
            return step(self, number)

        patch.setattr(Run, "step", fails_from_the_fifth_on)
        said = r"failed for a reason that is not theirs: (gone|the sandbox failed);"
        with pytest.raises(BadInput, match=said) as told:
            train(config, copy_of_cut)
    what, last = ("programs for the validation questions", 6) if lost == "checks" else ("programs of step 5", 4)
    assert what in str(told.value)
    assert f"stopped after step {last}, which is saved: the same command goes on from there" in capsys.readouterr().out
    assert Checkpoints.reader(RunFolder.existing(str(copy_of_cut)).checkpoints).latest() == (last, [])


@pytest.mark.parametrize(
    ("passed", "valid", "lost"), [([0.5, nan], [1.0, nan], 1), ([0.5, 1.0], [nan, nan], 1), ([0.5, 1.0], [1.0, nan], 0)]
)
def test_a_validation_that_lost_questions_is_not_the_best(passed, valid, lost, monkeypatch):
    """The second question has no mutant, and the third a checker, which may fail on what a test expects."""
    passed, valid = [*passed, 0.75], [*valid, nan]
    measured = {"code_pass_at_1": passed, "test_validity": valid, "test_mul": [[value, value] for value in valid]}
    kinds = ((("def f(): ...",), ""), ((), ""), (("def f(): ...",), "def accepts(*_): ..."))
    questions = [SimpleNamespace(mutants=mutants, checker=checker) for mutants, checker in kinds]
    config = SimpleNamespace(samples=1)
    validation = Validation(config, SimpleNamespace(held_out={"validation": questions}), grader=None, hosts=None)
    validation.best = Best(2, 0.25)
    monkeypatch.setattr(validation, "_measure", lambda *_: measured)
    row, note = validation.validate(4)
    assert validation.best == (Best(2, 0.25) if lost else Best(4, 1.75))
    assert row.get("validation/score") == (None if lost else 1.75)
    assert note == "step 4 has no validation score: the sandbox failed on 1 of 3 questions" * lost


def test_a_book_whose_ground_truths_have_changed_is_asked_again(config, scripted_answers, whole, copy_of_cut, capsys):
    folder = RunFolder.existing(str(copy_of_cut)).checkpoints / "3" / "book"
    pages = read_shards(folder)
    for path in folder.glob("*.json*"):
        path.unlink()
    # As if other programs had answered them; those of today give the same answers.
    write_shards(folder, {id: Page("of another program", page.entries) for id, page in pages.items()})
    state = folder.parent / "state" / "metadata"
    saved = json.loads(state.read_text())
    saved["questions"]["test"] = "of another file"
    state.write_text(json.dumps(saved))
    write_manifest(folder.parent)
    resumed = train(config, copy_of_cut)
    printed = capsys.readouterr().out
    changed = [line for line in printed.splitlines() if "other questions than when step 3 was saved" in line]
    assert len(changed) == 1
    assert "config.data.test: " in changed[0]
    tests = sum(len(page.entries) for page in pages.values())
    assert re.search(
        rf"the ground truths of {len(pages)} questions .* changed; {tests} of {tests} tests still", printed
    )
    assert_same_run(whole.folder, copy_of_cut, whole.trainer, resumed)


def test_four_steps_of_ppo_are_saved_and_made_again_from_samples(micro_config, scripted_answers, tmp_path):
    micro_config.steps = 4
    micro_config.validation.every = micro_config.checkpoint.every = 2
    for player in (micro_config.code, micro_config.test):
        player.advantage = "gae"
        player.critic.learning_rate = 1e-2
    micro_config.code.critic.warmup_steps = 2
    whole = train(micro_config, tmp_path / "whole")
    assert_all_is_saved(whole, micro_config, tmp_path / "whole")
    steps = promised(tmp_path / "whole")[1:]
    learning = [[f"{player}/policy_loss" in step for step in steps[:3]] for player in ("code", "test")]
    assert learning == [[False, False, True], [True, True, True]]
    assert all(np.isfinite(step["code/critic_value_loss"]) for step in steps)
    assert any(step["test/critic_explained_variance"] for step in steps[1:])
    assert any(step["test/grad_norm"] > 0 for step in steps)
    pairs = SavedStep(RunFolder.existing(str(tmp_path / "whole")), 3).replay()
    assert {"code/critic_value_loss", "code/policy_loss"} <= {pair.name for pair in pairs}
    assert [pair for pair in pairs if not pair.is_equal] == []


def test_every_step_says_what_the_sandbox_did(whole):
    steps = read_metrics(RunFolder.existing(str(whole.folder)).metrics)[1:]
    assert steps[0]["sandbox/gradings"] > 0
    assert steps[-1]["sandbox/answer_hits"] > 0
    for step in steps:
        assert step["sandbox/infra"] == step["sandbox/timeouts"] == step["sandbox/restarts"] == 0
        assert step["sandbox/run_seconds"] > 0
        assert step["sandbox/queue_seconds"] >= 0
        assert step["sandbox/busy_seconds"] <= step["time/total"] + 0.1
        assert 0 <= step["sandbox/hidden_share"] <= 1
        assert 0 <= step["sandbox/share_of_step"] <= 1


def test_every_step_says_what_the_devices_did_and_nothing_that_is_not_known(whole):
    for step in read_metrics(RunFolder.existing(str(whole.folder)).metrics)[1:]:
        for player in ("code", "test"):
            assert step[f"{player}/update_tflops_per_second"] > 0
            assert 0 < step[f"{player}/padding_waste"] < 1
            assert f"{player}/update_mfu" not in step  # a CPU's peak is not known
        assert "perf/hbm_peak_gib" not in step  # nor does it tell its memory


def test_the_golden_method_trains_the_code_llm_alone(micro_config, tmp_path):
    micro_config.method = "golden"
    micro_config.steps = 1
    trainer = train(micro_config, tmp_path)
    assert list(trainer._policies) == ["code"]
    written = read_evaluation(RunFolder.existing(str(tmp_path)), "after")
    assert written["question_ids"] == [question.id for question in trainer._parts.held_out["test"]]
    assert {row["player"] for row in rows(tmp_path)} == {"code"}
    assert all(len(row["golden"]) == 5 for row in rows(tmp_path))


def test_a_finished_run_is_left_as_it_is_and_drawn(config, whole, tmp_path, monkeypatch):
    shutil.copytree(whole.folder, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("tests.train_test.without_figure", nullcontext)
        train(config, tmp_path / "run")
    assert promised(tmp_path / "run") == promised(whole.folder)
    assert (tmp_path / "run" / "report.png").stat().st_size > 10_000


@pytest.mark.skipif(not (SHARED / "data").exists(), reason="the benchmark rows are not here")
def test_a_step_on_benchmark_rows(micro_config, scripted_answers, tmp_path):
    micro_config.data.train.source = str(SHARED / "data" / "humanevalplus_mbppplus.parquet")
    micro_config.data.train.limit = 0
    micro_config.data.validation.limit = micro_config.data.test.limit = 1
    micro_config.data.max_dropped = 1.0
    micro_config.steps = 1
    micro_config.questions_per_step = 4
    micro_config.code.max_prompt_length = micro_config.test.max_prompt_length = 200
    trainer = train(micro_config, tmp_path)
    assert len(trainer._parts.train) > 100
    assert len(trainer._parts.train) + len(trainer._parts.dropped) == 353
    assert len([row for row in rows(tmp_path) if row["player"] == "code"]) == 8


def test_questions_that_are_all_too_long_are_refused(micro_config):
    micro_config.code.max_prompt_length = 2
    with pytest.raises(BadInput, match=r"have a code prompt longer than config\.code\.max_prompt_length, 2 tokens"):
        assemble(validate(micro_config))


def test_a_tensor_axis_that_does_not_divide_the_kv_heads_is_refused(micro_config, monkeypatch):
    mesh = SimpleNamespace(shape={"replica": 1, "fsdp": 1, "tensor": 4}, devices=np.array(jax.devices()))
    monkeypatch.setattr(setup, "make_mesh", lambda *_: mesh)
    with pytest.raises(BadInput, match=r"tensor.*num_kv_heads 2"):
        assemble(validate(micro_config))
