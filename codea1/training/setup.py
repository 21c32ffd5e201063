"""The components of a run, made from its config. Mistakes in the input are found here, cheap checks first."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NoReturn, cast

import jax

from codea1.config import Config, GameConfig, QuestionsConfig, SandboxConfig
from codea1.data.feed import QuestionFeed
from codea1.data.loader import load_questions
from codea1.data.sources import world_of
from codea1.data.static_tests import with_static_tests
from codea1.data.tokenizer import ChatTokenizer
from codea1.game.asserts import golden_tests
from codea1.game.methods import METHODS, CodeRewardSource, Rules, prompt_templates
from codea1.game.mistake_book import Bound, MistakeBook, shards_of_host
from codea1.game.prompts import TEMPLATES, Message, code_messages, test_messages
from codea1.game.question import Question
from codea1.game.rewards import OFFICIAL, REWARDS, Reward
from codea1.game.round import SELECTIONS
from codea1.learn.update import TrainState
from codea1.models.files import ModelFolder
from codea1.players.base import Start
from codea1.players.functions import functions_of_players
from codea1.players.memory import require_memory
from codea1.players.player import Player
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host import Limits
from codea1.sandbox.host.pool import SandboxPool
from codea1.sharding import make_mesh, require_topology
from codea1.storage.objects import location, read


@dataclass(frozen=True)
class Components:
    """All that a run needs but a folder and a sandbox."""

    rules: Rules
    players: Mapping[str, Player]  # by role
    policies: Mapping[str, Player]  # by name: each once, whatever it plays
    feed: QuestionFeed
    train: Sequence[Question]
    dropped: Sequence[Question]  # training questions whose prompt does not fit
    untested: Sequence[Question]  # training questions without the fixed tests that the method needs
    held_out: Mapping[str, Sequence[Question]]  # "validation" and "test"

    @property
    def counted(self) -> str:
        """How many questions there are of each set, in a sentence."""
        untested = f", {len(self.untested)} more left out: they have no fixed tests" if self.untested else ""
        return (
            f"{len(self.train)} training questions ({len(self.dropped)} dropped as too long{untested}), "
            f"{len(self.held_out['validation'])} for validation, {len(self.held_out['test'])} for the test"
        )

    def restore(self, checkpoints: Checkpoints, step: int) -> None:
        """Gives the policies their states of a step. Device memory need not hold these and those they had at once."""
        states = checkpoints.restore_part(step, self.release())
        for policy in self.policies.values():
            policy.restore(states)

    def release(self) -> dict[str, TrainState]:
        """Frees the memory of all states; returns them as shapes, with the shardings that they must be restored to."""
        for policy in self.policies.values():
            policy.states.clear()
        functions = [policy.functions for policy in self.policies.values()]
        return {name: state for function in functions for name, state in function.abstract_states.items()}


class _Unregistered:
    """Stands for the reward of a run that is in a file, which only training runs; it pays no sample."""

    asserts_that_count = 0  # its suites are read to their ends

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, _: str) -> NoReturn:
        raise BadInput(f"the reward {self._name} is not known here: nothing but training runs the file of a reward.")


def game_rules(config: Config) -> Rules:
    """Returns the rules that a config describes. Raises BadInput for a template file that cannot be used."""
    game, method = config.game, METHODS[config.method]
    templates = prompt_templates(game.prompts)
    if "test" in method.roles and not method.sees_solution and not templates.black_box:
        raise BadInput(f"prompt template {game.prompts} lacks the field 'black_box', for method {config.method}.")
    paid_by = REWARDS.get(game.reward) or (lambda *_: cast(Reward, _Unregistered(game.reward)))
    reward = paid_by(game.alpha, game.num_tests, game.mutant_weight)
    has_book = game.mistake_book and method.mistake_book
    return Rules(
        method=method,
        reward=reward,
        templates=templates,
        num_solutions=game.num_solutions,
        num_suites=game.num_suites,
        num_tests=game.num_tests,
        all_forms=game.assert_forms == "all",
        history_size=game.history_size if has_book else 0,
        trained_solutions=game.trained_solutions,
        selection=SELECTIONS[game.selection],
        seed=config.seed,
        questions_per_step=config.questions_per_step,
        max_rounds=game.max_rounds,
        hidden_reward=game.hidden_reward,
    )


def assemble(config: Config) -> Components:
    """Loads what the config names.

    Raises:
      BadInput: a file, row, folder, template or mesh that cannot be used.
    """
    rules = game_rules(config)
    require_topology(config.mesh.topology, jax.devices())
    mesh = make_mesh(config.mesh.replica, config.mesh.fsdp, config.mesh.tensor)
    for name in rules.method.policies:
        if not config.policy(name).model:
            raise BadInput(
                f"config.{name}.model is empty; it must name the folder of the model that {name} starts from."
            )
    starts = {name: Start(config.policy(name).model) for name in rules.method.policies}
    tokenizers = {name: start.tokenizer(config.policy(name).thinking) for name, start in starts.items()}
    for start in starts.values():
        require_made_for(config, start.base)
    _require_one_vocabulary(starts, tokenizers)
    models = {name: start.described(tokenizers[name]) for name, start in starts.items()}
    functions = functions_of_players(config, mesh, models)
    require_memory(config, functions, models)
    for start in starts.values():
        start.require_base()
    sets = {name: questions_of(config, name) for name in ("train", "validation", "test")}
    fit = {name: _fitting(config, rules, tokenizers, name, questions) for name, questions in sets.items()}
    everything = sets.pop("train")
    train = [question for question, fits in zip(everything, fit["train"], strict=True) if fits]
    dropped = [question for question, fits in zip(everything, fit["train"], strict=True) if not fits]
    untested: list[Question] = []
    if config.data.static_tests:
        train, untested = with_static_tests(config.data.static_tests, train)
    elif rules.method.fixed_tests:
        tested = {question.id for question in train if golden_tests(question)}
        untested = [question for question in train if question.id not in tested]
        train = [question for question in train if question.id in tested]
    if len(train) < config.questions_per_step:
        raise BadInput(
            f"config.questions_per_step is {config.questions_per_step}, but {config.data.train.source} has "
            f"{len(train)} questions that can be asked: {len(dropped)} are too long, and {len(untested)} have no fixed "
            "test that is an assert on plain data."
        )
    for name, questions in sets.items():
        for question in questions:
            if not question.check_script:
                raise BadInput(f"config.data.{name}: question {question.id} has no check script to judge programs by.")
    if config.game.mutant_weight and not any(question.paid_mutants for question in train):
        raise BadInput(
            f"config.game.mutant_weight is {config.game.mutant_weight}, but no question has any: `python -m "
            f"codea1.lab convert json {config.data.train.source} --mutants=8 --output=FILE.parquet` makes them."
        )
    policies: dict[str, Player] = {}
    for name in rules.method.policies:
        roles = rules.method.roles_of(name)
        # Other readings take an assert over several lines from a closed block alone.
        ends_early = rules.all_forms and roles == ("test",)
        policies[name] = Player(
            functions[name],
            starts[name],
            tokenizers[name],
            roles=roles,
            steps=config.steps,
            seed=config.seed,
            others=policies.values(),
            max_asserts=rules.reward.asserts_that_count if ends_early else 0,
        )
    players = {role: policies[name] for role, name in rules.method.roles.items()}
    feed = QuestionFeed(train, config.questions_per_step, config.seed)
    return Components(rules, players, policies, feed, train, dropped, untested, sets)


def _require_one_vocabulary(starts: Mapping[str, Start], tokenizers: Mapping[str, ChatTokenizer]) -> None:
    """Raises BadInput: of two players on one base, whose ids have one meaning, one has a token that the other lacks."""
    for first, other in combinations(starts, 2):
        folders = [starts[name].tokenizer_folder for name in (first, other)]
        if starts[first].base.place == starts[other].base.place and folders[0].place != folders[1].place:
            tokens, others = (tokenizers[name].vocabulary.items() for name in (first, other))
            if differing := tokens ^ others:
                token, number = differing_item = min(differing, key=lambda item: item[::-1])
                raise BadInput(
                    f"config.{first}.model and config.{other}.model have one base, {starts[first].base}, and two "
                    f"vocabularies: token {number} is {token!r} in {folders[differing_item in others]} alone."
                )


def _fitting(
    config: Config,
    rules: Rules,
    tokenizers: Mapping[str, ChatTokenizer],
    name: str,
    questions: Sequence[Question],
) -> list[bool]:
    """Returns, for each question of a set, whether its code prompt fits.

    Raises BadInput: a larger share than config.data.max_dropped has a prompt that is too long, of the code player or of
    the test player, who is shown the ground truth here where it is shown solutions.
    """

    def chat(role: str, question: Question) -> list[Message]:
        if role == "code":
            return code_messages(rules.templates, question)
        shown = question.ground_truth if rules.method.sees_solution else None
        return test_messages(rules.templates, question, shown, rules.num_tests)

    fit = {}
    for role, policy in rules.method.roles.items():
        lengths = [len(tokenizers[policy].encode_chat(chat(role, question))) for question in questions]
        longest, allowed = config.policy(policy).max_prompt_length, config.data.max_dropped
        fit[role] = [length <= longest for length in lengths]
        lost = fit[role].count(False)
        if lost > allowed * len(questions):
            raise BadInput(
                f"config.data.{name}: {lost} of {len(questions)} questions have a {role} prompt longer than "
                f"config.{policy}.max_prompt_length, {longest} tokens (the longest has {max(lengths)}), and "
                f"config.data.max_dropped allows a share of {allowed}."
            )
    return fit["code"]


def sandbox_pool(config: SandboxConfig) -> SandboxPool:
    """Starts the sandbox that a run asks for. Raises BadInput: this machine lacks a layer it needs."""
    limits = Limits(
        cpu_seconds_per_test=config.cpu_seconds_per_test,
        cpu_seconds_per_suite=config.cpu_seconds_per_suite,
        memory_bytes=config.memory_mb << 20,
        memo_bytes=config.memo_mb << 20,
    )
    return SandboxPool(config.slots, limits, config.isolation)


def mistake_book(game: GameConfig, seed: int, hosts: Hosts) -> MistakeBook:
    """Returns this host's part of the Mistake Book, empty."""
    bound = Bound(game.book_cap, game.book_policy, seed, game.book_total_cap)
    return MistakeBook(shards_of_host(hosts.index, hosts.count), bound, reference_ties=game.reward == OFFICIAL)


