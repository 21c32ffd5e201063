"""A reward and prompts of one's own, each in a file: what they are given, that the run keeps them, what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from codea1 import train as command
from codea1.config import Config
from codea1.config_file import default_config, validate
from codea1.game.answers import ParsedSuite
from codea1.game.methods import own_files
from codea1.game.outcomes import ShownTest, SolutionOutcome, SuiteOutcome
from codea1.game.question import Question
from codea1.game.rewards import REWARDS
from codea1.lab.report.run_report import show_report
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.training.guards import guarded, run_inputs
from codea1.training.setup import game_rules, made_for
from codea1.training.stored_config import config_of
from codea1.values.verdict import Verdict
from tests.train_test import rows, scripted_answers, without_figure

__all__ = ["scripted_answers"]

BRIEF = '''from __future__ import annotations

from dataclasses import dataclass, replace

from codea1.game.rewards import SolutionOutcome, SolutionReward, StrictReward


@dataclass(frozen=True)
class Brief(StrictReward):
    """Costs a Code LLM a hundredth for each token of its answer."""

    def code_reward(self, solution: SolutionOutcome) -> SolutionReward:
        return SolutionReward(-len(solution.token_ids) / 100 - ("return" not in solution.text))
'''
PROMPTS = {role: [{"role": "user", "content": "{problem} !"}] for role in ("code", "test", "black_box")}


def with_own_files(config: ConfigDict, folder: Path) -> ConfigDict:
    (folder / "brief.py").write_text(BRIEF)
    (folder / "prompts.json").write_text(json.dumps(PROMPTS))
    config.game.reward = f"{folder / 'brief.py'}:Brief"
    config.game.prompts = str(folder / "prompts.json")
    return config


@pytest.fixture
def config(tmp_path: Path) -> ConfigDict:
    return with_own_files(default_config(), tmp_path)


def test_a_reward_in_a_file_is_given_texts_and_tokens(config):
    reward = game_rules(validate(config)).reward
    assert reward.code_reward(SolutionOutcome(True, text="return 1", token_ids=(7, 8, 9))).total == -0.03
    assert reward.code_reward(SolutionOutcome(True, text="pass", token_ids=(7,))).total == -1.01
    assert reward.test_reward(SolutionOutcome(True), SuiteOutcome(())).total == 0  # that of what it subclasses


@pytest.mark.parametrize("is_pair", [False, True])
def test_a_reward_may_be_a_plain_function(config, tmp_path, is_pair):
    (tmp_path / "share.py").write_text(
        "def share(program, question, tests):\n"
        "    assert program == 'def f(): ...' and question.id == 'q'\n"
        f"    paid = sum(t.passed for t in tests) + sum(t.is_right for t in tests) / 10\n"
        f"    return (paid, -paid) if {is_pair} else paid\n"
    )
    config.game.reward = f"{tmp_path}/share.py:share"
    reward = game_rules(validate(config)).reward
    passes, fails = ShownTest("assert f() == 1", True, True), ShownTest("assert f() == 2", False, False)
    suite = SuiteOutcome((Verdict.PASS, Verdict.FAIL), tests=(passes, fails))
    question = Question("q", None, "", "", "def f(): return 1", "f")
    solution = SolutionOutcome(True, (suite, suite), program="def f(): ...", question=question, fixed=(passes,))
    assert reward.code_reward(solution).total == 3.3
    official = REWARDS["official"](config.game.alpha, config.game.num_tests).test_reward(solution, suite)
    expected = replace(official, total=-1.1, terms=(0.0, 0.0, 0.0)) if is_pair else official  # GDPO reads the terms
    assert reward.test_reward(solution, suite) == expected
    lost = replace(suite, ground_truth_lost=True)
    assert reward.code_reward(replace(solution, suites=(lost,))).total is None
    assert reward.test_reward(solution, lost).total is None


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("return 'all'", "line 1: share returned 'all'; it must be a finite number, or a pair of them"),
        ("return 1, None", r"line 1: share returned \(1, None\); it must be"),
        ("return 1e999", "line 1: share returned inf; it must be"),
        ("return tests[0].right", "line 2: code_reward raised AttributeError: .*has no attribute 'right'"),
    ],
)
def test_what_a_function_does_wrongly_is_named_with_its_line(config, tmp_path, body, sentence):
    (tmp_path / "share.py").write_text(f"def share(program, question, tests):\n    {body}\n")
    config.game.reward = f"{tmp_path}/share.py:share"
    suite = SuiteOutcome((), tests=(ShownTest("assert f()", True, True),))
    with pytest.raises(BadInput, match=rf"share\.py, {sentence}"):
        game_rules(validate(config)).reward.code_reward(SolutionOutcome(True, (suite,)))


def test_methods_of_fixed_tests_refuse_a_class_that_they_would_not_read(config, tmp_path):
    config.method = "golden"
    with pytest.raises(BadInput, match=r"brief\.py:Brief'; of rewards in a file, method golden reads functions alone"):
        validate(config)


def test_the_file_is_read_again_when_a_config_is_validated_again(config, tmp_path):
    validate(config)
    (tmp_path / "brief.py").write_text(BRIEF.replace("/ 100", "/ 10"))
    reward = game_rules(validate(config)).reward
    assert reward.code_reward(SolutionOutcome(True, text="return", token_ids=(1,))).total == -0.1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            ("class Brief", "class Long"),
            r"brief\.py defines no Brief that is a function or a codea1\.game\.rewards\.Reward",
        ),
        (("(StrictReward)", ""), r"brief\.py defines no Brief that is a function"),
        (("StrictReward", "Reward"), r"brief\.py: TypeError: .* abstract class Brief .*calls.*mark.*test_reward"),
        (("@dataclass(frozen=True)\n", "\n\n1 / 0\n"), r"brief\.py, line 10: ZeroDivisionError: division by zero"),
        (("def code_reward(", "def code_reward(,"), r"brief\.py: SyntaxError: .*line 12"),
        (("    def ", "    wanted: int\n\n    def "), r"brief\.py.*: TypeError: non-default argument 'wanted'"),
        *(
            (("code_reward", name), rf"brief\.py, line 12: {name} is no method .*; did you mean code_reward\?")
            for name in ("code_rewad", "codeReward", "cod_rewards", "cdoe_reward")
        ),
        *(
            (("def code_reward", f"{name} = 1\n\n    def c"), rf"brief\.py: {name} is no method .* mean {hook}")
            for name, hook in (("marks", "mark"), ("mak", "mark"), ("call", "calls"), ("weigths", "weights"))
        ),
        (("def code_reward(", "alpha = 1.0\n\n    def c("), r"brief\.py: alpha is what config\.game\.alpha says"),
        (("def code_reward", "weights = (1.0, 0.0)\n\n    def c"), r"Brief\.weights .* must be three numbers"),
    ],
)
def test_what_is_no_reward_is_named_with_its_file(config, tmp_path, changes, sentence):
    (tmp_path / "brief.py").write_text(BRIEF.replace(*changes))
    with pytest.raises(BadInput, match=sentence):
        validate(config)


def test_methods_that_a_user_adds_may_have_any_other_name(config, tmp_path):
    names = ("best_reward_of", "reward_of_test", "rank", "remark", "recalls", "_code_rewards", "program")
    added = "".join(f"    def {name}(self): ...\n\n" for name in names)
    (tmp_path / "brief.py").write_text(BRIEF + "\n" + added)
    validate(config)


@pytest.mark.parametrize(
    ("hook", "parameters", "body", "sentence"),
    [
        ("test_reward", "solution, suite", "return 1.0", r"test_reward returned 1\.0; it must be of type SuiteReward"),
        ("test_reward", "solution, suite", "pass", "test_reward returned None; it must be of type SuiteReward"),
        ("test_reward", "solution, suite", "return SuiteReward(1, 0, None)", "its adversarial must be a finite number"),
        ("code_reward", "solution", "return SolutionReward(1e999)", "its total must be a finite number or None"),
        ("code_reward", "solution", "return SolutionReward('1')", "its total must be a finite number or None"),
        ("code_reward", "solution", "return solution.txt", "code_reward raised AttributeError: .*no attribute 'txt'"),
        ("code_reward", "solution, suites", "return 1", "code_reward raised TypeError: .* missing 1 required"),
        ("calls", "parsed", "yield from (1, 2)", r"calls returned \[1, 2\]; it must be a list of Call"),
        ("calls", "parsed", "yield 1 / 0", "calls raised ZeroDivisionError"),
        ("mark", "parsed, answers, signature", "return None", "mark returned None; it must be a list of MarkedAssert"),
        ("read_program", "answer, entry_point", "return answer", "returned 'text'; it must be of type Extracted"),
        ("signature", "question", "return question", "signature returned None; it must be of type Signature"),
    ],
)
def test_what_a_method_does_wrongly_is_named_with_its_line(config, tmp_path, hook, parameters, body, sentence):
    head, _ = BRIEF.split("    def ")
    head = head.replace("StrictReward", "StrictReward, SuiteReward", 1)
    (tmp_path / "brief.py").write_text(f"{head}    def {hook}(self, {parameters}):\n        {body}\n")
    method = getattr(game_rules(validate(config)).reward, hook)
    arguments = {"solution": SolutionOutcome(True), "answer": "text", "parsed": ParsedSuite((), False, 0.0)}
    with pytest.raises(BadInput, match=rf"game\.reward: .*brief\.py, line 1[23]: .*{sentence}"):
        method(*(arguments.get(name) for name in parameters.split(", ") if name != "suites"))


def test_a_file_that_is_missing_is_named(config, tmp_path):
    (tmp_path / "brief.py").unlink()
    with pytest.raises(BadInput, match=r"config\.game\.reward: there is no file .*brief\.py\."):
        validate(config)
    config.game.reward = "briefly"
    with pytest.raises(BadInput, match=r"must be one of official, .*strict_tests, or FILE\.py:NAME"):
        validate(config)
    (tmp_path / "prompts.json").unlink()
    with pytest.raises(BadInput, match=r"config\.game\.prompts: there is no file .*prompts\.json\."):
        own_files(config.game.reward, config.game.prompts)


def play(config: ConfigDict, workdir: Path) -> None:
    def read_config() -> Config:
        return validate(config)

    with (
        without_figure(),
        run_inputs(read_config, str(workdir), Hosts()) as inputs,
        guarded(inputs, Hosts()) as run,
    ):
        command.train(run)
        run.report(show_report)


def test_a_run_keeps_its_files_and_does_not_go_on_with_others(micro_config, tmp_path, scripted_answers):
    config, workdir = with_own_files(micro_config, tmp_path), tmp_path / "run"
    config.steps = config.validation.every = config.checkpoint.every = 1
    config.code.prompt_lengths = config.test.prompt_lengths = ()
    play(config, workdir)
    assert (workdir / "own" / "brief.py").read_text() == BRIEF
    assert json.loads((workdir / "own" / "prompts.json").read_text()) == PROMPTS
    paid = [row for row in rows(workdir) if row["player"] == "code"]
    assert {row["reward"] for row in paid} == {-len(row["token_ids"]) / 100 for row in paid}
    play(config, workdir)  # done already
    (tmp_path / "brief.py").write_text(BRIEF.replace("/ 100", "/ 10"))
    with pytest.raises(BadInput, match=r"another file for config\.game\.reward: .*brief\.py has the SHA-256 \w{12}, "):
        play(config, workdir)
    (tmp_path / "brief.py").write_text(BRIEF)
    (tmp_path / "prompts.json").write_text(json.dumps(PROMPTS | {"code": PROMPTS["test"] * 2}))
    with pytest.raises(BadInput, match=r"another file for config\.game\.prompts: .*prompts\.json has the SHA-256"):
        play(config, workdir)


def test_who_reads_a_run_takes_its_prompts_and_runs_no_file_of_it(config, tmp_path):
    own = own_files(config.game.reward, config.game.prompts)
    folder, made = RunFolder.open(str(tmp_path / "run"), config.to_dict(), own), made_for(validate(config))
    for name in ("brief.py", "prompts.json"):
        (tmp_path / name).unlink()
    REWARDS.pop(config.game.reward, None)
    read = config_of(folder)
    assert read.game.prompts == str(tmp_path / "run" / "own" / "prompts.json")
    assert made_for(read) == made  # a warm start for the one is for the other
    rules = game_rules(read)
    assert rules.templates.code == tuple(PROMPTS["code"])
    with pytest.raises(BadInput, match=r"brief\.py:Brief is not known here"):
        _ = rules.reward.mutant_weight
