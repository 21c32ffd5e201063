"""The parts of a run, made from its config: whatever can be wrong with the input is found here, cheap checks first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from codea1.benchmarks.held_out import HeldOut
from codea1.config import default_config, validate
from codea1.data.feed import QuestionFeed, filter_by_length
from codea1.data.loader import load_questions
from codea1.data.static_tests import with_static_tests
from codea1.data.tokenizer import ChatTokenizer, load_tokenizer
from codea1.errors import BadInput
from codea1.game.book_shards import shards_of_host
from codea1.game.eviction import Bound
from codea1.game.methods import METHODS, CodeRewardSource
from codea1.game.mistake_book import MistakeBook
from codea1.game.prompts import TEMPLATES, PromptTemplates, code_messages
from codea1.game.question import Question
from codea1.game.rewards import OFFICIAL, POLICIES
from codea1.hosts import Hosts
from codea1.play import Rules, golden_tests
from codea1.player import Player
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.sandbox.pool import Limits, SandboxPool
from codea1.sharding import make_mesh


@dataclass(frozen=True)
class Parts:
    """All that a run needs but a folder and a sandbox."""

    rules: Rules
    players: Mapping[str, Player]  # by role
    policies: Mapping[str, Player]  # by name: each once, whatever it plays
    feed: QuestionFeed
    train: Sequence[Question]
    dropped: Sequence[Question]  # training questions whose prompt does not fit
    untested: Sequence[Question]  # training questions of which the static tests have none
    validation: Sequence[Question]
    test: Sequence[Question]

    def restore(self, checkpoints: Checkpoints, step: int) -> None:
        """Gives the policies their states of a step. Device memory need not hold these and those they had at once."""
        abstract = {name: state for policy in self.policies.values() for name, state in policy.abstract_states.items()}
        for policy in self.policies.values():
            policy.release()
        states = checkpoints.restore_part(step, abstract)
        for policy in self.policies.values():
            policy.restore(states)


def assemble(config: ConfigDict) -> Parts:
    """Loads what the config names.

    Raises:
      BadInput: a file, row, folder, template or mesh that cannot be used.
    """
    rules = game_rules(config)
    mesh = device_mesh(config)
    tokenizers = {name: load_tokenizer(config[name].model) for name in rules.method.policies}
    train, dropped = _fitting(config, rules.templates, tokenizers["code"])
    untested: list[Question] = []
    if rules.method.code_reward is CodeRewardSource.STATIC_TESTS:
        train, untested = with_static_tests(config.data.static_tests, train)
    _require_a_batch(config, train, len(dropped) + len(untested))
    sets = {name: questions_of(config, name) for name in ("validation", "test")}
    for name, questions in sets.items():
        _require_check_scripts(name, questions)
    if rules.golden:
        _require_golden_tests(train)
    policies = {name: Player(name, config, mesh, tokenizers[name]) for name in rules.method.policies}
    players = {role: policies[name] for role, name in rules.method.roles.items()}
    feed = QuestionFeed(train, config.questions_per_step, config.seed)
    return Parts(rules, players, policies, feed, train, dropped, untested, **sets)


def config_of(folder: RunFolder) -> ConfigDict:
    """The config of a training run. Raises BadInput for another kind of run, or one of another version.

    What a run that was begun before does not say, and what decides nothing that it learns, is as it is by default.
    """
    if set(folder.config) != set(default_config()):
        raise BadInput(f"{folder.path} is not a training run of this version: its config.json has other sections.")
    config = ConfigDict(folder.config)
    for section, field in (("sandbox", "memo_mb"), ("sft", "black_box")):
        if field not in config[section]:
            config[section][field] = default_config()[section][field]
    validate(config)
    return config


def game_rules(config: ConfigDict) -> Rules:
    """The rules that a config describes. Raises BadInput for a template file that cannot be used."""
    game, method = config.game, METHODS[config.method]
    templates = _templates(game.prompts)
    if "test" in method.roles and not method.sees_solution and not templates.black_box:
        raise BadInput(f"prompt template {game.prompts} lacks the field 'black_box', for method {config.method}.")
    return Rules(
        method=method,
        policy=POLICIES[game.reward](alpha=game.alpha, num_tests=game.num_tests),
        templates=templates,
        num_solutions=game.num_solutions,
        num_suites=game.num_suites,
        num_tests=game.num_tests,
        history_size=game.history_size if game.mistake_book and method.mistake_book else 0,
        trained_solutions=game.trained_solutions,
    )


def mistake_book(config: ConfigDict, hosts: Hosts) -> MistakeBook:
    """This host's part of the book, empty."""
    game = config.game
    bound = Bound(game.book_cap, game.book_policy, config.seed, game.book_total_cap)
    return MistakeBook(shards_of_host(hosts.index, hosts.count), bound, reference_ties=game.reward == OFFICIAL)