def questions_of(config: Config, name: str) -> list[Question]:
    """Returns the questions of section `name` of config.data."""
    section: QuestionsConfig = getattr(config.data, name)
    is_golden = METHODS[config.method].code_reward is CodeRewardSource.GOLDEN_TESTS
    return load_questions(
        section.source, section.split, section.limit or None, config.data.folder, may_lack_truth=is_golden
    )


MADE_FOR = "made_for.json"  # in a warm start's model folder: the world and prompts of what it was trained on


def made_for(config: Config) -> dict[str, str]:
    """Returns what of a config a warm start is made for; nothing where its questions are of no world."""
    world, prompts = world_of(config.data.train.source), config.game.prompts
    if world and prompts not in TEMPLATES:  # a run has a copy of the file, at another place
        content = read(location(prompts, "config.game.prompts"))
        prompts = f"with the SHA-256 {hashlib.sha256(content).hexdigest()[:12]}"
    return {"world": world, "prompts": prompts} if world else {}


def require_made_for(config: Config, model: ModelFolder) -> None:
    """Raises BadInput: the model is a warm start for another world or other prompts. One from elsewhere is for any."""
    there = model.read_json(MADE_FOR) if MADE_FOR in model.names() else {}
    for what, here in made_for(config).items():
        if (made := there.get(what, here)) != here:
            prompts = f"--config.game.prompts={made}" if made in TEMPLATES else "a file of prompts with that content"
            agree = {"world": f"the config's argument world={made}", "prompts": prompts}[what]
            raise BadInput(f"{model} is a warm start for the {what} {made}, not {here}: {agree} makes them agree.")
