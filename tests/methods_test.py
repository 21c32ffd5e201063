"""Every method as a run of two steps: what it saves is what it goes on from, and it does what makes it this method."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from codea1.config_file import use_method, validate
from codea1.game.methods import METHODS
from codea1.lab.aot.roofline import estimate
from codea1.lab.aot.work import CHIPS
from codea1.runs.folder import RunFolder
from codea1.runtime.compilations import compile_all, compiled_functions
from codea1.runtime.errors import BadInput
from codea1.training import setup
from codea1.training.run import Run
from codea1.training.setup import assemble, game_rules
from configs import code_a1, colab, gpu, laptop, tiny
from tests.host_processes import run
from tests.player_functions_test import planned_of
from tests.saved_step import SavedStep
from tests.train_test import assert_all_is_saved, assert_same_run, promised, rows, scripted_answers, train

__all__ = ["scripted_answers"]


def two_steps(config: ConfigDict) -> None:
    config.steps = 2
    config.questions_per_step = 4
    config.validation.every = config.checkpoint.every = 1
    for player in (config.code, config.test):
        player.warmup_steps = 0
    config.code.max_response_length = config.test.max_response_length = 24


def weights(trainer: Run, name: str):
    return jax.tree.map(np.asarray, trainer._policies[name].params)


def has_moved(config: ConfigDict, trainer: Run, name: str) -> bool:
    start = assemble(validate(config)).policies[name].params
    same = jax.tree.map(lambda a, b: np.array_equal(a, b), weights(trainer, name), start)
    assert len(set(jax.tree.leaves(same))) > 0
    return not all(jax.tree.leaves(same))


def of_role(workdir: Path, role: str) -> list[dict]:
    found = [row for row in rows(workdir) if row["player"] == role]
    assert found
    return found


def shows_no_solution(config: ConfigDict, workdir: Path) -> None:
    """The prompts of suites are functions of their questions, and hold nothing that the Code LLM wrote."""
    prompts = {(row["question_id"], row["prompt"]) for row in of_role(workdir, "test")}
    assert len(prompts) == len({question_id for question_id, _ in prompts})
    programs = {row["program"] for row in of_role(workdir, "code")}
    assert all(programs)
    assert not [prompt for _, prompt in prompts if any(program in prompt for program in programs)]


def check_black_box(config: ConfigDict, workdir: Path, trainer: Run) -> None:
    shows_no_solution(config, workdir)
    assert {"code", "test"} == trainer._policies.keys()
    # As in Code-A1, each suite is judged on the solution that it was asked for.
    assert {(row["solution"], row["suite"]) for row in of_role(workdir, "test")} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def check_self_play(config: ConfigDict, workdir: Path, trainer: Run) -> None:
    shows_no_solution(config, workdir)
    check_one_policy(config, workdir, trainer)


def check_white_box(config: ConfigDict, workdir: Path, trainer: Run) -> None:
    programs = {(row["step"], row["question_id"], row["solution"]): row["program"] for row in of_role(workdir, "code")}
    for row in of_role(workdir, "test"):
        assert programs[row["step"], row["question_id"], row["solution"]] in row["prompt"]
    check_one_policy(config, workdir, trainer)
    for row in promised(workdir)[1:]:
        assert {"test/trivial_rate", "test/own_kill_rate", "test/hidden_kill_rate"} <= row.keys()


def check_one_policy(config: ConfigDict, workdir: Path, trainer: Run) -> None:
    assert trainer._parts.players["code"] is trainer._parts.players["test"]
    states = {name for player in trainer._policies.values() for name in player.states}
    assert states == {"code"}
    (last,) = [row for row in promised(workdir) if row["step"] == 2]
    trained = [row for row in rows(workdir) if row["step"] == 2 and row["selected"] and row["reward"] is not None]
    assert {row["player"] for row in trained} == {"code", "test"}
    assert last["code/train_sequences"] == len(trained)
    assert not [name for name in last if name.startswith("test/") and "learning_rate" in name]
    assert {"validation/code_pass_at_1", "validation/test_validity"} <= last.keys()
    assert int(trainer._policies["code"].state.step) == 2 * config.code.mini_batches
    draws = [(row["solution"], tuple(row["token_ids"])) for row in of_role(workdir, "code")]
    assert len(set(draws)) > 1


def check_frozen(config: ConfigDict, workdir: Path, trainer: Run) -> None:
    frozen, other = config.frozen, {"code": "test", "test": "code"}[config.frozen]
    assert (has_moved(config, trainer, frozen), has_moved(config, trainer, other)) == (False, True)
    assert {name for player in trainer._policies.values() for name in player.states} == {other}
    last = promised(workdir)[-1]
    assert f"{other}/grad_norm" in last
    assert f"{frozen}/grad_norm" not in last
    assert f"{frozen}/reward" in last


def check_simple(config: ConfigDict, workdir: Path, trainer: Run) -> None:
    # Two asserts count: 0.6 for the share that is right, 0.4 where one fails the program.
    paid = {row["reward"] for row in of_role(workdir, "test")}
    assert paid <= {0.0, 0.3, 0.6, 0.7, 1.0}
    assert len(paid) > 1
    book = [entry for page in trainer._book.pages().values() for entry in page.entries.values()]
    assert 0 < len(book) <= config.game.book_total_cap
    assert all(entry.reward > 0.5 for entry in book)
    for role in ("code", "test"):  # standard scores of the samples of its batch that train
        found = [row for row in of_role(workdir, role) if row["step"] == 2 and row["reward"] is not None]
        rewards = np.array([row["reward"] for row in found])
        trained = np.array([row["reward"] for row in found if row["selected"]])
        expected = (rewards - trained.mean()) / trained.std()
        np.testing.assert_allclose([row["advantage"] for row in found], expected, 1e-6)


CASES = {
    "black_box": ({"method": "black_box"}, check_black_box),
    "self_play": ({"method": "self_play"}, check_self_play),
    "self_play_white_box": ({"method": "self_play_white_box", "game": {"hidden_reward": True}}, check_white_box),
    "frozen code": ({"frozen": "code"}, check_frozen),
    "frozen test": ({"frozen": "test"}, check_frozen),
    "simple": ({"game": {"book_total_cap": 3}}, check_simple),
}


@pytest.mark.parametrize("case", CASES)
def test_two_steps_of_a_method_and_what_they_saved(micro_config, scripted_answers, tmp_path, case):
    changes, check = CASES[case]
    two_steps(micro_config)
    if case == "simple":
        use_method(micro_config, "simple")
    micro_config.update(changes)
    validate(micro_config)
    whole = train(micro_config, tmp_path / "whole")
    assert_all_is_saved(whole, micro_config, tmp_path / "whole")
    check(micro_config, tmp_path / "whole", whole)
    if case == "self_play":  # one policy learns from the samples of both roles
        pairs = SavedStep(RunFolder.existing(str(tmp_path / "whole")), 2).replay()
        assert pairs
        assert all(pair.is_equal for pair in pairs)


def test_four_steps_are_two_and_two_more_asked_for_afterwards(micro_config, scripted_answers, tmp_path):
    two_steps(micro_config)
    micro_config.test.decay = "constant"
    micro_config.frozen = "code"  # whose decay decides nothing
    first = train(micro_config, tmp_path / "longer")
    early = (tmp_path / "longer" / "evaluations" / "after.json").read_text()
    micro_config.steps = 4
    with pytest.raises(KeyboardInterrupt):
        train(micro_config, tmp_path / "longer", stop_after=3)  # when a step was saved since, which lists what is there
    longer, whole = (train(micro_config, tmp_path / name) for name in ("longer", "whole"))
    assert_same_run(tmp_path / "whole", tmp_path / "longer", whole, longer)
    assert whole._validation.best == longer._validation.best
    assert not np.array_equal(*(jax.tree.leaves(weights(each, "test"))[0] for each in (first, longer)))
    folder = RunFolder.existing(str(tmp_path / "longer"))
    assert (folder.evaluations / "test_step_000002.json").read_text() == early
    assert folder.config == RunFolder.existing(str(tmp_path / "whole")).config
    assert "before at step 0 and after at step 4" in folder.report.read_text()


def dump(*flags: str) -> tuple[int, str, str]:
    """The program, with answers that mean something."""
    return run("tests/scripted.py", "codea1.lab.commands.dump_tests", *flags)


def test_the_tests_of_one_run_train_another(micro_config, scripted_answers, tmp_path, capsys):
    two_steps(micro_config)
    micro_config.steps = 1
    micro_config.game.num_solutions = 8
    micro_config.game.num_tests = 3
    train(micro_config, tmp_path / "a1")
    file = tmp_path / "suites.jsonl"
    code, printed, errors = dump(
        f"--run={tmp_path / 'a1'}", f"--test_model={micro_config.test.model}", f"--output={file}"
    )
    assert code == 0, errors
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(written) > 2
    assert f"tests of {len(written)} questions; {5 - len(written)} questions have none" in printed
    file.write_text("".join(f"{json.dumps(row)}\n" for row in written[:2]))

    micro_config.method = "static_tests"
    micro_config.data.static_tests = str(file)
    micro_config.questions_per_step = 1
    validate(micro_config)
    parts = assemble(validate(micro_config))
    assert {question.id for question in parts.train} == {row["question_id"] for row in written[:2]}
    assert len(parts.untested) == 3
    train(micro_config, tmp_path / "static")
    for row in of_role(tmp_path / "static", "code"):
        (tests,) = [each["tests"] for each in written if each["question_id"] == row["question_id"]]
        assert [run["test"] for run in row["golden"]] == tests
    assert "3 more left out: they have no fixed tests" in capsys.readouterr().out

    code, _, errors = dump(f"--run={tmp_path / 'static'}", f"--output={file}")
    assert (code, "has no Test LLM" in errors) == (2, True)


def test_another_test_llm_is_shown_what_the_runs_own_was(micro_config, tmp_path):
    methods = {
        "self_play": "black_box",
        "self_play_white_box": "code_a1",
        "golden": "code_a1",
        "black_box": "black_box",
    }
    for method in methods:
        micro_config.method = method
        RunFolder.open(str(tmp_path / method), micro_config.to_dict())
    script = (  # in a process of its own: the flags of two programs are one set
        "import sys; from codea1.runs.folder import RunFolder; from codea1.lab.commands.dump_tests import _config; "
        "print(*(_config(RunFolder.existing(path), 'elsewhere').method for path in sys.argv[1:]))"
    )
    paths = [str(tmp_path / method) for method in methods]
    ran = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == list(methods.values())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"frozen": "both"}, "config.frozen is 'both'"),
        ({"method": "golden", "frozen": "code"}, "one of two players, and golden has code"),
        ({"method": "golden", "frozen": "test"}, "config.frozen is 'test'"),
        ({"method": "self_play", "frozen": "test"}, "self_play has code"),
        ({"method": "static_tests"}, "config.data.static_tests is ''"),
        ({"data": {"static_tests": "x.jsonl"}}, "be empty with others"),
        ({"method": "self_play", "code": {"mini_batches": 3}}, "divide the 8 sequences"),
        ({"method": "nothing"}, "config.method is 'nothing'"),
    ],
)
def test_what_a_method_cannot_be_is_one_sentence(micro_config, changes, sentence):
    micro_config.update(changes)
    with pytest.raises(BadInput, match=sentence):
        validate(micro_config)


def test_questions_without_a_golden_test_are_left_out_where_one_is_needed(micro_config, monkeypatch):
    questions = setup.questions_of(validate(micro_config), "train")
    bare = [*questions[:-1], replace(questions[-1], golden_tests=("assert g(1)",))]
    monkeypatch.setattr(setup, "load_questions", lambda *_, **__: bare)
    assert list(assemble(validate(micro_config)).untested) == []
    micro_config.method = "golden"
    parts = assemble(validate(micro_config))
    assert ([*parts.train], [*parts.untested]) == (bare[:-1], bare[-1:])
    monkeypatch.setattr(setup, "load_questions", lambda *_, **__: bare[-1:] * 3)
    with pytest.raises(BadInput, match="has 0 questions that can be asked: 0 are too long, and 3 have no fixed test"):
        assemble(validate(micro_config))


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({"game.reward": "strict"}, True),
        ({"game.reward": "strict", "game.assert_forms": "equality"}, False),
        ({"game.reward": "simple"}, False),
        ({"game.reward": "official"}, False),
        ({"game.reward": "strict", "method": "self_play"}, False),  # its programs may hold asserts
    ],
)
def test_a_suite_ends_early_where_no_later_assert_counts(micro_config, changes, ends):
    micro_config.game.assert_forms = "all"
    micro_config.update_from_flattened_dict(changes)
    micro_config.code.stop_at_block = micro_config.test.stop_at_block = True
    parts = assemble(validate(micro_config))
    ids = parts.players["test"].tokenizer.encode("assert f(1) == 2\n" * (micro_config.game.num_tests + 1))
    assert (parts.players["test"].functions.engine.end_of(ids, 0) > 0) is ends


def test_a_template_file_without_the_prompt_of_a_method_is_refused(micro_config, tmp_path):
    messages = [{"role": "user", "content": "{problem}"}]
    micro_config.game.prompts = str(tmp_path / "prompts.json")
    (tmp_path / "prompts.json").write_text(json.dumps({"code": messages, "test": messages}))
    micro_config.method = "black_box"
    with pytest.raises(BadInput, match="lacks the field 'black_box', for method black_box"):
        assemble(validate(micro_config))


def test_what_a_frozen_player_runs_is_planned_and_no_more(micro_config):
    micro_config.frozen = "test"
    planned = planned_of(micro_config)
    assert {job.phase for job in planned.jobs if job.player == "test"} == {"rollout"}
    assert {name for name in planned.residents if name.startswith("test: ")} == {
        "test: parameters",  # it answers with these, not with a copy
        "test: pages of keys and values",
    }
    compiled_functions.clear()  # other tests may have compiled functions that these look for
    player = assemble(validate(micro_config)).policies["test"]
    names = [job.function.name for job in planned.jobs if job.player == "test"]
    assert names == [compiled.name for compiled in compile_all(player.functions.generation)]
    assert compile_all(player.functions.learning) == []
    assert (player.states, player.functions.abstract_states) == ({}, {})


def test_one_policy_is_planned_once(micro_config):
    micro_config.method = "self_play"
    planned = planned_of(micro_config)
    assert set(planned.players) == {job.player for job in planned.jobs} == {"code"}


def test_alpha_and_the_book_are_overrides_of_every_method(micro_config):
    micro_config.game.alpha = 0.25
    micro_config.game.mistake_book = False
    for method in ("code_a1", "black_box", "self_play"):
        micro_config.method = method
        rules = game_rules(validate(micro_config))
        assert (rules.reward.alpha, rules.history_size) == (0.25, 0)
        micro_config.game.mistake_book = True
        assert game_rules(validate(micro_config)).history_size == 8
        micro_config.game.mistake_book = False


def test_shipped_configs_take_every_method():
    for module in (tiny, code_a1):
        for name in (*METHODS, "simple", "sft"):
            file = "suites.jsonl" if name == "static_tests" else ""
            config = module.get_config(f"method={name},static_tests={file}")
            validate(config)
            assert config.method == (name if name in METHODS else "code_a1")
        with pytest.raises(BadInput, match="method=grpo is unknown"):
            module.get_config("method=grpo")
    for module in (colab, gpu, laptop):
        for name in METHODS.keys() - {"static_tests"} | {"simple"}:
            config = module.get_config(f"method={name}")
            validate(config)
            assert (config.method, config.game.reward) == ((name, "official") if name in METHODS else ("code_a1", name))
        with pytest.raises(BadInput, match="method=sft is unknown; known are code_a1"):  # what sft would be is not said
            module.get_config("method=sft")
    lengths = [tiny.get_config(f"method={name}").code.max_prompt_length for name in METHODS if "self_play" in name]
    assert lengths == [tiny.get_config().test.max_prompt_length] * 2
    simple = code_a1.get_config("method=simple")
    assert (simple.test.learning_rate, simple.code.decay, simple.game.book_total_cap) == (1e-5, "constant", 2000)


def test_the_least_time_of_a_step_is_that_of_the_roles_and_of_those_that_learn(micro_config):
    chip = next(iter(CHIPS.values()))

    def phases(**changes: str) -> dict[str, float]:
        micro_config.update({"method": "code_a1", "frozen": ""} | changes)
        planned = planned_of(micro_config)
        return {phase.name: phase.seconds for phase in estimate(validate(micro_config), planned.players, chip).phases}

    two, one, frozen = phases(), phases(method="self_play"), phases(frozen="code")
    assert two.keys() - one.keys() == {"test: optimizer"}
    assert two.keys() - frozen.keys() == {"code: log-probs", "code: update", "code: optimizer"}
    assert one["code: optimizer"] == two["code: optimizer"]


def test_tables_and_the_papers_runs_are_of_the_classic_world_with_all_that_is_new_off():
    assert tiny.get_config("world=classic").to_dict() == tiny.get_config().to_dict()
    assert {tiny.get_config().data[split].source for split in ("train", "validation", "test")} == {"procedural"}
    assert (tiny.get_config().game.reward, tiny.get_config().game.alpha, tiny.get_config().game.num_tests) == (
        "strict_tests",
        0.3,
        4,
    )
    paper = code_a1.get_config("size=1.5b,topology=v5e-16")
    assert (paper.game.reward, paper.game.alpha) == ("official", 0.5)
    for config in (tiny.get_config(), paper):
        game = config.game
        assert (game.mutant_weight, game.hidden_reward, game.selection) == (0, False, "variance")
        assert (config.code.advantage, config.test.advantage) == ("grpo", "grpo")
        assert (config.sft.expert_suites, config.sft.expert_span, config.sft.expert_suites_else) == (
            0.35,
            (0.5, 1.0),
            0,
        )