def device_mesh(config: ConfigDict, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh over `devices`, all there are by default; an fsdp axis of -1 takes those left.

    Raises BadInput where they do not fit.
    """
    mesh = make_mesh(config.mesh.replica, config.mesh.fsdp, config.mesh.tensor, devices)
    ways = mesh.shape["replica"] * mesh.shape["fsdp"]
    for key, rows in {
        "code.micro_batch_size": config.code.micro_batch_size,
        "test.micro_batch_size": config.test.micro_batch_size,
        "rollout.slots": config.rollout.slots,
    }.items():
        if rows % ways:
            nearest = max(ways, round(rows / ways) * ways)
            raise BadInput(f"config.{key} is {rows}; replica x fsdp = {ways} must divide it: use {nearest}.")
    return mesh


def sandbox_pool(config: ConfigDict) -> SandboxPool:
    """The sandbox that a config asks for. Raises BadInput: this machine lacks a layer that it needs."""
    limits = Limits(
        cpu_seconds_per_test=config.sandbox.cpu_seconds_per_test,
        cpu_seconds_per_suite=config.sandbox.cpu_seconds_per_suite,
        cpu_seconds_per_script=config.sandbox.cpu_seconds_per_script,
        memory_bytes=config.sandbox.memory_mb << 20,
        memo_bytes=config.sandbox.memo_mb << 20,
    )
    return SandboxPool(config.sandbox.slots, limits, config.sandbox.isolation)


def held_out(config: ConfigDict, parts: Parts, split: str, samples: int) -> HeldOut:
    """The questions of "validation" or "test", and how they are asked: `samples` solutions each at temperature 1."""
    return HeldOut(
        questions={"validation": parts.validation, "test": parts.test}[split],
        templates=parts.rules.templates,
        sees_solution=parts.rules.method.sees_solution,
        num_tests=parts.rules.num_tests,
        samples=samples,
        shown_mutants=config.validation.shown_mutants,
        purpose=split,
    )


def questions_of(config: ConfigDict, name: str) -> list[Question]:
    """The questions of section `name` of config.data, as they are."""
    section = config.data[name]
    return load_questions(section.source, section.split, section.limit or None, data_folder=config.data.folder)


def _fitting(
    config: ConfigDict, templates: PromptTemplates, tokenizer: ChatTokenizer
) -> tuple[list[Question], list[Question]]:
    return filter_by_length(
        questions_of(config, "train"),
        lambda question: len(tokenizer.encode_chat(code_messages(templates, question))),
        config.code.max_prompt_length,
    )


def _require_a_batch(config: ConfigDict, train: Sequence[Question], num_left_out: int) -> None:
    if len(train) < config.questions_per_step:
        raise BadInput(
            f"config.questions_per_step is {config.questions_per_step}, but {config.data.train.source} has "
            f"{len(train)} questions that can be asked ({num_left_out} are too long or have no tests)."
        )


def _templates(name: str) -> PromptTemplates:
    if name in TEMPLATES:
        return TEMPLATES[name]
    try:
        return PromptTemplates.from_json(Path(name).read_text(), name)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"config.game.prompts {name} cannot be read: {error}.") from None


def _require_check_scripts(name: str, questions: Sequence[Question]) -> None:
    for question in questions:
        if not question.check_script:
            raise BadInput(f"config.data.{name}: question {question.id} has no check script to judge programs by.")


def _require_golden_tests(questions: Sequence[Question]) -> None:
    for question in questions:
        if not golden_tests(question):
            raise BadInput(f"question {question.id} has no golden tests that are asserts, which method golden needs.")
